"""Files on their way to a call: whole or not at all, read once for many, never more of them at once than fits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import Any

import pytest
from sqlalchemy import delete, update

from posthouse.address import Address
from posthouse.attachment import Attachment
from posthouse.content import Content, StoredFile
from posthouse.core.outcome import Outcome, Verdict
from posthouse.email import Email
from posthouse.errors import DatabaseUnavailable
from posthouse.providers.port import OutgoingMessage
from posthouse.store.access import StoreAccess
from posthouse.store.blobs import Blobs
from posthouse.store.schema import blob_parts, blob_uses
from posthouse.store.threads import StoreExecutor
from posthouse.worker import crew
from posthouse.worker.files import Files
from posthouse.worker.rendering import CannotRender
from tests.simulation.virtual_time import run
from tests.worker.stage import EPOCH, Stage, email, emails, play

LOGO = Attachment(bytes(range(256)) * 100, "logo.png", content_id="logo")
INVOICE = Attachment(b"%PDF invoice", "invoice.pdf")
RAW = b"From: shop@example.com\r\nTo: person-raw@example.com\r\nSubject: Hi\r\n\r\nHello\r\n"


def accepting(messages: list[OutgoingMessage], took_s: float = 0.1) -> Callable[..., Coroutine[Any, Any, Verdict]]:
    """A provider's answer: accepted, after a while; what was sent is noted."""

    async def answer(message: OutgoingMessage) -> Verdict:
        messages.append(message)
        await asyncio.sleep(took_s)
        return Verdict(Outcome.ACCEPTED, message_id=f"m-{message.send_id}")

    return answer


def scripted(stage: Stage, took_s: float = 0.1, **facts: Any) -> list[OutgoingMessage]:
    """One route that accepts everything; what it was sent."""
    messages: list[OutgoingMessage] = []
    stage.configure({"main": {}})
    stage.script("main", accepting(messages, took_s), **facts)
    return messages


def reads(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Which digests were asked for by each read."""
    asked: list[set[str]] = []
    read = stage.store.blobs.read

    def counting(send_id: int, digests: set[str]) -> dict[str, bytes]:
        asked.append(set(digests))
        return read(send_id, digests)

    monkeypatch.setattr(stage.store.blobs, "read", counting)
    return asked


# What a call gets.


def test_a_call_gets_the_files_as_they_were_handed_over() -> None:
    async def scene(stage: Stage) -> None:
        messages = scripted(stage)
        stage.enqueue(email(1, attachments=[LOGO, INVOICE, Attachment(b"", "empty.txt")]), Email(key="raw", raw=RAW))
        stage.worker()
        await stage.until_status(accepted=2)

        with_files, finished = sorted(messages, key=lambda message: message.send_id)
        assert [(file.filename, file.content) for file in with_files.attachments] == [
            ("logo.png", LOGO.content),
            ("invoice.pdf", INVOICE.content),
            ("empty.txt", b""),
        ]
        assert (finished.raw, finished.attachments) == (RAW, [])

    play(scene)


def test_a_replay_carries_the_same_files_and_the_same_date() -> None:
    async def scene(stage: Stage) -> None:
        calls: list[OutgoingMessage] = []

        async def lose_the_first(message: OutgoingMessage) -> Verdict:
            calls.append(message)
            if len(calls) == 1:
                return Verdict(Outcome.UNKNOWN, maybe_accepted=True, code="read_timeout")
            return Verdict(Outcome.ACCEPTED, message_id="m-1")

        stage.configure({"main": {}})
        stage.script("main", lose_the_first, key_lifetime_s=3600.0)
        stage.enqueue(email(1, attachments=[INVOICE]))
        stage.worker()
        await stage.until_status(accepted=1)

        assert [attempt["via"] for attempt in stage.attempts("k-1")] == ["send", "replay"]
        assert calls[0] == calls[1]
        assert calls[1].attachments[0].content == INVOICE.content

    play(scene)


def test_mail_for_later_has_the_date_of_its_call() -> None:
    async def scene(stage: Stage) -> None:
        messages = scripted(stage)
        stage.enqueue(email(1, send_at=datetime.fromtimestamp(EPOCH + 500, UTC)))
        stage.worker()
        await stage.until_status(accepted=1, within_s=600)

        assert EPOCH + 500 <= messages[0].date < EPOCH + 502

    play(scene)


@pytest.mark.parametrize(
    ("asked", "damage", "reason"),
    [
        (email(1, attachments=[INVOICE]), "missing", "its attachment invoice.pdf is no longer kept"),
        (email(1, attachments=[INVOICE]), "changed", "its attachment invoice.pdf is damaged"),
        (email(1, attachments=[INVOICE]), "cut", "its attachment invoice.pdf is damaged"),
        (
            email(1, attachments=[Attachment(b"x", content_type="image/png")]),
            "missing",
            "its attachment without a name (image/png) is no longer kept",
        ),
        (Email(key="k-1", raw=RAW), "missing", "its message is no longer kept"),
    ],
    ids=str,
)
def test_a_send_whose_file_is_not_what_it_was_fails_with_the_reason(asked: Email, damage: str, reason: str) -> None:
    async def scene(stage: Stage) -> None:
        messages = scripted(stage)
        stage.enqueue(asked, email(2))
        with stage.store.database.write() as connection:
            if damage == "missing":
                connection.execute(delete(blob_uses))
            elif damage == "cut":
                connection.execute(delete(blob_parts))
            else:
                connection.execute(update(blob_parts).values(body=b"%PDF another"))
        stage.worker()
        await stage.until_status(failed=1, accepted=1)

        row = stage.row("k-1")
        assert reason in row["last_error"]
        assert (row["attempts"], len(messages)) == (0, 1)

    play(scene)


# What the database has to do.


def test_the_logo_of_a_newsletter_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(stage: Stage) -> None:
        messages = scripted(stage, concurrency=20)
        asked = reads(stage, monkeypatch)
        stage.enqueue(*emails(200, attachments=[LOGO]))
        stage.worker()
        await stage.until_status(accepted=200)

        assert asked == [{LOGO.digest}]
        assert {message.attachments[0].content for message in messages} == {LOGO.content}

    play(scene)


def test_files_that_are_not_read_yet_make_no_worker_claim_more_than_it_has_slots() -> None:
    async def scene(stage: Stage) -> None:
        scripted(stage, took_s=1.0, concurrency=3)
        stage.enqueue(*(email(n, attachments=[Attachment(b"invoice %d" % n, "invoice.pdf")]) for n in range(30)))
        stage.worker()
        await stage.until_status(accepted=30)

        assert {row["fence"] for row in stage.rows()} == {1}, "none was claimed and given back"

    play(scene)


@pytest.mark.parametrize("fault", [DatabaseUnavailable("away"), RuntimeError("permission denied for email_blobs")])
def test_a_send_whose_files_cannot_be_read_now_is_given_back_and_has_spent_nothing(
    monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    async def scene(stage: Stage) -> None:
        messages = scripted(stage)
        read = stage.store.blobs.read

        def fail(_send_id: int, _digests: set[str]) -> dict[str, bytes]:
            raise fault

        monkeypatch.setattr(stage.store.blobs, "read", fail)
        stage.enqueue(email(1, attachments=[INVOICE]))
        stage.worker()
        await stage.until(lambda: stage.row("k-1")["fence"] >= 3, within_s=60)
        monkeypatch.setattr(stage.store.blobs, "read", read)
        await stage.until_status(accepted=1)

        assert (stage.row("k-1")["attempts"], len(messages)) == (1, 1)

    play(scene)


def test_a_replay_whose_files_cannot_be_read_now_is_made_when_they_can(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(stage: Stage) -> None:
        monkeypatch.setattr(crew, "Files", partial(Files, kept_bytes_max=0))
        calls: list[OutgoingMessage] = []
        read = stage.store.blobs.read

        def fail(_send_id: int, _digests: set[str]) -> dict[str, bytes]:
            raise DatabaseUnavailable("away")

        async def lose_the_first(message: OutgoingMessage) -> Verdict:
            calls.append(message)
            if len(calls) > 1:
                return Verdict(Outcome.ACCEPTED)
            monkeypatch.setattr(stage.store.blobs, "read", fail)
            return Verdict(Outcome.UNKNOWN, maybe_accepted=True)

        stage.configure({"main": {}})
        stage.script("main", lose_the_first, key_lifetime_s=3600.0)
        stage.enqueue(email(1, attachments=[INVOICE]))
        stage.worker()
        await stage.until_status(unknown=1)
        await asyncio.sleep(60)
        assert (stage.statuses(), len(calls)) == ({"unknown": 1}, 1)
        monkeypatch.setattr(stage.store.blobs, "read", read)
        await stage.until_status(accepted=1)

        assert len(calls) == 2

    play(scene)


# How much of it fits.


def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for the files of one call."""
    monkeypatch.setattr(crew, "Files", partial(Files, lent_bytes_max=len(LOGO.content)))


def test_calls_wait_for_room_while_those_without_files_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(stage: Stage) -> None:
        one_at_a_time(monkeypatch)
        under_way: list[int] = []
        most: list[int] = []

        async def answer(message: OutgoingMessage) -> Verdict:
            size = sum(len(file.content) for file in message.attachments)
            under_way.append(size)
            most.append(sum(under_way))
            await asyncio.sleep(10)
            under_way.remove(size)
            return Verdict(Outcome.ACCEPTED)

        stage.configure({"main": {}})
        stage.script("main", answer, concurrency=10)
        stage.enqueue(*emails(5, attachments=[LOGO]), email("plain"))
        stage.worker()
        assert await stage.until(lambda: stage.row("k-plain")["status"] == "accepted", within_s=60) < 15
        assert await stage.until_status(accepted=6) > 30

        assert max(most) == len(LOGO.content)

    play(scene)


def test_what_expires_while_it_waits_for_room_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(stage: Stage) -> None:
        one_at_a_time(monkeypatch)
        messages = scripted(stage, took_s=60.0)
        until = datetime.fromtimestamp(EPOCH + 30, UTC)
        stage.enqueue(email(1, attachments=[LOGO]), email(2, attachments=[LOGO], expires=until))
        stage.worker()
        await stage.until_status(accepted=1, expired=1, within_s=100)

        assert len(messages) == 1

    play(scene)


def test_what_waits_for_room_when_its_worker_is_stopped_was_never_called(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(stage: Stage) -> None:
        one_at_a_time(monkeypatch)
        messages = scripted(stage, took_s=300.0, timeout_s=400.0)
        stage.enqueue(*emails(4, attachments=[LOGO]))
        worker = stage.worker()
        await stage.until_status(sending=4)
        await worker.stopped()

        assert stage.statuses() == {"unknown": 1, "pending": 3}
        assert sorted(row["attempts"] for row in stage.rows()) == [0, 0, 0, 1]
        assert (len(messages), stage.store.control.workers()) == (1, [])

    play(scene)


class Inline:
    """Runs each call at once."""

    async def run(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)


class Shelf(Blobs):
    """Files without a database."""

    def __init__(self, *bodies: bytes) -> None:
        self.asked: list[set[str]] = []
        self._bodies = {sha256(body).hexdigest(): body for body in bodies}

    def read(self, send_id: int, digests: Any) -> dict[str, bytes]:
        self.asked.append(set(digests))
        return {digest: self._bodies[digest] for digest in digests if digest in self._bodies}


def content(*bodies: bytes) -> Content:
    files = tuple(StoredFile.of(Attachment(body)) for body in bodies)
    return Content(to=(Address("ada@example.com"),), attachments=files)


def files_of(shelf: Shelf, **limits: int) -> Files:
    executor: StoreExecutor = Inline()
    return Files(shelf, StoreAccess(executor, asyncio.get_running_loop().time, "nothing is sent"), **limits)


def test_loads_are_let_in_in_the_order_in_which_they_came() -> None:
    async def main() -> None:
        sizes = {"first": 60, "large": 80, "small": 10, "over": 500}
        bodies = {name: name.encode().ljust(size) for name, size in sizes.items()}
        files = files_of(Shelf(*bodies.values()), lent_bytes_max=100)
        entered: dict[str, float] = {}

        async def borrow(name: str) -> None:
            async with files.of(1, content(bodies[name])) as found:
                entered[name] = asyncio.get_running_loop().time()
                assert list(found.values()) == [bodies[name]]
                await asyncio.sleep(10)

        await asyncio.gather(*(borrow(name) for name in sizes))

        # `small` would fit beside `first`, and waits for its turn; what is over all limits goes alone.
        assert entered == pytest.approx({"first": 0, "large": 10, "small": 10, "over": 20}, abs=0.1)

    run(main())


def test_whoever_gives_up_waiting_holds_up_nobody_and_takes_no_room() -> None:
    async def main() -> None:
        body = b"x" * 60
        files = files_of(Shelf(body), lent_bytes_max=100)
        async with files.of(1, content(body)):
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(1), files.of(2, content(body)):
                        raise AssertionError("there is no room")
        async with asyncio.timeout(1), files.of(3, content(body)):
            pass

    run(main())


def test_a_load_that_failed_gives_its_room_back() -> None:
    async def main() -> None:
        files = files_of(Shelf(), lent_bytes_max=100)
        for _ in range(5):
            with pytest.raises(CannotRender):
                async with files.of(1, content(b"x" * 90)):
                    raise AssertionError("there is no such file")

    run(main())


def test_what_was_used_longest_ago_makes_room_for_what_is_new() -> None:
    async def main() -> None:
        logo, *invoices = [bytes([number]) * 30 for number in range(5)]
        large = b"l" * 101
        shelf = Shelf(logo, large, *invoices)
        files = files_of(shelf, kept_bytes_max=100)

        async def use(*bodies: bytes) -> None:
            async with files.of(1, content(*bodies)):
                pass

        for invoice in invoices:
            await use(logo, invoice)
        await use(large)
        await use(logo, invoices[-1])
        await use(invoices[0])

        read = [sum(map(len, asked)) // 64 for asked in shelf.asked]
        assert read == [2, 1, 1, 1, 1, 1], "the logo once, each invoice, the large one, and the first invoice again"

    run(main())


def test_an_email_without_files_asks_nobody() -> None:
    async def main() -> None:
        shelf = Shelf()
        async with files_of(shelf).of(1, content()) as found:
            assert (found, shelf.asked) == ({}, [])

    run(main())
