"""A shop: an order, and the receipt that must be sent for it exactly when it is committed."""

from django.db import models


class Order(models.Model):
    """What a customer bought."""

    customer = models.CharField(max_length=100)


class Receipt(models.Model):
    """One line for each receipt that was sent; no unique key, so that a second one would show."""

    order = models.ForeignKey(Order, models.CASCADE, db_constraint=False)
    attempt = models.PositiveIntegerField(default=0)
    sent_at = models.DateTimeField(auto_now_add=True)
