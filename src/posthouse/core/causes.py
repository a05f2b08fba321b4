"""Why a receiver put a message off or refused it, from its enhanced status code and its words: the first rule decides.

Words come before codes where they say more: many servers answer 5.7.1 to everything, and some 5.1.1. Whatever speaks
against us (our pace, our reputation, our authentication, this message) is asked for before what speaks against the
address: to take a block for a missing mailbox loses a customer, the reverse costs one more refusal.

Sources: RFC 3463, 5248, 6647, 7372, 7505; the wordings of the receivers named with each rule.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from posthouse.core.answers import first_match, said
from posthouse.core.events import Cause

JUDGED_CHARS_MAX: Final = 4096

_SAYS_NOTHING: Final = frozenset({"", "4.0.0", "5.0.0"})
_IN_TEXT = re.compile(r"(?:\A|[\s;#(<-])([245]\.\d{1,3}\.\d{1,3})(?![\d.]*\d)")
_ADDRESS = re.compile(r"[^\s<>\"',;:()]{1,64}@[^\s<>\"',;:()]{1,255}")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a receiver said: an enhanced status code or none, and words."""

    status: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseRule:
    """Decides a diagnosis whose status code fits `status`, or whose words fit `says`."""

    name: str
    status: re.Pattern[str] | None = None  # the whole code, such as `5.1.1`
    says: re.Pattern[str] | None = None  # found in the words, addresses taken out
    never: str = ""  # a class that it is not for: `5` for what is only said of what passes
    cause: Cause
    matches: tuple[Diagnosis, ...]
    not_matches: tuple[Diagnosis, ...]

    def covers(self, diagnosis: Diagnosis, /) -> bool:
        """Whether the code or the words fit, whatever earlier rules say."""
        if self.never and diagnosis.status.startswith(self.never):
            return False
        if self.status is not None and self.status.fullmatch(diagnosis.status):
            return True
        return self.says is not None and bool(self.says.search(diagnosis.text))


def cause_of(status: str, text: str) -> Cause:
    """The cause that a receiver names. `status` is an enhanced status code such as `5.1.1`, or empty where there is
    none, or none that says anything: then one is looked for in the text."""
    text = " ".join(text[:JUDGED_CHARS_MAX].split())
    status = status.strip()
    if status in _SAYS_NOTHING:
        found = _IN_TEXT.search(text)
        status = found[1] if found else status
    # "no-spam@example.com" says nothing of spam.
    rule = first_match(Diagnosis(status, _ADDRESS.sub("", text)), CAUSE_RULES)
    return Cause.OTHER if rule is None else rule.cause


CLOSER_THAN_BLOCKED: Final = frozenset(
    {Cause.NOT_AUTHENTIC, Cause.TOO_FAST, Cause.GREYLISTED, Cause.CONTENT, Cause.MAILBOX_FULL}
)
"""What a receiver's words may make of a provider's bare `blocked`, which is its word for much that has another cure.

None of these suppresses anybody. That there is no such mailbox, or that it is on a list, is not among them: the
provider speaks against us there, and receivers that block us say `mailbox unavailable` too. Nor is it that nobody
answered or that it took days, which only tells how the block was met with."""


def closer(cause: Cause, code: str, text: str) -> Cause:
    """The cause of what a provider told: as it says, but for `other` and a bare `blocked`, where the receiver says
    more. `code` is such as `550 5.7.26`."""
    if cause not in (Cause.OTHER, Cause.BLOCKED):
        return cause
    status = code.rpartition(" ")[2]
    heard = cause_of(status if "." in status else "", text)
    return heard if cause is Cause.OTHER or heard in CLOSER_THAN_BLOCKED else cause


_GMAIL_GONE: Final = Diagnosis("5.1.1", "The email account that you tried to reach does not exist.")
_GMAIL_LIMITED: Final = Diagnosis("4.7.28", "Our system has detected an unusual rate of unsolicited mail")
_GMAIL_FULL: Final = Diagnosis("4.2.2", "The recipient's inbox is out of storage space.")
_GMAIL_SPAM: Final = Diagnosis(
    "5.7.1", "this message is likely unsolicited mail. To reduce the amount of spam sent to Gmail, it has been blocked."
)
_POSTFIX_DOWN: Final = Diagnosis("4.4.1", "connect to mx.example.com[192.0.2.7]:25: Connection timed out")
_EXIM_GONE: Final = Diagnosis("", "550 Unrouteable address")

ABOUT_US_RULES: Final = (
    CauseRule(
        name="on the provider's suppression list",
        says=said(r"\bsuppress(?:ed|ion list)\b"),
        cause=Cause.LISTED,
        matches=(
            Diagnosis(
                "5.1.1", "Amazon SES did not send the message to this address because it is on the suppression list"
            ),
            Diagnosis("", "550 5.1.1 sending to this address has been suppressed"),
        ),
        not_matches=(_GMAIL_GONE,),
    ),
    CauseRule(
        name="greylisted",  # RFC 6647; Postfix' postscreen
        says=said(r"\bgr[ae]y-?list|4\.3\.2 service currently unavailable"),
        never="5",
        cause=Cause.GREYLISTED,
        matches=(
            Diagnosis("4.2.0", "Recipient address rejected: Greylisted, see the help page"),
            Diagnosis("4.7.1", "Greylisting in action, please come back in 5 minutes"),
            Diagnosis("", "451 graylisted"),
            Diagnosis("", "450 4.3.2 Service currently unavailable"),
        ),
        not_matches=(Diagnosis("4.7.1", "try again later"), Diagnosis("5.7.1", "greylisted for ever")),
    ),
    CauseRule(
        name="not authentic",  # Gmail from 5.7.25 on, Microsoft 5.7.509 and 5.7.515, Postfix, Exim, GMX
        status=re.compile(r"[45]\.(?:7\.(?:2[0-7]|509|515)|1\.[78])"),
        says=said(
            r"\b(?:spf|dkim|dmarc|ptr)\b|\bunauthenticated\b|reverse dns|\brdns\b"
            r"|cannot find your (?:reverse )?hostname"
            r"|sender (?:address rejected: (?:domain not found|unverified|undeliverable)|verif\w+ failed"
            r"|id .{0,20}fail)|required authentication level"
        ),
        cause=Cause.NOT_AUTHENTIC,
        matches=(
            Diagnosis("5.7.26", "This mail has been blocked because the sender is unauthenticated."),
            Diagnosis("4.7.27", "This mail has been rate limited because SPF authentication didn't pass"),
            Diagnosis("5.7.25", "The IP address sending this message does not have a PTR record"),
            Diagnosis("5.7.509", "Access denied, sending domain shop.example does not pass verification"),
            Diagnosis("5.7.515", "sending domain doesn't meet the required authentication level"),
            Diagnosis("5.7.1", "Unauthenticated email is not accepted due to the domain's DMARC policy"),
            Diagnosis("4.1.8", "Sender address rejected: Domain not found"),
            Diagnosis("4.7.1", "Client host rejected: cannot find your hostname, [192.0.2.7]"),
            Diagnosis("", "550 Sender verify failed"),
            Diagnosis("", "554 Transaction failed. The sender is not permitted by its SPF record"),
        ),
        not_matches=(_GMAIL_GONE, _GMAIL_SPAM, _GMAIL_LIMITED, Diagnosis("5.7.28", "mail flood")),
    ),
    CauseRule(
        name="too fast",  # Gmail, Microsoft (RP-001 to RP-003, 4.7.500, 4.7.650), Yahoo (TSS04), Postfix, Exim
        status=re.compile(r"[45]\.7\.28|4\.4\.5|4\.7\.(?:5\d\d|6[56]\d)|5\.4\.5"),
        says=said(
            r"\btss?\d\d\b|\brp-00[123]\b|unexpected volume|unusual (?:rate|traffic)|\brate[ -]?limit|throttl"
            r"|limits? (?:for|on) how many|(?:too|so) (?:fast|quickly|frequent)|receiving mail (?:at a rate|too)"
            r"|too much mail"
            r"|too many (?:\w+ ){0,3}?(?:connections?|messages?|mails?|emails?|sessions?|concurrent)\b|slow down"
            r"|(?:daily|hourly|sending|connection|message)(?: (?!size)\w+)? (?:quota|limit|rate)(?: has been"
            r"| is)? (?:reached|exceeded)"
            r"|exceeded the (?:max\w*|limit|rate)\b.{0,30}\b(?:connections|messages|emails|per (?:hour|minute"
            r"|day))|server (?:is )?(?:too )?busy"
        ),
        cause=Cause.TOO_FAST,
        matches=(
            _GMAIL_LIMITED,
            Diagnosis("4.2.1", "The user you are trying to contact is receiving mail too quickly."),
            Diagnosis("4.2.1", "The user you are trying to contact is receiving mail at a rate that prevents more"),
            Diagnosis("5.4.5", "Daily user sending quota exceeded."),
            Diagnosis("4.7.0", "[TSS04] Messages temporarily deferred due to unexpected volume or user complaints"),
            Diagnosis("4.7.0", "[TS02] Messages temporarily deferred"),
            Diagnosis("", "421 RP-001 (COL004) Unfortunately, some messages from 192.0.2.7 weren't sent."),
            Diagnosis("", "421 We have limits for how many messages can be sent per hour and per day."),
            Diagnosis("4.7.500", "Please try again later from 192.0.2.7."),
            Diagnosis("4.7.650", "The mail server 192.0.2.7 has been temporarily limited due to IP reputation."),
            Diagnosis("4.7.0", "Rate limit exceeded, please slow your sending"),
            Diagnosis("", "421 4.7.0 mx.example Error: too many connections from 192.0.2.7"),
            Diagnosis("4.7.1", "Error: too much mail from 192.0.2.7"),
            Diagnosis("", "450 you are sending too fast"),
            Diagnosis("", "Throttling failure: Maximum sending rate exceeded."),
            Diagnosis("", "Domain shop.example has exceeded the max emails per hour"),
            Diagnosis("", "451 Server busy"),
            Diagnosis("4.4.5", ""),
        ),
        not_matches=(
            Diagnosis("4.5.3", "Too many recipients"),
            Diagnosis("5.2.2", "user over quota"),
            Diagnosis("5.3.4", "message size limit exceeded"),
            Diagnosis("4.2.1", "mailbox busy"),
        ),
    ),
    CauseRule(
        name="this message",  # sizes, viruses, filters that name the content; Gmail 5.7.0 and 5.3.4
        status=re.compile(r"[45]\.(?:2\.3|3\.4|6\.\d+)"),
        says=said(
            r"(?:message|content|mail|size)\b.{0,40}\b(?:too (?:large|big)|exceed\w*(?: \S+){0,4}? (?:size|length"
            r"|limit)s?\b)|\b(?:size|message) (?:limit|size)\b.{0,20}exceed"
            r"|exceed\w* (?:the )?maximum (?:message )?size|\b(?:virus|malware|infected|phishing)\b"
            r"|\battachments?\b|because its content|potential security issue|(?:content|message) (?:\w+ )?content"
            r"|content (?:rejected|denied|not accepted|filter)|\bspam ?(?:message|content|score)|spamassassin"
            r"|(?:looks like|considered|identified|classified|detected|marked|recognized)(?: to be"
            r"| as)?(?: \w+)? (?:spam|junk)\b"
        ),
        cause=Cause.CONTENT,
        matches=(
            Diagnosis("5.3.4", "Message size exceeds fixed limit"),
            Diagnosis("", "552 message too large"),
            Diagnosis("", "552 5.0.0 Your message exceeded Google's message size limits."),
            Diagnosis("", "552 Message size exceeds maximum permitted"),
            Diagnosis("", "message size 20000000 exceeds size limit 10240000 of server mx.example.com"),
            Diagnosis("5.7.0", "This message was blocked because its content presents a potential security issue."),
            Diagnosis("5.7.1", "Message looks like spam"),
            Diagnosis("5.7.1", "Blocked by SpamAssassin"),
            Diagnosis("5.7.1", "Spam message rejected"),
            Diagnosis("", "554 the message contains a virus"),
            Diagnosis("5.7.1", "message content rejected"),
            Diagnosis("5.6.0", "malformed"),
        ),
        not_matches=(
            _GMAIL_SPAM,
            _GMAIL_FULL,
            Diagnosis("5.2.2", "mailbox full, quota exceeded"),
            Diagnosis("", "Domain shop.example has exceeded the max emails per hour"),
        ),
    ),
    CauseRule(
        name="blocked by a policy or a block list",  # Spamhaus, Microsoft (S3140, SC-, DY-), Yahoo (BL21), Apple (CS01)
        status=re.compile(r"5\.7\.(?:60[6-9]|6[1-4]\d)"),
        says=said(
            r"spamhaus|spamcop|barracuda|proofpoint|cloudmark|\b(?:dns|r|s)bl\b|\bs3(?:140|150)\b"
            r"|\b(?:sc|dy|ou)-00\d\b|\bbl\d\d\b|\b(?:cs|hm|ph)\d\d\b|(?:block|black|deny)[ -]?list"
            r"|is listed (?:at|in|by|on)|blocked (?:using|by|due|for)|(?:has|have|was|were|been|is|are) blocked"
            r"|(?:bad|poor|low|ip|domain|sender) reputation|reputation of"
            r"|(?:banned|blocked|rejected) (?:sending|sender) ip|banned sending"
            r"|(?:local|policy) (?:policy|restrictions?|reasons?|violation)|due to (?:\w+ )?policy"
            r"|against (?:\w+ )?policy|\bunsolicited\b|user complaints|for policy reasons"
        ),
        cause=Cause.BLOCKED,
        matches=(
            _GMAIL_SPAM,
            Diagnosis("5.7.1", "Service unavailable; Client host [192.0.2.7] blocked using zen.spamhaus.org"),
            Diagnosis(
                "5.7.1", "Unfortunately, messages weren't sent: part of the network is on our block list (S3140)."
            ),
            Diagnosis("", "550 SC-001 Mail rejected by Outlook.com for reasons of its own"),
            Diagnosis("5.7.606", "Access denied, 192.0.2.7"),
            Diagnosis("4.7.0", "this message is suspicious due to the very low reputation of the sending IP address."),
            Diagnosis("5.7.1", "[CS01] Message rejected due to local policy."),
            Diagnosis("5.7.1", "[BL21] Connections will not be accepted from 192.0.2.7"),
            Diagnosis("5.7.9", "Message not accepted for policy reasons."),
            Diagnosis("", "554-gmx.example Nemesis ESMTP Service not available. IP address is block listed"),
            Diagnosis("", "550 mailbox unavailable: reject due to policy restrictions"),
            Diagnosis("", "550 JunkMail rejected - [192.0.2.7] is in an RBL"),
        ),
        not_matches=(
            _GMAIL_GONE,
            Diagnosis("5.2.1", "The account is disabled"),
            Diagnosis("", "550 Requested action not taken: mailbox unavailable"),
        ),
    ),
)

ADDRESS_RULES: Final = (
    CauseRule(
        name="the mailbox is full",
        status=re.compile(r"[45]\.2\.2"),
        says=said(
            r"(?:mail ?box|inbox|account|user|recipient)\b.{0,60}\b(?:full|over ?quota|quota|out of storage"
            r"|storage limit)|\bover ?(?:the )?(?:disk )?quota|quota (?:is )?(?:exceeded|full)"
            r"|exceeded storage allocation|quotaexceeded|not enough (?:space|storage) in"
            r"|exceeds? (?:his|their|the|its) (?:\w+ )?quota|disk quota|mailbox size limit"
        ),
        cause=Cause.MAILBOX_FULL,
        matches=(
            _GMAIL_FULL,
            Diagnosis("5.2.2", ""),
            Diagnosis("", "550 Mailbox is full"),
            Diagnosis("5.1.1", "user is over quota"),
            Diagnosis("", "552 Requested mail action aborted: exceeded storage allocation"),
            Diagnosis("", "554 STOREDRV.Deliver.Exception:QuotaExceededException"),
            Diagnosis("", "Mailbox quota exceeded"),
            Diagnosis("5.0.0", "can't create user output file: Disk quota exceeded"),
        ),
        not_matches=(_GMAIL_GONE, Diagnosis("4.3.1", "Insufficient system storage"), Diagnosis("5.2.1", "disabled")),
    ),
    CauseRule(
        name="the mailbox is disabled",
        status=re.compile(r"5\.2\.1"),
        says=said(
            r"(?:mail ?box|account|user|recipient|address)\b.{0,60}\b(?:disabled|inactive|suspended|deactivated"
            r"|locked|not active|has expired|is expired|discontinued|frozen)\b"
            r"|\b(?:disabled|inactive|suspended|deactivated) (?:user|recipient|mailbox|account)"
        ),
        cause=Cause.MAILBOX_DISABLED,
        matches=(
            Diagnosis("5.2.1", "The email account that you tried to reach is disabled."),
            Diagnosis("5.2.1", ""),
            Diagnosis("", "554 30 Sorry, your message cannot be delivered. This mailbox is disabled (554.30)."),
            Diagnosis("", "550 account inactive"),
            Diagnosis("5.1.1", "inactive user"),
        ),
        not_matches=(_GMAIL_GONE, Diagnosis("4.2.1", "mailbox busy"), _GMAIL_FULL),
    ),
    CauseRule(
        name="tried for days in vain",  # RFC 3463 X.4.7; Exim, Exchange, sendmail, qmail
        status=re.compile(r"[45]\.4\.(?:7|3[01]\d)"),
        says=said(
            r"message expired|retry time(?:out exceeded| not reached .{0,40}long)"
            r"|(?:delivery|queue) time(?:out)? (?:expired|exceeded)|(?:too long|expired) in (?:the )?queue"
            r"|could not be delivered (?:for|within)|in the queue too long"
            r"|(?:unable to|could not|not) deliver\w*\b.{0,30}\b(?:for|after|in|within) \d+ (?:hours|days)"
            r"|giv(?:en|ing) up after"
        ),
        cause=Cause.EXPIRED,
        matches=(
            Diagnosis("4.4.7", ""),
            Diagnosis("5.4.7", "Delivery expired (message too old)"),
            Diagnosis("5.4.300", "Message expired, cannot connect to remote server"),
            Diagnosis("", "all hosts have been failing: retry timeout exceeded"),
            Diagnosis("", "I'm not going to try again; this message has been in the queue too long."),
            Diagnosis("", "Could not deliver the message for 5 days"),
        ),
        not_matches=(_POSTFIX_DOWN, Diagnosis("5.2.1", "The account has expired")),
    ),
    CauseRule(
        name="the receiver's servers didn't answer",
        says=said(
            r"connection (?:timed out|refused|reset|closed|dropped|died)"
            r"|(?:network|host|server) (?:is )?unreachable|no route to|host not found, try again"
            r"|(?:lost|dropped) (?:the )?connection|conversation with .{1,60} timed out|couldn't find any"
            r"|(?:unable to|able to|failed to|cannot|couldn't) (?:connect|establish an? smtp)|not responding"
            r"|temporary (?:lookup|name server|dns)|deferred: (?:connection|name server)"
            r"|name server: .{1,60}: host name lookup failure"
        ),
        cause=Cause.UNREACHABLE,
        matches=(
            _POSTFIX_DOWN,
            Diagnosis("4.4.3", "Name service error for name=example.com type=MX: Host not found, try again"),
            Diagnosis("", "connect to mx.example.com: Connection refused"),
            Diagnosis("4.4.2", "lost connection with mx.example.com while sending the message"),
            Diagnosis("", "Sorry, I wasn't able to establish an SMTP connection. (#4.4.1)"),
        ),
        not_matches=(
            _GMAIL_GONE,
            Diagnosis("5.4.4", "Name service error for name=example.com type=AAAA: Host not found"),
        ),
    ),
    CauseRule(
        name="there is no such mailbox or domain",
        status=re.compile(r"[45]\.1\.(?:[1236]|10)|5\.4\.310"),
        says=said(
            r"(?:no such|unknown|invalid|non-?existe?a?nt|illegal) (?:user|recipient|mail ?box"
            r"|(?:e-?mail )?address|account|local|alias|person)"
            r"|(?:user|recipient|mail ?box|address|account|alias|local[- ]part)\b.{0,60}?\b(?:unknown"
            r"|not (?:be )?found|(?:does|do) not (?:\w+ )?exist|doesn't (?:\w+ )?(?:exist|have)|not exist"
            r"|no longer (?:exists|valid|available|active|in use)|not (?:a )?(?:known|valid|listed|recognized"
            r"|available|here)|isn't (?:valid|here)|invalid|unrouteable|undeliverable)\b|\bunrouteable address"
            r"|\bunknown or illegal|no mailbox (?:here|by|with|found)|mail ?box (?:unavailable|not found)"
            r"|not our customer|(?:does not|doesn't) have an? .{1,40}account"
            r"|(?:no|not a) (?:valid |such )(?:user|mailbox|recipient|account)|user unknown"
            r"|(?:host or )?domain (?:name )?(?:not found|(?:does not|doesn't) (?:exist|accept mail))|null ?mx"
            r"|non-existent hosts|host (?:name )?(?:unknown|not found)|unknown host|recipientnotfound"
            r"|no user by that name|#5\.1\.0 address rejected|access denied\. as\(2018|\bhas moved\b"
            r"|user .{0,60}not listed|addressee unknown|no one by that name"
        ),
        never="4.2",
        cause=Cause.NO_MAILBOX,
        matches=(
            _GMAIL_GONE,
            _EXIM_GONE,
            Diagnosis("5.1.1", ""),
            Diagnosis("5.1.10", "RESOLVER.ADR.RecipientNotFound; Recipient not found by SMTP address lookup"),
            Diagnosis("5.5.0", "Requested action not taken: mailbox unavailable (S2017062302)."),
            Diagnosis("5.4.1", "Recipient address rejected: Access denied. AS(201806281)"),
            Diagnosis("5.0.0", "550 554 delivery error: dd This user doesn't have a yahoo.com account"),
            Diagnosis("5.7.1", "User unknown in virtual mailbox table"),
            Diagnosis("5.4.4", "Name service error for name=example.com type=AAAA: Host not found"),
            Diagnosis("", "550 Domain example.com does not accept mail (nullMX)"),
            Diagnosis("", "all relevant MX records point to non-existent hosts"),
            Diagnosis("", "550 No Such User Here"),
            Diagnosis("", "Sorry, no mailbox here by that name. (#5.1.1)"),
            Diagnosis("", "550 #5.1.0 Address rejected."),
            Diagnosis("", "550 unknown or illegal alias"),
        ),
        not_matches=(
            Diagnosis("4.2.1", "mailbox unavailable, busy"),
            Diagnosis("5.7.1", "Access denied"),
            Diagnosis("", "Host is up"),
            _GMAIL_LIMITED,
        ),
    ),
)

SUBJECT_RULES: Final = (
    CauseRule(
        name="a policy, of which nothing more is said",  # RFC 3463 section 3.8
        status=re.compile(r"[45]\.7\.\d+"),
        cause=Cause.BLOCKED,
        matches=(Diagnosis("5.7.1", "Access denied"), Diagnosis("4.7.0", "not now")),
        not_matches=(Diagnosis("5.5.0", ""),),
    ),
    CauseRule(
        name="the network, of which nothing more is said",  # RFC 3463 section 3.5
        status=re.compile(r"[45]\.4\.\d+"),
        cause=Cause.UNREACHABLE,
        matches=(Diagnosis("4.4.1", "no answer"), Diagnosis("5.4.6", "mail loops back to myself")),
        not_matches=(Diagnosis("4.3.0", ""),),
    ),
)

CAUSE_RULES: Final = (*ABOUT_US_RULES, *ADDRESS_RULES, *SUBJECT_RULES)
"""What none of them decides is `other`."""
