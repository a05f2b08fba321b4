"""What a provider that takes several messages by one call must do, whatever its API: one suite, run for each."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from posthouse.address import Address
from posthouse.core.outcome import Outcome, Verdict
from posthouse.providers.port import OutgoingMessage, Provider
from posthouse.providers.transport import ANSWER_BYTES_MAX
from tests.contract.api_harness import ApiHarness
from tests.contract.provider_suite import EXPECTED, SECRET, Behaviour, plain_message

WHOLE = (
    Behaviour.THROTTLE,
    Behaviour.BE_OUT_OF_SERVICE,
    Behaviour.FAIL_MIDWAY,
    Behaviour.REFUSE_CREDENTIAL,
    Behaviour.STALL,
    Behaviour.DROP,
)
"""What may become of a call, and then is every message's alike."""

SENT = 5


def messages() -> Sequence[OutgoingMessage]:
    return [replace(plain_message(n), to=(Address(f"person-{n}@example.com"),)) for n in range(SENT)]


def meaning(verdict: Verdict | None) -> tuple[Outcome, bool, bool]:
    assert verdict is not None, "it is to be sent by itself"
    return verdict.outcome, verdict.maybe_accepted, verdict.spends_attempt


UNKNOWN = (Outcome.UNKNOWN, True, True)
ACCEPTED = EXPECTED[Behaviour.ACCEPT]


class BatchSuite:
    """Subclass it beside `ProviderSuite`."""

    async def test_all_go_by_one_call_and_each_has_its_own_id(self, harness: ApiHarness, provider: Provider) -> None:
        harness.answer_together(lambda results: results)
        verdicts = await provider.send_together(messages())
        assert [meaning(verdict) for verdict in verdicts] == [ACCEPTED] * SENT
        assert [v.message_id for v in verdicts if v] == [f"m-ph-{number}" for number in range(SENT)]
        assert harness.together == [[f"ph-{number}" for number in range(SENT)]]
        assert provider.facts.batch_max > 1

    @pytest.mark.parametrize("place", range(SENT))
    async def test_a_refused_message_is_refused_alone(
        self, harness: ApiHarness, provider: Provider, place: int
    ) -> None:
        harness.answer_together(lambda results: [*results[:place], harness.batch.refused, *results[place + 1 :]])
        verdicts = await provider.send_together(messages())
        assert [meaning(verdict)[0] for verdict in verdicts] == [
            Outcome.REJECTED if each == place else Outcome.ACCEPTED for each in range(SENT)
        ]
        assert SECRET not in repr(verdicts)

    async def test_a_result_that_leaves_a_doubt_is_asked_about_alone(
        self, harness: ApiHarness, provider: Provider
    ) -> None:
        harness.answer_together(lambda results: [*results[:-1], harness.batch.said_no_more])
        verdicts = await provider.send_together(messages())
        assert [meaning(verdict) for verdict in verdicts] == [ACCEPTED] * (SENT - 1) + [UNKNOWN]

    @pytest.mark.parametrize("behaviour", WHOLE)
    async def test_what_became_of_the_call_is_every_messages_alike(
        self, harness: ApiHarness, provider: Provider, behaviour: Behaviour
    ) -> None:
        harness.behave(behaviour)
        verdicts = await provider.send_together(messages())
        assert [meaning(verdict) for verdict in verdicts] == [{**EXPECTED, **harness.expected}[behaviour]] * SENT
        assert SECRET not in repr(verdicts)
        assert len(harness.together) == 1, "a provider never repeats a call by itself"

    async def test_a_dead_host_has_certainly_accepted_none(self, harness: ApiHarness) -> None:
        provider = harness.provider_of_a_dead_host()
        assert {meaning(v) for v in await provider.send_together(messages())} == {(Outcome.TRANSIENT, False, False)}
        await provider.close()

    async def test_a_call_that_is_refused_as_a_whole_says_nothing_about_any(
        self, harness: ApiHarness, provider: Provider
    ) -> None:
        for reply in harness.batch.refused_whole:
            harness.reply_with(reply)
            assert await provider.send_together(messages()) == [None] * SENT

    @pytest.mark.parametrize(
        "change",
        [
            lambda results: results[:-1],
            lambda results: [*results, results[0]],
            lambda _: [],
            lambda results: {"results": results},
            lambda results: json.dumps(results)[:-10],
            lambda _: "",
            lambda _: "<html><title>Welcome</title></html>",
            lambda results: [None for _ in results],
            lambda results: [{} for _ in results],
        ],
        ids=["too few", "too many", "none", "no list", "cut", "empty", "a page", "nulls", "nothing in them"],
    )
    async def test_a_success_that_does_not_say_who_was_taken_leaves_all_in_doubt(
        self, harness: ApiHarness, provider: Provider, change: Callable[[list[Any]], Any]
    ) -> None:
        harness.answer_together(change)
        verdicts = await provider.send_together(messages())
        assert [meaning(verdict) for verdict in verdicts] == [UNKNOWN] * SENT

    async def test_an_answer_for_many_may_be_longer_than_one_for_a_single_message(
        self, harness: ApiHarness, provider: Provider
    ) -> None:
        harness.answer_together(lambda results: json.dumps(results) + " " * ANSWER_BYTES_MAX)
        verdicts = await provider.send_together(messages())
        assert [meaning(verdict) for verdict in verdicts] == [ACCEPTED] * SENT

    async def test_results_that_name_somebody_else_are_nobodys(self, harness: ApiHarness, provider: Provider) -> None:
        assert harness.batch.named
        harness.answer_together(lambda results: [results[1], results[0], *results[2:]])
        verdicts = await provider.send_together(messages())
        assert [meaning(verdict) for verdict in verdicts] == [UNKNOWN] * 2 + [ACCEPTED] * (SENT - 2)

    async def test_a_message_that_the_route_can_not_carry_stays_out_of_the_call(
        self, harness: ApiHarness, provider: Provider
    ) -> None:
        harness.answer_together(lambda results: results)
        first, second, *others = messages()
        too_many = replace(second, metadata={f"name-{number}": "v" for number in range(50)})
        verdicts = await provider.send_together([first, too_many, *others])
        assert [meaning(verdict)[0] for verdict in verdicts] == [
            Outcome.ACCEPTED,
            Outcome.REJECTED,
            *[Outcome.ACCEPTED] * (SENT - 2),
        ]
        assert harness.together == [["ph-0", "ph-2", "ph-3", "ph-4"]]
