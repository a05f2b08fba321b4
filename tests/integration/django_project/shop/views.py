"""The shop's one page."""

from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse

from tests.contract.store_support import email, outbox
from tests.integration.django_project.shop.models import Order


@transaction.atomic  # type: ignore[untyped-decorator]
def order(request: HttpRequest, number: int) -> HttpResponse:
    """Makes an order with its receipt; one that is paid with `?card=refused` fails after both."""
    Order.objects.create(number=number)
    outbox().enqueue(connection, email(f"order-{number}"))
    if request.GET.get("card") == "refused":
        raise LookupError("the card was refused")
    return HttpResponse(status=201)
