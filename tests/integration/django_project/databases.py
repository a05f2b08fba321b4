"""Points the project's databases at those of the tests."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django
from django.db import connections
from psycopg.conninfo import conninfo_to_dict


def _set_up() -> None:
    """Sets Django up, but for the time zone of the process: that is the other tests' too."""
    zone = os.environ.get("TZ")
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.integration.django_project.settings"
    django.setup()
    if zone is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = zone
    time.tzset()


_set_up()


def settings_for(url: str) -> dict[str, Any]:
    """A database's URL as an entry of DATABASES."""
    if url.startswith("sqlite"):
        file = url.removeprefix("sqlite:///")
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": file, "OPTIONS": {"timeout": 30}}
    names = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    given = {names[name]: str(value) for name, value in conninfo_to_dict(url).items()}
    return {"ENGINE": "django.db.backends.postgresql", **given}


@contextmanager
def pointed_at(url: str, alias: str = "default", **settings: Any) -> Iterator[Any]:
    """Django's connection `alias`, in every thread that has none yet, on the database of the URL."""
    before = connections.settings[alias]
    forget(alias)
    given = {"default": {}, alias: settings_for(url) | settings}
    connections.settings[alias] = connections.configure_settings(given)[alias]
    try:
        yield connections[alias]
    finally:
        forget(alias)
        connections.settings[alias] = before


def forget(alias: str = "default") -> None:
    """Closes this thread's connection; the next use makes a new one."""
    connections[alias].close()
    del connections[alias]
