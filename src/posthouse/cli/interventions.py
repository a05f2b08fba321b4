"""`posthouse retry`, `cancel` and `resolve`: what a person does to sends, one by one or many, each of it audited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Annotated, Final

import typer

from posthouse.app import App
from posthouse.cli.failures import Exit, WrongUsage, failure_of
from posthouse.cli.invocation import Invocation
from posthouse.cli.output import Answer, Json, count
from posthouse.cli.progress import tracked
from posthouse.core import intervention
from posthouse.core.intervention import Intervention, Verdict
from posthouse.core.lifecycle import Status
from posthouse.core.policy import TypePolicy
from posthouse.core.sends import SendState
from posthouse.errors import CallerError, NotPossible
from posthouse.store.ledger import NamedSend

PAGE: Final = 500
TOLD_MAX: Final = 20
"""So many sends are named on a terminal; --json names all."""

Keys = Annotated[list[str] | None, typer.Argument(help="Keys, or ids.", metavar="KEY...", show_default=False)]
TypeOption = Annotated[str | None, typer.Option("--type", help="Only sends of this type.", show_default=False)]
LimitOption = Annotated[int | None, typer.Option(min=1, help="At most so many, the oldest first.", show_default=False)]
WhyOption = Annotated[str, typer.Option("--why", metavar="TEXT", help="A reason, for the audit.", show_default=False)]


class Action(StrEnum):
    """What is done, as the audit names it."""

    RETRY = "retry"
    CANCEL = "cancel"
    RESOLVE = "resolve"


Decide = Callable[[SendState, TypePolicy | None, float], Intervention]


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person wants done to each send. `detail` is the audit's."""

    action: Action
    decide: Decide
    detail: str


def retry(
    call: Invocation,
    keys: Keys = None,
    failed: Annotated[bool, typer.Option("--failed", help="All that failed, instead of KEYs.")] = False,
    type_: TypeOption = None,
    limit: LimitOption = None,
    why: WhyOption = "",
) -> Answer:
    """Give ended sends another life; pending ones their next try now."""
    wish = Wish(Action.RETRY, lambda state, _, now: intervention.retry(state, now), why)
    every = partial(_every, call.app, Status.FAILED, type_, limit)
    return _carry_out(call, wish, _by_keys_or("--failed", failed, keys, every, narrowed=bool(type_ or limit)))


def cancel(call: Invocation, keys: Keys = None, why: WhyOption = "") -> Answer:
    """Withdraw sends for which no call has begun."""
    wish = Wish(Action.CANCEL, lambda state, _policy, _now: intervention.cancel(state), why)
    return _carry_out(call, wish, _by_keys(keys))


def resolve(
    call: Invocation,
    keys: Keys = None,
    accepted: Annotated[bool, typer.Option("--accepted", help="The provider has it.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="It was not accepted, and must not go out.")] = False,
    resend: Annotated[bool, typer.Option("--resend", help="Send it (again), at the risk of a second copy.")] = False,
    all_held: Annotated[bool, typer.Option("--all-held", help="All that are held, instead of KEYs.")] = False,
    type_: TypeOption = None,
    limit: LimitOption = None,
    why: WhyOption = "",
) -> Answer:
    """Say what became of unknown sends."""
    given = {Verdict.ACCEPTED: accepted, Verdict.FAILED: failed, Verdict.RESEND: resend}
    verdicts = [verdict for verdict, chosen in given.items() if chosen]
    if len(verdicts) != 1:
        raise WrongUsage("say what became of them with one of --accepted, --failed and --resend")
    verdict = verdicts[0]
    wish = Wish(Action.RESOLVE, partial(_resolved, verdict), f"{verdict}: {why}" if why else verdict.value)
    every = partial(_every, call.app, Status.UNKNOWN, type_, limit, held=True)
    return _carry_out(call, wish, _by_keys_or("--all-held", all_held, keys, every, narrowed=bool(type_ or limit)))


def _resolved(verdict: Verdict, state: SendState, policy: TypePolicy | None, now: float) -> Intervention:
    return intervention.resolve(state, verdict, now, policy)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The sends to go through, and how many they are."""

    sends: Iterable[NamedSend | str]  # a key, as it was given, is looked up when its turn comes
    total: int


def _by_keys(keys: list[str] | None) -> _Chosen:
    if not keys:
        raise WrongUsage("name the sends by their keys")
    unique = list(dict.fromkeys(keys))
    return _Chosen(unique, len(unique))


def _by_keys_or(
    option: str, given: bool, keys: list[str] | None, every: Callable[[], _Chosen], *, narrowed: bool
) -> _Chosen:
    """The sends with these keys, or, where `option` was `given`, `every` one of its kind."""
    if bool(keys) is given:
        raise WrongUsage(f"name the sends by their keys, or give {option}")
    if given:
        return every()
    if narrowed:
        raise WrongUsage(f"--type and --limit go with {option}, not with keys")
    return _by_keys(keys)


def _every(app: App, status: Status, type_: str | None, limit: int | None, *, held: bool = False) -> _Chosen:
    total = app.store.ledger.count(status, type_, held=held)
    return _Chosen(_pages(app, status, type_, limit, held), min(total, limit or total))


def _pages(app: App, status: Status, type_: str | None, limit: int | None, held: bool) -> Iterator[NamedSend]:
    """The sends of a status page by page. One that changed its status is not met again: ids only grow."""
    above, left = 0, limit
    while left is None or left > 0:
        page = app.store.ledger.ids(status, type_, PAGE if left is None else min(PAGE, left), above, held=held)
        yield from page
        if not page:
            return
        above = page[-1].id
        left = None if left is None else left - len(page)


def _carry_out(call: Invocation, wish: Wish, chosen: _Chosen) -> Answer:
    """Does it to each; one that can't be done holds up no other."""
    app = call.app
    now = app.store.ledger.now()
    done: list[Json] = []
    refused: list[Json] = []
    for item in tracked(chosen.sends, chosen.total, wish.action.value, quiet=call.output.as_json):
        try:
            send = _named(app, item) if isinstance(item, str) else item
            done.append({"key": send.key, "status": _intervene(app, wish, send, call.who, now).value})
        except CallerError as error:
            refused.append({"key": item if isinstance(item, str) else item.key, **failure_of(error).document})
    document: Json = {"action": wish.action.value, "by": call.who, "done": done, "refused": refused}
    return Answer(document, _lines(wish, done, refused), Exit.NOT_POSSIBLE if refused else Exit.OK)


def _named(app: App, key: str) -> NamedSend:
    send = app.store.ledger.story(key).send
    return NamedSend(send["id"], send["dedupe_key"], send["type"])


def _intervene(app: App, wish: Wish, send: NamedSend, who: str, now: float) -> Status:
    policy = app.policies.get(send.type)

    def decide(state: SendState) -> Intervention:
        made = wish.decide(state, policy, now)
        if made.fresh_start and policy is None:
            raise NotPossible(f"it can't be sent again: its type {send.type} is not configured here")
        return made

    return app.store.operations.intervene(
        send.id,
        decide,
        action=wish.action.value,
        who=who,
        detail=wish.detail,
        now=now,
        max_age_s=policy.max_age_s if policy else 0.0,
        new_key=app.new_key,
    )


def _status_words(status: str) -> str:
    return "unknown and held (posthouse resolve)" if status == Status.UNKNOWN else status


def _lines(wish: Wish, done: list[Json], refused: list[Json]) -> list[str]:
    lines = [f"{made['key']} is {_status_words(made['status'])} now." for made in done]
    if len(done) > TOLD_MAX:
        numbers = Counter(made["status"] for made in done)
        lines = [f"{count(number, 'send')}: {_status_words(status)} now." for status, number in numbers.items()]
    lines += [f"{no['key']}: {no['error']}" for no in refused[:TOLD_MAX]]
    if len(refused) > TOLD_MAX:
        lines.append(f"… and {len(refused) - TOLD_MAX:,} more that were refused (--json names them all)")
    return lines or [f"Nothing to {wish.action}."]
