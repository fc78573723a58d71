"""The admin alone: the example project's other pages belong to apps that peers leave out."""

from django.contrib import admin
from django.urls import path

urlpatterns = [path("admin/", admin.site.urls)]
