"""A Dovecot of the tests' own: on loopback, in a temporary folder.

It shares nothing with one that the machine may run.
"""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.acceptance.installation import until
from tests.integration.programs import Running, open_folder, program
from tests.providers.wire import CERTIFICATE, free_port

USER: Final = "bounces"
PASSWORD: Final = "swordfish-ü"

CONFIG: Final = """
protocols = imap
listen = 127.0.0.1
base_dir = {folder}/run
log_path = {folder}/log
ssl = required
ssl_cert = <{certificate}
ssl_key = <{certificate}
default_internal_user = {internal}
default_login_user = {login}
first_valid_uid = 1
disable_plaintext_auth = yes
mail_location = maildir:{folder}/mail
auth_mechanisms = plain
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid={owner} gid={group} home={folder}/mail
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = {tls_port}
    ssl = yes
  }}
}}
service anvil {{
  chroot =
}}
service stats {{
  chroot =
}}
protocol imap {{
  imap_capability = {capability}
}}
"""

MOVES: Final = "IMAP4rev1 SASL-IR UIDPLUS MOVE"
COPIES: Final = "IMAP4rev1 SASL-IR UIDPLUS"
KEEPS: Final = "IMAP4rev1 SASL-IR"


class Dovecot:
    """One mailbox, its messages as files."""

    def __init__(self, folder: Path, capability: str) -> None:
        self.port, self.tls_port = free_port(), free_port()
        self.ca_file = CERTIFICATE
        self._folder = folder
        as_root = os.geteuid() == 0
        own = pwd.getpwuid(os.geteuid()).pw_name
        self._owner = pwd.getpwnam("nobody" if as_root else own)
        self.make("")
        (folder / "dovecot.conf").write_text(
            CONFIG.format(
                folder=folder,
                certificate=CERTIFICATE,
                internal="dovecot" if as_root else own,
                login="dovenull" if as_root else own,
                password=PASSWORD,
                owner=self._owner.pw_uid,
                group=self._owner.pw_gid,
                port=self.port,
                tls_port=self.tls_port,
                capability=capability,
            ),
            encoding="utf-8",
        )

    @property
    def command(self) -> list[str]:
        """What runs it in the foreground."""
        return [program("dovecot", "dovecot-imapd"), "-F", "-c", str(self._folder / "dovecot.conf")]

    @property
    def log(self) -> str:
        """What it has said."""
        file = self._folder / "log"
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    def make(self, folder: str) -> None:
        """Makes a folder."""
        for made in (place := self._place(folder), *(place / name for name in ("new", "cur", "tmp"))):
            made.mkdir(exist_ok=True)
            os.chown(made, self._owner.pw_uid, self._owner.pw_gid)

    def _place(self, folder: str) -> Path:
        return self._folder / "mail" / (f".{folder}" if folder else "")

    def put(self, name: str, content: bytes, flags: str = "", folder: str = "") -> None:
        """Delivers a message; with flags of a maildir, such as `S` for seen or `T` for deleted, as an older one."""
        file = self._place(folder) / ("cur" if flags else "new") / (f"{name}:2,{flags}" if flags else name)
        file.write_bytes(content)
        os.chown(file, self._owner.pw_uid, self._owner.pw_gid)

    def messages(self, folder: str = "") -> dict[str, str]:
        """The flags of each message in a folder, by the name under which it was delivered or its subject."""
        place = self._place(folder)
        found = sorted([*place.glob("new/*"), *place.glob("cur/*")])
        return {_subject(file): file.name.partition(":2,")[2] for file in found}

    def listens(self) -> bool:
        """Whether it takes connections."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.tls_port), timeout=1):
            return True
        return False


def _subject(file: Path) -> str:
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    return next(line.partition(": ")[2] for line in lines if line.startswith("Subject: "))


@contextmanager
def own_dovecot(capability: str = MOVES) -> Iterator[Dovecot]:
    """A Dovecot that runs. Skips where there is none, but not in CI."""
    program("dovecot", "dovecot-imapd")
    with open_folder("dovecot") as folder:
        dovecot = Dovecot(folder, capability)
        running = Running(dovecot.command, folder)

        def listens() -> bool:
            running.check()
            return dovecot.listens()

        try:
            until(listens, "Dovecot listens")
            yield dovecot
        finally:
            running.end()
