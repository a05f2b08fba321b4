"""The conversation step by step, without a network: the right one first, then everything that can go wrong in it."""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable

import pytest

from posthouse.sandbox.faults import CallKind
from posthouse.sandbox.ledger import CallResult
from posthouse.sandbox.smtp_framing import CONTENT_BYTES_MAX, Piece
from posthouse.sandbox.smtp_replies import Output, Then
from tests.sandbox.conftest import Bench, Talk, letter, make_bench


def talk(*faults: str, api_key: str | None = None, tls: bool = False, encrypted: bool = False) -> Talk:
    return Talk(make_bench(*faults, api_key=api_key), tls=tls, encrypted=encrypted)


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


def code(output: Output) -> str:
    return output.lines[:3].decode()


def test_a_message_is_accepted_with_its_envelope_and_its_key() -> None:
    client = talk()
    assert client.banner.lines.startswith(b"220 ")

    output = client.deliver("Ada@Example.com", "bob@example.com")

    [accepted] = client.bench.ledger.acceptances
    assert output.lines == f"250 2.0.0 Ok: queued as {accepted.message_id}\r\n".encode()
    assert accepted.recipients == ("ada@example.com", "bob@example.com")
    assert (accepted.key, accepted.subject, accepted.raw) == ("order-1", "Hello", letter())
    assert accepted.envelope_sender == "shop@shop.example"
    assert client.bench.ledger.results == {CallResult.ACCEPTED: 1}


def test_the_same_message_again_is_a_duplicate() -> None:
    client = talk()
    client.deliver()
    client.deliver()
    client.deliver(content=letter(message_id="order-2@shop.example"))
    assert client.bench.ledger.times_accepted() == {"order-1": 2, "order-2": 1}
    assert client.bench.ledger.duplicates == 1


def test_the_extensions_are_announced() -> None:
    said = talk().say("EHLO shop")
    assert {line[4:] for line in said.splitlines()} >= {
        "PIPELINING",
        f"SIZE {CONTENT_BYTES_MAX}",
        "8BITMIME",
        "SMTPUTF8",
        "ENHANCEDSTATUSCODES",
        "AUTH PLAIN LOGIN CRAM-MD5 XOAUTH2",
    }
    assert "STARTTLS" not in said


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["MAIL FROM:<a@b.example>"], "503"),
        (["EHLO"], "501"),
        (["EHLO x", "RCPT TO:<a@b.example>"], "503"),
        (["EHLO x", "DATA"], "503"),
        (["EHLO x", "MAIL FROM:<a@b.example>", "DATA"], "554 5.5.1"),
        (["EHLO x", "MAIL FROM:<a@b.example>", "DATA now"], "501"),
        (["EHLO x", "MAIL FROM:<a@b.example>", "MAIL FROM:<a@b.example>"], "503"),
        (["EHLO x", "MAIL FROM:<a@b.example>", "RSET", "MAIL FROM:<a@b.example>"], "250"),
        (["EHLO x", "MAIL FROM:<a@b.example>", "EHLO x", "RCPT TO:<a@b.example>"], "503"),
        (["HELO x", "MAIL FROM:<>"], "250"),
        (["EHLO x", "MAIL FROM:a@b.example"], "501 5.1.7"),
        (["EHLO x", "MAIL FROM:<a@b.example> SIZE=33554433"], "552 5.3.4"),
        (["EHLO x", "MAIL FROM:<a@b.example> SIZE=many"], "501"),
        (["EHLO x", "MAIL FROM:<a@b.example> SIZE=" + "9" * 5000], "501"),
        (["EHLO x", "mail from:<a@b.example> size=1 body=8bitmime SMTPUTF8 AUTH=<>"], "250"),
        (["EHLO x", "MAIL FROM:<a@b.example> RET=HDRS"], "555"),
        (["EHLO x", "MAIL FROM:<a@b.example> BODY=BINARYMIME"], "501"),
        (["EHLO x", "MAIL FROM:<a@bücher.example>"], "553 5.6.7"),
        (["EHLO x", "MAIL FROM:<a@b.example>", "RCPT TO:<müller@b.example>"], "553 5.6.7"),
        (["EHLO x", "MAIL FROM:<a@b.example> SMTPUTF8", "RCPT TO:<müller@b.example>"], "250"),
        (["EHLO x", "MAIL FROM:<a@b.example>", "RCPT TO:<>"], "501 5.1.3"),
        (["EHLO x", "MAIL FROM:<a@b.example>", 'RCPT TO:<"a b"@c.example>'], "250"),
        (["EHLO x", "MAIL FROM:<a@b.example>", 'RCPT TO:<"a> SIZE=1"@c.example>'], "250"),
        (["EHLO x", "MAIL FROM:<a@b.example>", "RCPT TO:<a> SIZE=1@c.example>"], "501"),
        (["EHLO x", "MAIL FROM:<a@b.example>", "RCPT TO:<a b@c.example>"], "501"),
        (["EHLO x", "MAIL FROM:<a@b.example>", "RCPT TO:<@relay.example:a@c.example>"], "250"),
        (["EHLO x", "MAIL FROM:<a@b.example>", "RCPT TO:<a@c.example> NOTIFY=NEVER"], "555"),
        (["EHLO x", "STARTTLS"], "502"),
        (["EHLO x", "AUTH NTLM"], "504"),
        (["VRFY ada"], "252"),
        (["NOOP"], "250"),
        (["HELP"], "214"),
        (["EXPN all"], "500"),
        ([""], "500"),
    ],
)
def test_each_command_is_answered_as_the_standard_says(lines: list[str], said: str) -> None:
    assert talk().say(*lines).startswith(said)


def test_lines_that_are_too_long_or_no_text_are_refused() -> None:
    client = talk()
    assert client.session.line(Piece(too_long=True), 0.0).lines.startswith(b"500 5.5.2")
    assert client.session.line(Piece(b"EHLO \xff"), 0.0).lines.startswith(b"500 5.5.2")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (Piece(b"Subject: x\r\n\r\na\nb\r\n"), b"554 5.6.0 A bare LF at octet 15"),
        (Piece(b"Subject: x\r\n\r\na\rb\r\n"), b"554 5.6.0 A bare CR"),
        (Piece(b"\r\n" + b"x" * 999 + b"\r\n"), b"554 5.6.0 A line of more than 998"),
        (Piece(b"\r\n" + b"x" * 998 + b"\r\n"), b"250"),
        (Piece(too_long=True), b"552 5.3.4"),
        (Piece(b""), b"250"),
    ],
)
def test_a_content_that_careful_servers_refuse_is_refused(content: Piece, said: bytes) -> None:
    client = talk()
    client.begin()
    client.say("DATA")
    assert client.session.content(content, 0.0).lines.startswith(said)
    assert len(client.bench.ledger.acceptances) == (said == b"250")
    assert client.bench.ledger.results[CallResult.ACCEPTED if said == b"250" else CallResult.INVALID] == 1


def plain(password: str) -> list[str]:
    return ["AUTH PLAIN " + encoded("\0apikey\0" + password)]


def login(password: str) -> list[str]:
    return ["AUTH LOGIN", encoded("apikey"), encoded(password)]


def login_at_once(password: str) -> list[str]:
    return [f"AUTH LOGIN {encoded('apikey')}", encoded(password)]


def plain_asked(password: str) -> list[str]:
    return ["AUTH PLAIN", encoded("\0apikey\0" + password)]


def xoauth2(token: str) -> list[str]:
    return ["AUTH XOAUTH2 " + encoded(f"user=ada\x01auth=Bearer {token}\x01\x01")]


Way = Callable[[str], list[str]]


@pytest.mark.parametrize("way", [plain, plain_asked, login, login_at_once, xoauth2])
def test_the_api_key_is_the_password(way: Way) -> None:
    client = talk(api_key="s3cret")
    assert client.say("EHLO x", "MAIL FROM:<a@b.example>").startswith("530 5.7.0")
    assert client.say(*way("s3cret")).startswith("235")
    assert client.say("MAIL FROM:<a@b.example>").startswith("250")
    assert client.say("AUTH PLAIN").startswith("503")


@pytest.mark.parametrize("way", [plain, plain_asked, login, login_at_once, xoauth2])
def test_a_wrong_password_is_refused_and_entered(way: Way) -> None:
    client = talk(api_key="s3cret")
    said = client.say("EHLO x", *way("guessed"))
    if way is xoauth2:  # its error comes as a challenge, which takes an empty answer
        assert said.startswith("334")
        said = client.say("")
    assert said.startswith("535 5.7.8")
    assert client.say("MAIL FROM:<a@b.example>").startswith("530")
    assert client.bench.ledger.results == {CallResult.UNAUTHORISED: 1}


@pytest.mark.parametrize(("secret", "said"), [("s3cret", "235"), ("guessed", "535")])
def test_cram_md5_never_says_the_password(secret: str, said: str) -> None:
    client = talk(api_key="s3cret")
    challenge = b64decode(client.say("EHLO x", "AUTH CRAM-MD5")[4:])
    digest = hmac.digest(secret.encode(), challenge, "md5").hex()
    assert client.say(encoded(f"apikey {digest}")).startswith(said)


def test_two_connections_get_two_challenges() -> None:
    bench = make_bench()
    assert Talk(bench).say("EHLO x", "AUTH CRAM-MD5") != Talk(bench).say("EHLO x", "AUTH CRAM-MD5")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["AUTH LOGIN", "*"], "501"),
        (["AUTH LOGIN", "not base64"], "501 5.5.2"),
        (["AUTH PLAIN " + encoded("no nul")], "501 5.5.2"),
        (["AUTH XOAUTH2 " + encoded("user=ada")], "501 5.5.2"),
        (["AUTH CRAM-MD5 aGk="], "501 5.5.4"),
        (["AUTH PLAIN ="], "501 5.5.2"),
    ],
)
def test_a_dialogue_without_sense_ends_and_leaves_the_connection_usable(lines: list[str], said: str) -> None:
    client = talk()
    assert client.say("EHLO x", *lines).startswith(said)
    assert client.say("NOOP").startswith("250")


def test_without_an_api_key_every_password_is_right() -> None:
    assert talk().say("EHLO x", *plain("anything")).startswith("235")


def test_nobody_is_asked_for_a_password_in_clear_text_where_tls_can_be_had() -> None:
    client = talk(api_key="s3cret", tls=True)
    said = client.say("EHLO x")
    assert "STARTTLS" in said
    assert "AUTH" not in said
    assert client.say("AUTH PLAIN").startswith("538")
    assert client.say("MAIL FROM:<a@b.example>").startswith("530 5.7.0 Must issue a STARTTLS")


def test_a_handshake_begins_the_conversation_anew() -> None:
    client = talk(tls=True)
    client.begin()
    output = client.line("STARTTLS")
    assert (code(output), output.then) == ("220", Then.START_TLS)
    client.session.tls_started()
    assert client.say("MAIL FROM:<a@b.example>").startswith("503")
    said = client.say("EHLO x")
    assert "STARTTLS" not in said
    assert "AUTH PLAIN" in said
    assert client.say("STARTTLS").startswith("502")


STEPS_BY_NAME = {
    "banner": [],
    "ehlo": ["EHLO x"],
    "starttls": ["EHLO x", "STARTTLS"],
    "auth": ["EHLO x", "AUTH PLAIN"],
    "mail": ["EHLO x", "MAIL FROM:<a@b.example>"],
    "rcpt": ["EHLO x", "MAIL FROM:<a@b.example>", "RCPT TO:<ada@example.com>"],
    "data": ["EHLO x", "MAIL FROM:<a@b.example>", "RCPT TO:<ada@example.com>", "DATA"],
    "dot": ["EHLO x", "MAIL FROM:<a@b.example>", "RCPT TO:<ada@example.com>", "DATA"],
}


def output_at(step: str, client: Talk) -> Output:
    outputs = [client.banner, *(client.line(line) for line in STEPS_BY_NAME[step])]
    if step == "dot":
        outputs.append(client.session.content(Piece(letter()), client.bench.now))
        client.session.finish(outputs[-1], client.bench.now)
    for before in outputs[:-1]:
        assert before.lines[:1] in (b"2", b"3")
    return outputs[-1]


@pytest.mark.parametrize("step", STEPS_BY_NAME)
@pytest.mark.parametrize("status", [421, 450, 451, 500, 554])
def test_any_code_is_said_at_every_step_and_nothing_is_accepted(step: str, status: int) -> None:
    client = talk(f"{status}:at={step}")
    output = output_at(step, client)
    assert code(output) == str(status)
    assert (output.then is Then.CLOSE) is (status == 421 or step == "banner")
    assert not client.bench.ledger.acceptances
    [record] = client.bench.ledger.calls
    assert (record.kind.value, record.result) == (step, CallResult.NOT_ACCEPTED)


@pytest.mark.parametrize("step", STEPS_BY_NAME)
def test_a_connection_is_reset_or_falls_silent_at_every_step(step: str) -> None:
    assert output_at(step, talk(f"drop:at={step}")) == Output(then=Then.RESET)
    assert output_at(step, talk(f"stall:at={step}")) == Output(then=Then.STALL)


@pytest.mark.parametrize("step", STEPS_BY_NAME)
def test_a_reply_takes_its_time_at_every_step(step: str) -> None:
    right = output_at(step, talk()).lines
    slow = output_at(step, talk(f"slow=8s:at={step}"))
    assert (slow.lines, slow.delay_s, slow.dripped) == (right, 8.0, False)
    dripped = output_at(step, talk(f"drip=8s:at={step}"))
    assert (dripped.lines, dripped.delay_s, dripped.dripped) == (right, 8.0, True)


@pytest.mark.parametrize("step", STEPS_BY_NAME)
def test_a_reply_is_cut_or_makes_no_sense_at_every_step(step: str) -> None:
    cut = output_at(step, talk(f"truncated:at={step}"))
    assert (len(cut.lines), cut.then) == (2, Then.CLOSE)
    garbled = output_at(step, talk(f"malformed:at={step}"))
    assert not garbled.lines[:3].isdigit()
    page = output_at(step, talk(f"html=502:at={step}"))
    assert page.lines.startswith(b"HTTP/1.1 502")


@pytest.mark.parametrize(
    ("fault", "accepted"),
    [
        ("stall", 0),
        ("stall-accepted", 1),
        ("drop", 0),
        ("drop-accepted", 1),
        ("451", 0),
        ("451-accepted", 1),
        ("554-accepted", 1),
        ("slow=8s", 1),
        ("drip=8s", 1),
        ("malformed", 1),
        ("malformed-not-accepted", 0),
        ("truncated", 1),
        ("swapped", 1),
    ],
)
def test_the_ledger_knows_what_was_accepted_after_the_dot(fault: str, accepted: int) -> None:
    client = talk(f"{fault}:at=dot")
    client.deliver()
    assert len(client.bench.ledger.acceptances) == accepted


def test_a_late_acceptance_counts_only_if_the_client_waits_for_it() -> None:
    client = talk("slow-not-accepted=8s:at=dot")
    client.begin()
    output = client.send()
    assert not client.bench.ledger.acceptances
    client.session.finish(output, client.bench.now + 8, client_gone=True)
    assert client.bench.ledger.results == {CallResult.ABANDONED: 1}

    client.begin()
    client.session.finish(client.send(), client.bench.now + 8)
    assert [one.at for one in client.bench.ledger.acceptances] == [client.bench.now + 8]


def test_a_fault_goes_by_recipient_and_the_others_are_taken() -> None:
    client = talk("451:at=rcpt,to=ada@example.com,first=2")
    for said in ("451 4.3.0", "451 4.3.0", "250"):
        client.say("RSET", "EHLO x", "MAIL FROM:<a@b.example>")
        assert client.say("RCPT TO:<bob@example.com>").startswith("250")
        assert client.say("RCPT TO:<Ada@example.com>").startswith(said)
    client.send()
    assert client.bench.ledger.acceptances[0].recipients == ("bob@example.com", "ada@example.com")


def test_a_refused_recipient_does_not_get_the_message() -> None:
    client = talk("550:at=rcpt,to=gone@example.com")
    client.begin("ada@example.com")
    assert client.say("RCPT TO:<gone@example.com>").startswith("550 5.1.1")
    client.send()
    assert client.bench.ledger.acceptances[0].recipients == ("ada@example.com",)


def test_a_fault_after_the_dot_can_go_by_the_message() -> None:
    client = talk("451:at=dot,first=1,per=key")
    codes = [code(client.deliver(content=letter(message_id=f"{name}@x.example"))) for name in "abab"]
    assert codes == ["451", "451", "250", "250"]


def test_a_text_is_said_as_it_is_given() -> None:
    client = talk("452:at=rcpt,text=4.5.3 Too many recipients")
    assert output_at("rcpt", client).lines == b"452 4.5.3 Too many recipients\r\n"


def test_the_replies_to_a_connection_and_to_ehlo_have_no_enhanced_code() -> None:
    assert output_at("banner", talk("554:at=banner")).lines == b"554 a fault of the sandbox\r\n"
    assert output_at("ehlo", talk("554:at=ehlo")).lines == b"554 a fault of the sandbox\r\n"
    assert output_at("mail", talk("459:at=mail")).lines == b"459 4.0.0 a fault of the sandbox\r\n"


def test_swapped_replies_of_commands_that_came_together_change_places() -> None:
    client = talk("swapped:at=rcpt,first=1,per=all")
    client.say("EHLO x", "MAIL FROM:<a@b.example>")
    assert client.say("RCPT TO:<ada@example.com>") == ""
    assert client.say("RCPT TO:<>") == "501 5.1.3 Write RCPT TO:<address>\r\n250 2.1.5 Ok\r\n"


def test_a_client_that_waits_for_a_swapped_reply_gets_the_following_steps() -> None:
    client = talk("swapped:at=rcpt,first=1,per=all")
    client.say("EHLO x", "MAIL FROM:<a@b.example>")
    assert client.say("RCPT TO:<ada@example.com>") == ""
    guess = client.session.held_back()
    assert guess is not None
    assert code(guess) == "354"
    assert client.session.held_back() is None
    assert client.say("DATA") == "250 2.1.5 Ok\r\n"
    assert code(client.session.content(Piece(letter()), 0.0)) == "250"


def test_a_pause_does_not_bring_out_what_is_held_back() -> None:
    client = talk("swapped:at=dot", "421:at=idle")
    client.deliver()
    guess = client.session.held_back()
    assert guess is not None
    assert code(guess) == "221"
    assert client.session.idle(client.bench.now) is None
    assert client.say("RSET").startswith("250 2.0.0 Ok: queued as")


def test_nothing_is_held_back_without_a_fault() -> None:
    client = talk()
    client.deliver()
    assert client.session.held_back() is None


def test_an_idle_connection_is_closed_on_request() -> None:
    client = talk("421:at=idle,first=1,per=all")
    client.deliver()
    assert client.session.is_idle
    output = client.session.idle(client.bench.now)
    assert output is not None
    assert (output.lines, output.then) == (b"421 4.3.2 a fault of the sandbox\r\n", Then.CLOSE)
    assert client.session.idle(client.bench.now) is None
    assert client.bench.ledger.calls[-1].kind is CallKind.IDLE


def test_a_connection_in_a_message_or_a_dialogue_is_not_idle() -> None:
    client = talk()
    assert not client.session.is_idle
    client.say("EHLO x")
    assert client.session.is_idle
    client.say("AUTH LOGIN")
    assert not client.session.is_idle
    client.say("*", "MAIL FROM:<a@b.example>")
    assert not client.session.is_idle


@pytest.mark.parametrize(
    ("recipient", "codes"),
    [
        ("rejected", ["550", "550"]),
        ("throttled", ["450", "250"]),
        ("twice-503", ["451", "451", "250"]),
        ("unavailable", ["451", "451", "451"]),
    ],
)
def test_magic_recipients_are_refused_at_their_step(recipient: str, codes: list[str]) -> None:
    client = talk()
    client.say("EHLO x", "MAIL FROM:<a@b.example>")
    assert [client.say(f"RCPT TO:<{recipient}+1@example.com>")[:3] for _ in codes] == codes


@pytest.mark.parametrize(
    ("recipient", "then", "accepted"),
    [("unknown", Then.RESET, 1), ("lost", Then.RESET, 0), ("stalled", Then.STALL, 1)],
)
def test_magic_recipients_leave_the_outcome_open_once_a_message(recipient: str, then: Then, accepted: int) -> None:
    client = talk()
    assert client.deliver(f"{recipient}@example.com").then is then
    assert len(client.bench.ledger.acceptances) == accepted
    assert code(client.deliver(f"{recipient}@example.com")) == "250"
    assert len(client.bench.ledger.acceptances) == accepted + 1


def test_faults_of_http_leave_smtp_alone_and_those_of_smtp_http(bench: Bench) -> None:
    client = talk("503", "drop-accepted")
    assert code(client.deliver()) == "250"
    assert make_bench("451:at=dot", "421:at=banner").send().status == 200


def test_a_step_that_a_fault_let_pass_is_entered() -> None:
    client = talk("slow=8s:at=mail")
    output_at("mail", client)
    assert client.bench.ledger.results == {CallResult.PASSED: 1}


def test_at_any_step_everything_is_down() -> None:
    assert code(talk("421:at=any").banner) == "421"
