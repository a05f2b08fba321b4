"""Whatever an email holds: two parsers that have nothing in common read back what was given, and SMTP can carry it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.address import Address
from posthouse.attachment import Alternative, Attachment
from posthouse.providers.mime import message_bytes
from posthouse.providers.port import OutgoingMessage
from tests.providers.messages import message
from tests.providers.mime_readers import Leaf, Reading, Tree, read_by_python, read_by_rust

unhurried = settings(deadline=None, print_blob=True, max_examples=150)

TRICKS = [
    "=?utf-8?q?x?=",
    "=?",
    "?=",
    ", ",
    '"',
    "\\",
    "<a@b.example>",
    "  ",
    " ",
    "✉",
    "👩‍👩‍👧",
    "ü" * 70,
    "x" * 80,
    "a b",
]
"""What readers and folders of headers stumble over."""

ENDS = [
    "\n",
    "\r\n",
    "\r",
    "\r\r\n",
    " \n",
    "=\n",
    ".\n",
    "\n.",
    "From ",
    "--=_mixed_",
    "\t",
    "x" * 1000,
    "日本語" * 30,
]
"""What transfer encodings stumble over."""


INNER = [b"Subject: a\r\n\r\nb\r\n", b"", "Subject: a\r\n\r\nü".encode()]
"""Messages within the message."""


def words(alphabet: st.SearchStrategy[str], tricks: list[str], size: int) -> st.SearchStrategy[str]:
    return st.lists(st.one_of(st.text(alphabet, max_size=20), st.sampled_from(tricks)), max_size=size).map("".join)


IN_A_HEADER = st.characters(exclude_categories=["Cs", "Zl", "Zp"], exclude_characters="\x7f\x85", min_codepoint=0x20)
LINES = words(IN_A_HEADER, TRICKS, 8).map(lambda text: text[:998])
NAMES = LINES.map(lambda text: text[:256])
FILENAMES = LINES.map(lambda text: text[:255])
TEXTS = words(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), ENDS + TRICKS, 12)
IDS = st.from_regex(r"[a-z0-9]{1,8}(@[a-z]{1,8}\.example)?", fullmatch=True)
HEADERS = st.lists(st.tuples(st.sampled_from(["X-One", "X-Two", "X-" + "n" * 74]), LINES), max_size=4).map(tuple)
ADDRESSES = st.lists(
    st.builds(
        Address, st.sampled_from(["ada@example.com", "a+b@bücher.example", '"a, b"@example.com', "ü@x.example"]), NAMES
    ),
    max_size=4,
)
FILES = st.builds(
    Attachment,
    st.binary(max_size=300),
    FILENAMES,
    st.sampled_from(["application/pdf", "text/csv; header=present", "text/plain; charset=utf-8", "image/png"]),
    st.just("") | IDS,
    st.just(()) | LINES.map(lambda value: (("Part-Note", value),)),
)
ATTACHED = st.builds(Attachment, st.sampled_from(INNER), FILENAMES, st.just("message/rfc822"))
OTHERS = st.one_of(
    TEXTS.map(Alternative.amp),
    TEXTS.map(Alternative.calendar),
    TEXTS.map(lambda text: Alternative(text, "text/markdown")),
)


@st.composite
def messages(draw: st.DrawFn) -> OutgoingMessage:
    return message(
        sender=Address("orders@shop.example", draw(NAMES)),
        to=draw(ADDRESSES),
        cc=draw(ADDRESSES),
        bcc=[Address("hidden@example.com", "Hidden")],
        reply_to=draw(ADDRESSES),
        subject=draw(LINES),
        text=draw(st.none() | TEXTS),
        html=draw(st.none() | TEXTS),
        alternatives=draw(st.lists(OTHERS, max_size=3)),
        attachments=draw(st.lists(FILES | ATTACHED, max_size=4, unique_by=lambda file: file.content_id or object())),
        headers=draw(HEADERS),
    )


# What readers should find.


def expected(given: OutgoingMessage) -> Reading:
    named = {"From": [given.sender], "To": given.to, "Cc": given.cc, "Reply-To": given.reply_to}
    addresses = {header: [(a.name, _in_ascii(a.email)) for a in several] for header, several in named.items()}
    return Reading(given.subject, addresses, list(given.headers), _expected_tree(given))


def _in_ascii(email: str) -> str:
    return email.replace("bücher", "xn--bcher-kva")


def _expected_tree(given: OutgoingMessage) -> Tree:
    shown = [file for file in given.attachments if file.content_id and given.html is not None]
    body = list(_expected_words(given, [_file(file) for file in shown]))
    parts = [_joined("alternative", body)] if body else []
    parts += [_file(file) for file in given.attachments if not any(file is image for image in shown)]
    return _joined("mixed", parts or [("text/plain", Leaf(b""))])


def _expected_words(given: OutgoingMessage, images: list[Tree]) -> Iterator[Tree]:
    kinds = [(item.content_type.partition(";")[0], item.content) for item in given.alternatives]
    if given.text is not None:
        yield _text("text/plain", given.text)
    yield from (_text(kind, content) for kind, content in kinds if kind == "text/x-amp-html")
    if given.html is not None:
        yield _joined("related", [_text("text/html", given.html), *images])
    yield from (_text(kind, content) for kind, content in kinds if kind == "text/markdown")
    yield from (_text(kind, content) for kind, content in kinds if kind == "text/calendar")


def _joined(subtype: str, parts: list[Tree]) -> Tree:
    return parts[0] if len(parts) == 1 else (f"multipart/{subtype}", tuple(parts))


def _text(kind: str, text: str) -> Tree:
    return kind, Leaf(re.sub(r"\r\n|\r|\n", "\r\n", text).encode())


def _file(file: Attachment) -> Tree:
    disposition = "inline" if file.content_id else "attachment"
    return file.content_type.partition(";")[0], Leaf(
        file.content, disposition, file.filename, file.content_id, file.headers
    )


def alike(tree: Tree, *, alone: bool = True) -> Tree:
    """But for the last line's end of what is the whole message and not encoded: there SMTP adds one."""
    kind, inside = tree
    if isinstance(inside, Leaf):
        ends = alone and (not inside.disposition or kind == "message/rfc822")
        return kind, replace(inside, content=inside.content.removesuffix(b"\r\n")) if ends else inside
    return kind, tuple(alike(part, alone=False) for part in inside)


def without_messages(tree: Tree) -> Tree:
    """But for what is in an attached message, which Python's parser takes apart."""
    kind, inside = tree
    if isinstance(inside, Leaf):
        return kind, replace(inside, content=b"") if kind == "message/rfc822" else inside
    return kind, tuple(map(without_messages, inside))


def trimmed(reading: Reading) -> Reading:
    """Without the white space that Rust's parser doesn't keep."""
    return Reading(
        _trimmed(reading.subject),
        {header: [(_trimmed(name), email) for name, email in named] for header, named in reading.addresses.items()},
        sorted((name, _trimmed(value)) for name, value in reading.headers),
        _trimmed_tree(reading.tree),
    )


def _trimmed_tree(tree: Tree) -> Tree:
    kind, inside = tree
    if isinstance(inside, Leaf):
        headers = tuple((name, _trimmed(value)) for name, value in inside.headers)
        return kind, replace(inside, filename=_trimmed(inside.filename), headers=headers)
    return kind, tuple(map(_trimmed_tree, inside))


def _trimmed(text: str) -> str:
    return " ".join(text.split())


@unhurried
@given(messages())
def test_python_reads_back_what_was_given(given: OutgoingMessage) -> None:
    read, wanted = read_by_python(message_bytes(given)), expected(given)
    assert replace(read, tree=alike(read.tree)) == replace(wanted, tree=without_messages(alike(wanted.tree)))


@unhurried
@given(messages())
def test_rust_reads_back_what_was_given(given: OutgoingMessage) -> None:
    read, wanted = trimmed(read_by_rust(message_bytes(given))), trimmed(expected(given))
    assert replace(read, tree=alike(read.tree)) == replace(wanted, tree=alike(wanted.tree))


@unhurried
@given(messages())
def test_every_server_can_carry_the_bytes(given: OutgoingMessage) -> None:
    content = message_bytes(given)
    head, _, body = content.partition(b"\r\n\r\n")
    assert head.isascii() or any("ü@" in address.email for address in (*given.to, *given.cc, *given.reply_to))
    assert body.isascii() or b"\r\nContent-Transfer-Encoding: 8bit" in head
    assert b"\0" not in content
    assert content.endswith(b"\r\n")
    lines = content.split(b"\r\n")
    assert not any(b"\r" in line or b"\n" in line for line in lines)
    assert max(map(len, lines)) <= 998
    assert b"hidden" not in content.lower()
    assert message_bytes(given) == content
