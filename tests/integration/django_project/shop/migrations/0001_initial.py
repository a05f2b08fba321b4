"""The table of orders."""

from django.db import migrations, models


class Migration(migrations.Migration):  # type: ignore[misc]
    """Makes it."""

    initial = True
    dependencies = ()
    operations = (
        migrations.CreateModel(
            "Order",
            [
                ("id", models.AutoField(auto_created=True, primary_key=True, serialize=False)),
                ("number", models.IntegerField(unique=True)),
            ],
        ),
    )
