"""The index of the documentation for language models: ``llms.txt``, as https://llmstxt.org describes it.

Sphinx writes it beside the HTML pages (``conf.py``). Its links lead to the Markdown of the pages.
"""

from __future__ import annotations

import re
from pathlib import Path

TOCTREE = re.compile(
    r"^```\{toctree\}\n:caption: (?P<group>.+)\n(?:.*\n)*?\n(?P<entries>(?:.+\n)+?)```",
    re.MULTILINE,
)
ENTRY = re.compile(r"^(?P<title>.+) <(?P<page>[\w/-]+)>$", re.MULTILINE)
LINK = re.compile(r"!?\[([^\]]+)\](?:\([^)]*\)|\[[^\]]*\])")
NO_PARAGRAPH = re.compile(r"[#|<!>:$]|[*-] |\d+\. ")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def llms_txt(docs: Path) -> str:
    """Return the index: the first paragraph of ``index.md``, and each page of its groups with a summary."""
    index = (docs / "index.md").read_text()
    lines = ["# django-txtasks", "", f"> {_plain(_paragraphs(index)[0])}"]
    for group in TOCTREE.finditer(index):
        lines += ["", f"## {group['group']}", ""]
        lines += [
            _line(docs, entry["title"], entry["page"]) for entry in ENTRY.finditer(group["entries"])
        ]
    return "\n".join(lines) + "\n"


def _line(docs: Path, title: str, page: str) -> str:
    file = docs / f"{page}.md"
    text, link = file.read_text(), f"_sources/{page}.md.txt"
    if included := re.match(r"```\{include\} (\S+)", text):  # its Markdown is that one line
        text, link = (file.parent / included[1]).read_text(), f"{page}.html"
    return f"- [{title}]({link}): {_summary(text)}"


def _paragraphs(text: str) -> list[str]:
    blocks = (block.strip() for block in FENCE.sub("", text).split("\n\n"))
    return [block for block in blocks if block and not NO_PARAGRAPH.match(block)]


def _summary(text: str) -> str:
    """Return the first sentences of a page, until there are about sixty characters."""
    summary = ""
    for sentence in re.split(r"(?<=[.?!]) (?=[A-Z`])", _plain(_paragraphs(text)[0])):
        summary = f"{summary} {sentence}".strip()
        if len(summary) > 60:
            break
    return summary


def _plain(text: str) -> str:
    return " ".join(LINK.sub(r"\1", text).replace("**", "").split())
