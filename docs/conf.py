"""Sphinx: Markdown by MyST, furo's theme. Build with ``sphinx-build -W docs somewhere``."""

import os
import sys
from pathlib import Path
from typing import Any

import django

import django_txtasks

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS), str(DOCS.parent / "testproject")]
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
autodoc_type_aliases = {"CoreHandle": "TaskHandle"}  # what enqueueings return: see the assembly

html_theme = "furo"
html_title = f"django-txtasks {release}"


def write_llms_txt(app: Any, exception: Exception | None) -> None:
    """Write ``llms.txt`` beside the pages, when all of them are there."""
    from llms import llms_txt

    if exception is None and app.builder.format == "html":
        (Path(app.outdir) / "llms.txt").write_text(llms_txt(DOCS))


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("build-finished", write_llms_txt)
