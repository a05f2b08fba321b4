"""`posthouse config check`: everything that can be wrong with the configuration, told at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from jinja2 import Environment, TemplateSyntaxError

from posthouse.address import Address
from posthouse.app import App
from posthouse.cli.failures import Exit, failure_of
from posthouse.cli.invocation import Invocation, add_command
from posthouse.cli.output import Answer, Line, assembled
from posthouse.cli.story_lines import wrapped
from posthouse.config import Config, RouteSettings
from posthouse.content import Content
from posthouse.core.outcome import Outcome
from posthouse.errors import ConfigError, PosthouseError
from posthouse.providers.port import Provider
from posthouse.providers.registry import PROVIDERS
from posthouse.providers.trial import refused_parts
from posthouse.providers.webhook_keys import WebhookKeys
from posthouse.setting_values import Secret
from posthouse.store.migrate import check as check_tables
from posthouse.unsubscribe import unsubscribe_secrets
from posthouse.web.webhooks import path_of
from posthouse.worker.supervisor import SETTLE_GRACE_SHARE


class Level(StrEnum):
    """How a finding counts."""

    OK = "ok"
    NOTE = "note"  # it works; somebody may not have meant it
    WRONG = "wrong"  # it does not work


_INDENT: Final = " " * 7
_STYLES: Final = {Level.OK: "green", Level.NOTE: "yellow", Level.WRONG: "red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    setting: str
    text: str
    exit_code: Exit = Exit.WRONG  # where it is wrong


def check(
    call: Invocation,
    live: Annotated[bool, typer.Option("--live", help="Also ask each route whether it is well.")] = False,
) -> Answer:
    """Tell whether everything is as it has to be: settings, secrets, database, tables, templates."""
    findings = list(_findings(call, live))
    wrong = [finding for finding in findings if finding.level is Level.WRONG]
    document = {
        "ok": not wrong,
        "findings": [{"level": f.level.value, "setting": f.setting, "text": f.text} for f in findings],
    }
    lines = [line for finding in findings for line in _lines(finding, call.output.width)]
    return Answer(document, lines, max((finding.exit_code for finding in wrong), default=Exit.OK))


def _findings(call: Invocation, live: bool) -> Iterator[Finding]:
    try:
        app = call.app
    except ConfigError as error:
        if not error.setting:
            raise  # there is no file, or nobody can read it
        yield from _faults(error)
        return
    yield from _database(app)
    routes = list(_routes(app))
    yield from routes
    yield from (*_types(app.config), *_links(app), *_templates(app.config))
    if live and not any(finding.level is Level.WRONG for finding in routes):
        yield from _health(app)


def _faults(error: ConfigError) -> Iterator[Finding]:
    return (Finding(Level.WRONG, fault.setting, fault.reason) for fault in error.faults)


def _lines(finding: Finding, width: int) -> list[Line]:
    first, *rest = wrapped(f"{finding.setting}: {finding.text}", width, _INDENT)
    level = (f"{finding.level.value:{len(_INDENT)}}", _STYLES[finding.level])
    return [assembled(level, first.lstrip()), *rest]


def _tried(setting: str, attempt: Callable[[], object], fine: str) -> Finding:
    try:
        attempt()
    except PosthouseError as error:
        reason = error.reason if isinstance(error, ConfigError) else str(error)
        named = (isinstance(error, ConfigError) and error.setting) or setting
        return Finding(Level.WRONG, named, reason, failure_of(error).exit_code)
    return Finding(Level.OK, setting, fine)


def _database(app: App) -> Iterator[Finding]:
    shown = app.config.database_shown
    yield _tried("database", lambda: check_tables(app.database), f"{shown} answers, its tables are current")


def _routes(app: App) -> Iterator[Finding]:
    config = app.config
    if not config.routes:
        yield Finding(Level.WRONG, "routes", "there is none, so nothing can be sent; configure one as [routes.main]")
        return
    grace_s = config.worker.shutdown_grace * (1 - SETTLE_GRACE_SHARE)
    for name, settings in config.routes.items():
        try:
            provider, webhook = app.provider(name), app.webhook(name)
        except ConfigError as error:
            yield from _faults(error)
            continue
        yield from _route(f"routes.{name}", settings, provider, grace_s)
        yield from _default_sender(f"routes.{name}", provider, config.sender)
        yield from _webhook(name, webhook)


def _webhook(route: str, keys: WebhookKeys | None) -> Iterator[Finding]:
    if keys is None:
        return
    faults = keys.faults()
    yield from (Finding(Level.WRONG, fault.setting, fault.reason) for fault in faults)
    if not faults:
        yield Finding(Level.OK, keys.setting, f"posthouse serve takes its webhooks at {path_of(route)}")


def _route(place: str, settings: RouteSettings, provider: Provider, grace_s: float) -> Iterator[Finding]:
    wrong = [
        Finding(Level.WRONG, f"{place}.{name}", reason)
        for name, secret in _secrets(settings)
        if (reason := _unreadable(secret))
    ]
    yield from wrong
    if not wrong:
        text = f"provider {settings.provider}, {settings.concurrency} calls at once"
        refused = refused_parts(provider)
        yield Finding(Level.OK, place, f"{text}; refuses {', '.join(refused)}" if refused else text)
    facts = provider.facts
    if not facts.key_lifetime_s and not facts.can_look_up:
        text = "can neither dedupe nor be asked: a call whose answer is lost is left to its type's on_unknown"
        yield Finding(Level.NOTE, place, text)
    if settings.timeout > grace_s:
        text = "is longer than what worker.shutdown_grace leaves for calls: a stopping worker may cut them off"
        yield Finding(Level.NOTE, f"{place}.timeout", text)


def _default_sender(place: str, provider: Provider, sender: Address | None) -> Iterator[Finding]:
    """Whether the route takes emails that name no sender: at `enqueue` it doesn't know what theirs will be."""
    if sender is not None:
        nobodys = Content(to=(sender,), subject="", text="")
        anyway = provider.refusals(nobodys)
        for reason in provider.refusals(replace(nobodys, sender=sender)):
            if reason not in anyway:
                yield Finding(Level.WRONG, place, f"refuses emails of the default sender: {reason}")


def _secrets(settings: RouteSettings) -> Iterator[tuple[str, Secret]]:
    own: Any = PROVIDERS[settings.provider]().settings.model_validate(settings.own)
    return ((name, value) for name, value in own if isinstance(value, Secret))


def _unreadable(secret: Secret) -> str | None:
    try:
        return None if secret.reveal().strip() else "is empty"
    except ConfigError as error:
        return error.reason
    except UnicodeDecodeError:
        return "its file is not text"


def _types(config: Config) -> Iterator[Finding]:
    yield Finding(Level.OK, "types", ", ".join(config.types))
    if config.sender is None:
        yield Finding(Level.NOTE, "sender", "is missing: every email has to name one itself")


def _links(app: App) -> Iterator[Finding]:
    web = app.config.web
    if web.unsubscribe_secrets:
        linked = ", ".join(policy.name for policy in app.policies.values() if policy.unsubscribe_link)
        fine = f"mail of these types has a link to unsubscribe: {linked or 'none, as none is marketing'}"
        yield _tried("web.unsubscribe_secrets", lambda: unsubscribe_secrets(web), fine)


def _templates(config: Config) -> Iterator[Finding]:
    folder = config.templates
    if not folder.is_dir():
        yield Finding(Level.NOTE, "templates", f"there is no folder {folder}: emails with a template would fail")
        return
    files = sorted(file for file in folder.rglob("*") if file.suffix in (".txt", ".html") and file.is_file())
    wrong = [finding for file in files if (finding := _template(file)) is not None]
    yield from wrong or [Finding(Level.OK, "templates", f"{len(files)} files in {folder}")]


def _template(file: Path) -> Finding | None:
    try:
        Environment(autoescape=True).parse(file.read_text(encoding="utf-8"))
    except TemplateSyntaxError as error:
        return Finding(Level.WRONG, "templates", f"{file}, line {error.lineno}: {error.message}")
    except (OSError, UnicodeDecodeError) as error:
        return Finding(Level.WRONG, "templates", f"{file} can't be read: {error}")
    return None


def _health(app: App) -> Iterator[Finding]:
    for name, verdict in app.ask_health().items():
        place = f"routes.{name}"
        if verdict is None:
            yield Finding(Level.NOTE, place, "has no health_url to ask")
        elif verdict.outcome is Outcome.ACCEPTED:
            yield Finding(Level.OK, place, f"is well: it answers {verdict.code}")
        else:
            said = f"{verdict.code} {verdict.text}".strip()
            setting = f"{place}.health_url" if "health_url" in app.config.routes[name].own else place
            yield Finding(Level.WRONG, setting, f"says that it is not well: {said}", Exit.NOT_POSSIBLE)


config = typer.Typer(no_args_is_help=True, help="The configuration.")
add_command(config, check)
