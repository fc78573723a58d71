"""The pages for people: the lists of open questions, and one question with its form.

They work without JavaScript. Each act is a POST. A refused act is answered by the page itself, with the reason.
``SitePages`` serves them to all users of the site, and ``admin`` to its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.contrib.auth.mixins import LoginRequiredMixin
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.utils.translation import gettext as _
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_protect

from django_txtasks.contrib.people import desk, outcome, refusals, showing, together, values
from django_txtasks.contrib.people.about import objects_of
from django_txtasks.contrib.people.buttons import has_buttons
from django_txtasks.contrib.people.kinds import find
from django_txtasks.contrib.people.lists import (
    ASSIGN,
    Box,
    Place,
    counts,
    inbox,
    kinds_for,
    open_kinds,
    sees_all,
)
from django_txtasks.contrib.people.models import (
    MOST_NOTE_CHARACTERS,
    Question,
    alias_of_people,
    name_of,
)
from django_txtasks.contrib.people.wanted import MOST_KEY, Wanted, wanted_of

REFUSED = 409


@method_decorator([never_cache, csrf_protect], name="dispatch")
class Pages(View):
    """Base of both pages: their addresses, their templates, the way back."""

    folder: str
    template: str

    def inbox_url(self) -> str:
        """Return the address of the lists."""
        raise NotImplementedError

    def question_url(self, pk: int) -> str:
        """Return the address of a question."""
        raise NotImplementedError

    def more(self, question: Question | None) -> dict[str, Any]:
        """Return what only the templates of this site need."""
        return {"objects": objects_of(question, self.request)} if question else {}

    @property
    def back(self) -> str:
        """The page to go to afterwards: a list of this host, or the first one."""
        wanted = self.request.POST.get("next") or self.request.GET.get("next") or ""
        is_ours = url_has_allowed_host_and_scheme(
            wanted, {self.request.get_host()}, require_https=self.request.is_secure()
        )
        return wanted if is_ours else self.inbox_url()

    def show(
        self,
        question: Question | None,
        context: dict[str, Any],
        refused: list[str],
        template: str = "",
    ) -> HttpResponse:
        """Return the page, with the reasons of refused acts."""
        form, user = context.get("form"), self.request.user
        own = {
            "refused": refused,
            "inbox_url": self.inbox_url(),
            "messages": messages.get_messages(self.request),
            "may_assign": user.has_perm(ASSIGN),
            "has_buttons": form is not None and has_buttons(form),
            "reader": name_of(user),
            "to": self.request.POST.get("to", ""),
        }
        context = {**own, **context, **self.more(question)}
        page = f"{self.folder}/{template or self.template}"
        return render(self.request, page, context, status=REFUSED if refused else 200)

    def say(self, text: Any) -> None:
        """Let the next page show a text, if the project has Django's messages."""
        messages.success(self.request, text, fail_silently=True)


class Inbox(Pages):
    """The lists of open questions: mine, free ones, overdue ones, all."""

    template = "inbox.html"
    template_together = "together.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        """Show a list."""
        return self._page([])

    def post(self, request: HttpRequest) -> HttpResponse:
        """Take the next question, or act on the chosen ones. The page says which acts were refused."""
        if "take_next" in request.POST:
            return self._take_next()
        act, keys = request.POST.get("act", ""), request.POST.getlist("question")
        if act == desk.ENTER:  # the only field for text is the name of a colleague
            act = "give_to"
        for one in desk.OF_ROWS:
            if one in request.POST:
                act, keys = one, [request.POST[one]]
        if act not in (*desk.OF_LISTS, *desk.OF_ROWS, "answer_form", "answer"):
            raise BadRequest("No such act.")
        chosen, gone = together.chosen(keys, request.user)
        if not keys:
            gone = [_("No question is chosen. Choose one by the box beside its title.")]
        if not chosen:
            return self._page(gone)
        if act in ("answer_form", "answer"):
            return self._answer(chosen, gone, is_filled=act == "answer")
        told = [(one, desk.act(act, one, request.user, request.POST)) for one in chosen]
        done = [one for one, refusal in told if not refusal]
        said = desk.said(act, done, request.user, request.POST) if done else ""
        return self._told(said, [(one, refusal) for one, refusal in told if refusal], gone)

    def _take_next(self) -> HttpResponse:
        taken = desk.take_next(self.request.user, self._wanted.kind)
        if taken is None:
            return self._page([_("No question is free.")])
        self.say(desk.said("take", [taken], self.request.user, {}))
        return HttpResponseRedirect(self._with_next(taken.pk))

    def _answer(self, chosen: list[Question], gone: list[str], *, is_filled: bool) -> HttpResponse:
        """Show the form for all chosen questions, or answer them.

        Args:
            gone: a text about the other questions.
        """
        user, kind = self.request.user, find(chosen[0].kind)
        if any(one.kind != chosen[0].kind for one in chosen):
            return self._page(
                [_("Questions of different kinds have different forms. Choose one kind.")], chosen
            )
        if kind is None or not kind.allows(user):
            return self._page([str(refusals.before(alias_of_people(), chosen[0], user))], chosen)
        if is_filled:
            result = together.answer(kind, chosen, user, self.request.POST)
            form = result.form
            if form is None:
                return self._told(together.said(result), result.refused, gone)
            gone = [*self._lines(result.refused), *gone]
        else:
            form = together.form_of(kind, chosen, user)
        back = self.request.get_full_path()
        context = {"form": form, "rows": self._rows(chosen), "back": back}
        return self.show(None, context, gone, self.template_together)

    def _told(
        self, said: str, refused: list[tuple[Question, Any]], gone: list[str]
    ) -> HttpResponse:
        """Return the list again, with a text about the successful acts and the reasons of the refused ones."""
        if said:
            self.say(said)
        if not (refused or gone):
            return HttpResponseRedirect(self.request.get_full_path())
        return self._page([*self._lines(refused), *gone], [one for one, _reason in refused])

    def _lines(self, refused: list[tuple[Question, Any]]) -> list[str]:
        """Return refused questions as texts with links."""
        return [
            format_html('<a href="{}">{}</a>: {}', self._with_next(one.pk), one.title, reason)
            for one, reason in refused
        ]

    def _page(self, refused: list[str], chosen: Sequence[Question] = ()) -> HttpResponse:
        """Return the list.

        Args:
            chosen: the questions whose boxes stay ticked.
        """
        user, wanted = self.request.user, self._wanted
        box, kind, search = wanted.box, wanted.kind, wanted.search
        page = inbox(user, box, kind=kind, search=search, after=wanted.after)
        numbers = counts(user, kind)
        tabs = [
            (
                showing.LABELS[one],
                showing.number(numbers[one]),
                self._address(one),
                one is box and not search,
            )
            for one in Box
        ]
        context = {
            "rows": self._rows(page.questions),
            "chosen": {one.pk for one in chosen},
            "tabs": tabs,
            "waiting": numbers[Box.FREE] if box is Box.MINE and not search else 0,
            "free_url": self._address(Box.FREE),
            "kinds": self._kinds,
            "kind": kind or "",
            "search": search,
            "box": box.value,
            "next_page": self._address(box, page.next) if page.next else "",
            "people": showing.people_for(None) if user.has_perm(ASSIGN) else [],
            "answered": self._answered() if box is Box.MINE and not search else [],
        }
        return self.show(None, context, refused)

    def _rows(self, questions: list[Question]) -> list[tuple[showing.Row, str]]:
        rows = showing.rows_of(questions, self.request.user)
        return [(row, self._with_next(row.question.pk)) for row in rows]

    def _answered(self) -> list[tuple[Question, str, str, str]]:
        found = showing.answered_lately(self.request.user)
        answers = showing.answers_of(found)
        return [
            (
                one,
                self._with_next(one.pk),
                refusals.time_of(one.closed_at),
                showing.in_one_line(answers.get(one.pk, [])),
            )
            for one in found
        ]

    @cached_property
    def _wanted(self) -> Wanted:
        return wanted_of(self.request.GET, self._kinds)

    @cached_property
    def _kinds(self) -> list[str]:
        user = self.request.user
        names = {one.name for one in kinds_for(user)}
        return sorted(names | set(open_kinds(alias_of_people()) if sees_all(user) else []))

    def _address(self, box: Box, after: Place | None = None) -> str:
        return self.inbox_url() + self._wanted.address(box, after)

    def _with_next(self, pk: int) -> str:
        return f"{self.question_url(pk)}?{urlencode({'next': self.request.get_full_path()})}"


class OneQuestion(Pages):
    """One question: the arguments of its task, who has it, its form, and the acts."""

    template = "question.html"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show the question."""
        return self._page(self._question(pk), None, [])

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Answer, or carry out another act. A refused one shows the reason, and the values that were typed."""
        question, act = self._question(pk), desk.act_of(request.POST)
        if act == "answer":
            return self._answer(question)
        if act not in desk.SAID or (
            act == "hide" and request.POST.get("hide_for") not in desk.HIDE_FOR
        ):
            raise BadRequest("No such act.")
        refusal = desk.act(act, question, request.user, request.POST)
        if refusal:
            refused, note = [str(refusal)], desk.new_note(request.POST)
            if note:
                refused.append(_("Your note was not saved: %(note)s") % {"note": note})
            return self._page(question, None, refused)
        self.say(desk.said(act, [question], request.user, request.POST))
        stays = act in ("take", "note", "for_me", "show")
        return HttpResponseRedirect(request.get_full_path() if stays else self.back)

    def _answer(self, question: Question) -> HttpResponse:
        kind, user = find(question.kind), self.request.user
        if kind is None:  # the page shows the reason
            return self._page(question, None, [])
        form = desk.form_of(kind, question, user, self.request.POST)
        if not desk.is_valid(form):
            return self._page(question, form, [])
        refusal, given = desk.answer(question, user, form), values.of_form(form)
        if refusal and not showing.is_own_answer(question, user, given):
            question.refresh_from_db()
            return self._page(question, form, [refusals.unused(question, refusal, user)])
        # not from the database: the task may have ended, and its rows may be deleted
        answer = showing.in_one_line(showing.in_words(kind, given))
        self.say(
            _("Your answer is saved: %(title)s. %(answer)s")
            % {"title": question.title, "answer": answer}
        )
        return HttpResponseRedirect(self.back)

    def _question(self, pk: int) -> Question:
        rows = Question.objects.using(alias_of_people()).select_related("assignee")
        question = rows.filter(pk=pk).first() if pk <= MOST_KEY else None
        if question is None:
            raise Http404("No such question.")
        if not showing.is_visible(question, self.request.user):
            raise PermissionDenied
        return question

    def _page(self, question: Question, form: Any, refused: list[str]) -> HttpResponse:
        """Return the page of a question. Its row is read again, because an act may have changed it."""
        user, kind, alias = self.request.user, find(question.kind), alias_of_people()
        now = Question.objects.using(alias).select_related("assignee").filter(pk=question.pk)
        question = now.first() or question
        state = refusals.before(alias, question, user) or refusals.after(alias, question, user)
        if form is None and kind is not None and state is None:
            form = desk.form_of(kind, question, user)
        # the reason of an unused answer says the state
        is_said = any(str(state) in one for one in refused) or bool(form and refused)
        typed = []
        if question.closed_at is not None and form is not None:
            # a form with values that did not count would look like the answer
            given = values.as_json(form.cleaned_data)  # with errors: the values of its valid fields
            typed = showing.values_of(kind, given, None)
            form = None
        is_manager, others = user.has_perm(ASSIGN), outcome.others_of(question, user)
        (row,) = showing.rows_of([question], user)
        context = {
            "question": question,
            "row": row,
            "arguments": showing.arguments_of(question),
            "form": form,
            "suggested": showing.values_of(kind, question.suggested or {}),
            "typed": typed,
            "answer": showing.answers_of([question]).get(question.pk, []),
            "state": "" if state is None or is_said else str(state),
            "may_answer": state is None,
            "note": self.request.POST.get("note", question.note),
            "most_note": MOST_NOTE_CHARACTERS,
            "effect": outcome.effect_of(question),
            "others": [(one, self._with_back(one.row.question.pk)) for one in others],
            "people": showing.people_for(kind) if is_manager else [],
            "hide_for": [(key, label) for key, (label, _span) in desk.HIDE_FOR.items()],
            "back": self.back,
        }
        return self.show(question, context, refused)

    def _with_back(self, pk: int) -> str:
        return f"{self.question_url(pk)}?{urlencode({'next': self.back})}"


class SitePages(LoginRequiredMixin, Pages):
    """The pages for users of the site. Their templates are below ``txtasks_people/``."""

    folder = "txtasks_people"

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Return the page, or one with a way back for a person who may not see it."""
        try:
            return super().dispatch(request, *args, **kwargs)
        except PermissionDenied:
            context = {"inbox_url": self.inbox_url(), "reader": name_of(request.user)}
            return render(request, f"{self.folder}/denied.html", context, status=403)

    def inbox_url(self) -> str:
        return reverse("txtasks_people:inbox", current_app=self._namespace())

    def question_url(self, pk: int) -> str:
        return reverse("txtasks_people:question", args=[pk], current_app=self._namespace())

    def _namespace(self) -> str | None:
        match = self.request.resolver_match
        return match.namespace if match is not None else None


class InboxView(SitePages, Inbox):
    """The lists of open questions, for users of the site."""


class QuestionView(SitePages, OneQuestion):
    """One question, for users of the site."""
