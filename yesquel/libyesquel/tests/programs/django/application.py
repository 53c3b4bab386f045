"""A small Django application: python3 application.py NAME. It migrates forward and back and uses its
models. Its output must not depend on the engine.
"""

import decimal
import io
import os
import pathlib
import sys

import django
import engine  # noqa: F401
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}},
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions", "shop"],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    SECRET_KEY="of no use",
    USE_TZ=True,
)
django.setup()

from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import IntegrityError, connection, models, transaction
from django.db.models import Avg, Count, F, Q, Sum, Window
from django.db.models.functions import RowNumber, TruncMonth
from shop.models import Customer, Product, Sale

with connection.cursor() as cursor:
    cursor.execute("SELECT file FROM pragma_database_list WHERE name = 'main'")
    (file,) = cursor.fetchone()
assert file.startswith("yesquel:") == (os.environ.get("YESQUEL_TEST_ON_TREES") == "1"), file


def tables():
    return sorted(connection.introspection.table_names())


def migrate(*arguments):
    said = io.StringIO()
    call_command("migrate", *arguments, stdout=said, verbosity=1)
    print("migrate", *arguments, said.getvalue().count("... OK"), "steps")


# The first migration, rows, and then the migrations that move the rows.
migrate("shop", "0001")
with connection.cursor() as cursor:
    cursor.execute("INSERT INTO shop_customer(name) VALUES('Ada Lovelace'), ('Bob')")
migrate()
print(tables())
call_command("makemigrations", "shop", check=True, dry_run=True, verbosity=0)
print([(customer.name, customer.short) for customer in Customer.objects.order_by("id")])

products = Product.objects.bulk_create(
    Product(name=f"product {number}", price=decimal.Decimal(number) / 4, data={"size": number % 5, "tags": ["a", "b"]})
    for number in range(1, 101)
)
print(products[0].pk is not None, Product.objects.count())
ada, bob = Customer.objects.order_by("id")
with transaction.atomic():
    for number, product in enumerate(Product.objects.order_by("id")[:60]):
        Sale.objects.create(
            customer=(ada, bob)[number % 2], product=product, number=number % 4 + 1, day=f"2026-{number % 3 + 1:02}-10"
        )

print(list(Sale.objects.values_list("customer__name").annotate(Count("id"), Sum("number")).order_by("customer__name")))
print(list(Product.objects.filter(data__size=3).order_by("price").values_list("name", flat=True)[:3]))
print(Product.objects.filter(Q(price__lt=2) | Q(price__gt=24)).count())
print(Product.objects.aggregate(Avg("price")))
print(list(Sale.objects.annotate(month=TruncMonth("day")).values_list("month").annotate(Count("id")).order_by("month")))
row = Window(RowNumber(), partition_by=F("customer"), order_by=F("number").desc())
print(Sale.objects.annotate(row=row).filter(row=1).count())
print(Product.objects.update(price=F("price") * 2), Product.objects.get(name="product 10").price)
print(Sale.objects.filter(customer=bob).delete()[0], Sale.objects.count())
print(Customer.objects.prefetch_related("sales").order_by("id")[0].sales.count())
print(Product.objects.update_or_create(name="product 7", defaults={"price": 1})[1])
print(Customer.objects.get_or_create(name="Carol")[1])

for wrong in (
    lambda: Product.objects.create(name="product 1", price=1),
    lambda: Product.objects.create(name="negative", price=-1),
    lambda: Sale.objects.create(customer_id=12345, product=products[0], number=1, day="2026-01-01"),
):
    try:
        with transaction.atomic():
            wrong()
    except IntegrityError as error:
        print(type(error).__name__, error)
try:
    with transaction.atomic():
        Sale.objects.all().delete()
        with transaction.atomic():
            Product.objects.filter(price__gt=20).update(price=0)
        raise RuntimeError("taken back")
except RuntimeError as error:
    print(error, Sale.objects.count())
try:
    ada.delete()
except models.ProtectedError as error:
    print(type(error).__name__, len(error.protected_objects))

user = User.objects.create_user("ada", password="secret")
print(user.check_password("secret"), User.objects.filter(username__iexact="ADA").exists())
dumped = io.StringIO()
call_command("dumpdata", "shop", stdout=dumped)
before = Sale.objects.count(), Product.objects.count(), Customer.objects.count()
fixture = pathlib.Path("shop.json")
fixture.write_text(dumped.getvalue())
call_command("flush", interactive=False, verbosity=0)
print(Product.objects.count(), User.objects.count())
call_command("loaddata", str(fixture), verbosity=0)
print(before == (Sale.objects.count(), Product.objects.count(), Customer.objects.count()))
print(list(Product.objects.order_by("id").values_list("name", "data")[:2]))

migrate("shop", "zero")
print([table for table in tables() if table.startswith("shop")])
