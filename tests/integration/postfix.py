"""A Postfix of the tests' own: on loopback, in a temporary folder, with mailboxes, certificates and passwords.

It takes mail for `box-…@inbox.test`, which it keeps, and for `…@sandbox.test`, which it hands to a port of 127.0.0.1
where a test may listen; for nobody else. It shares nothing with a Postfix that the machine may run.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil  # type: ignore[import-untyped]
import trustme

from tests.acceptance.installation import until
from tests.conftest import missing
from tests.integration.policy_server import PolicyServer
from tests.integration.programs import ENDS_WITHIN_S, Running, open_folder, program
from tests.providers.wire import free_port

USER, PASSWORD = "shop", "swordfish"
MEMBERS_ONLY = {
    "smtpd_sasl_auth_enable": "yes",
    "smtpd_client_restrictions": "permit_sasl_authenticated, reject",
    "smtpd_sender_login_maps": "inline:{orders@shop.example=shop@mail.test}",
    "smtpd_sender_restrictions": "reject_sender_login_mismatch",
}

SERVICES: Final[Mapping[str, Mapping[str, str]]] = {
    "relay": {},
    "submission": {"smtpd_tls_security_level": "encrypt", **MEMBERS_ONLY},
    "smtps": {"smtpd_tls_wrappermode": "yes", **MEMBERS_ONLY},
    "small": {"message_size_limit": "20000"},
    "ascii": {"smtputf8_enable": "no"},
    "impatient": {"smtpd_timeout": "1s"},
    "full": {"queue_minfree": "1000000000000000"},
    "slow_down": {"smtpd_client_message_rate_limit": "1", "smtpd_client_event_limit_exceptions": ""},
    "one_connection": {"smtpd_client_connection_count_limit": "1", "smtpd_client_event_limit_exceptions": ""},
    "wants_names": {"smtpd_helo_restrictions": "reject_non_fqdn_helo_hostname"},
    "few_errors": {"smtpd_hard_error_limit": "3"},
    "policy": {
        "smtpd_recipient_restrictions": "check_policy_service inet:127.0.0.1:{policy_port}",
        "smtpd_data_restrictions": "check_policy_service inet:127.0.0.1:{policy_port}",
        "smtpd_end_of_data_restrictions": "check_policy_service inet:127.0.0.1:{policy_port}",
    },
}
"""By name: a port of its own, and how it differs from the others."""

MAIN = """
compatibility_level = 3.6
queue_directory = {folder}/queue
data_directory = {folder}/data
maillog_file = {folder}/log
maillog_file_prefixes = {folder}
service_throttle_time = 1s

inet_interfaces = loopback-only
inet_protocols = ipv4
disable_dns_lookups = yes
smtp_host_lookup = native
smtpd_peername_lookup = no
default_transport = error:nothing leaves this machine
relay_transport = smtp:[127.0.0.1]:{sandbox_port}
relay_domains = sandbox.test

myhostname = mail.test
mydestination =
alias_maps =
local_recipient_maps =
mynetworks = 127.0.0.0/8
smtpd_relay_restrictions = reject_unauth_destination
smtpd_error_sleep_time = 0
notify_classes =

virtual_mailbox_domains = inbox.test
virtual_mailbox_base = {folder}/mail
virtual_mailbox_maps = regexp:{folder}/etc/mailboxes
virtual_uid_maps = static:{mail_uid}
virtual_gid_maps = static:{mail_gid}

smtpd_tls_chain_files = {folder}/etc/server.pem
smtpd_tls_loglevel = 1
smtpd_sasl_local_domain = mail.test
cyrus_sasl_config_path = {folder}/etc/sasl
"""

MAILBOXES = r"/^box-.*@inbox\.test$/ all/"

SASL = """
pwcheck_method: auxprop
auxprop_plugin: sasldb
sasldb_path: {folder}/etc/sasldb2
mech_list: PLAIN LOGIN CRAM-MD5
"""

INNER_SERVICES = """
cleanup   unix       n - n - 0 cleanup
qmgr      unix       n - n 300 1 qmgr
rewrite   unix       - - n - - trivial-rewrite
bounce    unix       - - n - 0 bounce
defer     unix       - - n - 0 bounce
trace     unix       - - n - 0 bounce
error     unix       - - n - - error
retry     unix       - - n - - error
virtual   unix       - n n - - virtual
smtp      unix       - - n - - smtp
anvil     unix       - - n - 1 anvil
tlsmgr    unix       - - n 1000? 1 tlsmgr
postlog   unix-dgram n - n - 1 postlogd
"""
"""Those that take, keep and hand on; none of them runs a command or looks up a host."""


class Postfix:
    """One instance. It needs root, which gives its parts their users."""

    def __init__(self, folder: Path, policy_port: int) -> None:
        self._command = [program("postfix", "postfix"), "-c", str(folder / "etc")]
        self._folder = folder
        self.ports = {name: free_port() for name in SERVICES}
        self.sandbox_port = free_port()
        self.ca_file = folder / "ca.pem"
        self._make_folders()
        self._write_configuration(policy_port)
        self._write_certificate()
        self._write_password()
        self._running: Running | None = None

    def _make_folders(self) -> None:
        for name, user in (("etc", "root"), ("etc/sasl", "root"), ("queue", "root"), ("data", "postfix")):
            self._make_folder(name, user)
        self._make_folder("mail", "nobody")

    def _make_folder(self, name: str, user: str) -> None:
        folder = self._folder / name
        folder.mkdir()
        os.chown(folder, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)

    def _write_configuration(self, policy_port: int) -> None:
        etc, nobody = self._folder / "etc", pwd.getpwnam("nobody")
        main = MAIN.format(
            folder=self._folder, mail_uid=nobody.pw_uid, mail_gid=nobody.pw_gid, sandbox_port=self.sandbox_port
        )
        (etc / "main.cf").write_text(main)
        (etc / "master.cf").write_text(INNER_SERVICES + "".join(self._services(policy_port)))
        (etc / "mailboxes").write_text(MAILBOXES)
        (etc / "sasl" / "smtpd.conf").write_text(SASL.format(folder=self._folder))

    def _services(self, policy_port: int) -> Iterator[str]:
        for name, settings in SERVICES.items():
            yield f"127.0.0.1:{self.ports[name]} inet n - n - - smtpd\n"
            yield f"  -o syslog_name=postfix/{name}\n"
            for setting, value in settings.items():
                yield f"  -o {{ {setting} = {value.replace('{policy_port}', str(policy_port))} }}\n"

    def _write_certificate(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.ca_file))
        certificate = authority.issue_cert("127.0.0.1")
        certificate.private_key_and_cert_chain_pem.write_to_path(str(self._folder / "etc" / "server.pem"))

    def _write_password(self) -> None:
        file = self._folder / "etc" / "sasldb2"
        command = [program("saslpasswd2", "sasl2-bin"), "-p", "-c", "-f", str(file), "-u", "mail.test", USER]
        subprocess.run(command, input=PASSWORD, text=True, check=True, timeout=ENDS_WITHIN_S)
        os.chown(file, pwd.getpwnam("postfix").pw_uid, -1)

    def start(self) -> None:
        """Starts it unless it runs, and waits until it listens."""
        if self._running is not None:
            return
        self._running = running = Running([*self._command, "start-fg"], self._folder)

        def listens() -> bool:
            running.check()
            return self.log.count("daemon started") > started_before

        started_before = self.log.count("daemon started")
        until(listens, "Postfix listens")
        (self._folder / "queue" / "quick-start").touch()  # the next start checks nothing

    def stop(self) -> None:
        """`postfix stop`: it ends at once, whatever is under way."""
        if self._running is not None:
            subprocess.run([*self._command, "stop"], capture_output=True, check=False, timeout=ENDS_WITHIN_S)
            self._running.end()
            self._running = None

    def kill_sessions(self) -> None:
        """kill -9 of every process that talks to a client; Postfix makes new ones."""
        master = int((self._folder / "queue" / "pid" / "master.pid").read_text())
        for child in psutil.Process(master).children():
            with suppress(psutil.NoSuchProcess):
                if child.name() == "smtpd" and _has_a_client(child):
                    child.kill()

    @property
    def log(self) -> str:
        """What it has said since it was made."""
        file = self._folder / "log"
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    def mail(self) -> dict[str, list[bytes]]:
        """What has been delivered, by address, as it stands in the mailbox."""
        delivered = defaultdict(list)
        for file in sorted((self._folder / "mail").glob("all/new/*")):
            content = file.read_bytes()
            address = re.search(rb"^Delivered-To: (.*)$", content, re.MULTILINE)
            assert address is not None, content
            delivered[address[1].decode()].append(content)
        return delivered


def _has_a_client(smtpd: psutil.Process) -> bool:
    return any(one.status == psutil.CONN_ESTABLISHED for one in smtpd.net_connections("tcp4"))


@contextmanager
def own_postfix(policy: PolicyServer) -> Iterator[Postfix]:
    """A Postfix that runs. Skips where there is none, but not in CI."""
    if os.geteuid() != 0:
        missing("Postfix starts only as root")
    with open_folder("postfix") as folder:
        postfix = Postfix(folder, policy.port)
        try:
            postfix.start()
            yield postfix
        finally:
            postfix.stop()
