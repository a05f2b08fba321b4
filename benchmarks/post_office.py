"""django-post-office draining the same messages: a Django project of its own, run as a process of its own.

Queued by `send_many`, sent by `send_queued_mail` with several threads in each process, which keep their SMTP
connections for a whole batch. Set up for speed, as its documentation recommends, the whole queue is one batch.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command
from psycopg.conninfo import conninfo_to_dict

from benchmarks.messages import SENDER, message


def drain(database_url: str, port: int, count: int, processes: int, threads: int, batch: int) -> float:
    """Messages a second of `send_queued_mail` over `processes` × `threads` connections, from its call to its return."""
    arguments = [database_url, *map(str, (port, count, processes, threads, batch))]
    command = [sys.executable, "-m", "benchmarks.post_office", *arguments]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _configure(database_url: str, port: int, threads: int, batch: int) -> None:
    server = conninfo_to_dict(database_url)
    settings.configure(
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": server["dbname"],
                "USER": server.get("user", ""),
                "PASSWORD": server.get("password", ""),
                "HOST": server.get("host", ""),
                "PORT": server.get("port", ""),
            }
        },
        INSTALLED_APPS=["django.contrib.contenttypes", "post_office"],
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
        USE_TZ=True,
        EMAIL_BACKEND="django.core.mail.backends.smtp.EmailBackend",
        EMAIL_HOST="127.0.0.1",
        EMAIL_PORT=port,
        POST_OFFICE={
            "BATCH_SIZE": batch,
            "THREADS_PER_PROCESS": threads,
            "LOG_LEVEL": 1,  # it needn't write what was sent, only what failed
            "MESSAGE_ID_ENABLED": True,
        },
    )
    django.setup()
    logging.disable(logging.WARNING)


def _queue(count: int) -> None:
    from post_office import mail

    queued: list[dict[str, Any]] = []
    for number in range(count):
        item = message(number)
        queued.append(
            {
                "sender": SENDER,
                "recipients": [item.to],
                "subject": item.subject,
                "message": item.text,
                "html_message": item.html,
            }
        )
    mail.send_many(queued)


def _timed_drain(count: int, processes: int) -> float:
    from post_office.models import STATUS, Email

    with tempfile.TemporaryDirectory() as folder:
        lock = str(Path(folder) / "lock")
        began = time.perf_counter()
        call_command("send_queued_mail", processes=processes, lockfile=lock)
        took = time.perf_counter() - began
    assert Email.objects.filter(status=STATUS.sent).count() == count
    return count / took


def main() -> None:
    """Fills an empty database and drains it; prints messages a second."""
    parser = argparse.ArgumentParser()
    parser.add_argument("database_url")
    for name in ("port", "count", "processes", "threads", "batch"):
        parser.add_argument(name, type=int)
    given = parser.parse_args()
    _configure(given.database_url, given.port, given.threads, given.batch)
    call_command("migrate", verbosity=0)
    _queue(given.count)
    print(_timed_drain(given.count, given.processes))


if __name__ == "__main__":
    main()
