"""`posthouse route close` and `open`: what they change, what they say, and whom they refuse."""

from __future__ import annotations

from tests.cli.conftest import Shell

TWO_ROUTES = """
[routes.main]
provider = "http"
url = "http://127.0.0.1:1/v1/send"
auth = "none"

[routes.standby]
provider = "http"
url = "http://127.0.0.1:1/v1/send"
auth = "none"

[types.receipt]

[types.one-time-code]
routes = ["main"]
"""


def with_two_routes(shell: Shell) -> Shell:
    head = shell.config.read_text(encoding="utf-8").partition("[routes")[0]
    shell.config.write_text(head + TWO_ROUTES, encoding="utf-8")
    return shell


def state(shell: Shell, route: str) -> dict[str, object]:
    (found,) = [one for one in shell.json("status")["routes"] if one["name"] == route]
    return dict(found)


def test_a_closed_route_is_shown_with_its_reason_and_opens_again(shell: Shell) -> None:
    with_two_routes(shell)

    said = shell.run("route", "close", "main", "--why", "they are moving", "--by", "grace").flat

    assert "Route main is closed." in said
    assert "one-time-code" in said, "a type that has no other route is named"
    assert "receipt" not in said
    assert (state(shell, "main")["state"], state(shell, "main")["reason"]) == ("closed", "grace: they are moving")
    assert "closed, until posthouse route open: grace: they are moving" in shell.run("status").flat
    shell.run("route", "open", "main")
    assert state(shell, "main")["state"] == "open"


def test_a_route_can_be_closed_for_a_while(shell: Shell) -> None:
    with_two_routes(shell)
    document = shell.json("route", "close", "standby", "--for", "2h")
    assert document["until"] is not None
    assert state(shell, "standby")["held_until"] == document["until"]


def test_a_route_that_is_not_configured_is_refused_with_the_nearest_name(shell: Shell) -> None:
    with_two_routes(shell)
    ran = shell.run("route", "close", "mian")
    assert ran.code == 2
    assert "did you mean main?" in ran.err
    assert shell.run("route", "close", "main", "--for", "soon").code == 2
