"""Orders whose totals may be too high for a clerk."""

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _


class Purchase(models.Model):
    """An order with a total, which its author cannot approve."""

    class State(models.TextChoices):
        """The states of an order."""

        WAITS = "waits"
        APPROVED = "approved"
        REFUSED = "refused"

    customer = models.CharField(max_length=100)
    total = models.DecimalField(max_digits=10, decimal_places=2)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True)
    state = models.CharField(max_length=10, choices=State.choices, default=State.WAITS)
    reason = models.CharField(max_length=200, blank=True)

    class Meta:
        verbose_name, verbose_name_plural = _("order"), _("orders")
        default_permissions = ("view",)
        permissions = (("approve_purchase", "Can approve orders"),)

    def __str__(self) -> str:
        return f"{self.customer}: {self.total:,.2f}"
