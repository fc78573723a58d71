"""lane=, unique_key= and once= as functions: each way of calling a task gives one key."""

import functools

import pytest
from probe import tasks

from django_txtasks import TaskContext, enqueue_many, enqueue_task, task
from django_txtasks.exceptions import InvalidArguments, InvalidDeclaration, InvalidOption
from django_txtasks.models import Once, Task

pytestmark = pytest.mark.usefixtures("rows")


def customer_key(customer, **_):
    return f"customer {customer}"


@task
def plain(customer, reason="paid"): ...


@task(takes_context=True)
def with_context(ctx: TaskContext, customer, reason="paid"): ...


@task
async def in_async_code(customer, reason="paid"): ...


@task
def with_rest(customer, *articles, reason="paid", **others): ...


@task
def by_place(customer, /, reason="paid"): ...


def key_of(function, option, *args, **kwargs):
    """Return the text of a call's key, as its row has it."""
    handle = enqueue_task(function, *args, **kwargs)
    if option == "once":
        return Once.objects.get(task_id=handle.id).text
    return getattr(
        Task.objects.get(pk=handle.id), {"unique_key": "unique_text"}.get(option, option)
    )


OPTIONS = ["lane", "unique_key", "once"]
CALLS = [
    (("Ada",), {}),
    (("Ada", "paid"), {}),
    (("Ada",), {"reason": "paid"}),
    ((), {"customer": "Ada"}),
    ((), {"reason": "paid", "customer": "Ada"}),
]


@pytest.fixture(autouse=True)
def lanes(txtasks):
    txtasks(lanes={"*": {"weight": 1}})


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("function", [plain, with_context, in_async_code], ids=str)
@pytest.mark.parametrize(
    ("key", "text"),
    [
        (customer_key, "customer Ada"),
        (lambda customer: f"c {customer}", "c Ada"),
        (lambda *, reason, **_: f"r {reason}", "r paid"),
        (lambda reason, customer: f"{customer} {reason}", "Ada paid"),
        (lambda reason, /, **rest: f"{reason} {sorted(rest)}", "paid ['customer']"),
        (lambda **given: f"{sorted(given.items())}", "[('customer', 'Ada'), ('reason', 'paid')]"),
        (functools.partial(lambda prefix, customer: f"{prefix} {customer}", prefix="p"), "p Ada"),
        (functools.partial(lambda prefix, customer: f"{prefix} {customer}", "p"), "p Ada"),
    ],
    ids=range(8),
)
def test_each_way_of_calling_gives_one_key(option, function, key, text):
    keyed = function.using(**{option: key})
    found = set()
    for args, kwargs in CALLS:
        found.add(key_of(keyed, option, *args, **kwargs))
        Once.objects.all().delete()
    assert found == {text}


def test_so_does_enqueue_many():
    keyed = plain.using(unique_key=customer_key)
    enqueue_many([(keyed, args, kwargs) for args, kwargs in CALLS])
    assert set(Task.objects.values_list("unique_text", flat=True)) == {"customer Ada"}
    assert Task.objects.count() == len(CALLS)


@pytest.mark.parametrize(
    ("key", "args", "kwargs", "text"),
    [
        (lambda *rest: f"{rest}", ("Ada", 1, 2), {}, "('Ada', 1, 2)"),
        (lambda customer, *rest: f"{customer} {rest}", ("Ada", 1, 2), {}, "Ada (1, 2)"),
        (lambda *rest, customer: f"{customer} {rest}", ("Ada", 1, 2), {}, "Ada (1, 2)"),
        (lambda reason, *rest: f"{reason} {rest}", ("Ada", 1), {"reason": "x"}, "x ('Ada', 1)"),
        (
            lambda *rest, **more: f"{rest} {sorted(more)}",
            ("Ada",),
            {"region": "eu"},
            "('Ada',) ['reason', 'region']",
        ),
        (lambda region="us", **_: region, ("Ada",), {}, "us"),
        (lambda region="us", **_: region, ("Ada",), {"region": "eu"}, "eu"),
        (lambda customer, **_: customer, ("Ada", 1), {}, "Ada"),
    ],
    ids=range(8),
)
def test_rest_gets_the_other_positional_values(key, args, kwargs, text):
    assert key_of(with_rest.using(unique_key=key), "unique_key", *args, **kwargs) == text


def test_values_without_a_name_for_the_caller_have_one_for_the_key():
    assert key_of(by_place.using(unique_key=customer_key), "unique_key", "Ada") == "customer Ada"


def test_what_has_no_signature_is_called_as_the_task_is():
    assert key_of(plain.using(unique_key=str), "unique_key", "Ada") == "Ada"
    assert key_of(plain.using(unique_key="c {}".format), "unique_key", "Ada") == "c Ada"


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize(
    ("key", "says"),
    [
        (lambda tenant, **_: tenant, "'tenant' would never be given"),
        (lambda tenant=None, **_: tenant, "'tenant' would never be given"),
        (lambda ctx, customer: customer, "'ctx' would never be given"),
        (lambda customer, reason="none": reason, "which of them makes the key"),
    ],
    ids=range(4),
)
def test_a_name_that_the_task_does_not_have_is_refused_at_the_declaration(option, key, says):
    with pytest.raises(InvalidDeclaration, match=says) as refused:
        task(takes_context=True, **{option: key})(with_context.function)
    assert f"with_context has {option}=" in str(refused.value)
    with pytest.raises(InvalidOption, match=says):
        plain.using(**{option: key}).enqueue("Ada")
    assert not Task.objects.exists()


def test_it_is_said_what_both_have():
    with pytest.raises(InvalidOption) as refused:
        plain.using(lane=lambda tenant, key: tenant).enqueue("Ada")
    assert "a function of 'tenant', 'key', but the task function has 'customer', 'reason'" in str(
        refused.value
    )


def test_a_call_that_cannot_be_is_refused_for_that():
    with pytest.raises(InvalidArguments, match="cannot be called like that"):
        plain.using(unique_key=customer_key).enqueue()


def test_keys_of_rows_that_wait_stay_the_same():
    """Their digest is the same, too: what waits since the release before is merged with what comes now."""
    tasks.tidy.enqueue("x", shelf="b")
    tasks.tidy.using(unique_key="shelf b").enqueue("x")
    assert len(set(Task.objects.values_list("unique_key", flat=True))) == 1
