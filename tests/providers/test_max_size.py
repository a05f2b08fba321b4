"""The largest message that a route takes, the same for every provider."""

from __future__ import annotations

import pytest

from posthouse.attachment import Attachment
from posthouse.config import RouteSettings
from posthouse.content import Content, StoredFile
from posthouse.providers.http_client import AiohttpTransport
from posthouse.providers.port import Provider
from posthouse.providers.registry import build_provider
from tests.providers.messages import ADA

OWN = {"http": {"url": "https://api.example/send", "auth": "none"}, "smtp": {"url": "smtps://mail.example"}}


def provider(kind: str, **settings: str) -> Provider:
    model = RouteSettings.model_validate({"provider": kind, **OWN[kind], **settings})
    return build_provider("main", model, transport_factory=AiohttpTransport, now=lambda: 0.0)


def content(size: int) -> Content:
    return Content(to=(ADA,), subject="s", text="x" * size)


@pytest.mark.parametrize("kind", OWN)
def test_a_larger_message_is_refused_at_enqueue(kind: str) -> None:
    route = provider(kind, max_size="2MB")
    assert route.refusals(content(2_000_000)) == []
    (reason,) = route.refusals(content(2_000_001))
    assert reason == "content: about 2,000,001 bytes as it is sent; this route takes 2,000,000 (max_size)"


def test_it_is_25_megabytes_unless_the_route_says_otherwise_and_files_grow_on_the_way() -> None:
    route = provider("smtp")
    assert route.facts.kind == "smtp"

    def with_file(size: int) -> Content:
        return Content(to=(ADA,), subject="s", attachments=(StoredFile.of(Attachment(bytes(size))),))

    assert route.refusals(with_file(18_000_000)) == []
    (reason,) = route.refusals(with_file(19_000_000))
    assert reason == "content: about 26,000,052 bytes as it is sent; this route takes 25,000,000 (max_size)"
