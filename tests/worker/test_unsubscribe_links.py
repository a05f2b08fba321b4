"""Links by which people unsubscribe, in what workers send: on every path, with the same bytes."""

from __future__ import annotations

from posthouse.sandbox.ledger import CallResult
from posthouse.unsubscribe import LIST_UNSUBSCRIBE, Unsubscription, verified
from tests.providers.postmark_sandbox import PostmarkSandbox
from tests.worker.stage import Stage, email, play
from tests.worker.test_batches import POSTMARK

SECRET = "s" * 32
WEB = {"public_url": "https://mail.shop.example", "unsubscribe_secrets": [SECRET]}
TYPES = {"newsletter": {"category": "marketing"}, "receipt": {}}


def links(stage: Stage, route: str = "main") -> dict[str, str]:
    """The header of each message that was taken, by its recipient."""
    taken = stage.apis[route].ledger.acceptances
    return {one.recipients[0]: dict((one.body or {}).get("headers", {})).get(LIST_UNSUBSCRIBE, "") for one in taken}


def test_a_newsletter_has_the_link_of_its_own_send_and_a_receipt_none() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main")
        stage.configure({"main": {}}, TYPES, web=WEB)
        stage.enqueue(email(1, type="newsletter"), email(2, type="newsletter"), email(3, type="receipt"))
        stage.worker()
        await stage.until_status(accepted=3)

        found = links(stage)
        assert found.pop("person-3@example.com") == ""
        for number in (1, 2):
            token = found[f"person-{number}@example.com"].rpartition("/")[2].removesuffix(">")
            key = stage.row(f"k-{number}")["idempotency_key"]
            wanted = Unsubscription(key, "type newsletter", f"person-{number}@example.com")
            assert verified(token, [SECRET]) == wanted

    play(scene)


def test_a_replay_by_another_worker_is_the_same_message() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main", "drop-accepted:first=1,per=all")
        stage.configure({"main": {}}, TYPES, web=WEB)
        stage.enqueue(email(1, type="newsletter"))
        first = stage.worker()
        await stage.until(lambda: stage.apis["main"].ledger.calls, within_s=10)
        first.process.kill()
        stage.worker()
        await stage.until_status(accepted=1, within_s=120)

        results = [call.result for call in stage.apis["main"].ledger.calls]
        assert results == [CallResult.ACCEPTED, CallResult.REPLAYED], "under the same key, the same bytes"

    play(scene)


def test_the_route_that_takes_over_carries_it_too() -> None:
    async def scene(stage: Stage) -> None:
        stage.sandbox("main", "503")
        stage.sandbox("standby")
        stage.configure({"main": {}, "standby": {}}, TYPES, web=WEB)
        stage.enqueue(email(1, type="newsletter"))
        stage.worker()
        await stage.until_status(accepted=1, within_s=120)

        assert links(stage, "standby")["person-1@example.com"].startswith("<https://mail.shop.example/unsubscribe/")

    play(scene)


def test_of_several_in_one_call_each_has_the_link_of_its_own() -> None:
    async def scene(stage: Stage) -> None:
        api = stage.sandbox("main", kind=PostmarkSandbox)
        assert isinstance(api, PostmarkSandbox)
        stage.configure({"main": POSTMARK}, TYPES, web=WEB)
        stage.enqueue(*(email(number, type="newsletter") for number in range(10)))
        stage.worker()
        await stage.until_status(accepted=10)

        assert max(size for _, size in api.handed_in) > 1
        for one in api.ledger.acceptances:
            (person,) = one.recipients
            wish = verified(links(stage)[person].rpartition("/")[2].removesuffix(">"), [SECRET])
            assert wish is not None
            assert wish.address == person

    play(scene)
