"""What the sandbox's API answers, accepts and remembers."""

from __future__ import annotations

import json
import random
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from posthouse.sandbox.fault_text import parse_fault
from posthouse.sandbox.faults import FaultPlan
from posthouse.sandbox.ledger import CallResult
from posthouse.sandbox.limit import SendLimit
from posthouse.sandbox.replies import Reply, ReplyKind
from tests.sandbox.conftest import START, Bench, make_bench, message


def said(reply: Reply) -> tuple[int, dict[str, Any]]:
    return reply.status, json.loads(reply.body)


def error_of(reply: Reply) -> tuple[int, str]:
    status, document = said(reply)
    return status, document["error"]


def id_of(reply: Reply) -> str:
    status, document = said(reply)
    assert status == 200
    return str(document["id"])


def test_a_send_is_accepted_and_entered_with_its_content(bench: Bench) -> None:
    body = message("Ada <Ada@Example.com>", cc=[{"email": "bob@example.com", "name": "Bob"}], bcc="eve@example.com")
    message_id = id_of(bench.send(body, key="order-1"))
    [entered] = bench.ledger.acceptances
    assert entered.message_id == message_id
    assert (entered.key, entered.at, entered.subject) == ("order-1", START, "Hello")
    assert entered.recipients == ("ada@example.com", "bob@example.com", "eve@example.com")
    assert entered.body == json.loads(body)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"[]", "invalid_json"),
        (b"\xff", "invalid_json"),
        (b'{"to": ["ada@example.com"], "n": NaN}', "invalid_json"),
        (b"[" * 100_000, "invalid_json"),
        (b"{}", "missing_recipients"),
        (b'{"to": []}', "missing_recipients"),
        (b'{"to": ["ada"]}', "invalid_recipient"),
        (b'{"to": ["Ada <>"]}', "invalid_recipient"),
        (b'{"to": [7]}', "invalid_recipient"),
        (b'{"to": [{"name": "Ada"}]}', "invalid_recipient"),
    ],
)
def test_an_unusable_send_is_refused_with_its_reason(bench: Bench, body: bytes, error: str) -> None:
    assert error_of(bench.send(body)) == (422, error)
    assert not bench.ledger.acceptances
    assert bench.ledger.results == {CallResult.INVALID: 1}


def test_only_the_right_bearer_token_is_let_in() -> None:
    bench = make_bench(api_key="s3cret")
    assert error_of(bench.send()) == (401, "unauthorised")
    bench.headers = {"authorization": "Bearer wrong\udce9"}
    assert error_of(bench.send()) == (401, "unauthorised")
    assert error_of(bench.get("/v1/messages/by-key/a")) == (401, "unauthorised")
    assert bench.get("/v1/health").status == 200
    bench.headers = {"authorization": "Bearer s3cret"}
    assert bench.send().status == 200
    assert bench.ledger.results[CallResult.UNAUTHORISED] == 3


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/send", 405),
        ("POST", "/v1/health", 405),
        ("POST", "/v1/messages/by-key/a", 405),
        ("GET", "/v1/x", 404),
    ],
)
def test_other_paths_and_methods_are_refused(bench: Bench, method: str, path: str, status: int) -> None:
    assert bench.api.begin(method, path, {}, b"", START).reply.status == status


# A rate limit


def test_so_many_sends_fit_into_a_window_and_every_answer_says_how_it_stands() -> None:
    bench = make_bench(limit=SendLimit(2, 5.0))
    first, second, third = (bench.send(message(f"{who}@example.com")) for who in ("ada", "bob", "eve"))
    assert [reply.status for reply in (first, second, third)] == [200, 200, 429]
    assert [reply.headers["RateLimit-Remaining"] for reply in (first, second, third)] == ["1", "0", "0"]
    assert (third.headers["RateLimit-Limit"], third.headers["RateLimit-Reset"]) == ("2", "5")
    assert bench.ledger.results == {CallResult.ACCEPTED: 2, CallResult.TOO_MANY: 1}
    bench.now += 5.0
    assert bench.send(message("eve@example.com")).status == 200, "a new window"


# Idempotency


def test_the_same_key_and_body_get_the_same_answer_and_one_acceptance(bench: Bench) -> None:
    first, second = bench.send(key="k"), bench.send(key="k")
    assert said(first) == said(second)
    assert len(bench.ledger.acceptances) == 1
    assert bench.ledger.results == {CallResult.ACCEPTED: 1, CallResult.REPLAYED: 1}


def test_a_key_with_another_body_is_a_conflict(bench: Bench) -> None:
    bench.send(key="k")
    assert error_of(bench.send(message("bob@example.com"), key="k")) == (409, "idempotency_key_reused")
    assert len(bench.ledger.acceptances) == 1


def test_a_key_whose_first_call_is_running_is_a_conflict_until_that_ends() -> None:
    bench = make_bench("slow=8s:first=1")
    running = bench.begin(key="k")
    assert running.reply.delay_s == 8
    assert error_of(bench.send(key="k")) == (409, "idempotency_key_in_progress")
    assert error_of(bench.send(message("bob@example.com"), key="k")) == (409, "idempotency_key_reused")
    bench.api.finish(running, bench.now, client_gone=True)
    assert id_of(bench.send(key="k")) == bench.ledger.acceptances[0].message_id
    assert len(bench.ledger.acceptances) == 1


def test_a_key_lapses_after_a_day(bench: Bench) -> None:
    bench.send(key="k")
    bench.now = START + 24 * 3600 - 1
    bench.send(key="k")
    assert len(bench.ledger.acceptances) == 1
    bench.now = START + 24 * 3600
    bench.send(key="k")
    assert len(bench.ledger.acceptances) == 2
    assert bench.ledger.duplicates == 1


def test_a_call_that_was_not_accepted_leaves_its_key_free() -> None:
    bench = make_bench("503:first=1")
    assert bench.send(key="k").status == 503
    assert bench.send(message("ada@example.com", subject="changed"), key="k").status == 200


def test_a_provider_that_ignores_keys_accepts_twice() -> None:
    bench = make_bench(idempotency=False)
    assert id_of(bench.send(key="k")) != id_of(bench.send(key="k"))
    assert bench.ledger.times_accepted() == {"k": 2}


def test_our_id_in_the_metadata_counts_as_the_key_but_dedupes_nothing(bench: Bench) -> None:
    body = message(metadata={"posthouse_id": "send-7"})
    bench.send(body)
    bench.send(body)
    assert bench.ledger.times_accepted() == {"send-7": 2}


# Look-up and health


def test_a_look_up_finds_what_was_accepted_under_a_key(bench: Bench) -> None:
    message_id = id_of(bench.send(key="order 1/ü"))
    reply = bench.get("/v1/messages/by-key/order%201%2F%C3%BC")
    assert said(reply) == (200, {"id": message_id, "status": "accepted"})
    assert error_of(bench.get("/v1/messages/by-key/other")) == (404, "unknown_key")


def test_a_look_up_lags_behind_acceptance() -> None:
    bench = make_bench(look_up_lag_s=5)
    bench.send(key="k")
    bench.now += 4.9
    assert bench.get("/v1/messages/by-key/k").status == 404
    bench.now += 0.2
    assert bench.get("/v1/messages/by-key/k").status == 200


def test_a_provider_without_look_up_never_says_that_it_has_nothing() -> None:
    bench = make_bench(look_up=False)
    bench.send(key="k")
    assert error_of(bench.get("/v1/messages/by-key/k")) == (501, "no_look_up")


def test_an_outage_of_everything_reaches_look_ups_and_health() -> None:
    bench = make_bench("503:at=any,until=1m")
    assert [bench.get(path).status for path in ("/v1/health", "/v1/messages/by-key/k")] == [503, 503]
    bench.now += 60
    assert [bench.get(path).status for path in ("/v1/health", "/v1/messages/by-key/k")] == [200, 404]


# Faults


@pytest.mark.parametrize(
    ("fault", "kind", "accepted"),
    [
        ("503", ReplyKind.ANSWER, 0),
        ("504-accepted", ReplyKind.ANSWER, 1),
        ("slow=8s", ReplyKind.ANSWER, 1),
        ("slow-not-accepted=8s", ReplyKind.ANSWER, 0),
        ("drip=3s", ReplyKind.DRIP, 1),
        ("malformed", ReplyKind.ANSWER, 1),
        ("malformed-not-accepted", ReplyKind.ANSWER, 0),
        ("truncated", ReplyKind.TRUNCATE, 1),
        ("truncated=502", ReplyKind.TRUNCATE, 0),
        ("html", ReplyKind.ANSWER, 1),
        ("html=502", ReplyKind.ANSWER, 0),
        ("drop", ReplyKind.DROP, 0),
        ("drop-accepted", ReplyKind.DROP, 1),
        ("stall", ReplyKind.STALL, 0),
        ("stall-accepted", ReplyKind.STALL, 1),
        ("refuse", ReplyKind.REFUSE, 0),
    ],
)
def test_a_fault_decides_at_arrival_whether_the_message_is_taken(fault: str, kind: ReplyKind, accepted: int) -> None:
    bench = make_bench(fault)
    exchange = bench.begin(key="k")
    assert exchange.reply.kind is kind
    assert len(bench.ledger.acceptances) == accepted
    bench.api.finish(exchange, bench.now, client_gone=True)
    assert len(bench.ledger.acceptances) == accepted
    assert sum(bench.ledger.results.values()) == 1
    assert bench.ledger.faults == {parse_fault(fault): 1}


def test_a_late_acceptance_happens_at_the_end_if_the_caller_is_still_there() -> None:
    bench = make_bench("slow-not-accepted=8s")
    exchange = bench.begin(key="k")
    assert not bench.ledger.acceptances
    bench.now += 8
    bench.api.finish(exchange, bench.now)
    [entered] = bench.ledger.acceptances
    assert entered.at == START + 8
    assert id_of(exchange.reply) == entered.message_id
    assert [(call.at, call.result) for call in bench.ledger.calls] == [(START, CallResult.ACCEPTED)]


def test_a_late_acceptance_never_happens_once_the_caller_has_gone() -> None:
    bench = make_bench("slow-not-accepted=8s:first=1")
    bench.api.finish(bench.begin(key="k"), bench.now, client_gone=True)
    assert bench.ledger.results == {CallResult.ABANDONED: 1}
    assert id_of(bench.send(key="k")) == bench.ledger.acceptances[0].message_id


def test_an_answer_lost_after_acceptance_is_replayed() -> None:
    bench = make_bench("drop-accepted:first=1")
    assert bench.send(key="k").kind is ReplyKind.DROP
    assert id_of(bench.send(key="k")) == bench.ledger.acceptances[0].message_id
    assert len(bench.ledger.acceptances) == 1


def test_retry_after_comes_as_seconds_as_a_date_or_not_at_all() -> None:
    asked = [make_bench(text).send().headers.get("Retry-After") for text in ("429", "429:retry-after=30")]
    assert asked == [None, "30"]
    date_bench = make_bench("429:retry-after=date+30")
    date_bench.now += 0.25
    date = date_bench.send().headers["Retry-After"]
    assert date.endswith(" GMT")
    assert parsedate_to_datetime(date).timestamp() == START + 31


def test_a_truncated_answer_announces_more_than_it_holds() -> None:
    reply = make_bench("truncated").send()
    assert reply.status == 200
    assert len(reply.body) < int(reply.headers["Content-Length"])


@pytest.mark.parametrize("fault", ["malformed", "html", "truncated"])
def test_a_garbled_answer_never_calls_a_refused_message_a_success(fault: str) -> None:
    assert make_bench(fault).send(b"{}").status == 422


@pytest.mark.parametrize(("fault", "start"), [("malformed", b"{"), ("html=502", b"<!doctype html>")])
def test_a_garbled_answer_is_no_json(fault: str, start: bytes) -> None:
    reply = make_bench(fault).send()
    assert reply.body.startswith(start)
    with pytest.raises(ValueError, match=r"."):
        json.loads(reply.body)


def test_every_status_has_words_even_unknown_ones() -> None:
    assert error_of(make_bench("503").send()) == (503, "service_unavailable")
    assert error_of(make_bench("599").send()) == (599, "status_599")


# Another plan, and starting over


def test_another_plan_has_its_own_schedule() -> None:
    bench = make_bench()
    bench.now += 3600
    bench.api.set_faults(FaultPlan([parse_fault("503:until=10s")]), bench.now)
    assert bench.send().status == 503
    bench.now += 10
    assert bench.send().status == 200


def test_a_reset_forgets_messages_keys_and_what_the_faults_have_counted() -> None:
    bench = make_bench("503:first=1")
    assert [bench.send(key="k").status for _ in range(2)] == [503, 200]
    first_id = bench.ledger.acceptances[0].message_id
    bench.api.reset(bench.now)
    assert not bench.ledger.acceptances
    assert bench.send(key="k").status == 503
    assert id_of(bench.send(message(subject="changed"), key="k")) != first_id


def test_a_run_is_replayed_from_its_seed() -> None:
    def run(seed: int) -> list[int]:
        bench = make_bench("503:share=0.3", "drop:share=0.1", seed=seed)
        return [bench.send(message(f"user-{n}@example.com"), key=str(n)).status for n in range(200)]

    seed = random.randrange(2**32)
    print(f"seed {seed}")
    assert run(seed) == run(seed)


def test_an_error_answer_says_what_it_is_told_to() -> None:
    reply = make_bench("503:text=Down for the night").send()
    assert json.loads(reply.body)["message"] == "Down for the night"
