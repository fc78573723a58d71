"""Find the words and patterns that make a sentence hard to read at the first time.

    python tests/plain_english.py                          # how many of each sign in each area
    python tests/plain_english.py docs/how-to README.md    # each place below these paths

A sign is a hint, not an error: some places are good English. Rewrite the sentence instead of replacing the word:
name the noun, put the subject first, and give the reason after "because". ``tests/test_plain_english.py`` has the
limit of each area.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "django_txtasks"
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ .*$", re.MULTILINE)
CODE = re.compile(r"``[^`]+``|`[^`]+`")
TARGET = re.compile(r"(?<=\])\([^)\s]+\)")
"""The address of a Markdown link."""


@dataclass(frozen=True)
class Sign:
    """A pattern of hard sentences, with the reason why they are hard, an example and a plain sentence."""

    name: str
    pattern: str
    why: str
    hard: str
    plain: str

    def matches(self, text: str) -> Iterator[re.Match[str]]:
        """Find the places in a text, whose words may be on different lines."""
        return re.finditer(self.pattern.replace(" ", r"\s+"), text, re.IGNORECASE)


SIGNS = (
    Sign(
        "whoever",
        r"\bwho(?:m|so)?ever\b",
        "The subject has no noun: name the worker, the cleaner, the caller or the person.",
        "Whoever has locked the row goes first.",
        "The session that has locked the row goes first.",
    ),
    Sign(
        "nobody, somebody",
        r"\b(?:nobody|somebody|someone)\b",
        "A process is no person, and the reader has to guess which process or person is meant.",
        "Nobody is declared lost.",
        "No worker is declared lost.",
    ),
    Sign(
        "what it is",
        r"\bwhat (?:it|he|they|there|one|is|was|has|had)\b(?![^.?!|]*\?)",
        "A clause in the place of a noun: the field has a word for the thing.",
        "Return what it was served.",
        "Return the service that the lane has received.",
    ),
    Sign(
        "how things are",
        r"\bhow (?:things|they|one) \w+|\bhow it (?:is|was|goes|looks|stands?)\b",
        "The thing has a name, such as state, status or snapshot.",
        "How things are in a lane.",
        "State of one lane.",
    ),
    Sign(
        "of before",
        r"\bof (?:before|after|now|then|today|ever)\b(?! (?:the|a)\b)",
        "A time without an event: say before what, or use an adjective.",
        "Workers of before do not know the column.",
        "Older workers do not know the column.",
    ),
    Sign(
        "in hand",
        r"\bin hand\b",
        "Not a word of the field: claimed, running or held by a slot.",
        "The tasks in hand end first.",
        "The running tasks end first.",
    ),
    Sign(
        "tells of, hears of",
        r"\b(?:tell|tells|told|telling|hear|hears|heard) of\b",
        "A process sends, logs, reports or receives.",
        "The cleaner tells of a tick that is late.",
        "The cleaner reports a late tick.",
    ),
    Sign(
        "says so",
        r"\b(?:say|says|said|tell|tells|told|does|do|done) so\b",
        '"So" sends the reader back to find the fact: repeat it as a noun.',
        "The session is gone, and the log says so.",
        "The session is gone, and the log reports this.",
    ),
    Sign(
        "else it would",
        r"[,;:.] (?:or )?else (?:there|it|they|he|one|nobody|no|the|a|an)\b",
        'A reason without "because", told by its opposite.',
        "Lanes have a cap, else there would never be a free slot.",
        "Lanes have a cap, because prefetched tasks could fill every slot.",
    ),
    Sign(
        "as far as",
        r"\bas far as\b",
        'Means "if", "only those that" or "at most": say which.',
        "Rows are read as far as they are due.",
        "Only due rows are read.",
    ),
    Sign(
        "stands",
        r"\b(?:stands?|stood) (?:in|at|there|where|beside|behind|before|still|with|so|alone|by)\b",
        "Rows, values and files do not stand: they are, are stored, or come before.",
        "The reason stands beside the task.",
        "The reason is stored with the task.",
    ),
    Sign(
        "is none",
        r"\b(?:is|are|was|were|that|has|by|to) none\b",
        "A negation in the place of a noun: name the thing that is missing or invalid.",
        "A time limit that is none is dropped.",
        "An invalid time limit is dropped.",
    ),
    Sign(
        "all the same, but for",
        r"\ball the same\b|\bbut for\b|\bfor granted\b|\bby and by\b",
        "Old connectives that a second-language reader does not know: still, except, assume.",
        "All columns but for two are kept.",
        "All columns except two are kept.",
    ),
    Sign(
        "become of",
        r"\b(?:become|becomes|became) of\b",
        "The thing has a name: outcome, state or result.",
        "Return what has become of the task.",
        "Return the outcome of the task.",
    ),
    Sign(
        "those that",
        r"\bthose (?:who|of|in|that|which|for|with|it)\b",
        "A pronoun whose noun is in another clause: repeat the noun.",
        "Of the workers, those that are lost are left out.",
        "Lost workers are left out.",
    ),
    Sign(
        "one that",
        r"\b(?:the )?one (?:that|which|who)\b",
        "A pronoun whose noun is in another clause: repeat the noun.",
        "One that waits for a thread is never overtaken.",
        "A task that waits for a thread is never overtaken.",
    ),
    Sign(
        "so many",
        r"\bso (?:many|much|long|often|old|late|few)\b(?! (?:as|that)\b)",
        "An amount that the sentence does not give: name the number or the setting.",
        "At most so many tasks are read.",
        "At most `limit` tasks are read.",
    ),
    Sign(
        "he, his",
        r"\b(?:he|him|his|she|hers)\b",
        "A process is no person; for a person, name the role.",
        "R locks the row, so what he wrote is seen here.",
        "resume() locks the row, so its value is visible here.",
    ),
    Sign(
        "is away",
        r"\b(?:is|are|was|were|be|been|while|when) (?:\w+ )?away\b",
        "A server is down, unavailable or not reachable.",
        "While RabbitMQ is away, workers scan.",
        "While RabbitMQ is down, workers scan.",
    ),
    Sign(
        "opening with a question word",
        r"(?:\A\s*|(?<=[.!?]\s))(?:What|Whether|Who|Whose|Whom|Which)\b(?![^.?!|]*\?)",
        "A sentence about a thing that it does not name: open with the noun or the verb.",
        "Whether the loop has ended.",
        "True once the loop has ended.",
    ),
)


@dataclass(frozen=True)
class Text:
    """A piece of prose: an area, a file, and the line where the piece begins."""

    area: str
    path: Path
    line: int
    prose: str

    def signs(self) -> Iterator[tuple[Sign, int, str]]:
        """Yield each sign of the piece with its line and the words around it."""
        for sign in SIGNS:
            for match in sign.matches(self.prose):
                begin, end = max(0, match.start() - 50), match.end() + 50
                around = " ".join(self.prose[begin:end].split())
                yield sign, self.line + self.prose.count("\n", 0, match.start()), around


def texts() -> Iterator[Text]:
    """Yield all prose of README, CONTRIBUTING, docs/, and the package's docstrings and comments."""
    for name in ("README.md", "CONTRIBUTING.md"):
        yield Text(name, ROOT / name, 1, markdown(ROOT / name))
    for path in sorted((ROOT / "docs").rglob("*.md")):
        yield Text("docs", path, 1, markdown(path))
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text()
        yield from docstrings(path, source)
        yield from comments(path, source)


def markdown(path: Path) -> str:
    """Return a page without its code, its headings and the addresses of its links; lines keep their numbers."""
    text = path.read_text()
    for pattern in (FENCE, HEADING, CODE, TARGET):
        text = pattern.sub(lambda found: re.sub(r"[^\n]+", "`", found[0]), text)
    return text


def docstrings(path: Path, source: str) -> Iterator[Text]:
    """Yield each docstring, those below attributes too."""
    for node in docstring_nodes(ast.parse(source)):
        yield Text("docstrings", path, node.lineno, CODE.sub("`", node.value))


def docstring_nodes(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the node of each docstring, those below attributes and constants too."""
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text and isinstance(node.value.value, str):
            yield node.value


def comment_tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    """Yield the token of each comment."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token


def comments(path: Path, source: str) -> Iterator[Text]:
    """Yield each comment; comments that fill adjacent lines are one."""
    blocks: list[tuple[int, list[str]]] = []
    for token in comment_tokens(source):
        line, words = token.start[0], CODE.sub("`", token.string.lstrip("#: "))
        fills_its_line = token.line.lstrip().startswith("#")
        if fills_its_line and blocks and line == blocks[-1][0] + len(blocks[-1][1]):
            blocks[-1][1].append(words)
        else:
            blocks.append((line, [words]))
    for first, lines in blocks:
        yield Text("comments", path, first, "\n".join(lines))


def counts() -> dict[str, Counter[str]]:
    """Count the places of each area, by the name of the sign."""
    found: dict[str, Counter[str]] = {}
    for text in texts():
        found.setdefault(text.area, Counter()).update(sign.name for sign, _, _ in text.signs())
    return found


def main(*below: str) -> None:
    """Print each place below the paths; without paths, the number of each sign in each area."""
    if not below:
        found = counts()
        print(f"{'':32}", *(f"{area:>16}" for area in found))
        for sign in SIGNS:
            print(f"{sign.name:32}", *(f"{found[area][sign.name]:16}" for area in found))
        print(f"{'all':32}", *(f"{found[area].total():16}" for area in found))
        return
    roots = [Path(one).resolve() for one in below]
    for text in texts():
        if any(text.path.is_relative_to(root) for root in roots):
            for sign, line, around in text.signs():
                print(f"{text.path.relative_to(ROOT)}:{line}: {sign.name}: … {around} …")


if __name__ == "__main__":
    main(*sys.argv[1:])
