"""The documentation says what the code says, and its links lead somewhere."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import pytest

from posthouse.config import Settings, parse_config
from posthouse.providers.registry import PROVIDERS
from tests.tidy.generated import EXAMPLE, configuration, generated, lifecycle, replaced, sections
from tests.tidy.sources import ROOT, files, modules

GENERATED = generated()

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_the_generated_parts_are_what_the_code_says_now(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == GENERATED[path], "run: make docs"


def all_settings() -> set[type[Settings]]:
    for module in modules():
        if not module.name.endswith("__main__") and "migrations" not in module.name:
            importlib.import_module(module.name)
    found, new = set[type[Settings]](), {Settings}
    while new:
        new = {kind for settings in new for kind in settings.__subclasses__()}
        found |= new
    tables = {kind for kind in found if not kind.__subclasses__()}  # what several share stands in each of them
    return {kind for kind in tables if kind.__module__.startswith("posthouse.")}


def test_every_table_of_settings_is_in_the_reference() -> None:
    assert {section.model for section in sections()} == all_settings()


def test_every_setting_has_a_description_and_a_line_in_the_reference() -> None:
    text = configuration()
    for section in sections():
        for name, field in section.model.model_fields.items():
            assert (field.description or "").endswith((".", "…")), f"{section.title}: {name} has no description"
            assert f"| `{name}` |" in text


def test_a_duration_is_documented_as_it_is_written() -> None:
    assert '| `timeout` | duration | `"15s"` |' in configuration()
    assert '| `max_age` | duration | `"3d"` |' in configuration()
    assert "| `rate` | rate |  | Messages at most" in configuration()


def test_the_example_is_a_valid_configuration() -> None:
    config = parse_config(tomllib.loads(EXAMPLE), environment={})
    for route in config.routes.values():
        PROVIDERS[route.provider]().settings.model_validate(route.own)


def test_the_picture_shows_every_arrow_of_the_table() -> None:
    picture = lifecycle()
    assert "    pending --> sending: claimed\n" in picture
    assert "    sending --> unknown: outcome_lost, worker_died, left_unresolved\n" in picture
    assert "    accepted --> [*]\n" in picture


def test_a_document_without_its_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="generated: lifecycle"):
        replaced("# Architecture", "lifecycle", "picture")


def links(path: Path) -> list[str]:
    text = _FENCE.sub("", path.read_text(encoding="utf-8"))
    targets = [one or other for one, other in _LINK.findall(text)]
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(path: Path) -> set[str]:
    """The anchors that a Markdown file's headings get where it is shown."""
    headings = re.findall(r"^#+ +(.+?) *$", _FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", files(".md"), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_within_the_project_leads_somewhere(path: Path) -> None:
    broken = []
    for target in links(path):
        place, _, anchor = target.partition("#")
        file = (path.parent / place).resolve() if place else path
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target)
    assert not broken
