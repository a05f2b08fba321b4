"""Idempotency keys as a careful provider keeps them: for 24 hours, with a hash of what was sent under each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

KEPT_S: Final = 24 * 3600.0


class KeyState(StrEnum):
    """What the provider knows of a key when a call arrives."""

    NEW = "new"  # the call may go on
    REPLAY = "replay"  # this very content was accepted: the same answer again
    REUSED = "reused"  # the key stands for other content
    IN_PROGRESS = "in_progress"  # the first call is still running


@dataclass(frozen=True, slots=True)
class _Kept:
    content_hash: str
    message_ids: tuple[str, ...]
    at: float


class KeyMemory:
    """Which keys are running and which were accepted. A call that was not accepted leaves no trace of its key."""

    def __init__(self) -> None:
        self._running: dict[str, str] = {}
        self._kept: dict[str, _Kept] = {}  # oldest first

    def state(self, key: str, content_hash: str, now: float) -> tuple[KeyState, tuple[str, ...]]:
        """What a call with `key` meets, and the message ids of the answer to replay."""
        self._forget_lapsed(now)
        kept = self._kept.get(key)
        known_hash = self._running.get(key) or (kept and kept.content_hash)
        if known_hash is None:
            return KeyState.NEW, ()
        if known_hash != content_hash:
            return KeyState.REUSED, ()
        if key in self._running or kept is None:
            return KeyState.IN_PROGRESS, ()
        return KeyState.REPLAY, kept.message_ids

    def start(self, key: str, content_hash: str) -> None:
        """A call with a new key is under way."""
        self._running[key] = content_hash

    def accept(self, key: str, content_hash: str, message_ids: tuple[str, ...], now: float) -> None:
        """The call's messages were taken: from now on its answer is replayed, once the call has ended."""
        self._kept[key] = _Kept(content_hash, message_ids, now)

    def end(self, key: str) -> None:
        """The call is over. May be called twice."""
        self._running.pop(key, None)

    def _forget_lapsed(self, now: float) -> None:
        while self._kept:
            oldest = next(iter(self._kept))
            if now - self._kept[oldest].at < KEPT_S:
                return
            del self._kept[oldest]
