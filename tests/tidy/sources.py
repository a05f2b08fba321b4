"""The project's own files, as the tidy tests read them: what is there, parsed and measured."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SRC: Final = ROOT / "src"
NOT_OURS: Final = frozenset(
    {".git", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "build", "dist"}
)

Function = ast.FunctionDef | ast.AsyncFunctionDef

_NO_CODE: Final = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
        tokenize.ENCODING,
    }
)


@dataclass(frozen=True)
class Module:
    """One Python file under src/."""

    path: Path

    @cached_property
    def name(self) -> str:
        """The dotted name, without `__init__`."""
        parts = self.path.relative_to(SRC).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @cached_property
    def layer(self) -> str:
        """The first part of the name below `posthouse`; `posthouse` itself for the public API."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else parts[0]

    @cached_property
    def code_lines(self) -> int:
        """Lines that are neither blank, comment nor docstring."""
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in _NO_CODE:
                lines.update(range(token.start[0], token.end[0] + 1))
        return len(lines - self._text_lines)

    @cached_property
    def _text_lines(self) -> set[int]:
        """The lines of strings that stand by themselves: docstrings, and texts that explain a constant."""
        lines: set[int] = set()
        for node in ast.walk(self.tree):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        return lines

    @cached_property
    def functions(self) -> list[Function]:
        """Every function and method, nested ones too."""
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    def imports(self) -> Iterator[tuple[str, int]]:
        """Every imported module or name, dotted and absolute, with its line; wherever in the file it stands."""
        package = self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((alias.name, node.lineno) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                source = ".".join([*parents, *filter(None, [node.module])])
                yield from ((f"{source}.{alias.name}", node.lineno) for alias in node.names)

    def place(self, line: int) -> str:
        """Where something stands, as an editor opens it."""
        return f"{self.path.relative_to(ROOT)}:{line}"


def modules() -> list[Module]:
    """Every module of the package."""
    return [Module(path) for path in sorted(SRC.glob("posthouse/**/*.py"))]


def files(*suffixes: str) -> list[Path]:
    """Every file of the project, or those with one of the suffixes."""
    found = (path for path in ROOT.rglob("*") if path.is_file())
    ours = (path for path in found if not _is_foreign(path.relative_to(ROOT)))
    return sorted(path for path in ours if not suffixes or path.suffix in suffixes)


def _is_foreign(path: Path) -> bool:
    return any(part in NOT_OURS or part == "__pycache__" or part.endswith(".egg-info") for part in path.parts)
