"""One worker process a SQLite file: an operating-system lock beside it, which dies with its holder."""

from __future__ import annotations

from filelock import FileLock, Timeout


class WorkerLock:
    """Whoever holds it knows that no other worker lives, so every open call is a dead worker's."""

    def __init__(self, sqlite_file: str) -> None:
        self.path = f"{sqlite_file}.worker.lock"
        self._lock = FileLock(self.path)

    def acquire(self) -> bool:
        """Takes the lock if nobody holds it. May be called again until it succeeds."""
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            return False
        return True

    def release(self) -> None:
        """Gives it back. May be called without holding it."""
        self._lock.release()
