"""Imports run downwards only, and what must not reach for the outside world can't."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

import pytest

from tests.tidy.sources import Module, modules

LADDER: Final = (
    ("__main__", "posthouse"),  # `python -m posthouse`, and the public API
    ("cli",),
    ("demo",),  # an application of its own: a shop, and the outbox beside a naive design
    ("app",),
    ("inlet", "web", "worker", "sandbox"),
    ("outbox",),  # writes through the store, and asks the providers what they can carry
    ("providers", "returned", "store"),
    ("core",),
    ("unsubscribe",),  # what messages carry, and the web server takes back
    ("config",),
    ("process_settings", "group_settings", "setting_faults"),
    ("setting_values",),  # a sender is an address of the message model
    ("email",),
    ("raw", "fields", "content"),
    ("address", "attachment"),
    ("header",),
    ("text",),
    ("errors", "values"),
)
"""From top to bottom. A module imports its own package and what stands below; neighbours on a rung never."""

RUNGS: Final = {layer: rung for rung, layers in enumerate(LADDER) for layer in layers}

SQLALCHEMY_OUTSIDE_THE_STORE: Final = {
    "posthouse.demo.shop": "is an application with a database of its own, which the outbox writes into",
    "posthouse.config": "parses the database URL, so that a wrong one is refused before anything starts",
}

EXTRAS: Final = frozenset({"botocore", "cryptography"})
"""What only some installations have: imported by the function that needs it."""

CORE_MAY_IMPORT: Final = frozenset(
    "__future__ collections collections.abc dataclasses datetime email.utils enum functools itertools json math re "
    "typing".split()
)

CLOCKS_AND_CHANCE: Final = frozenset(
    "time.time time.time_ns time.monotonic time.monotonic_ns time.perf_counter time.perf_counter_ns "
    "time.clock_gettime time.localtime time.gmtime time.sleep datetime.datetime.now datetime.datetime.utcnow "
    "datetime.datetime.today datetime.date.today os.urandom os.getrandom uuid.uuid1 uuid.uuid4 "
    "random.SystemRandom".split()
)

COMPOSITION_ROOT: Final = "posthouse.app"

ALL: Final = modules()
CORE: Final = [module for module in ALL if module.layer == "core"]


def named(module: Module) -> str:
    return module.name


@pytest.mark.parametrize("module", ALL, ids=named)
def test_every_module_stands_on_the_ladder_and_imports_only_downwards(module: Module) -> None:
    assert module.layer in RUNGS, f"{module.name}: which rung is it on? Put it into LADDER"
    wrong = [
        f"{module.place(line)}: {module.layer} imports {imported}"
        for imported, line in module.imports()
        if (target := _layer_of(imported)) is not None
        and target != module.layer
        and RUNGS.get(target, -1) <= RUNGS[module.layer]
    ]
    assert not wrong, "\n".join(wrong)


def _layer_of(imported: str) -> str | None:
    parts = imported.split(".")
    if parts[0] != "posthouse":
        return None
    return parts[1] if len(parts) > 1 else "posthouse"


@pytest.mark.parametrize("module", ALL, ids=named)
def test_only_the_store_imports_the_database(module: Module) -> None:
    if module.layer == "store" or module.name in SQLALCHEMY_OUTSIDE_THE_STORE:
        return
    drivers = ("sqlalchemy", "alembic", "sqlite3", "psycopg")
    wrong = [module.place(line) for imported, line in module.imports() if imported.split(".")[0] in drivers]
    assert not wrong


def test_the_list_of_exceptions_names_nothing_that_needs_none() -> None:
    for name in SQLALCHEMY_OUTSIDE_THE_STORE:
        module = next(module for module in ALL if module.name == name)
        assert any(imported.startswith("sqlalchemy") for imported, _ in module.imports())


@pytest.mark.parametrize("module", ALL, ids=named)
def test_no_module_needs_an_extra_to_be_imported(module: Module) -> None:
    wrong = [module.place(line) for imported, line in _at_the_top(module) if imported.split(".")[0] in EXTRAS]
    assert not wrong


def _at_the_top(module: Module) -> Iterator[tuple[str, int]]:
    for node in module.tree.body:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", node.lineno


@pytest.mark.parametrize("module", CORE, ids=named)
def test_the_core_imports_nothing_that_acts(module: Module) -> None:
    wrong = [
        f"{module.place(line)}: {imported}"
        for imported, line in module.imports()
        if not imported.startswith("posthouse.") and not CORE_MAY_IMPORT & {imported, imported.rpartition(".")[0]}
    ]
    assert not wrong


@pytest.mark.parametrize("module", CORE, ids=named)
def test_the_core_neither_waits_nor_reads_nor_writes(module: Module) -> None:
    waits = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    wrong = [
        module.place(node.lineno)
        for node in ast.walk(module.tree)
        if isinstance(node, waits)
        or (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("open", "print", "input", "exec", "eval")
        )
    ]
    assert not wrong


@pytest.mark.parametrize("module", [module for module in ALL if module.name != COMPOSITION_ROOT], ids=named)
def test_only_the_composition_root_has_a_real_clock_or_real_chance(module: Module) -> None:
    wrong = [f"{module.place(line)}: {what}" for what, line in _clocks_and_chance(module)]
    assert not wrong


def _clocks_and_chance(module: Module) -> Iterator[tuple[str, int]]:
    names = _bound_names(module.tree)
    for imported, line in module.imports():
        if imported.split(".")[0] == "secrets" or imported in CLOCKS_AND_CHANCE:
            yield imported, line
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and (what := _dotted(node, names)) is not None:
            of_module_random = what.startswith("random.") and what.count(".") == 1 and what != "random.Random"
            if what in CLOCKS_AND_CHANCE or of_module_random:
                yield what, node.lineno
        elif isinstance(node, ast.Call) and not node.args and _dotted(node.func, names) == "random.Random":
            yield "random.Random() without a seed", node.lineno


def _bound_names(tree: ast.Module) -> dict[str, str]:
    """What each imported name stands for."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _dotted(node: ast.expr, names: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value, names)
        return None if owner is None else f"{owner}.{node.attr}"
    return None


@pytest.mark.parametrize(
    "code",
    [
        "import time\nnow = time.time()",
        "import time as t\nnow = t.monotonic",
        "from time import monotonic",
        "from datetime import datetime\nnow = datetime.now()",
        "import datetime as d\nnow = d.datetime.now(d.UTC)",
        "import random\nchance = random.random()",
        "import random\nchance = random.Random()",
        "from random import Random\nchance = Random()",
        "import secrets",
        "from uuid import uuid4",
        "import uuid\nkey = uuid.uuid4()",
        "import os\nkey = os.urandom(8)",
    ],
)
def test_the_search_for_clocks_and_chance_finds_them_in_any_dress(code: str) -> None:
    module = Module(ALL[0].path)
    module.__dict__.update(tree=ast.parse(code), text=code)
    assert list(_clocks_and_chance(module))


@pytest.mark.parametrize(
    "code",
    [
        "import random\ndef draw(chance: random.Random) -> float:\n    return chance.random()",
        "import random\nchance = random.Random(7)",
        "import asyncio\nnow = asyncio.get_running_loop().time()",
        "from datetime import datetime\nnow = datetime.fromtimestamp(0.0)",
        "from sqlalchemy import func\nnow = func.now()",
    ],
)
def test_the_search_for_clocks_and_chance_leaves_the_others_alone(code: str) -> None:
    module = Module(ALL[0].path)
    module.__dict__.update(tree=ast.parse(code), text=code)
    assert not list(_clocks_and_chance(module))
