"""Everything public says what it is for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.tidy.sources import Function, Module, modules


def undocumented(module: Module) -> Iterator[str]:
    """The public module, classes and functions of a file that have no docstring. An empty file needs none."""
    if module.tree.body and ast.get_docstring(module.tree) is None:
        yield f"{module.place(1)}: the module"
    for node in module.tree.body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_") and not ast.get_docstring(node):
            yield f"{module.place(node.lineno)}: {node.name}"


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)
def test_every_public_module_class_and_function_has_a_docstring(module: Module) -> None:
    missing = list(undocumented(module))
    assert not missing, "\n".join(missing)
