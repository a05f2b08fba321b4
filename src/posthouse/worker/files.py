"""The bytes of attachments and finished messages, loaded for the time of a call."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from posthouse.content import Content, StoredFile
from posthouse.errors import DatabaseUnavailable
from posthouse.store.access import StoreAccess
from posthouse.store.blobs import Blobs
from posthouse.worker.rendering import NO_FILES, CannotRender

LENT_BYTES_MAX: Final = 256 * 1024 * 1024
"""Files of all calls under way together; one email that has more by itself goes alone."""

KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Files that are kept after their call, because the next email may have the same: a newsletter's logo is read once."""

log = logging.getLogger("posthouse.worker")


@dataclass(frozen=True, slots=True)
class Loan:
    """Files by their digest, which count as lent until they are given back, once."""

    files: Mapping[str, bytes]
    give_back: Callable[[], None]


class Files:
    """Lends files to calls. Loads that would need too much memory wait, in their order, for calls to end."""

    def __init__(
        self,
        blobs: Blobs,
        access: StoreAccess,
        lent_bytes_max: int = LENT_BYTES_MAX,
        kept_bytes_max: int = KEPT_BYTES_MAX,
    ) -> None:
        self._blobs = blobs
        self._access = access
        self._lent_bytes_max = lent_bytes_max
        self._lent_bytes = 0
        self._returned = asyncio.Event()
        self._turn = asyncio.Lock()
        self._kept = _Kept(kept_bytes_max)
        self._reading = asyncio.Lock()

    @asynccontextmanager
    async def of(self, send_id: int, content: Content) -> AsyncIterator[Mapping[str, bytes]]:
        """The files of one send by their digest, until the call has ended. Raises CannotRender, DatabaseUnavailable."""
        if not content.files:
            yield NO_FILES
            return
        loan = await self.lend(send_id, content)
        try:
            yield loan.files
        finally:
            loan.give_back()

    async def lend(self, send_id: int, content: Content) -> Loan:
        """The same for whoever gives them back without waiting."""
        size = sum(file.size for file in content.files)
        async with self._turn:  # so that small ones don't pass by a large one for ever
            while self._lent_bytes and self._lent_bytes + size > self._lent_bytes_max:
                self._returned.clear()
                await self._returned.wait()
            self._lent_bytes += size
        try:
            return Loan(await self._loaded(send_id, content), partial(self._take_back, size))
        except BaseException:
            self._take_back(size)
            raise

    def _take_back(self, size: int) -> None:
        self._lent_bytes -= size
        self._returned.set()

    async def _loaded(self, send_id: int, content: Content) -> dict[str, bytes]:
        digests = {file.digest for file in content.files}
        found = self._kept.some(digests)
        if len(found) < len(digests):
            # One read at a time: what many wait for is read once, and results find a thread to be written in.
            async with self._reading:
                found |= self._kept.some(digests)
                if missing := digests - found.keys():
                    found |= await self._read(send_id, content, missing)
        return found

    async def _read(self, send_id: int, content: Content, digests: set[str]) -> dict[str, bytes]:
        try:
            read = await self._access.run(_read_sound, self._blobs, send_id, content, digests)
        except (CannotRender, DatabaseUnavailable):
            raise
        except Exception as error:  # not the send's fault, whatever it is
            log.exception("the files of send %d can't be read", send_id)
            raise DatabaseUnavailable(f"its files can't be read: {type(error).__name__}: {error}") from error
        self._kept.add(read)
        return read


class _Kept:
    """What was used last, as much of it as there is room for."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._files: OrderedDict[str, bytes] = OrderedDict()

    def some(self, digests: Iterable[str]) -> dict[str, bytes]:
        """Those of the files that are here."""
        found = {digest: self._files[digest] for digest in digests if digest in self._files}
        for digest in found:
            self._files.move_to_end(digest)
        return found

    def add(self, files: Mapping[str, bytes]) -> None:
        for digest, body in files.items():
            if len(body) <= self._bytes_max and digest not in self._files:
                self._files[digest] = body
                self._bytes += len(body)
        while self._bytes > self._bytes_max:
            _, oldest = self._files.popitem(last=False)
            self._bytes -= len(oldest)


def _read_sound(blobs: Blobs, send_id: int, content: Content, digests: set[str]) -> dict[str, bytes]:
    """Reads files and looks whether they are what was stored: in the store's thread, for hashing takes time too.

    Raises CannotRender.
    """
    read = blobs.read(send_id, digests)
    for file in content.files:
        if file.digest not in digests:
            continue
        body = read.get(file.digest)
        if body is None:
            raise CannotRender(f"its {_named(file, content)} is no longer kept")
        if len(body) != file.size or hashlib.sha256(body).hexdigest() != file.digest:
            raise CannotRender(f"its {_named(file, content)} is damaged: what is stored is not what was handed over")
    return read


def _named(file: StoredFile, content: Content) -> str:
    if file is content.raw:
        return "message"
    return f"attachment {file.filename}" if file.filename else f"attachment without a name ({file.content_type})"
