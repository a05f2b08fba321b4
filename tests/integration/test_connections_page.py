"""Every example of docs/connections.md does what the page says: its order and its email are there."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path
from typing import Any, Final

import django.db
import pytest
from django.core.management import call_command
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import posthouse
from posthouse.store.store import Store
from tests.integration.django_project.databases import pointed_at
from tests.integration.django_project.shop.models import Order as DjangoOrder
from tests.integration.enqueue_callers import ORDERS, keys, make_orders, orders, sqlite_file
from tests.tidy.sources import ROOT

PAGE: Final = (ROOT / "docs" / "connections.md").read_text(encoding="utf-8")
POSTGRESQL_URL: Final = "postgresql://shop@localhost/shop"

sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


class _Model(DeclarativeBase):
    pass


class Order(_Model):
    """The application's model."""

    __tablename__ = ORDERS
    id: Mapped[int] = mapped_column(primary_key=True)


def examples() -> dict[str, str]:
    """The code of each section, by its heading."""
    sections = re.split(r"^#+ +(.+)$", PAGE, flags=re.MULTILINE)[1:]
    code = {
        heading: "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
        for heading, text in zip(sections[::2], sections[1::2], strict=True)
    }
    return {heading: text for heading, text in code.items() if text}


EXAMPLES: Final = examples()


async def run(code: str, names: dict[str, Any]) -> None:
    """Runs an example as it stands, `await` at its top too."""
    result = eval(compile(code, "docs/connections.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True), names)  # noqa: S307
    if inspect.iscoroutine(result):
        await result


def run_example(heading: str, url: str, **names: Any) -> dict[str, Any]:
    """Runs what all examples share and then this one, on the test's database; the names that they leave."""
    code = EXAMPLES[heading].replace(POSTGRESQL_URL, url)
    code = code.replace("///shop.db", url.removeprefix("sqlite:")).replace('"shop.db"', repr(sqlite_file(url)))
    left = {"__name__": "shop", "orders": Order.__table__, "Order": Order} | names
    for each in (EXAMPLES["Connections"], code):
        asyncio.run(run(each, left))
    return left


@pytest.fixture(autouse=True)
def application(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The application's configuration, and its orders: none."""
    if "database_url" not in request.fixturenames:
        return
    url = request.getfixturevalue("database_url")
    make_orders(url)
    config = tmp_path / "posthouse.toml"
    config.write_text(f'database = "{url}"\nsender = "shop@example.com"\n[types.receipt]\n', encoding="utf-8")
    monkeypatch.setenv("POSTHOUSE_CONFIG", str(config))


PLAIN: Final = {
    "SQLAlchemy Core": "sqlite",
    "SQLAlchemy ORM": "sqlite",
    "SQLAlchemy with asyncio": "sqlite",
    "sqlite3": "sqlite",
    "psycopg": "postgresql",
    "psycopg with asyncio": "postgresql",
}
"""The examples that write their order when they run, and their database."""


@pytest.mark.parametrize(("heading", "database_url"), PLAIN.items(), indirect=["database_url"], ids=PLAIN)
def test_an_example_writes_its_order_and_its_email(database_url: str, store: Store, heading: str) -> None:
    run_example(heading, database_url)

    assert (orders(database_url), keys(store)) == ([1042], ["order-1042-receipt"])


def test_no_example_is_left_out() -> None:
    assert set(EXAMPLES) == {"Connections", *PLAIN, "FastAPI", "Flask-SQLAlchemy", "Django"}


async def post(app: Any, path: str) -> int:
    """The status of the answer of an ASGI application."""
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": [], "http_version": "1.1"}
    status = 0

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)

    await app(scope, receive, send)
    return status


@sqlite
def test_the_fastapi_example_commits_with_its_request(database_url: str, store: Store) -> None:
    app = run_example("FastAPI", database_url)["app"]

    assert asyncio.run(post(app, "/orders/7")) == 200
    with pytest.raises(IntegrityError):
        asyncio.run(post(app, "/orders/7"))

    assert (orders(database_url), keys(store)) == ([7], ["order-7-receipt"])


@sqlite
def test_the_fastapi_example_takes_both_back_when_the_request_fails(database_url: str, store: Store) -> None:
    names = run_example("FastAPI", database_url)
    names["receipt"] = lambda number: posthouse.Email(key=f"{number}", to="nobody", text="Thank you!")

    with pytest.raises(posthouse.InvalidEmail):
        asyncio.run(post(names["app"], "/orders/7"))

    assert (orders(database_url), keys(store)) == ([], [])


@sqlite
def test_the_flask_example_commits_with_its_request(database_url: str, store: Store) -> None:
    client = run_example("Flask-SQLAlchemy", database_url)["app"].test_client()

    assert client.post("/orders/7").status_code == 201
    assert client.post("/orders/7").status_code == 500

    assert (orders(database_url), keys(store)) == ([7], ["order-7-receipt"])


def test_the_django_example_commits_with_its_block(database_url: str, store: Store) -> None:
    with pointed_at(database_url):
        call_command("migrate", verbosity=0)
        DjangoOrder.objects.all().delete()
        place_order = run_example("Django", database_url, Order=DjangoOrder)["place_order"]

        place_order(7)
        with pytest.raises(django.db.IntegrityError):
            place_order(7)
        assert [order.number for order in DjangoOrder.objects.all()] == [7]

    assert keys(store) == ["order-7-receipt"]
