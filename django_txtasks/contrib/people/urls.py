"""URLs of the pages for people: ``path("inbox/", include("django_txtasks.contrib.people.urls"))``."""

from __future__ import annotations

from django.urls import path

from django_txtasks.contrib.people.views import InboxView, QuestionView

app_name = "txtasks_people"
urlpatterns = [
    path("", InboxView.as_view(), name="inbox"),
    path("<int:pk>/", QuestionView.as_view(), name="question"),
]
