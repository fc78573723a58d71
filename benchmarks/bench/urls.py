"""The admin, and the metrics."""

from django.contrib import admin
from django.urls import path

from django_txtasks.metrics import view

urlpatterns = [path("admin/", admin.site.urls), path("metrics", view)]
