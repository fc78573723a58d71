"""Tasks that enter their tenant as careless sites do, and one that looks for leftovers."""

import os
import time

import sentry_sdk
from django.db import connection
from django_tenants.utils import get_tenant_model, schema_context

from django_txtasks import TaskContext, task
from shop.models import Receipt


def enter(schema):
    connection.set_tenant(get_tenant_model().objects.get(schema_name=schema))
    sentry_sdk.set_tag("tenant", schema)


@task(atomic=True)
def careless(schema: str, order_id: int) -> None:
    """Enter a tenant, and do not leave it."""
    enter(schema)
    Receipt.objects.create(order_id=order_id, schema=connection.schema_name)


@task(idempotent=True)
def careless_in_autocommit(schema: str, order_id: int) -> None:
    enter(schema)
    Receipt.objects.create(order_id=order_id, schema=connection.schema_name)


@task(max_attempts=1)
def fail(schema: str) -> None:
    enter(schema)
    raise ValueError(f"failure of {schema}")


@task(idempotent=True)
def whose() -> list[str]:
    """Return leftovers of earlier tasks: the tenant of the connection and of the session."""
    sentry_sdk.capture_message("whose")
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('search_path')")
        return [connection.schema_name, cursor.fetchone()[0]]


@task(atomic=True, takes_context=True)
def slow(ctx: TaskContext, schema: str, order_id: int, file: str) -> None:
    """Write the process to a file in the first attempt and wait to be killed; be quick in the next one."""
    with schema_context(schema):
        Receipt.objects.create(order_id=order_id, schema=schema, attempt=ctx.attempt)
        if ctx.attempt == 1:
            with open(file, "w") as pid:
                pid.write(str(os.getpid()))
            time.sleep(600)
