"""Small on purpose: a module is read in one sitting, a function at a glance."""

from __future__ import annotations

from statistics import median
from typing import Final

import pytest

from tests.tidy.sources import Function, Module, modules

MODULE_CODE_LINES_MAX: Final = 400
FUNCTION_LINES_MAX: Final = 60
FUNCTION_LINES_MEDIAN_MAX: Final = 12

LONG_MODULES: Final = {
    "posthouse.core.http_table": "one table of rules with their examples: data, read line by line",
    "posthouse.core.smtp_table": "one table of rules with their examples: data, read line by line",
}

LONG_FUNCTIONS: Final = {
    "posthouse.store.migrations.versions": "a migration is one list of statements, and is never changed afterwards",
}

ALL: Final = modules()


def lines_of(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


@pytest.mark.parametrize("module", ALL, ids=lambda module: module.name)
def test_no_module_is_longer_than_one_sitting(module: Module) -> None:
    if module.name not in LONG_MODULES:
        assert module.code_lines <= MODULE_CODE_LINES_MAX


def test_the_list_of_exceptions_names_nothing_that_needs_none() -> None:
    long = {module.name for module in ALL if module.code_lines > MODULE_CODE_LINES_MAX}
    assert set(LONG_MODULES) <= long


@pytest.mark.parametrize("module", ALL, ids=lambda module: module.name)
def test_no_function_is_longer_than_a_screen(module: Module) -> None:
    if module.name.rpartition(".")[0] in LONG_FUNCTIONS:
        return
    long = [
        f"{module.place(function.lineno)}: {function.name} has {lines_of(function)} lines"
        for function in module.functions
        if lines_of(function) > FUNCTION_LINES_MAX
    ]
    assert not long, "\n".join(long)


def test_most_functions_are_short() -> None:
    assert median(lines_of(function) for module in ALL for function in module.functions) <= FUNCTION_LINES_MEDIAN_MAX
