"""The generated tables of the providers' pages: from the settings' descriptions and from the rules."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from posthouse.config import parse_config
from posthouse.core.answers import Rule
from posthouse.core.http_rules import rules_as_markdown
from posthouse.core.smtp_rules import smtp_rules_as_markdown
from posthouse.core.suppression import SuppressionCause
from posthouse.providers.body import DEFAULT_BODY
from posthouse.providers.http_settings import HttpSettings
from posthouse.providers.port import Provider
from posthouse.providers.registry import PROVIDERS, build_provider
from posthouse.providers.smtp_options import SmtpOptions
from posthouse.providers.smtp_settings import SmtpSettings
from tests.providers.scripted import NOW, ScriptedTransport

PAGE = Path(__file__).parents[2] / "docs" / "providers" / "http.md"
SMTP_PAGE = PAGE.with_name("smtp.md")

APIS = sorted(PROVIDERS.keys() - {"http", "smtp"})
"""The providers with an API of their own."""

_MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def settings_table(model: type[BaseModel]) -> str:
    """Every setting with its default and what it is."""
    lines = ["| Setting | Default | What it is |", "|---|---|---|"]
    for name, field in model.model_fields.items():
        factory: Any = field.default_factory
        default = factory() if factory else field.default
        lines.append(f"| `{name}` | {_default(default)} | {field.description} |")
    return "\n".join(lines) + "\n"


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "required"
    if value is DEFAULT_BODY:
        return "see below"
    return f"`{value}`" if value not in (None, "", {}, (), frozenset()) else ""


def with_tables(page: str) -> str:
    """The page of `http` with its tables written anew."""
    return _filled(page, {"settings": settings_table(HttpSettings), "rules": rules_as_markdown()})


def with_smtp_tables(page: str) -> str:
    """The page of `smtp` with its tables written anew."""
    return _filled(
        page,
        {
            "settings": settings_table(SmtpSettings),
            "options": settings_table(SmtpOptions),
            "rules": smtp_rules_as_markdown(),
        },
    )


def own_rules(name: str) -> Sequence[Rule]:
    """What the API `name` means otherwise than the general rules say."""
    rules: Sequence[Rule] = import_module(f"posthouse.providers.{name}").RULES
    return rules


def with_api_tables(name: str, page: str) -> str:
    """The page of a provider with an API of its own, its tables written anew."""
    rules = rules_as_markdown(own_rules(name), failures=())
    return _filled(page, {"settings": settings_table(PROVIDERS[name]().settings), "rules": rules})


def examples(name: str) -> Iterator[Provider]:
    """A route for each that the provider's page shows."""
    page = PAGE.with_name(f"{name}.md").read_text(encoding="utf-8")
    for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL):
        config = parse_config({"database": "sqlite://"} | tomllib.loads(block), environment={})
        for route_name, route in config.routes.items():
            yield build_provider(route_name, route, transport_factory=ScriptedTransport().open, now=lambda: NOW)


def with_abilities(page: str) -> str:
    """The overview with its table written anew: what each API can do, by the first route of its page."""
    lines = [
        "| Provider | Dedupes by our key | Can be asked for a send | Batch: messages by one call | Log of events "
        "| Suppression list |",
        "|---|---|---|---|---|---|",
    ]
    for name in APIS:
        provider = next(examples(name))
        facts = provider.facts
        key = f"for {facts.key_lifetime_s / 3600:g} hours" if facts.key_lifetime_s else "no"
        asked = f"yes; a no counts after {facts.look_up_lag_s / 60:g} minutes" if facts.can_look_up else "no"
        batch = f"yes, {facts.batch_max} by default" if facts.batch_max > 1 else "no"
        lines.append(f"| [`{name}`]({name}.md) | {key} | {asked} | {batch} | {_log(provider)} | {_lists(provider)} |")
    return _filled(page, {"abilities": "\n".join(lines) + "\n"})


def _log(provider: Provider) -> str:
    if provider.log is None:
        return "none"
    log = provider.log.log
    return f"of {log.kept_s / 86_400:g} days, but for the last {log.lag_s / 60:g} minutes"


def _lists(provider: Provider) -> str:
    if provider.lists is None:
        return "none"
    lists = provider.lists.lists
    put = ", ".join(f"`{cause}`" for cause in SuppressionCause if cause in lists.pushes)
    return f"is read; takes {put}"


def _filled(page: str, tables: dict[str, str]) -> str:
    return _MARKED.sub(lambda found: found[1] + tables[found[2]] + found[3], page)


def written() -> Iterator[tuple[Path, str]]:
    """Every page, and what it should be."""
    for path, anew in ((PAGE, with_tables), (SMTP_PAGE, with_smtp_tables)):
        yield path, anew(path.read_text(encoding="utf-8"))
    overview = PAGE.with_name("README.md")
    yield overview, with_abilities(overview.read_text(encoding="utf-8"))
    for name in APIS:
        path = PAGE.with_name(f"{name}.md")
        yield path, with_api_tables(name, path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    for path, text in written():
        path.write_text(text, encoding="utf-8")
