"""`send`, `find`, `show` and `status` on each database: what people and programs are told."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from posthouse.config import load_config
from posthouse.core.breaker import STREAK_MAX
from posthouse.core.outcome import Outcome, Subject, Verdict
from posthouse.core.pace_policy import pace_policy
from posthouse.core.routing import after_call
from posthouse.store.database import Database
from posthouse.store.store import Store
from tests.cli.conftest import Shell
from tests.conftest import OwnPostgres

Put = Callable[..., None]

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def test_send_tells_the_key_and_whether_it_is_new(shell: Shell) -> None:
    args = ["send", "--to", "Ada <ada@example.com>", "--subject", "Hello", "--text", "Hi", "--key", "order-1"]

    first, second = shell.json(*args), shell.json(*args)

    assert first == {"id": first["id"], "key": "order-1", "created": True}
    assert second == {**first, "created": False}
    assert "was asked for before; nothing was changed" in shell.run(*args).out


def test_send_makes_a_key_where_none_is_given(shell: Shell) -> None:
    keys = {shell.json("send", "--to", "a@b.example", "--subject", "s", "--text", "t")["key"] for _ in range(3)}

    assert len(keys) == 3
    assert all(re.fullmatch(r"shell-[0-9a-f]{12}", key) for key in keys)


def test_send_takes_every_part_of_an_email(shell: Shell) -> None:
    (shell.folder / "body.html").write_text("<p>Größe</p>", encoding="utf-8")
    shell.send("first")

    shell.run(
        *("send", "--key", "k", "--to", "a@b.example", "--to", "b@b.example", "--cc", "c@b.example"),
        *("--bcc", "d@b.example", "--from", "Desk <desk@b.example>", "--subject", "Größe", "--text", "-"),
        *("--html", "body.html", "--tag", "x", "--tag", "y", "--meta", "order=10=42", "--after", "first"),
        *("--send-at", "2030-01-01T00:00Z", "--expires", "2030-01-02T00:00+01:00"),
        stdin="from standard input\n",
    )
    told = shell.json("show", "k", "--content")

    assert told["recipients"] == ["a@b.example", "b@b.example", "c@b.example", "d@b.example"]
    assert told["content"]["text"] == "from standard input\n"
    assert told["content"]["html"] == "<p>Größe</p>"
    assert told["content"]["from"] == ["desk@b.example", "Desk"]
    assert (told["tags"], told["metadata"]) == (["x", "y"], {"order": "10=42"})
    assert (told["status"], told["after"]) == ("waiting", "first")
    assert told["next_try_at"] == "2030-01-01T00:00:00.000000Z"
    assert told["expires_at"] == "2030-01-01T23:00:00.000000Z"


def test_send_takes_a_template_with_variables(shell: Shell) -> None:
    shell.run("send", "--key", "k", "--to", "a@b.example", "--template", "receipt", "--var", "order=1042")

    content = shell.json("show", "k", "--content")["content"]

    assert (content["template"], content["variables"]) == ("receipt", {"order": "1042"})


def test_a_duration_says_when_from_now(shell: Shell) -> None:
    shell.send("later", "a@b.example", "--send-at", "2h", "--expires", "3h")

    assert re.search(r"Next: attempt 1 in (2 h|1 h 59 min) \(", shell.run("show", "later").flat)


def test_find_tells_the_newest_first_and_never_cuts_a_key(shell: Shell) -> None:
    long_key = "order-" + "9" * 180
    shell.send("order-1")
    shell.send(long_key, "bob@example.com")

    lines = shell.run("find").out.splitlines()

    assert re.fullmatch(r"STATUS +ASKED \(CES?T\) +TYPE +TO +KEY", lines[0])
    assert lines[1].endswith(long_key)
    assert lines[2].endswith("order-1")
    assert [send["key"] for send in shell.json("find", "bob@example.com")["sends"]] == [long_key]


def test_find_looks_for_parts_of_words_and_for_states(shell: Shell, put: Put) -> None:
    for key in ("order-1-receipt", "order-2-receipt", "order-2-invoice"):
        shell.send(key)
    put("order-2-receipt", status="failed")

    def keys(*args: str) -> list[str]:
        return [send["key"] for send in shell.json("find", *args)["sends"]]

    assert keys("receipt", "order-2") == ["order-2-receipt"]
    assert keys("--status", "failed") == ["order-2-receipt"]
    assert keys("--limit", "1") == ["order-2-invoice"]


def test_find_tells_held_sends_apart(shell: Shell, put: Put) -> None:
    shell.send("asked")
    shell.send("held")
    put("asked", status="unknown")
    put("held", status="unknown", next_try_at=None)

    assert [send["key"] for send in shell.json("find", "--held")["sends"]] == ["held"]
    assert [line.split()[0] for line in shell.run("find").out.splitlines()[1:]] == ["held", "unknown"]


def test_find_tells_what_the_receiver_did(shell: Shell, put: Put) -> None:
    shell.send("k")
    put("k", status="accepted", delivery="bounced")
    assert "accepted, bounced" in shell.run("find", "k").flat
    assert shell.json("find", "k")["sends"][0]["delivery"] == "bounced"


def test_find_says_that_there_may_be_more(shell: Shell) -> None:
    shell.send("a")
    shell.send("b")

    assert "there may be more" in shell.run("find", "--limit", "2").out
    assert "there may be more" not in shell.run("find", "--limit", "3").out


def test_a_send_that_went_into_another_one_tells_which_and_what_became_of_it(shell: Shell, put: Put) -> None:
    for key in ("first", "second"):
        shell.send(key)
    put("first", status="accepted", route="main")
    put("second", status="combined", next_try_at=None, combined_into=shell.json("show", "first")["id"])

    ran = shell.run("show", "second")
    assert "second combined with first, accepted" in ran.flat
    assert "Next: nothing of its own; what becomes of first becomes of it posthouse show first" in ran.flat
    assert "with it go second" in shell.run("show", "first").flat
    assert shell.json("show", "second")["combined_into"] == {"key": "first", "status": "accepted"}
    assert shell.json("show", "first")["combined"] == ["second"]
    assert [send["combined_into"] for send in shell.json("find")["sends"]] == ["first", None]
    assert "second, in first: accepted" in shell.run("find", "--status", "combined").out
    assert "The content went into first." in shell.run("show", "second", "--content").flat
    refused = shell.run("cancel", "second")
    assert (refused.code, "goes out in another send" in refused.out + refused.err) == (1, True)


def test_show_finds_a_send_by_its_id_as_well(shell: Shell) -> None:
    shell.send("k")

    assert shell.json("show", str(shell.json("show", "k")["id"]))["key"] == "k"


def test_the_document_of_show_is_stable(shell: Shell) -> None:
    shell.send("k")

    document = shell.json("show", "k")

    assert list(document) == [
        *("key", "id", "type", "status", "delivery", "attempts", "failures", "maybe_duplicate", "route"),
        *(
            "message_id",
            "held",
            "recipients",
            "idempotency_key",
            "last_error",
            "service",
            "campaign",
            "after",
            "split_from",
            "splits",
            "combined_into",
            "combined",
        ),
        *("tags", "metadata", "created_at", "first_attempt_at", "next_try_at", "expires_at", "accepted_at"),
        *("unknown_since", "timeline", "events", "interventions", "next"),
    ]
    assert ISO.fullmatch(document["created_at"])
    assert document["next"] == {"text": "it waits for a worker, and none is running", "commands": ["posthouse worker"]}


def test_content_is_shown_on_request_alone(shell: Shell) -> None:
    shell.send("k")

    assert "content" not in shell.json("show", "k")
    assert "--- text ---" not in shell.run("show", "k").out
    assert "Subject: Hello" in shell.run("show", "k", "--content").out


def test_a_long_body_is_an_excerpt_in_words_and_whole_in_the_document(shell: Shell) -> None:
    shell.run("send", "--key", "k", "--to", "a@b.example", "--subject", "s", "--text", "-", stdin="x" * 5000)

    assert "3,000 characters more" in shell.run("show", "k", "--content").out
    assert len(shell.json("show", "k", "--content")["content"]["text"]) == 5000


@pytest.mark.parametrize("type_", ["one-time-code", "gone"])
def test_the_content_of_security_mail_is_never_shown(shell: Shell, put: Put, type_: str) -> None:
    shell.run(
        *("send", "--key", "k", "--to", "a@b.example", "--subject", "Code 424242", "--text", "it is 424242"),
        *("--type", "one-time-code"),
    )
    put("k", type=type_)  # one that is not configured might be anything

    words = shell.run("show", "k", "--content", "--raw")
    document = shell.run("show", "k", "--content", "--raw", "--json")

    assert "is not shown" in words.out
    assert document.document["content"] is None
    assert "424242" not in words.out + document.out


def test_content_that_is_gone_or_damaged_is_said_to_be(
    shell: Shell, opened: Database, forget_content: Callable[[], None]
) -> None:
    shell.send("k")
    with opened.write() as connection:
        connection.exec_driver_sql("UPDATE email_contents SET body = 'garbage'")
    assert "can't be read" in shell.run("show", "k", "--content").out

    forget_content()
    assert "The content is no longer kept." in shell.run("show", "k", "--content").out


def test_escape_sequences_in_a_body_do_not_reach_the_terminal(shell: Shell) -> None:
    shell.run("send", "--key", "k", "--to", "a@b.example", "--subject", "s", "--text", "\x1b[2Jgone")

    assert "\x1b" not in shell.run("show", "k", "--content").out


def whole(shell: Shell, *args: str, code: int = 0) -> Any:
    return shell.json("status", *args, code=code)


def test_status_counts_what_is_open(shell: Shell, put: Put) -> None:
    for key in ("due", "failed", "unknown", "held", "accepted"):
        shell.send(key)
    shell.send("later", "a@b.example", "--send-at", "2h")
    shell.send("waiting", "a@b.example", "--after", "due")
    put("failed", status="failed")
    put("accepted", status="accepted")
    put("unknown", status="unknown")
    put("held", status="unknown", next_try_at=None)

    document = whole(shell)

    assert document["sends"] == {
        **{"waiting": 1, "pending": 2, "sending": 0, "unknown": 2, "failed": 1},
        **{"due": 1, "held": 1},
    }
    assert [(lane["lane"], lane["pending"], lane["due"]) for lane in document["lanes"]] == [("default", 2, 1)]
    assert document["oldest_due_s"] > 0
    assert list(document) == [
        *(
            "at",
            "database",
            "sends",
            "oldest_due_s",
            "workers",
            "routes",
            "switches",
            "slowed",
            "caps",
            "quotas",
            "lanes",
        ),
        *("outcomes", "problems"),
    ]


def test_status_never_tells_the_databases_password(empty_shell: Shell, postgres: OwnPostgres) -> None:
    url = re.sub(r"//(\w+)(:\w*)?@", r"//\1:hunter2@", postgres.create())
    empty_shell.configure(f'database = "{url}"\n')

    ran = empty_shell.run("status")

    assert ":***@" in ran.out
    assert "hunter2" not in ran.out


def test_nothing_needs_a_person_on_a_fresh_installation(shell: Shell) -> None:
    ran = shell.run("status", "--check")

    assert (ran.code, ran.out.splitlines()[-1]) == (0, "Nothing needs a person.")


def test_due_mail_without_a_worker_needs_a_person(shell: Shell) -> None:
    shell.send("k")

    ran = shell.run("status", "--check")

    assert ran.code == 1
    assert "no worker is alive, and 1 send waiting" in ran.out
    assert [problem["name"] for problem in whole(shell)["problems"]] == ["no_worker"]
    assert shell.run("status").code == 0


def test_mail_for_later_needs_nobody(shell: Shell) -> None:
    shell.send("later", "a@b.example", "--send-at", "2h")

    assert shell.run("status", "--check").code == 0


def test_a_silent_worker_needs_a_person_while_mail_is_due(shell: Shell, opened: Database) -> None:
    control = Store(opened).control
    control.register("h", 1, "0")
    silent = control.register("dead", 2, "0")
    with opened.write() as connection:
        connection.exec_driver_sql(f"UPDATE email_workers SET heartbeat_at = '2020-01-01 00:00:00' WHERE id = {silent}")

    assert whole(shell)["problems"] == []
    shell.send("k")

    assert [problem["name"] for problem in whole(shell)["problems"]] == ["worker_silent"]
    assert [worker["alive"] for worker in whole(shell)["workers"]] == [True, False]
    assert "silent for" in shell.run("status").out


def test_mail_that_is_due_for_too_long_needs_a_person(shell: Shell, opened: Database) -> None:
    Store(opened).control.register("h", 1, "0")
    shell.send("k")

    assert whole(shell, "--check")["problems"] == []
    assert [p["name"] for p in whole(shell, "--check", "--oldest", "0s", code=1)["problems"]] == ["overdue"]


def test_a_stopped_route_and_held_sends_need_a_person(shell: Shell, opened: Database, put: Put) -> None:
    shell.send("k")
    put("k", status="unknown", next_try_at=None)
    with opened.write() as connection:
        connection.exec_driver_sql(
            "INSERT INTO email_routes (name, state, held_until, reason, strikes, changed_at) "
            "VALUES ('main', 'stopped', '2020-01-01 00:00:00', '401 who are you', 1, '2020-01-01 00:00:00')"
        )

    document = whole(shell, "--check", code=1)

    assert [problem["name"] for problem in document["problems"]] == ["route_stopped", "held"]
    stopped = {"name": "main", "state": "stopped", "held_until": None, "reason": "401 who are you"}
    assert document["routes"] == [{**stopped, "last_accepted_at": None}]
    assert "main: stopped, tried again with the next send: 401 who are you" in shell.run("status").flat


def test_a_route_whose_provider_fails_says_when_it_is_tried_again(shell: Shell, opened: Database) -> None:
    store = Store(opened)
    now = store.ledger.now()
    lost = Verdict(Outcome.TRANSIENT, subject=Subject.ROUTE, code="connect_refused", text="nobody is there")
    for _ in range(STREAK_MAX):
        store.control.change_route("main", lambda health: after_call(health, lost, 0, 1, now, 1.0), now)

    assert [problem["name"] for problem in whole(shell, "--check", code=1)["problems"]] == ["route_fails"]
    said = shell.run("status").flat
    assert re.search(r"main: fails, tried again in \S+ s \(.{8}\): connect_refused nobody is there", said)


def test_when_a_route_last_accepted_mail_is_shown(shell: Shell, opened: Database) -> None:
    control = Store(opened).control
    control.note_accepted("main", Store(opened).ledger.now() - 240.0, 60.0)

    assert whole(shell)["routes"][0]["last_accepted_at"] is not None
    assert "main: open; accepted mail 4 min" in shell.run("status").flat


def test_a_lane_whose_type_is_not_configured_here_is_marked(shell: Shell, put: Put) -> None:
    shell.send("k")
    put("k", type="digest", lane="digest/shop")

    assert whole(shell)["lanes"][0]["configured"] is False
    assert "digest/shop (not configured here)" in shell.run("status").out


def test_words_fit_in_80_columns(shell: Shell, put: Put) -> None:
    shell.send("order-1042-receipt")
    put("order-1042-receipt", status="unknown", next_try_at=None, last_error="nobody could say " * 12)

    for args in (["find"], ["show", "order-1042-receipt"], ["config", "check"]):
        lines = [line for line in shell.run(*args).out.splitlines() if "://" not in line]  # an address stays whole
        assert max(map(len, lines)) <= 80, args


def test_what_waits_for_a_quota_says_so_and_until_when(shell: Shell, opened: Database, put: Put) -> None:
    marker = "[routes.main]\n"
    assert marker in shell.config.read_text(encoding="utf-8")
    shell.configure(shell.config.read_text(encoding="utf-8").replace(marker, f'{marker}quota = "5/hour"\n'))
    store = Store(opened)
    quota = pace_policy(load_config(shell.config)).limits("default", "main", store.ledger.now())
    shell.send("k")
    store.control.register("here", 1, "test")

    store.pacing.permit(quota, 4, store.ledger.now())
    assert whole(shell)["quotas"][0].items() >= {"name": "route main", "count": 5, "used": 4}.items()
    assert "Quotas route main: 4 of 5 used " in shell.run("status").flat
    assert "due now" in shell.json("show", "k")["next"]["text"]

    store.pacing.permit(quota, 4, store.ledger.now())
    assert "route main: 5 of 5 used; the next fits in " in shell.run("status").flat
    assert shell.json("show", "k")["next"]["text"].startswith("the quota of route main is used up; the next fits in ")
