"""The webhooks of every provider as their senders make them: how they sign, what they tell, and what it means.

The documents have the shapes that each provider documents; whatever is in them was made up here.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa_key
from cryptography.hazmat.primitives.hashes import SHA1, SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from posthouse.core.events import Cause, Event, EventKind
from posthouse.providers.standard_webhooks import signature, signing_key
from posthouse.providers.webhook import WebhookCall

NOW: Final = 1_800_000_000.0  # 2027-01-15T08:00:00Z
AT: Final = NOW - 10.5
ISO_AT: Final = "2027-01-15T07:59:49.500Z"

ADA: Final = "ada@example.com"
OUR_ID: Final = "0123456789abcdef0123456789abcdef"
DMARC: Final = "550-5.7.26 This mail has been blocked because the sender is unauthenticated."

Json = dict[str, Any]
Forge = Callable[[WebhookCall], WebhookCall]


@dataclass(frozen=True)
class Told:
    """One item, and the event that it stands for."""

    item: Json
    event: Event


@dataclass(frozen=True, kw_only=True)
class WebhookCase:
    """The webhooks of one provider. `sign` makes a call of a body, by a secret, at a time."""

    settings: Mapping[str, Any]
    secret: str  # as the route has it
    another_secret: str
    no_secret: str  # what is none at all; empty where anything is one
    sign: Callable[[str, bytes, float], WebhookCall]
    told: Mapping[str, Told]
    ignored: Sequence[Json]
    forgeries: Mapping[str, Forge]
    many: bool = False  # several items a call
    wrap: Callable[[Json], Json] = lambda item: item  # an item as it stands in a body
    setting: str = "webhook_secrets"
    tolerance_s: float | None = None  # None: a call has no time
    covers_body: bool = True

    def body(self, *items: Any) -> bytes:
        """The body of one call."""
        wrapped = [self.wrap(item) for item in items]
        return json.dumps(wrapped if self.many else wrapped[0]).encode()


def with_header(name: str, value: str | None) -> Forge:
    """A call with another header, or without it."""

    def forge(call: WebhookCall) -> WebhookCall:
        rest = {key: text for key, text in call.headers.items() if key != name}
        return replace(call, headers=rest if value is None else {**rest, name: value})

    return forge


def another_body(call: WebhookCall) -> WebhookCall:
    """One byte more, which changes nothing of what it says."""
    return replace(call, body=call.body + b" ")


def event(kind: EventKind, **fields: Any) -> Event:
    """An event about Ada's message."""
    told: Json = {"at": AT, "recipient": ADA, "key": OUR_ID, "message_id": "m-1"}
    return Event(kind, **told | fields)


# Resend


RESEND_SECRET: Final = "whsec_" + base64.b64encode(b"the first secret of them").decode()


def sign_as_svix(secret: str, body: bytes, now: float, message_id: str = "msg_1") -> WebhookCall:
    timestamp = str(int(now))
    signed = signature(signing_key(secret), message_id, timestamp, body)
    return WebhookCall({"svix-id": message_id, "svix-timestamp": timestamp, "svix-signature": signed}, body)


def _resend(type_: str, **details: Any) -> Json:
    message = {
        "email_id": "m-1",
        "created_at": "2027-01-15T07:59:00.000Z",
        "from": "Shop <shop@example.com>",
        "to": [ADA],
        "subject": "Your receipt",
        "headers": [{"name": "X-Shop", "value": "1"}],
        "tags": {"posthouse_id": OUR_ID, "order": "7"},
    }
    return {"type": type_, "created_at": ISO_AT, "data": message | details}


def _of_resend(kind: EventKind, **fields: Any) -> Event:
    return event(kind, **{"provider_event_id": "msg_1"} | fields)


_SVIX_TEXT: Final = "smtp; 550 5.1.1 user unknown"
_AMAZON_BOUNCE: Final = {"type": "Permanent", "subType": "General", "message": "it bounced"}

RESEND: Final = WebhookCase(
    settings={"provider": "resend", "api_key": "key"},
    secret=RESEND_SECRET,
    another_secret="whsec_" + base64.b64encode(b"the second secret of them").decode(),
    no_secret="whsec_###",
    sign=sign_as_svix,
    told={
        "sent": Told(_resend("email.sent"), _of_resend(EventKind.SENT)),
        "scheduled": Told(_resend("email.scheduled"), _of_resend(EventKind.SENT)),
        "deferred": Told(_resend("email.delivery_delayed"), _of_resend(EventKind.DEFERRED, cause=Cause.OTHER)),
        "delivered": Told(_resend("email.delivered"), _of_resend(EventKind.DELIVERED)),
        "to several": Told(
            _resend("email.delivered", to=[ADA, "bob@example.com"]), _of_resend(EventKind.DELIVERED, recipient="")
        ),
        "tags as they were sent": Told(
            _resend(
                "email.delivered", tags=[{"name": "order", "value": "7"}, {"name": "posthouse_id", "value": OUR_ID}]
            ),
            _of_resend(EventKind.DELIVERED),
        ),
        "bounced": Told(
            _resend("email.bounced", bounce=_AMAZON_BOUNCE | {"diagnosticCode": [_SVIX_TEXT]}),
            _of_resend(EventKind.BOUNCED, cause=Cause.NO_MAILBOX, hard=True, code="550 5.1.1", text=_SVIX_TEXT),
        ),
        "no mailbox": Told(
            _resend("email.bounced", bounce=_AMAZON_BOUNCE | {"subType": "NoEmail"}),
            _of_resend(EventKind.BOUNCED, cause=Cause.NO_MAILBOX, hard=True, text="it bounced"),
        ),
        "mailbox full": Told(
            _resend(
                "email.bounced", bounce={"type": "Transient", "subType": "MailboxFull", "message": "452 4.2.2 full"}
            ),
            _of_resend(EventKind.BOUNCED, cause=Cause.MAILBOX_FULL, code="452 4.2.2", text="452 4.2.2 full"),
        ),
        "unsubscribed before": Told(
            _resend("email.bounced", bounce=_AMAZON_BOUNCE | {"subType": "UnsubscribedRecipient"}),
            _of_resend(EventKind.BOUNCED, cause=Cause.LISTED, text="it bounced"),
        ),
        "bounced before": Told(
            _resend("email.suppressed", suppressed={"reason": "previous_bounce", "message": "on the list"}),
            _of_resend(EventKind.BOUNCED, cause=Cause.LISTED, hard=True, text="on the list"),
        ),
        "complained before": Told(
            _resend("email.suppressed", suppressed={"reason": "previous_complaint", "message": "on the list"}),
            _of_resend(EventKind.BOUNCED, cause=Cause.LISTED, text="on the list"),
        ),
        "failed": Told(
            _resend("email.failed", failed={"reason": "reached_daily_quota"}),
            _of_resend(EventKind.BOUNCED, cause=Cause.OTHER, text="reached_daily_quota"),
        ),
        "complained": Told(_resend("email.complained"), _of_resend(EventKind.COMPLAINED)),
        "opened": Told(_resend("email.opened"), _of_resend(EventKind.OPENED)),
        "clicked": Told(
            _resend("email.clicked", click={"link": "https://shop.example/7", "timestamp": ISO_AT}),
            _of_resend(EventKind.CLICKED, url="https://shop.example/7"),
        ),
    },
    ignored=[
        {"type": type_, "created_at": ISO_AT, "data": {"id": "x"}}
        for type_ in ("email.received", "contact.created", "domain.updated")
    ],
    forgeries={
        "body": another_body,
        "id": with_header("svix-id", "msg_2"),
        "timestamp": with_header("svix-timestamp", str(int(NOW) + 1)),
        "no timestamp": with_header("svix-timestamp", None),
        "no number for a timestamp": with_header("svix-timestamp", "1_800_000_000"),
        "signature": with_header("svix-signature", "v1," + base64.b64encode(bytes(32)).decode()),
        "no signature": with_header("svix-signature", None),
        "an empty signature": with_header("svix-signature", ""),
        "a signature of no ASCII": with_header("svix-signature", "v1,ü"),
        "another version": lambda call: with_header(
            "svix-signature", call.headers["svix-signature"].replace("v1,", "v1a,")
        )(call),
    },
    tolerance_s=300.0,
)


# Postmark


def sign_as_postmark(secret: str, body: bytes, _: float) -> WebhookCall:
    credentials = base64.b64encode(b"posthouse:" + secret.encode()).decode()
    return WebhookCall({"authorization": f"Basic {credentials}", "content-type": "application/json"}, body)


def _postmark(type_: str, **details: Any) -> Json:
    common = {
        "RecordType": type_,
        "MessageID": "m-1",
        "Tag": "receipt",
        "Metadata": {"posthouse_id": OUR_ID, "order": "7"},
        "MessageStream": "outbound",
        "ServerID": 23,
    }
    return common | details


_DELIVERY: Final = "delivery m-1 ada@example.com"
_POSTMARK_AT: Final = "2027-01-15T02:59:49.5000000-05:00"  # seven digits, and an offset


def _bounce(type_: str, **details: Any) -> Json:
    told = {
        "ID": 4_323_372_036_854_775_807,
        "Type": type_,
        "Email": ADA,
        "BouncedAt": _POSTMARK_AT,
        "Description": "What it means in general.",
        "Details": "smtp;550 5.1.1 The account does not exist",
        "Inactive": False,
        "CanActivate": True,
    }
    return _postmark("Bounce", **told | details)


def _of_bounce(kind: EventKind, cause: Cause, hard: bool = False, **fields: Any) -> Event:
    told: Json = {
        "provider_event_id": "bounce 4323372036854775807",
        "code": "550 5.1.1",
        "text": "smtp;550 5.1.1 The account does not exist",
    }
    return event(kind, cause=cause, hard=hard, **told | fields)


_SAYS_NO: Final[Json] = {"Details": "smtp;550 No."}
_NO: Final[Json] = {"code": "550", "text": "smtp;550 No."}

_UNSUBSCRIBED: Final = {"SuppressSending": True, "Origin": "Recipient", "SuppressionReason": "ManualSuppression"}

POSTMARK: Final = WebhookCase(
    settings={"provider": "postmark", "api_key": "key"},
    secret="first:secret",
    another_secret="second secret",
    no_secret="",
    sign=sign_as_postmark,
    told={
        "delivered": Told(
            _postmark("Delivery", Recipient=ADA, DeliveredAt=_POSTMARK_AT, Details="250 2.0.0 OK"),
            event(EventKind.DELIVERED, code="250 2.0.0", text="250 2.0.0 OK", provider_event_id=_DELIVERY),
        ),
        "bounced": Told(_bounce("HardBounce"), _of_bounce(EventKind.BOUNCED, Cause.NO_MAILBOX, hard=True)),
        "without details": Told(
            _bounce("HardBounce", Details=None),
            _of_bounce(EventKind.BOUNCED, Cause.OTHER, hard=True, code="", text="What it means in general."),
        ),
        "soft": Told(_bounce("SoftBounce", **_SAYS_NO), _of_bounce(EventKind.BOUNCED, Cause.OTHER, **_NO)),
        "soft, and made inactive": Told(
            _bounce("SoftBounce", Inactive=True, **_SAYS_NO),
            _of_bounce(EventKind.BOUNCED, Cause.OTHER, hard=True, **_NO),
        ),
        "deferred": Told(_bounce("Transient", **_SAYS_NO), _of_bounce(EventKind.DEFERRED, Cause.OTHER, **_NO)),
        "no name server": Told(_bounce("DnsError"), _of_bounce(EventKind.DEFERRED, Cause.UNREACHABLE)),
        "blocked": Told(_bounce("Blocked"), _of_bounce(EventKind.BOUNCED, Cause.BLOCKED)),
        "blocked, for our own DMARC": Told(
            _bounce("Blocked", Details=DMARC),
            _of_bounce(EventKind.BOUNCED, Cause.NOT_AUTHENTIC, code="550 5.7.26", text=DMARC),
        ),
        "blocked, made inactive, and full": Told(
            _bounce("Blocked", Inactive=True, Details="552 5.2.2 over quota"),
            _of_bounce(EventKind.BOUNCED, Cause.MAILBOX_FULL, hard=True, code="552 5.2.2", text="552 5.2.2 over quota"),
        ),
        "our own DMARC": Told(_bounce("DMARCPolicy"), _of_bounce(EventKind.BOUNCED, Cause.NOT_AUTHENTIC)),
        "no address": Told(_bounce("BadEmailAddress"), _of_bounce(EventKind.BOUNCED, Cause.NO_MAILBOX, hard=True)),
        "switched off by hand": Told(
            _bounce("ManuallyDeactivated", Inactive=True), _of_bounce(EventKind.BOUNCED, Cause.LISTED)
        ),
        "out of office": Told(_bounce("AutoResponder"), _of_bounce(EventKind.DELIVERED, Cause.AUTO_REPLY)),
        "complained": Told(
            _bounce("SpamComplaint") | {"RecordType": "SpamComplaint"}, _of_bounce(EventKind.COMPLAINED, Cause.NONE)
        ),
        "complained, as a bounce": Told(_bounce("SpamComplaint"), _of_bounce(EventKind.COMPLAINED, Cause.NONE)),
        "unsubscribed by mail": Told(_bounce("Unsubscribe"), _of_bounce(EventKind.UNSUBSCRIBED, Cause.NONE)),
        "unsubscribed": Told(
            _postmark("SubscriptionChange", Recipient=ADA, ChangedAt=_POSTMARK_AT, **_UNSUBSCRIBED),
            event(EventKind.UNSUBSCRIBED),
        ),
        "opened": Told(
            _postmark("Open", Recipient=ADA, ReceivedAt=_POSTMARK_AT, FirstOpen=True), event(EventKind.OPENED)
        ),
        "clicked": Told(
            _postmark("Click", Recipient=ADA, ReceivedAt=_POSTMARK_AT, OriginalLink="https://shop.example/7"),
            event(EventKind.CLICKED, url="https://shop.example/7"),
        ),
    },
    ignored=[
        _bounce("Subscribe"),
        _bounce("OpenRelayTest"),
        _postmark(
            "SubscriptionChange", Recipient=ADA, ChangedAt=_POSTMARK_AT, SuppressSending=False, Origin="Customer"
        ),
        _postmark(
            "SubscriptionChange",
            Recipient=ADA,
            ChangedAt=_POSTMARK_AT,
            **_UNSUBSCRIBED | {"SuppressionReason": "HardBounce"},
        ),
    ],
    forgeries={
        "no password": with_header("authorization", None),
        "another password": with_header("authorization", "Basic " + base64.b64encode(b"posthouse:guess").decode()),
        "an empty password": with_header("authorization", "Basic " + base64.b64encode(b"posthouse:").decode()),
        "a name alone": with_header("authorization", "Basic " + base64.b64encode(b"first:secre").decode()),
        "no base64": with_header("authorization", "Basic ü"),
        "another scheme": with_header("authorization", "Bearer first:secret"),
    },
    covers_body=False,
)


# SendGrid


SENDGRID_KEYS: Final[Mapping[str, EllipticCurvePrivateKey]] = {
    base64.b64encode(key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).decode(): key
    for key in (generate_private_key(SECP256R1()), generate_private_key(SECP256R1()))
}
"""The private halves, by what SendGrid shows of each."""


def sign_as_sendgrid(secret: str, body: bytes, now: float) -> WebhookCall:
    timestamp = str(int(now))
    signed = SENDGRID_KEYS[secret].sign(timestamp.encode() + body, ECDSA(SHA256()))
    return WebhookCall(
        {
            "x-twilio-email-event-webhook-signature": base64.b64encode(signed).decode(),
            "x-twilio-email-event-webhook-timestamp": timestamp,
        },
        body,
    )


def _sendgrid(type_: str, **details: Any) -> Json:
    common = {
        "email": ADA,
        "timestamp": int(AT),
        "event": type_,
        "smtp-id": "<x@example.com>",
        "sg_event_id": "e-1",
        "sg_message_id": "m-1.recvd-5f54b5d587-pczjm-1-67BADEEA-6.0",
        "category": ["receipt"],
        "posthouse_id": OUR_ID,
        "order": "7",
    }
    return common | details


def _of_sendgrid(kind: EventKind, **fields: Any) -> Event:
    return event(kind, **{"at": float(int(AT)), "provider_event_id": "e-1"} | fields)


def _dropped(reason: str, cause: Cause, hard: bool = False) -> Told:
    dropped = _of_sendgrid(EventKind.BOUNCED, cause=cause, hard=hard, code="550 5.0.0", text=reason)
    return Told(_sendgrid("dropped", reason=reason, status="5.0.0"), replace(dropped, code="5.0.0"))


def _bounced(cause: Cause, hard: bool, said: str = "550 5.1.1 no such user", **details: Any) -> Told:
    status = "5.7.26" if said == DMARC else "5.1.1"
    item = _sendgrid("bounce", reason=said, status=status, **details)
    return Told(item, _of_sendgrid(EventKind.BOUNCED, cause=cause, hard=hard, code=f"550 {status}", text=said))


SENDGRID: Final = WebhookCase(
    settings={"provider": "sendgrid", "api_key": "key"},
    secret=next(iter(SENDGRID_KEYS)),
    another_secret=[*SENDGRID_KEYS][1],
    no_secret=base64.b64encode(b"no key").decode(),
    sign=sign_as_sendgrid,
    told={
        "sent": Told(_sendgrid("processed"), _of_sendgrid(EventKind.SENT)),
        "deferred": Told(
            _sendgrid("deferred", response="450 4.2.1 too fast", attempt="3"),
            _of_sendgrid(EventKind.DEFERRED, cause=Cause.TOO_FAST, code="450 4.2.1", text="450 4.2.1 too fast"),
        ),
        "delivered": Told(
            _sendgrid("delivered", response="250 OK"), _of_sendgrid(EventKind.DELIVERED, code="250", text="250 OK")
        ),
        "bounced": _bounced(Cause.NO_MAILBOX, True, type="bounce"),
        "an address that is none": _bounced(
            Cause.NO_MAILBOX, True, type="bounce", bounce_classification="Invalid Address"
        ),
        "the content": _bounced(Cause.CONTENT, False, type="bounce", bounce_classification="Content"),
        "blocked": _bounced(Cause.BLOCKED, False, type="blocked"),
        "blocked, for our own DMARC": _bounced(Cause.NOT_AUTHENTIC, False, DMARC, type="blocked"),
        "our reputation, and really our own DMARC": _bounced(
            Cause.NOT_AUTHENTIC, False, DMARC, type="blocked", bounce_classification="Reputation"
        ),
        "blocked, too fast": _bounced(
            Cause.TOO_FAST, False, type="blocked", bounce_classification="Frequency or Volume Too High"
        ),
        "blocked, with an address that is none": _bounced(
            Cause.NO_MAILBOX, False, type="blocked", bounce_classification="Invalid Address"
        ),
        "bounced before": _dropped("Bounced Address", Cause.LISTED, hard=True),
        "unsubscribed before": _dropped("Unsubscribed Address", Cause.LISTED),
        "complained before": _dropped("Spam Reporting Address", Cause.LISTED),
        "invalid": _dropped("Invalid", Cause.NO_MAILBOX, hard=True),
        "invalid header": _dropped("Invalid SMTPAPI header", Cause.CONTENT),
        "spam": _dropped("Spam Content (if spam checker app is enabled)", Cause.CONTENT),
        "a reason of its own": _dropped("Something new", Cause.OTHER),
        "complained": Told(_sendgrid("spamreport"), _of_sendgrid(EventKind.COMPLAINED)),
        "unsubscribed": Told(_sendgrid("unsubscribe"), _of_sendgrid(EventKind.UNSUBSCRIBED)),
        "unsubscribed of a group": Told(
            _sendgrid("group_unsubscribe", asm_group_id=3, url="https://x.example"),
            _of_sendgrid(EventKind.UNSUBSCRIBED),
        ),
        "opened": Told(_sendgrid("open", sg_machine_open=False), _of_sendgrid(EventKind.OPENED)),
        "clicked": Told(
            _sendgrid("click", url="https://shop.example/7", url_offset={"index": 0, "type": "html"}),
            _of_sendgrid(EventKind.CLICKED, url="https://shop.example/7"),
        ),
    },
    ignored=[_sendgrid("group_resubscribe")],
    forgeries={
        "body": another_body,
        "timestamp": with_header("x-twilio-email-event-webhook-timestamp", str(int(NOW) + 1)),
        "no timestamp": with_header("x-twilio-email-event-webhook-timestamp", None),
        "signature": with_header("x-twilio-email-event-webhook-signature", base64.b64encode(bytes(70)).decode()),
        "no signature": with_header("x-twilio-email-event-webhook-signature", None),
        "no base64": with_header("x-twilio-email-event-webhook-signature", "ü"),
    },
    many=True,
    tolerance_s=25 * 3600.0,
)


# Mailgun


TOKEN: Final = "a" * 50


def sign_as_mailgun(secret: str, body: bytes, now: float) -> WebhookCall:
    timestamp = str(int(now))
    signed = hmac.new(secret.encode(), (timestamp + TOKEN).encode(), hashlib.sha256).hexdigest()
    beside = {"timestamp": timestamp, "token": TOKEN, "signature": signed}
    return WebhookCall({}, json.dumps({"signature": beside, **json.loads(body)}).encode())


def with_signature(**changed: Any) -> Forge:
    """A call with something else beside its event; None: without it."""

    def forge(call: WebhookCall) -> WebhookCall:
        document = json.loads(call.body)
        document["signature"] |= changed
        return replace(call, body=json.dumps(document).encode())

    return forge


def _mailgun(type_: str, **details: Any) -> Json:
    common = {
        "event": type_,
        "id": "e-1",
        "timestamp": AT,
        "recipient": ADA,
        "recipient-domain": "example.com",
        "tags": ["receipt"],
        "user-variables": {"posthouse_id": OUR_ID, "order": "7"},
        "log-level": "info",
        "message": {"headers": {"message-id": "m-1", "to": ADA, "subject": "Your receipt"}, "size": 512},
        "envelope": {"sender": "shop@example.com", "targets": ADA, "transport": "smtp"},
        "flags": {"is-test-mode": False},
    }
    return {"event-data": common | details}


def _of_mailgun(kind: EventKind, **fields: Any) -> Event:
    return event(kind, **{"provider_event_id": f"e-1 {AT:.6f}"} | fields)


def _mailgun_failed(
    severity: str, reason: str, kind: EventKind, cause: Cause, hard: bool = False, said: str = "5.1.1 no such user"
) -> Told:
    status = {"code": 550, "message": said, "description": "", "attempt-no": 1, "retry-seconds": 600}
    item = _mailgun("failed", severity=severity, reason=reason, **{"delivery-status": status})
    code = {"5.1.1 no such user": "550 5.1.1", DMARC: "550 5.7.26"}.get(said, "550")
    return Told(item, _of_mailgun(kind, cause=cause, hard=hard, code=code, text=said))


MAILGUN: Final = WebhookCase(
    settings={"provider": "mailgun", "api_key": "key", "domain": "shop.example"},
    secret="first secret",
    another_secret="second secret",
    no_secret="",
    sign=sign_as_mailgun,
    told={
        "sent": Told(_mailgun("accepted"), _of_mailgun(EventKind.SENT)),
        "delivered": Told(
            _mailgun("delivered", **{"delivery-status": {"code": 250, "message": "OK", "description": None}}),
            _of_mailgun(EventKind.DELIVERED, code="250", text="OK"),
        ),
        "bounced": _mailgun_failed("permanent", "bounce", EventKind.BOUNCED, Cause.NO_MAILBOX, hard=True),
        "failed in general": _mailgun_failed("permanent", "generic", EventKind.BOUNCED, Cause.OTHER, said="No."),
        "bounced before": _mailgun_failed("permanent", "suppress-bounce", EventKind.BOUNCED, Cause.LISTED, hard=True),
        "complained before": _mailgun_failed("permanent", "suppress-complaint", EventKind.BOUNCED, Cause.LISTED),
        "given up": _mailgun_failed("permanent", "old", EventKind.BOUNCED, Cause.EXPIRED),
        "given up, and called temporary": _mailgun_failed("temporary", "old", EventKind.BOUNCED, Cause.EXPIRED),
        "deferred": _mailgun_failed("temporary", "generic", EventKind.DEFERRED, Cause.OTHER, said="No."),
        "greylisted": _mailgun_failed("temporary", "greylisted", EventKind.DEFERRED, Cause.GREYLISTED),
        "blocked": _mailgun_failed("temporary", "espblock", EventKind.DEFERRED, Cause.BLOCKED),
        "blocked, for our own DMARC": _mailgun_failed(
            "permanent", "espblock", EventKind.BOUNCED, Cause.NOT_AUTHENTIC, said=DMARC
        ),
        "rejected": Told(
            _mailgun("rejected", reject={"reason": "Sandbox subdomains are for test purposes only"}),
            _of_mailgun(EventKind.BOUNCED, cause=Cause.OTHER, text="Sandbox subdomains are for test purposes only"),
        ),
        "complained": Told(_mailgun("complained"), _of_mailgun(EventKind.COMPLAINED)),
        "unsubscribed": Told(_mailgun("unsubscribed"), _of_mailgun(EventKind.UNSUBSCRIBED)),
        "opened": Told(_mailgun("opened", ip="192.0.2.1"), _of_mailgun(EventKind.OPENED)),
        "clicked": Told(
            _mailgun("clicked", url="https://shop.example/7"),
            _of_mailgun(EventKind.CLICKED, url="https://shop.example/7"),
        ),
    },
    ignored=[_mailgun("stored", storage={"url": "https://x.example", "key": "k"})],
    forgeries={
        "timestamp": with_signature(timestamp=str(int(NOW) + 1)),
        "no timestamp": with_signature(timestamp=None),
        "token": with_signature(token="b" * 50),
        "no token": with_signature(token=None),
        "a token that is no text": with_signature(token=[TOKEN]),
        "signature": with_signature(signature="0" * 64),
        "no signature": with_signature(signature=None),
        "a signature of no ASCII": with_signature(signature="ü"),
        "nothing at all": lambda call: replace(call, body=b"{}"),
        "no JSON": lambda call: replace(call, body=b"\xff"),
    },
    tolerance_s=9 * 3600.0,
    covers_body=False,
)

# SES


TOPIC: Final = "arn:aws:sns:eu-west-1:123456789012:mail"
CERTIFICATE_URL: Final = "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem"
SUBSCRIBE_URL: Final = f"https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token=t"

_AMAZON_KEY: Final = generate_rsa_key(65537, 2048)


def certificate(from_s: float = NOW - 86_400, until_s: float = NOW + 86_400) -> bytes:
    """Amazon's, in PEM."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sns.amazonaws.com")])
    builder = x509.CertificateBuilder(name, name, _AMAZON_KEY.public_key(), 7)
    from_, until = (datetime.fromtimestamp(moment, UTC) for moment in (from_s, until_s))
    return builder.not_valid_before(from_).not_valid_after(until).sign(_AMAZON_KEY, SHA256()).public_bytes(Encoding.PEM)


def sign_as_sns(secret: str, body: bytes, now: float, version: str = "2") -> WebhookCall:
    """As its documentation says: the members by name, each name and each value on a line."""
    at = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    envelope = {**json.loads(body), "TopicArn": secret, "Timestamp": at}
    names = "Message MessageId SubscribeURL Subject Timestamp Token TopicArn Type"
    text = "".join(f"{name}\n{envelope[name]}\n" for name in names.split() if name in envelope)
    signed = _AMAZON_KEY.sign(text.encode(), PKCS1v15(), SHA256() if version == "2" else SHA1())  # noqa: S303
    beside = {
        "SignatureVersion": version,
        "SigningCertURL": CERTIFICATE_URL,
        "Signature": base64.b64encode(signed).decode(),
    }
    return WebhookCall({"content-type": "text/plain; charset=UTF-8"}, json.dumps(envelope | beside).encode())


def with_member(**changed: Any) -> Forge:
    """A call with another member; None: without it."""

    def forge(call: WebhookCall) -> WebhookCall:
        document = json.loads(call.body) | changed
        return replace(call, body=json.dumps({k: v for k, v in document.items() if v is not None}).encode())

    return forge


def in_envelope(item: Json) -> Json:
    """An event of SES as SNS hands it over."""
    return {
        "Type": "Notification",
        "MessageId": "e-1",
        "Message": json.dumps(item),
        "UnsubscribeURL": "https://x.example",
    }


def _ses(type_: str, **details: Any) -> Json:
    mail = {
        "timestamp": ISO_AT,
        "messageId": "m-1",
        "source": "shop@example.com",
        "destination": [ADA],
        "headers": [{"name": "Subject", "value": "Your receipt"}],
        "tags": {"posthouse_id": [OUR_ID], "ses:operation": ["SendEmail"]},
    }
    return {"eventType": type_, "mail": mail, **details}


def _of_ses(kind: EventKind, **fields: Any) -> Event:
    return event(kind, **{"provider_event_id": f"e-1 {ADA}"} | fields)


_SES_BOUNCED: Final = {
    "emailAddress": ADA,
    "action": "failed",
    "status": "5.1.1",
    "diagnosticCode": "smtp; 550 5.1.1 user unknown",
}


def _ses_bounce(type_: str, subtype: str, cause: Cause, hard: bool = False, key: str = "eventType") -> Told:
    bounce = {"bounceType": type_, "bounceSubType": subtype, "bouncedRecipients": [_SES_BOUNCED], "timestamp": ISO_AT}
    item = _ses("Bounce", bounce=bounce)
    item = {key: item.pop("eventType"), **item}
    said = {"code": "550 5.1.1", "text": "smtp; 550 5.1.1 user unknown"}
    return Told(item, _of_ses(EventKind.BOUNCED, cause=cause, hard=hard, **said))


_COMPLAINT: Final = {
    "complainedRecipients": [{"emailAddress": ADA}],
    "timestamp": ISO_AT,
    "complaintFeedbackType": "abuse",
}
_LEAVES: Final = {"timestamp": ISO_AT, "source": "UnsubscribeHeader", "newTopicPreferences": {"unsubscribeAll": True}}

_FULL: Final = "452 4.2.2 full"
_NOT_NOW: Final = "450 4.7.1 not now"
_NO_PTR: Final = "450 4.7.25 Client host rejected: cannot find your hostname, [192.0.2.7]"


def _ses_delay(type_: str, said: str) -> Json:
    recipient = {"emailAddress": ADA, "status": said.split()[1], "diagnosticCode": said}
    return _ses(
        "DeliveryDelay", deliveryDelay={"timestamp": ISO_AT, "delayType": type_, "delayedRecipients": [recipient]}
    )


def _of_delay(cause: Cause, said: str) -> Event:
    return _of_ses(EventKind.DEFERRED, cause=cause, code=" ".join(said.split()[:2]), text=said)


SES: Final = WebhookCase(
    settings={"provider": "ses", "region": "eu-west-1", "access_key_id": "id", "secret_access_key": "key"},
    setting="webhook_topics",
    secret=TOPIC,
    another_secret=TOPIC + "-too",
    no_secret="mail",
    sign=sign_as_sns,
    wrap=in_envelope,
    told={
        "sent": Told(_ses("Send", send={}), _of_ses(EventKind.SENT)),
        "delivered": Told(
            _ses("Delivery", delivery={"timestamp": ISO_AT, "recipients": [ADA], "smtpResponse": "250 OK"}),
            _of_ses(EventKind.DELIVERED, code="250", text="250 OK"),
        ),
        "deferred": Told(_ses_delay("MailboxFull", _FULL), _of_delay(Cause.MAILBOX_FULL, _FULL)),
        "put off by a filter": Told(_ses_delay("SpamDetected", _NOT_NOW), _of_delay(Cause.BLOCKED, _NOT_NOW)),
        "put off for its address": Told(_ses_delay("IPFailure", _NO_PTR), _of_delay(Cause.NOT_AUTHENTIC, _NO_PTR)),
        "bounced": _ses_bounce("Permanent", "General", Cause.NO_MAILBOX, hard=True),
        "bounced, told by the identity": _ses_bounce(
            "Permanent", "NoEmail", Cause.NO_MAILBOX, hard=True, key="notificationType"
        ),
        "mailbox full": _ses_bounce("Transient", "MailboxFull", Cause.MAILBOX_FULL),
        "on the account's list": _ses_bounce("Permanent", "OnAccountSuppressionList", Cause.LISTED),
        "on Amazon's list": _ses_bounce("Permanent", "Suppressed", Cause.LISTED, hard=True),
        "complained": Told(_ses("Complaint", complaint=_COMPLAINT), _of_ses(EventKind.COMPLAINED, text="abuse")),
        "complained before": Told(
            _ses("Complaint", complaint=_COMPLAINT | {"complaintSubType": "OnAccountSuppressionList"}),
            _of_ses(EventKind.BOUNCED, cause=Cause.LISTED, text="abuse"),
        ),
        "rejected": Told(
            _ses("Reject", reject={"reason": "Bad content"}),
            _of_ses(EventKind.BOUNCED, cause=Cause.CONTENT, text="Bad content"),
        ),
        "not rendered": Told(
            _ses("Rendering Failure", failure={"templateName": "t", "errorMessage": "no name"}),
            _of_ses(EventKind.BOUNCED, cause=Cause.CONTENT, text="no name"),
        ),
        "opened": Told(_ses("Open", open={"timestamp": ISO_AT, "userAgent": "x"}), _of_ses(EventKind.OPENED)),
        "clicked": Told(
            _ses("Click", click={"timestamp": ISO_AT, "link": "https://shop.example/7"}),
            _of_ses(EventKind.CLICKED, url="https://shop.example/7"),
        ),
        "unsubscribed": Told(_ses("Subscription", subscription=_LEAVES), _of_ses(EventKind.UNSUBSCRIBED)),
    },
    ignored=[_ses("Subscription", subscription=_LEAVES | {"newTopicPreferences": {"unsubscribeAll": False}})],
    forgeries={
        "message": with_member(Message="{}"),
        "id": with_member(MessageId="e-2"),
        "a subject that was not there": with_member(Subject="x"),
        "type": with_member(Type="UnsubscribeConfirmation"),
        "no envelope": lambda call: replace(call, body=json.loads(call.body)["Message"].encode()),
        "no JSON": lambda call: replace(call, body=b"\xff"),
        "timestamp": with_member(Timestamp="2027-01-15T08:00:01.000Z"),
        "no timestamp": with_member(Timestamp=None),
        "signature": with_member(Signature=base64.b64encode(bytes(256)).decode()),
        "no signature": with_member(Signature=None),
        "no base64": with_member(Signature="ü"),
        "another version": with_member(SignatureVersion="1"),
        "no version": with_member(SignatureVersion=None),
        **{
            f"a certificate at {url}": with_member(SigningCertURL=url)
            for url in (
                None,
                "",
                CERTIFICATE_URL.replace("https", "http"),
                CERTIFICATE_URL.replace(".com/", ".com.evil.example/"),
                CERTIFICATE_URL.replace("sns.eu", "evil.example/sns.eu"),
                CERTIFICATE_URL.replace("sns.", "me@sns."),
                CERTIFICATE_URL.replace(".com/", ".com:444/"),
                CERTIFICATE_URL.replace("sns.", "s3."),
                CERTIFICATE_URL.replace("/Simple", "/bucket/Simple"),
                CERTIFICATE_URL.replace("sns.", "sn\ns."),
                "https://[",
            )
        },
    },
    tolerance_s=2 * 3600.0,
)

CASES: Final = {"mailgun": MAILGUN, "postmark": POSTMARK, "resend": RESEND, "sendgrid": SENDGRID, "ses": SES}
"""By the provider's name."""
