"""`posthouse config check`: everything that is wrong, at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from posthouse.cli.init import STARTER
from tests.cli.conftest import Shell, free_port

ROUTE = """
[routes.main]
provider = "http"
url = "https://api.example.com/v1/send"
"""


@pytest.fixture
def ready(empty_shell: Shell) -> Shell:
    """A folder in which everything is as it has to be."""
    empty_shell.run("init")
    (empty_shell.folder / "templates").mkdir()
    return empty_shell


def wrong(shell: Shell, *args: str, code: int = 2) -> dict[str, str]:
    """What is wrong, by setting."""
    document = shell.json("config", "check", *args, code=code)
    return {f["setting"]: f["text"] for f in document["findings"] if f["level"] == "wrong"}


def notes(shell: Shell) -> dict[str, str]:
    document = shell.json("config", "check")
    return {f["setting"]: f["text"] for f in document["findings"] if f["level"] == "note"}


def test_nothing_is_wrong_with_what_init_wrote(ready: Shell) -> None:
    assert wrong(ready, code=0) == {}
    assert notes(ready) == {}


def test_a_secret_that_cannot_be_read_is_named_with_its_route(ready: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMPTY_KEY", " ")
    other = ROUTE.replace("routes.main", "routes.other")
    third = ROUTE.replace("routes.main", "routes.third")
    ready.configure(
        STARTER.partition("[routes.main]")[0]
        + f'{ROUTE}api_key = "env:NO_SUCH_KEY"\n{other}api_key = "file:{ready.folder}/none"\n'
        + f'{third}api_key = "env:EMPTY_KEY"\n'
    )

    assert wrong(ready) == {
        "routes.main.api_key": "the environment variable NO_SUCH_KEY is not set",
        "routes.other.api_key": f"the file {ready.folder}/none can't be read: No such file or directory",
        "routes.third.api_key": "is empty",
    }


def test_what_can_verify_no_webhook_is_wrong(ready: Shell) -> None:
    routes = "".join(
        f'[routes.{name}]\nprovider = "resend"\napi_key = "key"\nwebhook_secrets = {secrets}\n'
        for name, secrets in (("none", '["env:NO_SUCH_KEY"]'), ("odd", '["whsec_#"]'), ("fine", '["whsec_Zm9v"]'))
    )
    ready.configure(STARTER.partition("[routes.main]")[0] + routes)

    assert wrong(ready) == {
        "routes.none.webhook_secrets": "the environment variable NO_SUCH_KEY is not set",
        "routes.odd.webhook_secrets": "one of them is no signing secret such as whsec_…, which goes on in base64",
    }
    told = {f["setting"]: f["text"] for f in ready.json("config", "check", code=2)["findings"]}
    assert told["routes.fine.webhook_secrets"] == "posthouse serve takes its webhooks at /webhooks/fine"


def test_a_provider_that_cannot_be_built_is_told(ready: Shell) -> None:
    ready.configure(STARTER.replace('provider = "http"', 'provider = "htp"'))

    assert "did you mean 'http'?" in wrong(ready)["routes.main.provider"]


def test_no_route_at_all_is_wrong(ready: Shell) -> None:
    ready.configure('database = "sqlite:///posthouse.db"\n')

    assert "there is none" in wrong(ready)["routes"]


def test_missing_tables_and_a_wrong_route_are_told_at_once(empty_shell: Shell) -> None:
    empty_shell.configure(STARTER.replace('auth = "none"', 'auth = "bearer"'))

    found = wrong(empty_shell)

    assert "posthouse migrate" in found["database"]
    assert "is missing" in found["routes.main.api_key"]


def test_a_database_that_is_away_ends_with_3_and_the_rest_is_told_all_the_same(ready: Shell) -> None:
    url = f"postgresql://nobody@127.0.0.1:{free_port()}/nothing"
    ready.configure(STARTER.replace("sqlite:///posthouse.db", url))

    document = ready.json("config", "check", code=3)

    assert [f["level"] for f in document["findings"]].count("ok") >= 2


def test_a_template_with_a_mistake_is_named_with_its_line(ready: Shell) -> None:
    Path("templates/receipt.txt").write_text("Dear {{ name }}\n")
    Path("templates/receipt.html").write_text("<p>\n{% if order %}\n")

    assert wrong(ready)["templates"].startswith("templates/receipt.html, line 2: Unexpected end of template")


def test_what_works_but_may_not_be_meant_is_noted(ready: Shell) -> None:
    ready.configure(f'database = "sqlite:///posthouse.db"\ntemplates = "mails"\n{ROUTE}auth = "none"\ntimeout = "1m"\n')

    assert set(notes(ready)) == {"sender", "templates", "routes.main", "routes.main.timeout"}


def test_a_route_says_what_it_refuses(ready: Shell) -> None:
    body = 'body = { from = "{from}", to = "{to}", subject = "{subject}", text = "{text}", files = "{files}" }\n'
    ready.configure(f'database = "sqlite:///posthouse.db"\nsender = "a@shop.example"\n{ROUTE}auth = "none"\n{body}')

    found = {f["setting"]: f["text"] for f in ready.json("config", "check")["findings"] if f["level"] == "ok"}

    assert found["routes.main"] == (
        "provider http, 32 calls at once; refuses text with html, html alone, raw, cc, bcc, reply_to, inline, amp, "
        "calendar, headers, tags, metadata, message_id, envelope_sender, track_opens, track_clicks"
    )


def test_a_default_sender_that_a_route_can_not_sign_for_is_wrong(ready: Shell) -> None:
    signed = 'dkim_domain = "other.example"\ndkim_selector = "s1"\ndkim_key = "env:HOME"\n'
    route = f'[routes.main]\nprovider = "smtp"\nurl = "smtp://127.0.0.1"\n{signed}'
    ready.configure(f'database = "sqlite:///posthouse.db"\nsender = "a@shop.example"\n{route}')

    assert wrong(ready) == {
        "routes.main": (
            "refuses emails of the default sender: sender: this route signs for other.example, not for a@shop.example"
        )
    }


def test_live_asks_the_health_url(ready: Shell) -> None:
    ready.configure(STARTER.replace("8025", str(free_port())))

    assert "connect_refused" in wrong(ready, "--live", code=1)["routes.main.health_url"]


def test_a_wrong_file_is_told_like_everywhere_else(empty_shell: Shell) -> None:
    empty_shell.configure("database = ")

    ran = empty_shell.run("config", "check")

    assert ran.code == 2
    assert "posthouse.toml is not TOML" in ran.err


def test_all_that_is_wrong_with_all_tables_and_routes_is_told_at_once(ready: Shell) -> None:
    other = ROUTE.replace("routes.main", "routes.other").replace("https://", "")
    ready.configure(f'sender = "shop"\ndatabase = "sqlite:///posthouse.db"\n{ROUTE}timeout = 5\n{other}auht = "none"\n')

    found = wrong(ready)

    assert set(found) == {
        "sender", "routes.main.timeout", "routes.main.api_key", "routes.other.url", "routes.other.auht"
    }  # fmt: skip
    ran = ready.run("worker")
    assert (ran.code, {line.split(": ")[1] for line in ran.err.splitlines() if "try:" not in line}) == (2, set(found))
    failed = ready.json("status", code=2)
    assert {fault["setting"]: fault["text"] for fault in failed["faults"]} == found


def test_a_wrong_route_hides_nothing_of_the_others(ready: Shell) -> None:
    other = ROUTE.replace("routes.main", "routes.other")
    ready.configure(f'database = "sqlite:///posthouse.db"\n{ROUTE}auht = "none"\n{other}api_key = "env:NO_SUCH_KEY"\n')

    assert set(wrong(ready)) == {"routes.main.auht", "routes.main.api_key", "routes.other.api_key"}
    ran = ready.run("worker")
    assert ran.code == 2
    assert "did you mean 'auth'?" in ran.err


def test_words_tell_the_level_first(ready: Shell) -> None:
    ran = ready.run("config", "check")

    assert {line.split()[0] for line in ran.out.splitlines()} == {"ok"}


LINKS = """
[web]
public_url = "https://mail.shop.example"
unsubscribe_secrets = ["{secret}"]

[types.newsletter]
category = "marketing"
"""


def test_the_links_by_which_people_unsubscribe_are_looked_at(ready: Shell) -> None:
    starter = ready.config.read_text(encoding="utf-8")

    ready.config.write_text(starter + LINKS.format(secret="s" * 32), encoding="utf-8")
    findings = ready.json("config", "check")["findings"]
    told = [f["text"] for f in findings if f["setting"] == "web.unsubscribe_secrets"]
    assert told == ["mail of these types has a link to unsubscribe: newsletter"]

    ready.config.write_text(starter + LINKS.format(secret="env:POSTHOUSE_NO_SUCH"), encoding="utf-8")
    missing = {"web.unsubscribe_secrets": "the environment variable POSTHOUSE_NO_SUCH is not set"}
    assert wrong(ready) == missing
    for command in ("worker", "serve"):
        ran = ready.run(command)
        assert (ran.code, "POSTHOUSE_NO_SUCH is not set" in ran.err) == (2, True), "no message without its link"
