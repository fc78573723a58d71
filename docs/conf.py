"""Sphinx: Markdown by MyST, furo's theme. Build with ``sphinx-build -W docs somewhere``."""

import django_txtasks

project = "django-txtasks"
copyright = "django-txtasks contributors"
author = "django-txtasks contributors"
release = version = django_txtasks.__version__

extensions = ["myst_parser"]
myst_heading_anchors = 4
exclude_patterns = ["_build"]
nitpicky = True

html_theme = "furo"
html_title = f"django-txtasks {release}"
