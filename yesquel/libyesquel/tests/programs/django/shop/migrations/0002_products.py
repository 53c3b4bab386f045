import django.db.models.deletion
from django.db import migrations, models


def shorten(apps, editor):
    for customer in apps.get_model("shop", "Customer").objects.all():
        customer.short = customer.name.split()[0].lower()
        customer.save()


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [
        migrations.AddField("Customer", "short", models.CharField(max_length=20, default="")),
        # SQLite can only do this by recreating the table.
        migrations.AlterField("Customer", "name", models.CharField(max_length=100, db_index=True)),
        migrations.RunPython(shorten, migrations.RunPython.noop),
        migrations.CreateModel(
            "Product",
            [
                ("id", models.BigAutoField(primary_key=True, serialize=False, auto_created=True, verbose_name="ID")),
                ("title", models.CharField(max_length=100, unique=True)),
                ("price", models.DecimalField(max_digits=8, decimal_places=2)),
            ],
        ),
        migrations.CreateModel(
            "Sale",
            [
                ("id", models.BigAutoField(primary_key=True, serialize=False, auto_created=True, verbose_name="ID")),
                ("number", models.PositiveIntegerField()),
                ("day", models.DateField()),
                (
                    "customer",
                    models.ForeignKey("shop.Customer", django.db.models.deletion.PROTECT, related_name="sales"),
                ),
                ("product", models.ForeignKey("shop.Product", django.db.models.deletion.CASCADE)),
            ],
        ),
    ]
