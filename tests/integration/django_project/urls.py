"""One page: an order is made."""

from django.urls import path

from tests.integration.django_project.shop.views import order

urlpatterns = [path("orders/<int:number>", order)]
