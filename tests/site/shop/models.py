from django.db import models


class Order(models.Model):
    server = models.CharField(max_length=20)


class Receipt(models.Model):
    """What a task has done for an order, and in which tenant's schema it believed to be."""

    order_id = models.BigIntegerField()
    schema = models.CharField(max_length=100)
    attempt = models.IntegerField(default=1)
