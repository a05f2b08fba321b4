"""Words that belong in no file, and names that say nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.tidy.sources import ROOT, files

# Put together here, so that this file doesn't hold what it looks for.
MACHINE_PATHS: Final = [f"/{folder}/" for folder in ("wo" + "rk", "ro" + "ot")]
REGISTRIES: Final = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("crates", "io"),
        ("rubygems", "org"),
        ("proxy", "golang", "org"),
        ("docker", "io"),
    )
]
FORBIDDEN: Final = re.compile(
    "|".join([*(rf"(?<![\w.]){re.escape(w)}" for w in MACHINE_PATHS), *map(re.escape, REGISTRIES)])
)

EMPTY_NAMES: Final = frozenset("util utils common helper helpers manager managers base data misc".split())
EMPTY_PARTS: Final = frozenset("util utils common helper helpers manager managers".split())


def test_no_file_names_a_machines_paths_or_a_package_registry() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match.group()}"
        for path in files()
        for number, line in enumerate(path.read_bytes().decode("utf-8", errors="replace").splitlines(), 1)
        for match in FORBIDDEN.finditer(line)
    ]
    assert not found, "\n".join(found)


def test_the_search_for_forbidden_words_finds_them() -> None:
    for word in (*MACHINE_PATHS, *REGISTRIES):
        assert FORBIDDEN.search(f"see {word}x")
    assert not FORBIDDEN.search("benchmarks/work/net and https://example.com/root/x are fine")


def test_every_module_is_named_for_what_is_in_it() -> None:
    empty = [path for path in files(".py") if any(_says_nothing(part) for part in _names(path))]
    assert not empty


def _names(path: Path) -> tuple[str, ...]:
    return (path.stem, *path.relative_to(ROOT).parent.parts)


def _says_nothing(name: str) -> bool:
    return name in EMPTY_NAMES or not EMPTY_PARTS.isdisjoint(name.split("_"))


def test_the_search_for_empty_names_finds_them() -> None:
    assert all(map(_says_nothing, ("utils", "string_utils", "base", "http_helpers")))
    assert not any(map(_says_nothing, ("database", "basement", "settings", "metadata")))
