"""A shop: an order, and the receipt that must be sent if and only if the order is committed."""

from django.db import models


class Order(models.Model):
    """An order of a customer."""

    customer = models.CharField(max_length=100)


class Receipt(models.Model):
    """One line for each receipt that was sent; no unique key, so that a second one would show."""

    order = models.ForeignKey(Order, models.CASCADE, db_constraint=False)
    attempt = models.PositiveIntegerField(default=0)
    sent_at = models.DateTimeField(auto_now_add=True)
