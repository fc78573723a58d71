"""Tasks that ask people; each effect is a row of ``Run``."""

from datetime import timedelta

from django import forms

from django_txtasks import WaitTimedOut, task
from django_txtasks.contrib.people import question
from probe.models import Run


class ApproveForm(forms.Form):
    """The form of the tests."""

    approved = forms.BooleanField(required=False)
    reason = forms.CharField(required=False)


approval = question("probe.approval", form=ApproveForm, may=None, hold=timedelta(hours=8))
guarded = question(
    "probe.guarded", form=ApproveForm, may="orders.change_order", due=timedelta(days=2)
)


@task(idempotent=True)
def remind(question_id):
    """Note that a question is due."""
    Run.objects.create(key=f"due {question_id}")


@task(idempotent=True, takes_context=True)
def approve(ctx, key, timeout=None, **options):
    """Ask once; note the answer."""
    try:
        answer = approval.ask(ctx, title=key, timeout=timeout, **options)
    except WaitTimedOut:
        given = "nobody"
    else:
        given = f"{answer.name or 'none'} {answer.data.get('reason', '')}".strip()
    Run.objects.create(key=f"{key}: {given}", attempt=ctx.attempt)
    return given


@task(idempotent=True, takes_context=True)
async def approve_async(ctx, key):
    """The same in an async task."""
    answer = await approval.aask(ctx, title=key)
    return answer.data


@task(idempotent=True, takes_context=True)
def approve_guarded(ctx, key, **options):
    """Ask those who may change orders."""
    answer = guarded.ask(ctx, title=key, **options)
    return [answer.data, answer.by, answer.name]


@task(idempotent=True, takes_context=True)
def approve_twice(ctx, key):
    """Four eyes."""
    first = approval.ask(ctx, title=key)
    second = approval.ask(ctx, "second look", title=key, not_by=[first.by])
    return [first.name, second.name]


@task(idempotent=True, takes_context=True)
def approve_reminded(ctx, key, due):
    """Ask, and remind."""
    return approval.ask(ctx, title=key, due=due, on_due=remind).data


storm = question("probe.storm", form=ApproveForm, may=None, hold=timedelta(seconds=2))


def note_answer(key, name):
    """The effect of an answer."""
    Run.objects.create(key=f"{key}: {name}")


@task(idempotent=True, takes_context=True)
def ask_in_a_storm(ctx, key, timeout=None):
    """Ask once; the effect is a step, so that it exists once whatever happens to the worker."""
    try:
        name = storm.ask(ctx, title=key, timeout=timeout).name
    except WaitTimedOut:
        name = "nobody"
    ctx.step("effect", note_answer, key, name)
    return name


@task(takes_context=True)
def ask_once_only(ctx):
    """Ask without being idempotent: a check warns."""
    return approval.ask(ctx).data


@task(takes_context=True)
async def ask_in_an_inner_function(ctx):
    """The same, where the code is inside another function."""

    async def inner():
        return await approval.aask(ctx)

    return (await inner()).data
