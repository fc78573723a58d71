"""The task that asks people, or a machine that is sure of 30 % of the orders."""

from datetime import timedelta
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from approvals.models import Purchase
from django_txtasks import TaskContext, task
from django_txtasks.contrib.people import Buttons, question

FREE_UP_TO = 1_000
SECOND_LOOK_ABOVE = 5_000
MACHINE_PERCENT = 30
"""The machine answers for this share of the orders, which the ids of the tasks choose."""


class ApproveForm(forms.Form):
    """Two buttons: a yes, or a no with its reason."""

    reason = forms.CharField(label=_("Reason"), required=False, max_length=200)
    decision = forms.ChoiceField(
        label=_("Decision"),
        choices=[("approve", _("Approve")), ("refuse", _("Refuse"))],
        widget=Buttons,
    )

    def clean(self) -> dict[str, Any]:
        """Want a reason for a no."""
        cleaned: dict[str, Any] = super().clean() or {}
        if cleaned.get("decision") == "refuse" and not cleaned.get("reason"):
            self.add_error("reason", _("Say why you refuse."))
        return cleaned


approval = question(
    "approvals.approval",
    form=ApproveForm,
    may="approvals.approve_purchase",
    due=timedelta(days=2),
    hold=timedelta(hours=8),
)


def guess(purchase: Purchase, task_id: Any) -> dict[str, Any] | None:
    """Return the answer of the machine, or None: people decide."""
    is_sure = task_id.int % 100 < MACHINE_PERCENT and purchase.total <= SECOND_LOOK_ABOVE
    return {"decision": "approve", "reason": "as always"} if is_sure else None


@task(idempotent=True, takes_context=True)
def decide(ctx: TaskContext, purchase_id: int, due: float | None = None) -> str:
    """Approve or refuse an order. The second look is by somebody else."""
    purchase = Purchase.objects.get(pk=purchase_id)
    answers = []
    if purchase.total > FREE_UP_TO:
        first = approval.ask(
            ctx,
            title=str(purchase),
            suggested={"decision": "approve"},
            not_by=[purchase.author_id],
            machine=lambda: guess(purchase, ctx.task_id),
            due=due,
        )
        answers.append(first.data)
        if first.data["decision"] == "approve" and purchase.total > SECOND_LOOK_ABOVE:
            second = approval.ask(
                ctx,
                "second look",
                title=f"{purchase} (second look)",
                not_by=[purchase.author_id, first.by],
            )
            answers.append(second.data)
    refused = [one["reason"] for one in answers if one["decision"] == "refuse"]
    purchase.state = Purchase.State.REFUSED if refused else Purchase.State.APPROVED
    purchase.reason = "".join(refused)
    purchase.save(update_fields=["state", "reason"])
    return str(purchase.state)
