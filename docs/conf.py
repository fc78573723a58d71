"""Sphinx: Markdown by MyST, furo's theme. Build with ``sphinx-build -W docs somewhere``."""

import os
import sys
from pathlib import Path

import django

import django_txtasks

sys.path.insert(0, str(Path(__file__).parents[1] / "testproject"))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
django.setup()  # the reference reads docstrings of modules that have models

project = "django-txtasks"
copyright = "django-txtasks contributors"
author = "django-txtasks contributors"
release = version = django_txtasks.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinxcontrib.mermaid",
]
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
exclude_patterns = ["_build"]
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types of other libraries; links of pages are all checked

copybutton_prompt_text = "$ "  # the button copies commands without their prompt and output

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"

html_theme = "furo"
html_title = f"django-txtasks {release}"
