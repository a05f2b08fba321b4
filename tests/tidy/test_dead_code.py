"""Nothing private stands there unused: nobody else may use it, so nobody does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

import pytest

from tests.tidy.sources import Function, Module, modules

NOT_USED_BY_DECORATOR: Final = frozenset(
    {"property", "cached_property", "cache", "staticmethod", "classmethod", "contextmanager", "asynccontextmanager"}
)


def private_definitions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Functions, methods, classes and constants whose name begins with one underscore, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, Function | ast.ClassDef) and not _handed_over(node):
            yield node.name, node.lineno
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        yield from ((target.id, target.lineno) for target in targets if isinstance(target, ast.Name))


def _handed_over(node: Function | ast.ClassDef) -> bool:
    """Whether a decorator takes it somewhere, as that of a validator, a command or a listener does."""
    return any(
        not isinstance(decorator, ast.Name) or decorator.id not in NOT_USED_BY_DECORATOR
        for decorator in node.decorator_list
    )


def used_names(tree: ast.Module) -> set[str]:
    """Every name that is read, and every attribute."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return names | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_everything_private_is_used(module: Module) -> None:
    used = used_names(module.tree)
    unused = [
        f"{module.place(line)}: {name}"
        for name, line in private_definitions(module.tree)
        if name.startswith("_") and not name.startswith("__") and name not in used
    ]
    assert not unused, "\n".join(unused)
