from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("shop", "0002_products")]
    operations = [
        migrations.RenameField("Product", "title", "name"),
        migrations.AddField("Product", "data", models.JSONField(default=dict)),
        migrations.AddConstraint(
            "Product", models.CheckConstraint(condition=models.Q(price__gte=0), name="price_is_not_negative")
        ),
        migrations.AddIndex("Sale", models.Index(fields=["day", "-number"], name="sale_by_day")),
    ]
