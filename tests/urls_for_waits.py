"""The URLs of a site that includes ours."""

from django.urls import include, path

urlpatterns = [path("tasks/", include("django_txtasks.urls"))]
