"""An admin site that shows the tasks of orders and parcels on their pages."""

from django.contrib import admin
from django.urls import path
from orders.models import Order
from probe.models import Country, Parcel

from django_txtasks.admin.lists import FinishedTaskAdmin, TaskAdmin
from django_txtasks.admin.subjects import ShowsTasks
from django_txtasks.models import FinishedTask, Task


class OrderPages(ShowsTasks):
    """All fields of an order."""


class ParcelPages(ShowsTasks):
    """Chosen fields; and one parcel that nobody may view."""

    fieldsets = ((None, {"fields": ("label",)}),)
    readonly_fields = ("label",)

    def has_view_permission(self, request, obj=None):
        is_secret = obj is not None and obj.label == "secret"
        return not is_secret and super().has_view_permission(request, obj)


class CountryPages(admin.ModelAdmin):
    """A page without tasks, as any."""


shop = admin.AdminSite(name="admin")
shop.register(Order, OrderPages)
shop.register(Parcel, ParcelPages)
shop.register(Country, CountryPages)
shop.register(Task, TaskAdmin)
shop.register(FinishedTask, FinishedTaskAdmin)
urlpatterns = [path("admin/", shop.urls)]
