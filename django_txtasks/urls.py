"""URLs of this package. Include them in yours: ``path("tasks/", include("django_txtasks.urls"))``."""

from __future__ import annotations

from django.urls import path

from django_txtasks.features.steps.views import resume_view

app_name = "txtasks"
urlpatterns = [path("resume/<str:signed>/", resume_view, name="resume")]
