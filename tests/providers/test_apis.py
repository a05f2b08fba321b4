"""What holds for every provider with an HTTP API of its own, without a line for each."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from posthouse.core.answers import rule_faults
from posthouse.providers.registry import PROVIDERS
from tests.contract.batch_suite import BatchSuite
from tests.providers.docs_tables import APIS, PAGE, examples, own_rules, with_abilities, with_api_tables

each_api = pytest.mark.parametrize("name", APIS)


@each_api
def test_every_rule_of_its_own_has_examples_that_it_decides(name: str) -> None:
    assert rule_faults(own_rules(name)) == []


@each_api
def test_its_page_has_the_tables_of_the_code(name: str) -> None:
    """Write them anew with: python -m tests.providers.docs_tables"""
    page = PAGE.with_name(f"{name}.md").read_text(encoding="utf-8")
    assert with_api_tables(name, page) == page
    for field_name in PROVIDERS[name]().settings.model_fields:
        assert f"| `{field_name}` |" in page, field_name


def test_the_overview_has_the_table_of_the_code() -> None:
    page = PAGE.with_name("README.md").read_text(encoding="utf-8")
    assert with_abilities(page) == page


@each_api
def test_every_example_of_its_page_can_be_built(name: str) -> None:
    assert {provider.facts.kind for provider in examples(name)} == {name}


@each_api
def test_it_has_an_address_that_everybody_uses(name: str) -> None:
    assert not PROVIDERS[name]().settings.model_fields["url"].is_required()


@each_api
def test_one_that_takes_several_messages_a_call_is_tested_with_them(name: str) -> None:
    tests = import_module(f"tests.providers.test_{name}")
    suites = [one for one in vars(tests).values() if isinstance(one, type) and BatchSuite in one.__bases__]
    for provider in examples(name):
        assert (provider.facts.batch_max > 1) == bool(suites)


@each_api
def test_it_has_tests_of_its_own(name: str) -> None:
    assert Path(__file__).with_name(f"test_{name}.py").is_file()
