"""The generated tables of the providers' pages: from the settings' descriptions and from the rules."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from posthouse.core.http_rules import rules_as_markdown
from posthouse.core.smtp_rules import smtp_rules_as_markdown
from posthouse.providers.body import DEFAULT_BODY
from posthouse.providers.http_settings import HttpSettings
from posthouse.providers.smtp_options import SmtpOptions
from posthouse.providers.smtp_settings import SmtpSettings

PAGE = Path(__file__).parents[2] / "docs" / "providers" / "http.md"
SMTP_PAGE = PAGE.with_name("smtp.md")

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


def _filled(page: str, tables: dict[str, str]) -> str:
    return _MARKED.sub(lambda found: found[1] + tables[found[2]] + found[3], page)


if __name__ == "__main__":
    for path, written in ((PAGE, with_tables), (SMTP_PAGE, with_smtp_tables)):
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
