"""The pages: one order with its task, in a transaction of a tenant; and the applications of the servers."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_settings")

from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application

wsgi = get_wsgi_application()
asgi = get_asgi_application()

from django.db import transaction  # noqa: E402
from django.http import HttpResponse  # noqa: E402
from django.urls import path  # noqa: E402
from django_tenants.utils import schema_context  # noqa: E402
from shop import tasks  # noqa: E402
from shop.models import Order  # noqa: E402


def order(request, schema, server, name):
    """Write an order and its task. With ?undo=1 all of it is rolled back."""
    with schema_context(schema), transaction.atomic():
        made = Order.objects.create(server=server)
        handle = getattr(tasks, name).enqueue(schema, made.pk)
        if request.GET.get("undo"):
            transaction.set_rollback(True)
    return HttpResponse(str(handle.id))


urlpatterns = [path("<str:schema>/<str:server>/<str:name>", order)]
