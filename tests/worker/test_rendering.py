"""From the stored content and the templates to the message: the words, and why there are none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from posthouse.address import Address
from posthouse.content import Content
from posthouse.providers.port import OutgoingMessage
from posthouse.worker.rendering import CannotRender, Renderer

ADA = Address("ada@example.com", "Ada")
SHOP = Address("shop@example.com", "Shop")

Render = Callable[..., OutgoingMessage]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def render(folder: Path) -> Render:
    """Renders one email, with `templates` written before."""

    def render_one(templates: dict[str, str] | None = None, sender: Address | None = SHOP, **fields: Any) -> Any:
        for name, words in (templates or {}).items():
            (folder / name).write_text(words, encoding="utf-8")
        content = Content(to=(ADA,), **fields)
        renderer = Renderer(folder, sender)
        return renderer.message(7, "ik-7", renderer.content(content.to_json(), "default", "ik-7"), date=1_800_000_000.0)

    return render_one


RECEIPT = {
    "receipt.subject.txt": "Order {{ order }}\n",
    "receipt.txt": "Hello {{ name }}\n",
    "receipt.html": "<p>{{ name }}</p>",
}


def test_a_plain_email_goes_out_as_it_was_written(render: Render) -> None:
    message = render(subject="Hello {{ name }}", text="Hi", tags=("a",), metadata={"order": "7"})

    assert (message.subject, message.text, message.html) == ("Hello {{ name }}", "Hi", None)
    assert (message.send_id, message.idempotency_key, message.sender) == (7, "ik-7", SHOP)
    assert (message.to, message.tags, message.metadata) == ((ADA,), ("a",), {"order": "7"})


def test_a_template_gives_the_subject_the_text_and_the_html(render: Render) -> None:
    message = render(RECEIPT, template="receipt", variables={"order": 7, "name": "Ada"})

    assert (message.subject, message.text, message.html) == ("Order 7", "Hello Ada\n", "<p>Ada</p>")


def test_what_goes_into_html_is_escaped_and_what_goes_into_text_is_not(render: Render) -> None:
    message = render(RECEIPT, template="receipt", variables={"order": "<7>", "name": "<b>Ada & Co</b>"})

    assert (message.subject, message.text) == ("Order <7>", "Hello <b>Ada & Co</b>\n")
    assert message.html == "<p>&lt;b&gt;Ada &amp; Co&lt;/b&gt;</p>"


def test_a_subject_is_one_line_whatever_the_variables_are(render: Render) -> None:
    variables = {"order": "7\r\nBcc: eve@example.com", "name": "Ada"}

    assert render(RECEIPT, template="receipt", variables=variables).subject == "Order 7 Bcc: eve@example.com"


def test_the_emails_own_subject_and_sender_win(render: Render) -> None:
    other = Address("news@example.com")
    message = render(RECEIPT, template="receipt", subject="Mine", sender=SHOP, variables={"order": 7, "name": "A"})
    assert message.subject == "Mine"

    renderer = Renderer(Path("nowhere"), SHOP)
    assert renderer.message(1, "k", Content(to=(ADA,), sender=other, subject="S", text="T"), 1.0).sender == other


def test_templates_may_include_and_extend_each_other(render: Render) -> None:
    templates = {
        "base.html": "<main>{% block words %}{% endblock %}</main>",
        "child.subject.txt": "S",
        "child.html": '{% extends "base.html" %}{% block words %}{{ name }}{% endblock %}',
    }

    assert render(templates, template="child", variables={"name": "<Ada>"}).html == "<main>&lt;Ada&gt;</main>"


@pytest.mark.parametrize(
    ("templates", "reason"),
    [
        ({}, "template 'receipt': there is neither receipt.txt nor receipt.html"),
        ({"receipt.txt": "Hello"}, "there is no receipt.subject.txt, and the email gives no subject"),
        ({**RECEIPT, "receipt.txt": "{{ nmae }}"}, "template receipt.txt: UndefinedError: 'nmae' is undefined"),
        ({**RECEIPT, "receipt.html": "{{ name.x.y }}"}, "template receipt.html: UndefinedError"),
        ({**RECEIPT, "receipt.txt": "{% if %}"}, "template receipt.txt: "),
        ({**RECEIPT, "receipt.txt": "{{ name | nofilter }}"}, "template receipt.txt: "),
        ({**RECEIPT, "receipt.txt": "{{ 1 / 0 }}"}, "template receipt.txt: ZeroDivisionError: division by zero"),
        ({**RECEIPT, "receipt.txt": '{% include "footer.txt" %}'}, "footer.txt"),
        ({**RECEIPT, "receipt.html": '{% extends "base.html" %}'}, "base.html"),
        ({**RECEIPT, "receipt.subject.txt": "Order \x07"}, "template receipt.subject.txt: "),
        ({**RECEIPT, "receipt.subject.txt": "x" * 999}, "999 characters; at most 998"),
    ],
)
def test_a_template_that_fails_says_which_and_why(render: Render, templates: dict[str, str], reason: str) -> None:
    with pytest.raises(CannotRender) as raised:
        render(templates, template="receipt", variables={"order": 7, "name": "Ada"})

    assert reason in str(raised.value)


def test_a_template_that_is_not_utf_8_says_so(render: Render, folder: Path) -> None:
    (folder / "receipt.txt").write_bytes(b"caf\xe9")

    with pytest.raises(CannotRender, match=r"template receipt\.txt: .*utf-8"):
        render(template="receipt", subject="S")


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../secret"])
def test_a_template_outside_the_folder_is_not_found(render: Render, folder: Path, name: str) -> None:
    (folder.parent / "secret.txt").write_text("secret")

    with pytest.raises(CannotRender, match="there is neither"):
        render(template=name, subject="S")


def test_without_any_sender_it_says_so(render: Render) -> None:
    with pytest.raises(CannotRender, match="it names no sender, and the configuration has none either"):
        render(sender=None, subject="S", text="T")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (None, "its content is no longer kept"),
        ("", "its content can't be read"),
        ("null", "its content can't be read: the stored content has a version that this release can't read"),
        ('{"version": 2}', "its content can't be read: the stored content has a version"),
        ('{"version": 1}', "its content can't be read: the stored content is damaged: it has no recipient"),
        ('{"version": 1, "to": 5}', "its content can't be read: the stored content is damaged"),
        ("[" * 100_000, "its content can't be read"),
    ],
)
def test_content_that_cannot_be_read_says_why(body: str | None, reason: str) -> None:
    with pytest.raises(CannotRender) as raised:
        Renderer(Path("nowhere"), None).content(body, "default", "ik-7")

    assert reason in str(raised.value)


DIGEST = {
    "news.subject.txt": "{{ count }}",
    "news.txt": "{% for item in items %}{{ item.n }} {% endfor %}{{ n }}",
}


def test_a_template_is_given_what_goes_out_together(render: Render) -> None:
    together = render(DIGEST, template="news", variables={"n": 1}, items=({"n": 1}, {"n": 2}))
    alone = render(DIGEST, template="news", variables={"n": 7})

    assert [(one.subject, one.text) for one in (together, alone)] == [("2", "1 2 1"), ("1", "7 7")]


def test_an_email_that_goes_out_alone_keeps_variables_of_these_names(render: Render) -> None:
    message = render({"r.subject.txt": "{{ count }}", "r.txt": "{{ items }}"}, template="r", variables={"items": "x"})

    assert (message.subject, message.text) == ("1", "x")
