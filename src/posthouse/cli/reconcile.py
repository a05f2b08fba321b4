"""`posthouse reconcile`: finds out now what became of unknown sends."""

from __future__ import annotations

from typing import Annotated

import typer

from posthouse.app import App
from posthouse.cli.backfill import backfill
from posthouse.cli.failures import Exit, WrongUsage, failure_of
from posthouse.cli.invocation import Invocation
from posthouse.cli.moments import duration
from posthouse.cli.output import Answer, Json, count
from posthouse.cli.story import command, is_held, standing
from posthouse.core.intervention import Intervention
from posthouse.core.lifecycle import Status
from posthouse.core.reconcile import waited
from posthouse.core.sends import SendState
from posthouse.errors import CallerError, NotPossible
from posthouse.store.ledger import Story


def reconcile(
    call: Invocation,
    keys: Annotated[
        list[str] | None, typer.Argument(help="These at once, due or not.", metavar="KEY...", show_default=False)
    ] = None,
    events: Annotated[
        bool, typer.Option("--events", help="Read the providers' logs for news whose webhook never came.")
    ] = False,
    route: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --events: only this route's.", show_default=False)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="2d", help="With --events: from so long ago, though it was read already.", show_default=False
        ),
    ] = None,
) -> Answer:
    """Find out now what became of unknown sends.

    The provider is asked, or called again under the same key. Without KEYs: one pass over all that are due. Workers
    do this by themselves every few seconds. With --events it is the news of accepted sends that is looked for.
    """
    if events:
        if keys:
            raise WrongUsage("--events is about everything in the log: name no KEY")
        return backfill(call, route, since)
    if route or since:
        raise WrongUsage("--route and --since go with --events")
    app = call.app
    hurried, refused = _hurry(app, list(dict.fromkeys(keys or ())), call.who)
    steps = app.reconcile() if hurried or not keys else 0
    document: Json = {
        "ran_here": steps is not None,
        "steps": steps or 0,
        "sends": [_outcome(app, key) for key in hurried],
        "refused": refused,
        "unknown": app.store.ledger.count(Status.UNKNOWN),
        "held": app.store.ledger.held_unknown(),
    }
    left_alone = steps is None and not hurried
    exit_code = Exit.NOT_POSSIBLE if refused or left_alone else Exit.OK
    told = _left_to_the_worker(app, hurried) if steps is None else _found_out(document, named=bool(keys))
    return Answer(document, [*(f"{no['key']}: {no['error']}" for no in refused), *told], exit_code)


def _outcome(app: App, key: str) -> Json:
    story = app.store.ledger.story(key)
    return {
        "key": key,
        "status": story.send["status"],
        "held": is_held(story.send),
        "standing": standing(story),
    }


def _found_out(document: Json, *, named: bool) -> list[str]:
    if named:
        return [f"{send['key']} is {send['standing']}." for send in document["sends"]]
    steps = count(document["steps"], "send")
    return [f"{steps} looked after; {document['unknown']:,} unknown, {document['held']:,} held."]


def _left_to_the_worker(app: App, hurried: list[str]) -> list[str]:
    every = duration(app.config.worker.sweep)
    said = f"A worker has {app.database.sqlite_file} and does this itself, every {every}"
    if hurried:
        return [f"{said}.", *(f"  see what it found: {command('show', key)}" for key in hurried)]
    return [f"{said}; stop it first to do it from here."]


def _hurry(app: App, keys: list[str], who: str) -> tuple[list[str], list[Json]]:
    """Makes the sends due now; the keys of those it could be done for, and the others with the reason."""
    hurried: list[str] = []
    refused: list[Json] = []
    for key in keys:
        try:
            story = app.store.ledger.story(key)
            _make_due(app, story, who)
            hurried.append(story.send["dedupe_key"])
        except CallerError as error:
            refused.append({"key": key, **failure_of(error).document})
    return hurried, refused


def _make_due(app: App, story: Story, who: str) -> None:
    key, now = story.send["dedupe_key"], app.store.ledger.now()
    if is_held(story.send):
        # To call again could send what was cancelled or has expired; only a person may say so.
        raise NotPossible(f"it is held; say what became of it with: {command('resolve', key)}")

    def decide(state: SendState) -> Intervention:
        if state.status is not Status.UNKNOWN:
            raise NotPossible(f"there is nothing to find out: it is {state.status}")
        if state.fence != story.state.fence:
            raise NotPossible("a worker looks after it at this very moment")
        return Intervention(waited(state, now, ""))

    app.store.operations.intervene(
        story.send["id"],
        decide,
        action="reconcile",
        who=who,
        detail="",
        now=now,
        max_age_s=0.0,
        new_key=app.new_key,
    )
