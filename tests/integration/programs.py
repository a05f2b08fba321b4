"""Programs of the system that tests talk to: found, started in a process group of their own, and surely ended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.conftest import missing

ENDS_WITHIN_S = 10.0
"""Only ends a test that would hang."""


def program(name: str, package: str) -> str:
    """Where a program is. Skips the test on a machine without it, but not in CI."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    if found is None:
        missing(f"there is no {name} (Debian's package {package}); `make servers` installs it")
    return found


@contextmanager
def open_folder(name: str) -> Iterator[Path]:
    """A temporary folder that the user of a server may enter as well."""
    folder = Path(tempfile.mkdtemp(prefix=f"posthouse-{name}-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Running:
    """A program, with what it says in files."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self._stdout, self._stderr = folder / "stdout", folder / "stderr"
        with self._stdout.open("ab") as stdout, self._stderr.open("ab") as stderr:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )

    @property
    def stdout(self) -> str:
        return self._stdout.read_text(encoding="utf-8", errors="replace")

    @property
    def stderr(self) -> str:
        return self._stderr.read_text(encoding="utf-8", errors="replace")

    def check(self) -> None:
        """Fails at once where it has ended by itself."""
        assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.stdout}{self.stderr}"

    def end(self) -> None:
        """Ends it and all that it has started in its group."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(ENDS_WITHIN_S)
                return
