"""Calls as a user writes them. Type checkers must object to lines that end in ``# wrong``, and to no others."""

from datetime import timedelta

from django_txtasks import (
    Item,
    TaskContext,
    TaskHandle,
    aenqueue_task,
    enqueue_task,
    periodic,
    task,
)


@task
def send(order: int, *, copy: bool = False) -> str:
    return f"{order} {copy}"


@task(queue_name="mail", max_attempts=3, timeout=timedelta(minutes=1))
def mail(to: str, lines: list[str]) -> None: ...


@task(takes_context=True, idempotent=True)
def book(context: TaskContext, order: int) -> None:
    context.check()
    context.chekc()  # wrong
    text: str = context.step("send", send.function, order, copy=True)
    number: int = context.step("send", send.function, order)  # wrong
    context.step("send", send.function, str(order))  # wrong
    key: str = context.key("send")
    print(text, number, key)


@task(many=100, idempotent=True)
def index(items: list[Item[int]]) -> None:
    for item in items:
        with item:
            number: int = item.value
            item.finish({"number": number})
        item.fail("text")  # wrong
        print(item.vlaue)  # wrong


@task(on_success=send)
async def fetch(url: str) -> bytes:
    return url.encode()


handle: TaskHandle = send.enqueue(1, copy=True)
send.enqueue("1")  # wrong
send.enqueue()  # wrong
send.enqueue(1, True)  # wrong
send.enqueue(1, kopy=True)  # wrong
number: int = send(1)  # wrong
text: str = send(1)

mail.enqueue("a@example.org", ["Hello"])
mail.enqueue("a@example.org", "Hello")  # wrong
mail.using(priority=3, run_after=timedelta(hours=1)).enqueue("a@example.org", [])
mail.using(priority="high")  # wrong
mail.using(run_after=60, expires=3600.5).enqueue("a@example.org", [])
mail.using(countdown=60)  # wrong
mail.delay("a@example.org", [])  # wrong
mail.using(run_after=timedelta(hours=1)).enqueue(["a@example.org"], [])  # wrong

index.enqueue(1)
index.enqueue("1")  # wrong
index.enqueue(1, 2)  # wrong
index.using(priority=3).enqueue(1)

book.enqueue(1)
book.enqueue("1")  # wrong
book.enqueue(handle, 1)  # wrong

enqueue_task(send, 1)
enqueue_task(send, "1")  # wrong
enqueue_task(send.using(priority=1), 1, copy=False)
enqueue_task(book, 1)
enqueue_task(book)  # wrong
enqueue_task(len, [])  # wrong


@periodic("0 3 * * *", tz="Europe/Vienna", args=["north"], ready_by="07:00")
@periodic(every=timedelta(minutes=5), args=["south"], name="south", catch_up="all", grace=60)
@task
def prices(region: str) -> None: ...


prices.enqueue("north")
prices.enqueue(1)  # wrong


@periodic(every="often")  # wrong
@task
def often() -> None: ...


@periodic("0 3 * * *", catch_up="most")  # wrong
@task
def nightly() -> None: ...


async def view() -> None:
    await fetch.aenqueue("https://example.org")
    await fetch.aenqueue(1)  # wrong
    await aenqueue_task(send, 1)
    await aenqueue_task(send, None)  # wrong
    handle: TaskHandle = await send.aenqueue(1)
    print(handle.id, handle.nothing)  # wrong


@task(max_attempts="3")  # wrong
def many() -> None: ...


@task(retries=3)  # wrong
def other() -> None: ...


@task(keep="first")  # wrong
def merged() -> None: ...


@task(on_failure=len)  # wrong
def alone() -> None: ...


@task(run_after=60)  # wrong
def late() -> None: ...


@task(on_success=send.with_result(), on_failure=send, unique_key=lambda to: f"mail {to}", settle=5)
def hooked(to: str) -> None: ...


hooked.using(atomic=True)  # wrong
hooked.using(on_success=send.with_result(), lane=None, once="mail").enqueue("a@example.org")
