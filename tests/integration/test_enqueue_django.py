"""A Django project that enqueues inside `transaction.atomic()`; what every connection promises, the others test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, connections, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from posthouse.errors import KeyReused, SchemaError, UnsupportedConnection
from posthouse.outbox import Enqueued
from posthouse.store.store import Store
from tests.contract.store_support import email, outbox, race
from tests.integration.django_project.databases import forget, pointed_at
from tests.integration.django_project.shop.models import Order
from tests.integration.enqueue_callers import keys


@pytest.fixture
def project(database_url: str) -> Iterator[None]:
    """The Django project on the test's database, migrated and without orders."""
    with pointed_at(database_url):
        call_command("migrate", verbosity=0)
        Order.objects.all().delete()
        yield


pytestmark = pytest.mark.usefixtures("project")


def numbers() -> list[int]:
    return list(Order.objects.order_by("number").values_list("number", flat=True))


# Pages and blocks.


def test_a_page_makes_an_order_and_its_email_or_neither(store: Store) -> None:
    client = Client(raise_request_exception=False)

    assert client.get("/orders/1").status_code == 201
    assert client.get("/orders/2?card=refused").status_code == 500

    assert (keys(store), numbers()) == (["order-1"], [1])


def test_an_email_becomes_visible_on_commit_before_the_hooks_run(store: Store) -> None:
    seen: list[list[str]] = []
    with transaction.atomic():
        transaction.on_commit(lambda: seen.append(keys(store)))
        outbox().enqueue(connection, email("order-1"))
        outbox().enqueue_many(connection, [email("order-2"), email("order-3")])
        assert (keys(store), seen) == ([], [])

    assert seen == [["order-1", "order-2", "order-3"]]


def test_blocks_within_a_block_go_with_their_emails(store: Store) -> None:
    with transaction.atomic():
        outbox().enqueue(connection, email("outer"))
        with suppress(LookupError), transaction.atomic():
            outbox().enqueue(connection, email("gone"))
            outbox().enqueue_many(connection, [email("gone-1"), email("gone-2")])
            raise LookupError
        with transaction.atomic():
            outbox().enqueue_many(connection, [email("inner-1"), email("inner-2")])

    assert keys(store) == ["inner-1", "inner-2", "outer"]


def test_a_refusal_inside_a_block_does_not_break_it(store: Store) -> None:
    with transaction.atomic():
        outbox().enqueue(connection, email("used", text="first"))
        with pytest.raises(KeyReused):
            outbox().enqueue(connection, email("used", text="another"))
        with pytest.raises(KeyReused):
            outbox().enqueue_many(connection, [email("gone"), email("used", text="another")])
        Order.objects.create(number=1)
        outbox().enqueue(connection, email("after"))

    assert (keys(store), numbers()) == (["after", "used"], [1])


def test_an_error_of_the_applications_own_takes_the_email_with_it(store: Store) -> None:
    Order.objects.create(number=1)
    with suppress(IntegrityError), transaction.atomic():
        outbox().enqueue(connection, email("order-1"))
        Order.objects.create(number=1)
        pytest.fail("there are two orders with one number")

    assert keys(store) == []


def test_a_block_that_is_broken_already_is_refused_by_django_itself(store: Store) -> None:
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(transaction.TransactionManagementError):
            outbox().enqueue(connection, email("k"))

    assert keys(store) == []


# Which connections.


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_without_a_block_it_is_refused_with_what_to_write(store: Store, many: bool) -> None:
    emails = [email("a"), email("b")] if many else [email("a")]
    for each in (connection, connections["default"]):
        with pytest.raises(UnsupportedConnection, match=r"with transaction\.atomic\(using='default'\)"):
            outbox().enqueue_many(each, emails)

    assert keys(store) == []


def test_the_wrapper_behind_the_proxy_is_taken_too(store: Store) -> None:
    with transaction.atomic():
        outbox().enqueue(connections["default"], email("k"))

    assert keys(store) == ["k"]


def test_another_database_of_the_project_needs_a_block_of_its_own(database_url: str, store: Store) -> None:
    with pointed_at("sqlite:///:memory:"), pointed_at(database_url, "other") as other:
        with (
            transaction.atomic(),
            pytest.raises(UnsupportedConnection, match=r"connection 'other'.*atomic\(using='other'\)"),
        ):
            outbox().enqueue(other, email("k"))
        with transaction.atomic(using="other"):
            outbox().enqueue(connections["other"], email("k"))

    assert keys(store) == ["k"]


@pytest.mark.parametrize("commit", [True, False])
def test_a_project_that_turned_autocommit_off_commits_for_itself(store: Store, commit: bool) -> None:
    transaction.set_autocommit(False)
    outbox().enqueue_many(connection, [email("a"), email("b")])
    outbox().enqueue(connection, email("c"))
    assert keys(store) == []
    transaction.commit() if commit else transaction.rollback()

    assert keys(store) == (["a", "b", "c"] if commit else [])


def test_what_else_django_has_is_refused_by_its_type() -> None:
    with connection.cursor() as cursor:
        for thing in (connections, cursor, Order.objects):
            with pytest.raises(UnsupportedConnection, match=type(thing).__name__):
                outbox().enqueue(thing, email("k"))


def test_a_django_database_of_another_kind_is_refused_by_its_name() -> None:
    class Wrapper(type(connections["default"])):  # type: ignore[misc]
        vendor = "oracle"

    with pytest.raises(UnsupportedConnection, match="Django connection to oracle"):
        outbox().enqueue(Wrapper(connections["default"].settings_dict), email("k"))


async def test_it_is_no_async_connection() -> None:
    with pytest.raises(UnsupportedConnection, match=r"goes to outbox\.enqueue"):
        await outbox().enqueue_async(connection, email("k"))


# Django's own cursors.


def test_djangos_log_of_queries_shows_what_was_written(store: Store) -> None:
    text = "100% of 5 %s? Yes!"
    with CaptureQueriesContext(connection) as queries, transaction.atomic():
        outbox().enqueue(connection, email("k%s?", text=text))
        outbox().enqueue(connection, email("k%s?", text=text))
        outbox().enqueue_many(connection, [email("a", text=text), email("b", text=text)])

    assert any("email_sends" in query["sql"] and "k%s?" in query["sql"] for query in queries)
    assert keys(store) == ["a", "b", "k%s?"]
    assert text in (store.ledger.story("k%s?").body or "")


def test_the_projects_own_wrappers_see_the_statements(store: Store) -> None:
    seen: list[str] = []

    def see(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        seen.append(sql)
        return execute(sql, parameters, many, context)

    with connection.execute_wrapper(see), transaction.atomic():
        outbox().enqueue(connection, email("k"))

    assert any("INSERT INTO email_sends" in sql for sql in seen)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_parameters_may_be_bound_on_the_server(database_url: str, store: Store) -> None:
    with pointed_at(database_url, OPTIONS={"server_side_binding": True}), transaction.atomic():
        outbox().enqueue(connection, email("one"))
        outbox().enqueue_many(connection, [email("a"), email("b")])

    assert keys(store) == ["a", "b", "one"]


def test_missing_tables_are_named_with_the_way_out(store: Store) -> None:
    with transaction.atomic():
        connection.cursor().execute("ALTER TABLE email_sends RENAME TO away")
        with pytest.raises(SchemaError, match="posthouse migrate"):
            outbox().enqueue(connection, email("k"))
        transaction.set_rollback(True)

    assert keys(store) == []


# Many at once.


def test_of_racing_threads_the_first_one_wins_and_all_hear_of_it(store: Store) -> None:
    def write(number: int) -> Enqueued:
        try:
            with transaction.atomic():
                enqueued = outbox().enqueue(connection, email("order-1"))
                Order.objects.create(number=number)
            return enqueued
        finally:
            forget()

    results = race([partial(write, number) for number in range(10)])

    assert [result.created for result in results].count(True) == 1
    assert {result.id for result in results} == {store.ledger.story("order-1").send["id"]}
    assert numbers() == list(range(10))
