"""The example project's settings, with the tasks of the benchmarks."""

from settings import *  # noqa: F403
from settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "bench"]
ROOT_URLCONF = "bench.urls"
