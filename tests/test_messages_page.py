"""Every example of docs/messages.md is an email that `enqueue` takes, and the page has every field."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any, Final

import pytest

from posthouse.config import RouteSettings
from posthouse.content import Content
from posthouse.email import CheckedEmail, Email
from posthouse.providers.http_client import AiohttpTransport
from posthouse.providers.mime import message_bytes
from posthouse.providers.registry import build_provider
from posthouse.worker.rendering import Renderer
from tests.providers.messages import SHOP
from tests.providers.mime_readers import parsed
from tests.tidy.sources import ROOT

PAGE: Final = (ROOT / "docs" / "messages.md").read_text(encoding="utf-8")
SMTP_PAGE: Final = (ROOT / "docs" / "providers" / "smtp.md").read_text(encoding="utf-8")


def code_of(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


(NOTIFICATION,) = re.findall(r"^```jinja\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
FIRST, *EXAMPLES = code_of(PAGE)
NAMES = [re.findall(r'key="([^"]+)"', code)[0] for code in EXAMPLES]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The application's folder, with the files of the examples."""
    (tmp_path / "invoice.pdf").write_bytes(b"%PDF")
    (tmp_path / "invoice.subject.txt").write_text("Invoice {{ order }}", encoding="utf-8")
    (tmp_path / "invoice.txt").write_text("{{ total }}", encoding="utf-8")
    (tmp_path / "notification.subject.txt").write_text("{{ count }} for you", encoding="utf-8")
    (tmp_path / "notification.txt").write_text(NOTIFICATION, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def example(code: str) -> CheckedEmail:
    names: dict[str, Any] = {}
    exec(FIRST + code, names)  # noqa: S102 - the page's own examples
    email = names["email"]
    assert isinstance(email, Email)
    return email.checked()


@pytest.mark.parametrize("code", EXAMPLES, ids=NAMES)
def test_an_example_can_be_sent(code: str, folder: Path) -> None:
    checked = example(code)
    message = Renderer(folder, SHOP).message(1, "key-1", Content.from_json(checked.stored), 0.0, checked.files)
    read = parsed(message_bytes(message))
    assert read["To"]
    assert read["Subject"]
    assert read["Bcc"] is None


def test_the_example_of_the_smtp_page_is_taken_by_such_a_route() -> None:
    (code,) = code_of(SMTP_PAGE)
    route = RouteSettings.model_validate({"provider": "smtp", "url": "smtps://mail.example"})
    provider = build_provider("main", route, transport_factory=AiohttpTransport, now=lambda: 0.0)
    assert provider.refusals(example(f"import posthouse\n{code}").content) == []


def test_every_field_stands_in_an_example_and_in_the_words() -> None:
    code, words = "".join(EXAMPLES), re.sub(r"^```.*?^```", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    for field in dataclasses.fields(Email):
        assert re.search(rf"\b{field.name}=", code), f"{field.name} is in no example"
        assert f"`{field.name}`" in words, f"{field.name} is not explained"
