from django.db import models


class Order(models.Model):
    server = models.CharField(max_length=20)


class Receipt(models.Model):
    """The receipt that a task wrote for an order, and the tenant's schema that it saw."""

    order_id = models.BigIntegerField()
    schema = models.CharField(max_length=100)
    attempt = models.IntegerField(default=1)
