"""The models of a shop."""

from django.db import models


class Customer(models.Model):
    name = models.CharField(max_length=100, db_index=True)
    short = models.CharField(max_length=20, default="")


class Product(models.Model):
    name = models.CharField(max_length=100, unique=True)
    price = models.DecimalField(max_digits=8, decimal_places=2)
    data = models.JSONField(default=dict)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(price__gte=0), name="price_is_not_negative")]


class Sale(models.Model):
    customer = models.ForeignKey(Customer, models.PROTECT, related_name="sales")
    product = models.ForeignKey(Product, models.CASCADE)
    number = models.PositiveIntegerField()
    day = models.DateField()

    class Meta:
        indexes = [models.Index(fields=["day", "-number"], name="sale_by_day")]
