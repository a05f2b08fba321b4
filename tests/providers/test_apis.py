"""What holds for every provider with an HTTP API of its own, without a line for each."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from posthouse.config import parse_config
from posthouse.core.answers import rule_faults
from posthouse.providers.registry import PROVIDERS, build_provider
from tests.providers.docs_tables import APIS, PAGE, own_rules, with_api_tables
from tests.providers.scripted import NOW, ScriptedTransport

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


@each_api
def test_every_example_of_its_page_can_be_built(name: str, wire: ScriptedTransport) -> None:
    page = PAGE.with_name(f"{name}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert blocks
    for block in blocks:
        config = parse_config({"database": "sqlite://"} | tomllib.loads(block), environment={})
        for route_name, route in config.routes.items():
            provider = build_provider(route_name, route, transport_factory=wire.open, now=lambda: NOW)
            assert provider.facts.kind == name


@each_api
def test_it_has_an_address_that_everybody_uses(name: str) -> None:
    assert not PROVIDERS[name]().settings.model_fields["url"].is_required()


@each_api
def test_it_has_tests_of_its_own(name: str) -> None:
    assert Path(__file__).with_name(f"test_{name}.py").is_file()
