"""What the shop keeps."""

from django.db import models


class Order(models.Model):  # type: ignore[misc]  # Django has no types of its own
    """One order."""

    number = models.IntegerField(unique=True)
