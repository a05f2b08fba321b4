"""Settings: what is wrong is named with its place and a hint, and no secret ever shows."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from posthouse.address import Address
from posthouse.config import (
    Config,
    RetentionSettings,
    RouteSettings,
    Settings,
    TypeSettings,
    WorkerSettings,
    load_config,
    parse_config,
)
from posthouse.errors import ConfigError, OperatorError
from posthouse.setting_values import Secret, parse_duration, parse_rate, parse_size

SQLITE = "sqlite:///posthouse.db"
PASSWORD = "hunter2"


def parsed(document: dict[str, Any] | None = None, environment: dict[str, str] | None = None, **more: Any) -> Config:
    return parse_config({"database": SQLITE} | (document or {}) | more, environment=environment or {})


def fault(document: dict[str, Any] | None = None, **more: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parsed(document, **more)
    return caught.value


# Durations.


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("15s", 15.0),
        ("10m", 600.0),
        ("2h", 7200.0),
        ("3d", 259_200.0),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        ("1.5s", 1.5),
        (" 15 s ", 15.0),
        ("0s", 0.0),
    ],
)
def test_a_duration_is_a_number_with_its_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "15", 15, 1.5, None, True, "s", "-5s", "15 seconds", "15sec", "1h30", "1,5s", "5s!"]
)
def test_what_is_no_duration_is_refused_with_examples(text: object) -> None:
    with pytest.raises(ValueError, match="write it like '250ms', '15s'"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["99999999d", "9" * 400 + "d"])
def test_a_duration_that_no_database_can_add_to_a_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="hundred years"):
        parse_duration(text)


# Defaults.


def test_a_database_is_all_it_takes() -> None:
    config = parsed()
    assert config.database_url == SQLITE
    assert config.sender is None
    assert config.routes == {}
    assert config.types == {"default": TypeSettings()}


def test_the_type_default_always_exists_and_can_be_changed() -> None:
    config = parsed(types={"code": {}, "default": {"max_attempts": 3}})
    assert set(config.types) == {"default", "code"}
    assert config.types["default"].max_attempts == 3


@pytest.mark.parametrize(
    ("text", "octets"),
    [
        ("1B", 1),
        ("500kB", 500_000),
        ("25MB", 25_000_000),
        ("10MiB", 10_485_760),
        ("1.5 KiB", 1536),
        (" 2GB ", 2 * 10**9),
    ],
)
def test_a_size_is_a_number_with_its_unit(text: str, octets: int) -> None:
    assert parse_size(text) == octets


@pytest.mark.parametrize("text", ["25", 25, "25 MByte", "25mb", "-1MB", "", "MB", "1MB 5kB", None])
def test_what_is_no_size_is_refused_with_examples(text: object) -> None:
    with pytest.raises(ValueError, match="is not a size; write it like '500kB'"):
        parse_size(text)


def test_a_routes_size_is_more_than_nothing() -> None:
    assert fault(routes={"main": {"provider": "smtp", "max_size": "0B"}}).setting == "routes.main.max_size"
    assert RouteSettings(provider="smtp").max_size == 25_000_000


def test_defaults_written_as_durations_arrive_in_seconds() -> None:
    settings = TypeSettings()
    assert (settings.max_age, settings.retry_first, settings.retry_max, settings.unknown_wait) == (
        259_200.0,
        5.0,
        600.0,
        3600.0,
    )
    assert RouteSettings(provider="http").timeout == 15.0
    assert WorkerSettings().shutdown_grace == 30.0
    assert RetentionSettings().sends == 400 * 86_400.0


def test_the_sender_may_carry_a_name() -> None:
    assert parsed(sender="Shop <orders@shop.example>").sender == Address("orders@shop.example", "Shop")


def test_a_route_keeps_its_providers_own_settings() -> None:
    route = parsed(routes={"main": {"provider": "http", "url": "https://api.example.com"}}).routes["main"]
    assert route.own == {"url": "https://api.example.com"}


@pytest.mark.parametrize("settings", [parsed(), TypeSettings(), WorkerSettings()])
def test_settings_cannot_be_changed_once_read(settings: Settings) -> None:
    name = next(iter(type(settings).model_fields))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(settings, name, None)


# What is wrong.

CANARY = {"provider": "http", "canary_to": "ops@example.com", "canary_every": "30m"}


@pytest.mark.parametrize(
    ("document", "setting", "hint"),
    [
        ({"databse": "x"}, "databse", "did you mean 'database'?"),
        ({"wroker": {}}, "wroker", "did you mean 'worker'?"),
        ({"types": {"code": {"rotues": []}}}, "types.code.rotues", "did you mean 'routes'?"),
        ({"worker": {"poll": "1s"}}, "worker.poll", "there is no such setting"),
        ({"retention": {"content": "1d"}}, "retention.content", "did you mean 'contents'?"),
        ({"types": {"code": {"zzz": 1}}}, "types.code.zzz", "there are: category, priority"),
        ({"types": {"code": {"max_age": "3 days"}}}, "types.code.max_age", "write it like"),
        ({"types": {"code": {"max_age": 3}}}, "types.code.max_age", "write it like"),
        ({"types": {"code": {"max_age": "0s"}}}, "types.code.max_age", "more than 0"),
        ({"types": {"code": {"max_attempts": 0}}}, "types.code.max_attempts", "at least 1"),
        ({"types": {"code": {"category": "secure"}}}, "types.code.category", "'security', 'transactional' or"),
        ({"types": {"code": {"priority": 1}}}, "types.code.priority", "'urgent', 'normal' or 'bulk'"),
        ({"types": {"code": {"on_unknown": "guess"}}}, "types.code.on_unknown", "'resend' or 'hold'"),
        ({"types": {"code": {"routes": "main"}}}, "types.code.routes", "must be a list in brackets, not text"),
        ({"types": {"code": {"routes": ["mian"]}}}, "types.code.routes", "'mian' is not a route"),
        ({"types": {"code": {"max_pending": 0}}}, "types.code.max_pending", "at least 1"),
        ({"types": {"code": {"cooldown": "0s"}}}, "types.code.cooldown", "more than 0"),
        ({"outbox": {"max_pendin": 5}}, "outbox.max_pendin", "did you mean 'max_pending'?"),
        ({"outbox": {"max_pending": 5, "when_full": "drop"}}, "outbox.when_full", "'refuse' or 'shed'"),
        ({"outbox": {"when_full": "shed"}}, "outbox.when_full", "needs max_pending"),
        ({"types": {"Code": {}}}, "types.Code", "small letters"),
        ({"types": {"a/b": {}}}, "types.a/b", "small letters"),
        ({"types": [{}]}, "types", "must be a table, not a list"),
        ({"types": "code"}, "types", "must be a table, not text"),
        ({"types": {"code": 5}}, "types.code", "must be a table, not a whole number"),
        ({"routes": {"Main": {"provider": "http"}}}, "routes.Main", "small letters"),
        ({"routes": {"main": {}}}, "routes.main.provider", "is missing"),
        (
            {"routes": {"main": {"provider": "http", "timeout": "1s"}}},
            "routes.main.connect_timeout",
            "is longer than timeout",
        ),
        ({"routes": {"main": {"provider": "http", "concurrency": 0}}}, "routes.main.concurrency", "at least 1"),
        (
            {"routes": {"main": {"provider": "http", "concurrency": "x"}}},
            "routes.main.concurrency",
            "must be a whole number, not text",
        ),
        (
            {"routes": {"main": {"provider": "http", "total_concurrency": True}}},
            "routes.main.total_concurrency",
            "must be a whole number, not true or false",
        ),
        ({"routes": []}, "routes", "must be a table, not a list"),
        ({"routes": {"main": CANARY | {"canary_every": None}}}, "routes.main.canary_every", "give both or neither"),
        ({"routes": {"main": CANARY | {"canary_to": None}}}, "routes.main.canary_to", "give both or neither"),
        ({"routes": {"main": CANARY | {"canary_every": "4m"}}}, "routes.main.canary_every", "less than 5m"),
        ({"routes": {"main": CANARY | {"canary_to": "ops"}}}, "routes.main.canary_to", "is not an email address"),
        ({"routes": {"main": CANARY}}, "routes.main.canary_to", "needs a `sender`"),
        ({"routes": {"m" * 57: CANARY}, "sender": "a@b.example"}, f"routes.{'m' * 57}", "at most 56 characters"),
        ({"types": {"canary.main": {}}}, "types.canary.main", "take another name"),
        ({"worker": 5}, "worker", "must be a table"),
        ({"worker": {"heartbeat": "10s"}}, "worker.dead_after", "three heartbeats"),
        ({"worker": {"poll_min": "2s"}}, "worker.poll_min", "is longer than poll_max"),
        ({"sender": "shop"}, "sender", "is not an email address"),
        ({"templates": 5}, "templates", "must be a path, as text in quotes, not a whole number"),
        (
            {"routes": {"main": {"provider": "http", "warm_up": {"start": "soon", "first": 1, "until": 2}}}},
            "routes.main.warm_up.start",
            "must be a day such as 2026-12-01",
        ),
        (
            {"routes": {"warm_up": {"provider": "http", "warm_up": {"start": "2026-12-01", "until": 2}}}},
            "routes.warm_up.warm_up.first",
            "is missing (the limit of the first day)",
        ),
        ({"database": 5}, "database", "'env:NAME', 'file:PATH' or the value itself"),
        ({"database": ""}, "database", "'env:NAME', 'file:PATH' or the value itself"),
        ({"database": "posthouse.db"}, "database", "is not a database URL such as sqlite:///posthouse.db"),
        ({"database": "env:NOT_SET_ANYWHERE"}, "database", "environment variable NOT_SET_ANYWHERE is not set"),
        ({"database": "file:/no/such/file"}, "database", "/no/such/file can't be read"),
    ],
)
def test_what_is_wrong_is_named_with_a_hint(document: dict[str, Any], setting: str, hint: str) -> None:
    error = fault(document)
    assert error.setting == setting
    assert hint in error.reason
    assert str(error) == f"{setting}: {error.reason}"
    assert isinstance(error, OperatorError)


def test_a_route_that_is_nearly_right_is_suggested() -> None:
    error = fault(routes={"main": {"provider": "http"}}, types={"code": {"routes": ["mian"]}})
    assert "did you mean 'main'?" in error.reason


def test_a_missing_database_is_named() -> None:
    with pytest.raises(ConfigError, match="database: is missing"):
        parse_config({}, environment={})


# Secrets.

SECRET_URLS = [
    f"postgresql://shop:{PASSWORD}@db.example/shop",
    f"postgresql://shop:{PASSWORD}/shop",  # the host was forgotten
    f"postgresql://shop@db:{PASSWORD}/shop",
    f"shop:{PASSWORD}@db.example",
]


def texts_of(config: Config) -> list[str]:
    return [repr(config), str(config), str(config.model_dump()), config.model_dump_json(), config.database_shown]


def test_a_password_in_the_database_url_never_shows() -> None:
    config = parsed(database=SECRET_URLS[0])
    assert PASSWORD in config.database_url
    assert config.database_shown == "postgresql://shop:***@db.example/shop"
    for text in texts_of(config):
        assert PASSWORD not in text


@pytest.mark.parametrize("url", SECRET_URLS[1:])
def test_a_password_in_a_wrong_database_url_never_shows(url: str) -> None:
    error = fault(database=url)
    assert error.setting == "database"
    assert PASSWORD not in str(error) + repr(error)
    assert error.__suppress_context__


def test_a_routes_credentials_never_show() -> None:
    config = parsed(routes={"main": {"provider": "http", "api_key": PASSWORD}})
    for text in (
        repr(config),
        str(config),
        repr(config.routes["main"]),
        str(config.routes["main"]),
        repr(config.routes),
    ):
        assert PASSWORD not in text


@pytest.mark.parametrize(
    "document",
    [
        {"database": ["postgresql://shop:hunter2@db/shop"]},
        {"database": {"url": "postgresql://shop:hunter2@db/shop"}},
        {"routes": {"main": {"api_key": PASSWORD}}},
        {"routes": {"main": {"provider": "http", "api_key": PASSWORD, "timeout": "soon"}}},
    ],
)
def test_no_secret_shows_in_an_error_about_something_else(document: dict[str, Any]) -> None:
    error = fault(document)
    assert PASSWORD not in str(error) + repr(error)


def test_a_secret_shows_where_it_comes_from_but_not_what_it_is(tmp_path: Path) -> None:
    assert repr(Secret(PASSWORD)) == str(Secret(PASSWORD)) == "Secret(***)"
    assert repr(Secret("env:API_KEY")) == "Secret(env:API_KEY)"
    assert repr(Secret(f"file:{tmp_path}")) == f"Secret(file:{tmp_path})"
    assert f"{[Secret(PASSWORD)]!s}" == "[Secret(***)]"


def test_a_secret_is_read_anew_each_time_so_that_a_rotation_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "key"
    secrets = [Secret("env:POSTHOUSE_TEST_KEY"), Secret(f"file:{place}")]
    for value in ("old", "new"):
        monkeypatch.setenv("POSTHOUSE_TEST_KEY", value)
        place.write_text(value + "\n", encoding="utf-8")
        assert [secret.reveal() for secret in secrets] == [value, value]


def test_a_secret_file_that_is_no_text_is_an_operators_error_without_its_bytes(tmp_path: Path) -> None:
    place = tmp_path / "key"
    place.write_bytes(b"hunter2\xff")
    with pytest.raises(ConfigError, match="it is not UTF-8 text") as caught:
        Secret(f"file:{place}").reveal()
    assert PASSWORD not in str(caught.value)


def test_secrets_compare_by_their_source() -> None:
    assert Secret("env:A") == copy.copy(Secret("env:A"))
    assert len({Secret("env:A"), Secret("env:A"), Secret("env:B")}) == 2
    assert Secret("env:A") != "env:A"


# The environment and the file.


def test_the_environment_wins_over_the_file() -> None:
    assert parsed(environment={"POSTHOUSE_DATABASE": "sqlite:///other.db"}).database_url == "sqlite:///other.db"


def test_an_empty_variable_is_no_variable() -> None:
    assert parsed(environment={"POSTHOUSE_DATABASE": ""}).database_url == SQLITE


def written(folder: Path, text: str, name: str = "posthouse.toml") -> Path:
    place = folder / name
    place.write_text(text, encoding="utf-8")
    return place


def test_the_file_is_the_given_one_or_the_environments_or_the_one_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, 'database = "sqlite:///here.db"')
    other = written(tmp_path, 'database = "sqlite:///environment.db"', "other.toml")
    given = written(tmp_path, 'database = "sqlite:///given.db"', "given.toml")
    environment = {"POSTHOUSE_CONFIG": str(other)}
    assert load_config(environment={}).database_url == "sqlite:///here.db"
    assert load_config(environment=environment).database_url == "sqlite:///environment.db"
    assert load_config(given, environment=environment).database_url == "sqlite:///given.db"


def test_the_templates_folder_starts_from_the_files_own_folder(tmp_path: Path) -> None:
    place = written(tmp_path, f'database = "{SQLITE}"')
    assert load_config(place, environment={}).templates == tmp_path / "templates"
    written(tmp_path, f'database = "{SQLITE}"\ntemplates = "mail/texts"')
    assert load_config(place, environment={}).templates == tmp_path / "mail" / "texts"
    written(tmp_path, f'database = "{SQLITE}"\ntemplates = "/srv/mail"')
    assert load_config(place, environment={}).templates == Path("/srv/mail")


def test_the_environment_alone_is_enough_where_there_is_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_config(environment={"POSTHOUSE_DATABASE": SQLITE}).database_url == SQLITE


@pytest.mark.parametrize("environment", [{}, {"POSTHOUSE_DATABASE": SQLITE, "POSTHOUSE_CONFIG": "gone.toml"}])
def test_a_missing_file_says_how_to_get_one(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="does not exist; `posthouse init` writes one"):
        load_config(environment=environment)


def test_a_given_file_that_is_missing_is_missed_even_when_the_environment_has_a_database(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.toml does not exist"):
        load_config(tmp_path / "gone.toml", environment={"POSTHOUSE_DATABASE": SQLITE})


def test_a_file_that_is_not_toml_says_where(tmp_path: Path) -> None:
    place = written(tmp_path, 'database = "sqlite://"\nsender = Shop\n')
    with pytest.raises(ConfigError, match=r"posthouse\.toml is not TOML.*line 2"):
        load_config(place, environment={})


def test_a_setting_given_twice_is_refused(tmp_path: Path) -> None:
    place = written(tmp_path, 'database = "sqlite://"\ndatabase = "sqlite://"\n')
    with pytest.raises(ConfigError, match="is not TOML"):
        load_config(place, environment={})


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        load_config(tmp_path, environment={})
    (tmp_path / "latin.toml").write_bytes("sender = 'Zoë'".encode("latin-1"))
    with pytest.raises(ConfigError, match="can't be read"):
        load_config(tmp_path / "latin.toml", environment={})


def test_the_process_environment_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "POSTHOUSE_DATABASE", "sqlite:///process.db")
    place = written(tmp_path, f'database = "{SQLITE}"')
    assert load_config(place).database_url == "sqlite:///process.db"


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("14/second", (14, 1.0)),
        ("14/s", (14, 1.0)),
        ("100/min", (100, 60.0)),
        (" 100 / minute ", (100, 60.0)),
        ("5000/hour", (5000, 3600.0)),
        ("10000/day", (10000, 86400.0)),
        ("1/d", (1, 86400.0)),
    ],
)
def test_a_rate_is_a_count_and_a_unit_of_time(text: str, rate: tuple[int, float]) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "text", ["", "14", "14/", "/s", "1.5/s", "-1/s", "14/fortnight", "14/s/s", "14 per second", "٤/s"]
)
def test_what_is_no_rate_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write it like '14/second'"):
        parse_rate(text)


def test_a_rate_of_nothing_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(ValueError, match="posthouse pause"):
        parse_rate("0/s")
