"""The sandbox as each provider, without a network: what it takes, and in whose words it refuses."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.sandbox.ledger import Acceptance, CallResult
from posthouse.sandbox.limit import SendLimit
from posthouse.sandbox.received import Shown, shown
from posthouse.sandbox.replies import Reply
from posthouse.sandbox.shape import Map
from posthouse.sandbox.shapes import SHAPES
from tests.sandbox.conftest import START, Bench, letter, make_bench

Json = dict[str, Any]

KEY: Final = "s3cret"
SIGNED: Final = (
    "AWS4-HMAC-SHA256 Credential={}/20270115/eu-west-1/ses/aws4_request, SignedHeaders=host;x-amz-date, "
    f"Signature={'0' * 64}"
)


def in_base64(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


def basic(key: str) -> str:
    return f"Basic {in_base64(f'api:{key}'.encode())}"


def form(fields: Mapping[str, Any]) -> bytes:
    return urlencode(fields, doseq=True).encode()


def as_json(document: Any) -> bytes:
    return json.dumps(document).encode()


@dataclass(frozen=True)
class Api:
    """How one provider is called."""

    path: str
    mail: Callable[[str], Any]  # a plain message to this address
    id_of: Callable[[Reply], str]
    error_of: Callable[[Reply], Any]
    let_in: Callable[[str], Json]  # the headers that carry a key
    credential: tuple[int, Any]  # how a wrong one is answered
    no_address: tuple[int, Any]
    nonsense: tuple[int, Any]  # how a body is answered that can't be read
    too_fast: tuple[int, Any]
    encode: Callable[[Any], bytes] = as_json
    headers: Json = field(default_factory=dict)


def body_of(reply: Reply) -> Any:
    return json.loads(reply.body)


def bearer(key: str) -> Json:
    return {"authorization": f"Bearer {key}"}


def ses_error(reply: Reply) -> tuple[str, str]:
    return reply.headers["x-amzn-ErrorType"], body_of(reply)["message"]


def sendgrid_error(reply: Reply) -> tuple[str | None, str]:
    [error] = body_of(reply)["errors"]
    return error["field"], error["message"]


APIS: Final = {
    "postmark": Api(
        path="/email",
        mail=lambda to: {"From": "Shop <shop@shop.example>", "To": to, "Subject": "Hello", "TextBody": "Hi"},
        id_of=lambda reply: str(body_of(reply)["MessageID"]),
        error_of=lambda reply: body_of(reply)["ErrorCode"],
        let_in=lambda key: {"x-postmark-server-token": key},
        credential=(401, 10),
        no_address=(422, 300),
        nonsense=(422, 402),
        too_fast=(429, 429),
    ),
    "resend": Api(
        path="/emails",
        mail=lambda to: {"from": "Shop <shop@shop.example>", "to": to, "subject": "Hello", "text": "Hi"},
        id_of=lambda reply: str(body_of(reply)["id"]),
        error_of=lambda reply: body_of(reply)["name"],
        let_in=bearer,
        credential=(403, "invalid_api_key"),
        no_address=(422, "validation_error"),
        nonsense=(400, "validation_error"),
        too_fast=(429, "rate_limit_exceeded"),
    ),
    "sendgrid": Api(
        path="/v3/mail/send",
        mail=lambda to: {
            "personalizations": [{"to": [{"email": to}]}],
            "from": {"email": "shop@shop.example", "name": "Shop"},
            "subject": "Hello",
            "content": [{"type": "text/plain", "value": "Hi"}],
        },
        id_of=lambda reply: reply.headers["X-Message-Id"],
        error_of=lambda reply: sendgrid_error(reply)[0],
        let_in=bearer,
        credential=(401, None),
        no_address=(400, "personalizations.0.to"),
        nonsense=(400, None),
        too_fast=(429, None),
    ),
    "mailgun": Api(
        path="/v3/shop.example/messages",
        mail=lambda to: {"from": "Shop <shop@shop.example>", "to": to, "subject": "Hello", "text": "Hi"},
        id_of=lambda reply: str(body_of(reply)["id"]).strip("<>"),
        error_of=lambda reply: reply.body.decode() if reply.status == 401 else body_of(reply)["message"],
        let_in=lambda key: {"authorization": basic(key)},
        credential=(401, "Forbidden"),
        no_address=(400, "to parameter is not a valid address"),
        nonsense=(400, "to parameter is missing"),
        too_fast=(429, "The domain is not allowed to send: request limit exceeded"),
        encode=form,
        headers={"content-type": "application/x-www-form-urlencoded"},
    ),
    "ses": Api(
        path="/v2/email/outbound-emails",
        mail=lambda to: {
            "FromEmailAddress": "Shop <shop@shop.example>",
            "Destination": {"ToAddresses": [to]},
            "Content": {"Simple": {"Subject": {"Data": "Hello"}, "Body": {"Text": {"Data": "Hi"}}}},
        },
        id_of=lambda reply: str(body_of(reply)["MessageId"]),
        error_of=lambda reply: ses_error(reply)[0],
        let_in=lambda key: {"authorization": SIGNED.format(key)},
        credential=(403, "InvalidClientTokenId"),
        no_address=(400, "BadRequestException"),
        nonsense=(400, "BadRequestException"),
        too_fast=(429, "TooManyRequestsException"),
    ),
}


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> Api:
    return APIS[request.param]


def call(
    bench: Bench, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None, method: str = "POST"
) -> Reply:
    exchange = bench.api.begin(method, path, headers or {}, body, bench.now)
    bench.api.finish(exchange, bench.now)
    return exchange.reply


def send(bench: Bench, api: Api, to: str = "ada@example.com", *, key: str = KEY) -> Reply:
    return call(bench, api.path, api.encode(api.mail(to)), api.headers | api.let_in(key))


def caught(bench: Bench) -> tuple[Acceptance, Shown]:
    """The only message."""
    [acceptance] = bench.ledger.acceptances
    found = shown(acceptance)
    assert found is not None
    return acceptance, found


# Every provider


def test_a_plain_message_is_told_its_id_and_caught_in_the_sandboxs_own_words(bench: Bench, api: Api) -> None:
    reply = send(bench, api)
    acceptance, message = caught(bench)
    assert api.id_of(reply) == acceptance.message_id
    assert (acceptance.subject, acceptance.recipients) == ("Hello", ("ada@example.com",))
    assert message.body["text"] == "Hi"
    assert "shop@shop.example" in str(message.body["from"])
    assert bench.ledger.results == {CallResult.ACCEPTED: 1}


def test_a_wrong_credential_is_refused_as_the_provider_does_it(api: Api) -> None:
    bench = make_bench(api_key=KEY)
    reply = send(bench, api, key="wrong")
    assert (reply.status, api.error_of(reply)) == api.credential
    assert bench.ledger.results == {CallResult.UNAUTHORISED: 1}
    assert send(bench, api).status < 300


def test_an_address_that_is_none_is_refused_as_the_provider_does_it(bench: Bench, api: Api) -> None:
    reply = send(bench, api, to="nobody")
    assert (reply.status, api.error_of(reply)) == api.no_address
    assert bench.ledger.results == {CallResult.INVALID: 1}


def test_a_body_that_can_not_be_read_is_refused_as_the_provider_does_it(bench: Bench, api: Api) -> None:
    reply = call(bench, api.path, b"{", api.headers | api.let_in(KEY))
    assert (reply.status, api.error_of(reply)) == api.nonsense


def test_a_limit_is_worded_as_the_provider_does_it(api: Api) -> None:
    bench = make_bench(limit=SendLimit(1, 60.0))
    assert send(bench, api).status < 300
    reply = send(bench, api)
    assert (reply.status, api.error_of(reply)) == api.too_fast


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 418, 422, 429, 451, 500, 502, 503])
def test_a_status_on_request_is_that_status_in_the_providers_form(api: Api, status: int) -> None:
    reply = send(make_bench(f"{status}:retry-after=7"), api)
    assert (reply.status, reply.headers["Retry-After"]) == (status, "7")
    api.error_of(reply)


def test_an_error_says_what_it_is_told_to(api: Api) -> None:
    assert b"Down for the night" in send(make_bench("503:text=Down for the night"), api).body


def test_magic_recipients_are_magic_everywhere(bench: Bench, api: Api) -> None:
    assert send(bench, api, "rejected@example.com").status == 422
    assert [send(bench, api, "twice-503@example.com").status for _ in range(3)][:2] == [503, 503]
    assert bench.ledger.by_recipient("twice-503@example.com")


def test_another_method_is_refused(bench: Bench, api: Api) -> None:
    reply = call(bench, api.path, method="DELETE")
    assert reply.status == 405
    api.error_of(reply)


def test_no_two_shapes_have_a_path_in_common() -> None:
    paths = [path.replace("{domain}", "shop.example") for shape in SHAPES for path in shape.calls]
    every = Map(SHAPES)
    assert len(paths) == len(set(paths))
    for shape in SHAPES:
        for path in shape.calls:
            place = every.at(path.replace("{domain}", "shop.example"))
            assert place is not None
            assert (place.shape, place.calls) == (shape, shape.calls[path])


JSON: Final[st.SearchStrategy[Any]] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("a@b.example") | st.just([])
    | st.just({}),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=6,
)  # fmt: skip


@given(data=st.data())
def test_whatever_a_field_holds_it_is_taken_or_refused(data: st.DataObject) -> None:
    fields: Mapping[str, list[str]] = {
        "/email": "From To Cc Headers Attachments Metadata Tag TrackOpens TrackLinks Subject raw to".split(),
        "/emails": "from to cc headers attachments tags subject text raw".split(),
        "/v3/mail/send": "personalizations from content headers attachments custom_args tracking_settings".split(),
        "/v2/email/outbound-emails": "Destination Content EmailTags ReplyToAddresses ConfigurationOverrides".split(),
        "/v3/logs": ["query", "limit"],
    }
    path = data.draw(st.sampled_from(sorted(fields)))
    plain: Json = next((api.mail("ada@example.com") for api in APIS.values() if api.path == path), {})
    odd = data.draw(st.dictionaries(st.sampled_from(fields[path]), JSON, min_size=1, max_size=3))
    bench = make_bench()
    reply = call(bench, path, as_json(plain | odd), {"authorization": SIGNED.format(KEY)})
    assert reply.status in (200, 202, 400, 404, 422)
    for acceptance in bench.ledger.acceptances:
        assert shown(acceptance) is not None


PIECES: Final = (
    b"--B", b"--", b"\r\n", b"\n", b";", b":", b"=", b"\xff", b"Content-Disposition: form-data; name=", b'"to"', b"to",
    b'"attachment"', b"; filename*=x'y'%ff", b"ada@example.com", b"h:Reply-To", b"v:", b"message", b"From: <a@b", b"&",
)  # fmt: skip


@given(
    body=st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join),
    kind=st.sampled_from(["multipart/form-data; boundary=B", "application/x-www-form-urlencoded", "text/plain", ""]),
    path=st.sampled_from(["messages", "messages.mime"]),
)
def test_whatever_a_form_holds_it_is_taken_or_refused(body: bytes, kind: str, path: str) -> None:
    bench = make_bench()
    assert call(bench, f"/v3/shop.example/{path}", body, {"content-type": kind}).status in (200, 400)
    signed = {"authorization": SIGNED.format(KEY)}
    assert call(bench, APIS["ses"].path, raw(body), signed).status in (200, 400)
    for acceptance in bench.ledger.acceptances:
        assert shown(acceptance) is not None


TWICE: Final = [["X-Sent-For", "Ada"], ["List-Id", "<a.example>"], ["X-Sent-For", "Bob"]]
"""What a list of headers can carry, and a table can't."""

OBJECTS: Final = [{"Name": name, "Value": value} for name, value in TWICE]
_AS_FIELDS: Final = [(f"h:{name}", value) for name, value in TWICE]


@pytest.mark.parametrize(
    ("name", "path", "body"),
    [
        ("postmark", "/email", as_json({"From": "a@b.example", "To": "ada@example.com", "Headers": OBJECTS})),
        (
            "ses",
            "/v2/email/outbound-emails",
            as_json(
                {
                    "FromEmailAddress": "a@b.example",
                    "Destination": {"ToAddresses": ["ada@example.com"]},
                    "Content": {"Simple": {"Subject": {"Data": "x"}, "Headers": OBJECTS}},
                }
            ),
        ),
        (
            "mailgun",
            "/v3/shop.example/messages",
            urlencode(
                [("from", "a@b.example"), ("to", "ada@example.com"), *((f"h:{n}", v) for n, v in TWICE)]
            ).encode(),
        ),
    ],
)
def test_two_equal_headers_are_both_kept_where_a_call_can_carry_both(
    bench: Bench, name: str, path: str, body: bytes
) -> None:
    api = APIS[name]

    assert call(bench, path, body, api.headers | api.let_in(KEY)).status == 200

    assert caught(bench)[1].body["headers"] == TWICE


# Postmark


def postmark(to: str, **more: Any) -> Json:
    return {"From": "shop@shop.example", "To": to, "Subject": "Hello", "TextBody": "Hi", **more}


def test_postmark_takes_or_refuses_each_message_of_a_batch(bench: Bench) -> None:
    batch = [postmark("ada@example.com"), postmark("nobody"), postmark("bob@example.com")]
    reply = call(bench, "/email/batch", as_json(batch))
    assert (reply.status, [one["ErrorCode"] for one in body_of(reply)]) == (200, [0, 300, 0])
    ids = [acceptance.message_id for acceptance in bench.ledger.acceptances]
    assert [one.get("MessageID") for one in body_of(reply)] == [ids[0], None, ids[1]]


def test_postmark_reads_several_addresses_in_one_text(bench: Bench) -> None:
    call(bench, "/email", as_json(postmark('"Doe, Jane" <jane@example.com>, bob@example.com', Bcc="eve@example.com")))
    assert caught(bench)[0].recipients == ("jane@example.com", "bob@example.com", "eve@example.com")


def test_postmark_finds_a_message_by_its_metadata_in_its_stream(bench: Bench) -> None:
    call(bench, "/email", as_json(postmark("ada@example.com", Metadata={"order": "42"}, MessageStream="receipts")))
    call(bench, "/email", as_json(postmark("bob@example.com", Metadata={"order": "43"})))

    def found(query: str) -> list[str]:
        reply = call(bench, f"/messages/outbound?count=10&offset=0&{query}", method="GET")
        return [message["Recipients"][0] for message in body_of(reply)["Messages"]]

    assert found("metadata_order=42") == ["ada@example.com"]
    assert found("metadata_order=42&messagestream=outbound") == []
    assert found("recipient=BOB@example.com") == ["bob@example.com"]
    assert found("") == ["bob@example.com", "ada@example.com"]
    assert call(bench, "/messages/outbound?offset=0", method="GET").status == 422


def test_a_message_whose_content_is_gone_is_still_found_by_our_id() -> None:
    bench = make_bench(kept_max=1)
    for who in ("ada", "bob"):
        call(bench, "/email", as_json(postmark(f"{who}@example.com", Metadata={"posthouse_id": who, "order": "42"})))

    def found(name: str, value: str) -> int:
        reply = call(bench, f"/messages/outbound?count=1&offset=0&metadata_{name}={value}", method="GET")
        return int(body_of(reply)["TotalCount"])

    assert (found("posthouse_id", "ada"), found("posthouse_id", "bob"), found("order", "42")) == (1, 1, 1)


# Resend


def resend(to: str, **more: Any) -> Json:
    return {"from": "shop@shop.example", "to": [to], "subject": "Hello", "html": "<p>Hi</p>", **more}


def test_resend_takes_a_batch_together_or_when_asked_one_by_one(bench: Bench) -> None:
    batch = as_json([resend("ada@example.com"), resend("nobody")])
    refused = call(bench, "/emails/batch", batch)
    assert (refused.status, len(bench.ledger.acceptances)) == (422, 0)
    reply = body_of(call(bench, "/emails/batch", batch, {"x-batch-validation": "permissive"}))
    assert [one["id"] for one in reply["data"]] == [caught(bench)[0].message_id]
    assert [error["index"] for error in reply["errors"]] == [1]


def test_resend_answers_a_batch_under_a_known_key_as_the_first_time(bench: Bench) -> None:
    batch = as_json([resend("ada@example.com"), resend("bob@example.com")])
    first, second = (call(bench, "/emails/batch", batch, {"idempotency-key": "k"}) for _ in range(2))
    assert first.body == second.body
    assert (len(bench.ledger.acceptances), bench.ledger.duplicates) == (2, 0)


def test_resend_tells_its_conflicts_apart() -> None:
    bench = make_bench("slow=8s:first=1")
    headers = {"idempotency-key": "k"}
    running = bench.api.begin("POST", "/emails", headers, as_json(resend("ada@example.com")), START)

    def conflict(to: str) -> tuple[int, str]:
        reply = call(bench, "/emails", as_json(resend(to)), headers)
        return reply.status, body_of(reply)["name"]

    assert conflict("ada@example.com") == (409, "concurrent_idempotent_requests")
    bench.api.finish(running, START)
    assert conflict("bob@example.com") == (409, "invalid_idempotent_request")
    too_long = call(bench, "/emails", as_json(resend("ada@example.com")), {"idempotency-key": "k" * 257})
    assert (too_long.status, body_of(too_long)["name"]) == (400, "invalid_idempotency_key")


def test_resend_shows_a_message_by_its_id(bench: Bench) -> None:
    message_id = body_of(call(bench, "/emails", as_json(resend("ada@example.com"))))["id"]
    found = body_of(call(bench, f"/emails/{message_id}", method="GET"))
    assert (found["to"], found["subject"], found["html"]) == (["ada@example.com"], "Hello", "<p>Hi</p>")
    assert call(bench, "/emails/other", method="GET").status == 404


def test_resend_takes_a_file_as_a_list_of_octets(bench: Bench) -> None:
    call(bench, "/emails", as_json(resend("ada@example.com", attachments=[{"filename": "a", "content": [1, 255]}])))
    assert caught(bench)[1].files[0].content == b"\x01\xff"


# SendGrid


def sendgrid(*to: str, **more: Any) -> Json:
    return {
        "personalizations": [{"to": [{"email": one}], "custom_args": {"who": one}} for one in to],
        "from": {"email": "shop@shop.example"},
        "subject": "Hello",
        "content": [{"type": "text/html", "value": "<p>Hi</p>"}],
        **more,
    }


def test_sendgrid_answers_without_a_body(bench: Bench) -> None:
    reply = call(bench, "/v3/mail/send", as_json(sendgrid("ada@example.com")))
    assert (reply.status, reply.body) == (202, b"")


def test_sendgrid_makes_a_message_of_each_personalization_or_none(bench: Bench) -> None:
    call(bench, "/v3/mail/send", as_json(sendgrid("ada@example.com", "nobody")))
    assert not bench.ledger.acceptances
    call(bench, "/v3/mail/send", as_json(sendgrid("ada@example.com", "bob@example.com", custom_args={"order": "42"})))
    metadata = [acceptance.body and acceptance.body["metadata"] for acceptance in bench.ledger.acceptances]
    assert metadata == [{"order": "42", "who": who} for who in ("ada@example.com", "bob@example.com")]


def test_sendgrid_lists_what_a_recipient_got_and_opens_an_entry(bench: Bench) -> None:
    call(bench, "/v3/mail/send", as_json(sendgrid("Ada@example.com")))

    def listed(query: str) -> list[Any]:
        messages: list[Any] = body_of(call(bench, "/v3/logs", as_json({"query": query, "limit": 5})))["messages"]
        return messages

    assert listed('to_email="Ada@example.com"') == listed('to_email="ada@example.com"') != []
    since = 'to_email="ada@example.com" AND sg_message_id_created_at > TIMESTAMP "{}"'
    [entry] = listed(since.format("2027-01-15T07:00:00Z"))
    assert listed(since.format("2027-01-15T09:00:00Z")) == []
    opened = body_of(call(bench, f"/v3/logs/{entry['sg_message_id']}", method="GET"))
    assert opened["custom_args"] == {"who": "Ada@example.com"}
    assert call(bench, "/v3/logs/other", method="GET").status == 404


@pytest.mark.parametrize("query", ["", "to_email", 'to_email > "a"', 'other="a"', 'sg_message_id_created_at > "soon"'])
def test_sendgrid_refuses_a_query_that_its_logs_do_not_know(bench: Bench, query: str) -> None:
    reply = call(bench, "/v3/logs", as_json({"query": query}))
    assert (reply.status, sendgrid_error(reply)[0]) == (400, "query")


# Mailgun


def test_mailgun_takes_a_form_with_files(bench: Bench) -> None:
    body = b"\r\n".join(
        [
            b'--B\r\nContent-Disposition: form-data; name="from"\r\n\r\nshop@shop.example',
            b'--B\r\nContent-Disposition: form-data; name="to"\r\n\r\n"Doe, Jane" <jane@example.com>, bob@example.com',
            b'--B\r\nContent-Disposition: form-data; name="v:order"\r\n\r\n42',
            b'--B\r\nContent-Disposition: form-data; name="h:Reply-To"\r\n\r\nhelp@shop.example',
            b'--B\r\nContent-Disposition: form-data; name="o:tag"\r\n\r\nreceipt',
            b'--B\r\nContent-Disposition: form-data; name="attachment"; filename="\xc3\xbcber.eml"\r\n'
            b"Content-Type: message/rfc822\r\n\r\nSubject: x\r\n\r\n--A\r\n",
            b'--B\r\nContent-Disposition: form-data; name="inline"; filename="logo.png"\r\n\r\n\x89PNG\r\n\x1a\n',
            b"--B--\r\n",
        ]
    )
    call(bench, "/v3/shop.example/messages", body, {"content-type": "multipart/form-data; boundary=B"})
    acceptance, message = caught(bench)
    assert acceptance.recipients == ("jane@example.com", "bob@example.com")
    assert acceptance.message_id.endswith("@shop.example")
    assert (message.body["metadata"], message.body["tags"]) == ({"order": "42"}, ["receipt"])
    assert message.body["reply_to"] == "help@shop.example"
    assert [(file.filename, file.content) for file in message.files] == [
        ("über.eml", b"Subject: x\r\n\r\n--A\r\n"),
        ("logo.png", b"\x89PNG\r\n\x1a\n"),
    ]
    assert message.files[1].content_id == "logo.png"
    assert "" not in message.body, "what stands behind the form's end"


def test_mailgun_tells_the_events_of_a_domain(bench: Bench) -> None:
    for who in ("ada", "bob"):
        bench.now += 10
        mail = {"from": "shop@shop.example", "to": f"{who}@example.com", "v:who": who}
        call(bench, "/v3/shop.example/messages", form(mail), APIS["mailgun"].headers)

    def told(**query: Any) -> list[str]:
        reply = call(bench, f"/v3/shop.example/events?{urlencode(query)}", method="GET")
        return [item["user-variables"]["who"] for item in body_of(reply)["items"]]

    assert told() == ["bob", "ada", "ada"], "the newest first; one is delivered already"
    assert told(event="accepted") == ["bob", "ada"]
    assert told(begin=START, ascending="yes", event="accepted OR failed") == ["ada", "bob"]
    assert told(begin=START + 15) == ["bob"]
    assert told(recipient="ada@example.com") == ["ada", "ada"]
    assert told(event="delivered") == ["ada"]
    assert told(limit=1) == ["bob"]


def test_mailgun_s_list_goes_on_until_a_page_is_empty(bench: Bench) -> None:
    for who in ("ada", "bob", "cem"):
        mail = {"from": "shop@shop.example", "to": f"{who}@example.com", "v:who": who}
        call(bench, "/v3/shop.example/messages", form(mail), APIS["mailgun"].headers)

    address = f"/v3/shop.example/events?{urlencode({'event': 'accepted', 'limit': 2})}"
    pages: list[list[str]] = []
    while not pages or pages[-1]:
        document = body_of(call(bench, address, method="GET"))
        pages.append([item["user-variables"]["who"] for item in document["items"]])
        address = "/v3" + document["paging"]["next"].partition("/v3")[2]

    assert sorted(who for page in pages for who in page) == ["ada", "bob", "cem"]
    assert [len(page) for page in pages] == [2, 1, 0]
    for page in ("nonsense", *(in_base64(octets) for octets in (b"5", b"{}", b"[5, 5]", b'[{}, "x"]'))):
        assert call(bench, f"/v3/shop.example/events/{page}", method="GET").status == 400


def test_mailgun_refuses_a_time_that_is_none_whatever_it_has(bench: Bench) -> None:
    assert call(bench, "/v3/shop.example/events?begin=yesterday", method="GET").status == 400
    assert call(bench, "/v3/shop.example/events?begin=soon", method="GET").status == 400


# SES


def raw(content: bytes, **more: Any) -> bytes:
    return as_json({"Content": {"Raw": {"Data": in_base64(content)}}, **more})


def test_ses_takes_a_whole_message_and_its_recipients_beside_it(bench: Bench) -> None:
    whom = {"ToAddresses": ["ada@example.com"], "BccAddresses": ["eve@example.com"]}
    headers = {"authorization": SIGNED.format("any")}
    call(bench, APIS["ses"].path, raw(letter(), Destination=whom), headers)
    acceptance, message = caught(bench)
    assert acceptance.raw == letter()
    assert (acceptance.subject, acceptance.recipients) == ("Hello", ("ada@example.com", "eve@example.com"))
    assert message.body["bcc"] == ["eve@example.com"]


def test_ses_reads_the_recipients_from_the_message_where_none_are_given(bench: Bench) -> None:
    call(bench, APIS["ses"].path, raw(b"Bcc: eve@example.com\r\n" + letter()), {"authorization": SIGNED.format("any")})
    acceptance, message = caught(bench)
    assert acceptance.recipients == ("ada@example.com", "eve@example.com")
    assert message.body["bcc"] == ["eve@example.com"]


def test_ses_wants_every_call_signed_and_knows_no_templates(bench: Bench) -> None:
    unsigned = call(bench, APIS["ses"].path, raw(letter()))
    assert (unsigned.status, ses_error(unsigned)[0]) == (403, "MissingAuthenticationToken")
    template = as_json({"Content": {"Template": {"TemplateName": "x"}}})
    unknown = call(bench, APIS["ses"].path, template, {"authorization": SIGNED.format("any")})
    assert (unknown.status, ses_error(unknown)[0]) == (404, "NotFoundException")
