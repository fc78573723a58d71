"""The lists and the questions in the admin, for staff: the same pages, with links to the task and to the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import NoReverseMatch, reverse

from django_txtasks.contrib.people.about import objects_of
from django_txtasks.contrib.people.lists import kinds_for, sees_all
from django_txtasks.contrib.people.models import Question, alias_of_people
from django_txtasks.contrib.people.showing import is_visible
from django_txtasks.contrib.people.views import Inbox, OneQuestion, Pages
from django_txtasks.models import FinishedTask, Task

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Question]
else:
    ModelAdmin = admin.ModelAdmin


class AdminPages(Pages):
    """The pages in the admin. Their templates are below ``admin/txtasks_people/``."""

    folder = "admin/txtasks_people"
    site: admin.AdminSite = admin.site

    def inbox_url(self) -> str:
        return self._url("txtasks_people_question_changelist")

    def question_url(self, pk: int) -> str:
        return self._url("txtasks_people_question_change", pk)

    def more(self, question: Question | None) -> dict[str, Any]:
        """Return the frame of the admin, and the links to the task and to the log."""
        opts = Question._meta
        title = opts.verbose_name_plural if question is None else question.title
        context = {**self.site.each_context(self.request), "opts": opts, "title": title}
        if question is not None:
            context["task_url"] = self._task_url(question)
            context["objects"] = objects_of(question, self.request, self.site)
            context["log_url"] = self._url("txtasks_people_question_history", question.pk)
        return context

    def _task_url(self, question: Question) -> str:
        """Return the address of the task's page; empty without such a page or the permission to view it."""
        for model in (Task, FinishedTask):
            name = model._meta.model_name
            rows = model._default_manager.using(alias_of_people()).filter(pk=question.task_id)
            if self.request.user.has_perm(f"txtasks.view_{name}") and rows.exists():
                try:
                    return self._url(f"txtasks_{name}_change", question.task_id)
                except NoReverseMatch:  # the admin site has no such page
                    return ""
        return ""

    def _url(self, name: str, *keys: Any) -> str:
        quoted = [quote(str(key)) for key in keys]
        return reverse(f"admin:{name}", args=quoted, current_app=self.site.name)


class AdminInbox(AdminPages, Inbox):
    """The lists of open questions, in the admin."""


class AdminQuestion(AdminPages, OneQuestion):
    """One question, in the admin."""


@admin.register(Question)
class QuestionAdmin(ModelAdmin):
    """Questions, for staff who may answer some of them, give them away, or view all."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        if obj is not None:  # such as for the page of its history
            return is_visible(obj, request.user)
        return sees_all(request.user) or bool(kinds_for(request.user))

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """Show the lists; with ``?task=<id>``, the question that this task has asked last."""
        self._check(request)
        if "task" in request.GET:
            return self._question_of(request.GET["task"])
        return AdminInbox.as_view(site=self.admin_site)(request)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> Any:
        """Show a question."""
        self._check(request)
        if not (object_id.isdecimal() and len(object_id) < 20):
            raise Http404("No such question.")
        return AdminQuestion.as_view(site=self.admin_site)(request, pk=int(object_id))

    def _check(self, request: HttpRequest) -> None:
        if not self.has_view_permission(request):
            raise PermissionDenied

    def _question_of(self, task_id: str) -> HttpResponse:
        rows = Question.objects.using(alias_of_people())
        try:
            found = rows.filter(task_id=task_id).order_by("-pk").first()
        except ValidationError:
            found = None
        if found is None:
            raise Http404("No question of this task.")
        name = f"admin:{Question._meta.app_label}_question_change"
        return HttpResponseRedirect(
            reverse(name, args=[found.pk], current_app=self.admin_site.name)
        )
