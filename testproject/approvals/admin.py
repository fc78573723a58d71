"""Orders in the admin: what became of them."""

from django.contrib import admin

from approvals.models import Purchase


@admin.register(Purchase)
class PurchaseAdmin(admin.ModelAdmin):
    """Orders, to look at."""

    list_display = ("customer", "total", "author", "state", "reason")
    list_filter = ("state",)
