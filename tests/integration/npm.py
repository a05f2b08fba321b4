"""Servers from npm that tests send to: installed into a folder of their own, started, and surely ended."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from tests.acceptance.installation import until
from tests.conftest import missing
from tests.integration.programs import Running, open_folder
from tests.providers.wire import free_port

INSTALLED_WITHIN_S: Final = 120.0


@dataclass(frozen=True)
class NpmServer:
    """A package of npm's that has a server in it."""

    name: str
    version: str
    script: str
    """What node is to run, within the package."""
    arguments: Sequence[str]
    """Where `{port}` stands for the port."""
    ready: str
    """A path that answers once the server does."""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def package(self) -> str:
        """As npm is asked for it."""
        return f"{self.name}@{self.version}"


@contextmanager
def installed(server: NpmServer) -> Iterator[str]:
    """The address of the running server. Skips the test where npm can't install it, but not in CI."""
    npm, node = _of_node("npm"), _of_node("node")
    with open_folder(server.name) as folder:
        _install(npm, server.package, folder)
        port = free_port()
        script = folder / "node_modules" / server.name / server.script
        arguments = [argument.format(port=port) for argument in server.arguments]
        running = Running([node, str(script), *arguments], folder, server.environment)
        try:
            url = f"http://127.0.0.1:{port}"
            until(lambda: _answers(running, url + server.ready), f"{server.name} answers")
            yield url
        finally:
            running.end()


def _of_node(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        missing(f"there is no {name}: install Node.js with npm")
    return found


def _install(npm: str, package: str, folder: Path) -> None:
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--prefer-offline"]
    try:
        done = subprocess.run(
            [npm, "install", *options, package], cwd=folder, capture_output=True, timeout=INSTALLED_WITHIN_S
        )
    except subprocess.TimeoutExpired:
        missing(f"npm didn't install {package} within {INSTALLED_WITHIN_S:.0f} s")
    if done.returncode:
        missing(f"npm can't install {package}: {' '.join(done.stderr.decode(errors='replace').split())[:300]}")


def _answers(running: Running, url: str) -> bool:
    running.check()
    try:
        got(url)
    except URLError:
        return False
    return True


def got(url: str) -> bytes:
    """What a GET answers, whatever proxy this machine has."""
    with build_opener(ProxyHandler({})).open(url, timeout=5) as reply:
        return bytes(reply.read())


def got_json(url: str) -> Any:
    """The same, read."""
    return json.loads(got(url))
