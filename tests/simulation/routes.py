"""What one seed draws of the world's providers: routes over HTTP and over SMTP, and what goes wrong at each."""

from __future__ import annotations

import random
from dataclasses import dataclass

from posthouse.sandbox.api import SandboxApi
from posthouse.sandbox.fault_text import parse_fault
from posthouse.sandbox.faults import Action, Fault, FaultPlan
from posthouse.sandbox.ledger import Ledger
from tests.providers.postmark_sandbox import PostmarkSandbox
from tests.providers.wire import CERTIFICATE
from tests.simulation.gates import DOMAINS

SMTP_SHARE = 0.35
"""Of the routes: about half of the worlds have one."""

BATCHES = {5.0: 3, 20.0: 50}
"""By the lag of its look-ups: how many messages a route takes by a call, where it has these and no key."""

PASSWORD = "swordfish"

HTTP_FAULTS = (
    "503:{when}",
    "500:{when}",
    "500-accepted:{when}",
    "502-accepted:{when}",
    "504:{when}",
    "429:retry-after=7,{when}",
    "429:retry-after=date+20,{when}",
    "429:{when}",
    "401:{when}",
    "401:{window}",
    "422:{when}",
    "slow=2s:{when}",
    "slow=9s:{when}",
    "slow-not-accepted=3s:{when}",
    "slow-not-accepted=9s:{when}",
    "drop:{when}",
    "drop-accepted:{when}",
    "stall:{when}",
    "stall-accepted:{when}",
    "malformed:{when}",
    "truncated:{when}",
    "html=502:{when}",
    "refuse:{window}",
)

SMTP_FAULTS = (
    "{code}:at={step},{when}",
    "{code}:at={step},{when}",
    "{code}:at={step},text={text},{when}",
    "{code}:at={step},text={text},{when}",
    "550:at=rcpt,{when}",
    "451:at=rcpt,{when}",
    "550:at=rcpt,to={who},{window}",
    "{code}:at=rcpt,to={who},text={text},{window}",
    "451:at=rcpt,first=2,{window}",
    "451:at=dot,first=2,per=key,{window}",
    "354:at={step},{when}",
    "drop:at={step},{when}",
    "drop:at=dot,{when}",
    "drop-accepted:at=dot,{when}",
    "stall:at={step},{when}",
    "stall:at=dot,{when}",
    "stall-accepted:at=dot,{when}",
    "malformed:at={step},{when}",
    "malformed-not-accepted:at=dot,{when}",
    "truncated:at={step},{when}",
    "html=502:at={step},{when}",
    "slow=2s:at={step},{when}",
    "slow=9s:at={step},{when}",
    "slow=9s:at=dot,{when}",
    "slow-not-accepted=3s:at=dot,{when}",
    "slow-not-accepted=9s:at=dot,{when}",
    "drip=2s:at={step},{when}",
    "drip=9s:at={step},{when}",
    "swapped:at={step},{when}",
    "535:at=auth,{window}",
    "421:at=idle,{when}",
    "drop:at=idle,{when}",
    "stall:at=idle,{when}",
    "refuse:{window}",
)
"""Not among them: a server that says no after the final dot and has the message. Nobody can do anything about it."""

STEPS = ("banner", "ehlo", "auth", "mail", "rcpt", "data", "dot")
CODES = (421, 421, 432, 450, 451, 452, 454, 500, 502, 503, 530, 535, 550, 552, 553, 554)
TEXTS = (
    "4.7.1 Greylisted; come back in 20 seconds",
    "4.5.3 Too many recipients",
    "4.7.28 unusual rate of mail",
    "rate limit exceeded; try again in 10 seconds",
    "4.3.2 shutting down",
    "4.3.1 Insufficient system storage",
    "5.2.2 mailbox full",
    "5.1.1 no such user",
    "5.7.1 Relay access denied",
    "5.7.1 looks like spam",
    "too large",
)

LOCAL_PARTS = ("rejected", "throttled", "twice-503", "unknown", "lost", "stalled")
"""Recipients at whom something goes wrong wherever they are served."""


def recipient(chance: random.Random, number: int, place: int = 0) -> str:
    """The address of one of an email's recipients; of two emails never the same one."""
    name = chance.choice(LOCAL_PARTS) if chance.random() < 0.1 else "person"
    return f"{name}+{number}-{place}@{chance.choice(DOMAINS)}"


@dataclass(frozen=True)
class RouteNature:
    """What a simulated provider offers, and what of it the route's configuration uses."""

    name: str
    smtp: bool
    key: bool
    look_up: bool
    lag_s: float
    batch: int = 1  # from 2 on it speaks as Postmark does, and takes so many messages by a call

    @property
    def host(self) -> str:
        return f"{self.name}.example"


def draw_natures(chance: random.Random) -> dict[str, RouteNature]:
    names = ["main", "standby"][: chance.randint(1, 2)]
    return {name: _draw_nature(chance, name) for name in names}


def _draw_nature(chance: random.Random, name: str) -> RouteNature:
    if chance.random() < SMTP_SHARE:
        return RouteNature(name, smtp=True, key=False, look_up=False, lag_s=0.0)
    key, look_up, lag_s = chance.random() < 0.5, chance.random() < 0.5, chance.choice([0.0, 5.0, 20.0])
    batch = BATCHES.get(lag_s, 1) if look_up and not key else 1
    return RouteNature(name, smtp=False, key=key, look_up=look_up, lag_s=lag_s, batch=batch)


def draw_settings(chance: random.Random, nature: RouteNature) -> dict[str, object]:
    """The route's table in `posthouse.toml`."""
    settings: dict[str, object] = {
        "timeout": chance.choice(["3s", "6s"]),
        "connect_timeout": "1s",
        "concurrency": chance.choice([1, 3, 10]),
    }
    if nature.smtp:
        return settings | _smtp_settings(chance, nature)
    return settings | (_http_settings(nature) if nature.batch == 1 else _postmark_settings(nature))


def _postmark_settings(nature: RouteNature) -> dict[str, object]:
    return {
        "provider": "postmark",
        "url": f"https://{nature.host}",
        "api_key": PASSWORD,
        "batch": nature.batch,
        "concurrency": 10,  # a call that several share takes so many of these
        "look_up_lag": f"{nature.lag_s + 8}s",
    }


def _http_settings(nature: RouteNature) -> dict[str, object]:
    settings: dict[str, object] = {
        "provider": "http",
        "url": f"https://{nature.host}/v1/send",
        "auth": "none",
        "message_id": "id",
    }
    if nature.key:
        settings["idempotency_header"] = "Idempotency-Key"
    if nature.look_up:
        settings["look_up_url"] = f"https://{nature.host}/v1/messages/by-key/{{id}}"
        settings["look_up_lag"] = f"{nature.lag_s + 8}s"
    return settings


def _smtp_settings(chance: random.Random, nature: RouteNature) -> dict[str, object]:
    settings: dict[str, object] = {
        "provider": "smtp",
        "url": f"smtp://{nature.host}",
        "content_timeout": chance.choice(["2s", "6s"]),
        "final_timeout": chance.choice(["4s", "20s"]),
        "max_messages": chance.choice([1, 2, 5, 100]),
        "idle_close": chance.choice(["0s", "1s", "5s", "30s"]),
    }
    if chance.random() < 0.5:  # a credential needs TLS, which the simulated network takes as done
        settings |= {"url": f"smtps://shop@{nature.host}", "password": PASSWORD, "ca_file": str(CERTIFICATE)}
    return settings


def draw_api(chance: random.Random, nature: RouteNature, started_at: float, faults_until_s: float) -> SandboxApi:
    """The provider behind the route."""
    faults = [_draw_fault(chance, nature, faults_until_s) for _ in range(chance.randint(1, 6))]
    kind = SandboxApi if nature.batch == 1 else PostmarkSandbox
    return kind(
        Ledger(),
        FaultPlan(faults),
        chance=random.Random(chance.random()),
        started_at=started_at,
        idempotency=nature.key,
        look_up=nature.look_up,
        look_up_lag_s=nature.lag_s,
    )


def _draw_fault(chance: random.Random, nature: RouteNature, faults_until_s: float) -> Fault:
    start = chance.uniform(0, faults_until_s * 0.8)
    end = min(faults_until_s, start + chance.uniform(5, 60))
    window = f"from={start:.1f}s,until={end:.1f}s"
    text = chance.choice(SMTP_FAULTS if nature.smtp else HTTP_FAULTS).format(
        window=window,
        when=f"share={chance.choice([0.05, 0.3, 0.8])},{window}",
        code=chance.choice(CODES),
        step=chance.choice(STEPS),
        text=chance.choice(TEXTS),
        who=f"person+{chance.randrange(30)}-{chance.randrange(2)}@example.com",
    )
    return parse_fault(text)


def confuses_recipients(api: SandboxApi) -> bool:
    """Whether the server answers in the wrong order, so that one recipient's refusal may reach nobody."""
    return any(fault.effect.action is Action.SWAPPED for fault in api.faults.faults)
