"""Build the wheel and the sdist, and check their content.

    python tests/package.py directory-for-them

For ``tox -e package``; needs build, hatchling and twine. It ends with exit code 1 after any finding.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "django_txtasks"
SDIST = {
    ".github",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "PKG-INFO",
    "README.md",
    "SECURITY.md",
    "benchmarks",
    "compose.yaml",
    "deploy",
    "django_txtasks",
    "docs",
    "pyproject.toml",
    "testproject",
    "tests",
    "tox.ini",
    "toxfile.py",
}
"""With these the tests, the documentation and the benchmarks run from the sdist as from a clone."""
EXTRAS = {"binary", "celery", "mysql", "periodic", "tasks"}
REQUIRED = {"django", "pika", "psycopg"}


def main(directory: str) -> int:
    """Return the exit code."""
    place = Path(directory)
    run("build", "--no-isolation", "--outdir", directory, str(ROOT))
    [wheel], [sdist] = place.glob("*.whl"), place.glob("*.tar.gz")
    run("twine", "check", "--strict", str(wheel), str(sdist))
    findings = [*look_at_wheel(wheel), *look_at_sdist(sdist)]
    print(*findings or [f"{wheel.name} and {sdist.name} hold what they should"], sep="\n")
    return bool(findings)


def run(module: str, *arguments: str) -> None:
    """Run a tool of this Python.

    Raises:
        CalledProcessError: it failed.
    """
    subprocess.run([sys.executable, "-m", module, *arguments], check=True)


def look_at_wheel(path: Path) -> Iterable[str]:
    """Yield missing files, files that should not be there, and facts missing in the metadata."""
    with zipfile.ZipFile(path) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        info = next(name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name)
        metadata = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())
        entry_points = wheel.read(f"{info}/entry_points.txt").decode()
        licensed = f"{info}/licenses/LICENSE" in wheel.namelist()
    source = {
        str(file.relative_to(ROOT))
        for file in PACKAGE.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    yield from differences("the wheel", names, source)
    for needed in ("py.typed", "migrations/0001_tables.py", "locale/de/LC_MESSAGES/django.mo"):
        if f"django_txtasks/{needed}" not in names:
            yield f"the wheel lacks {needed}"
    required = {
        text.split(">")[0].split("[")[0].strip()
        for text in metadata.get_all("Requires-Dist", [])
        if "extra ==" not in text
    }
    yield from differences("Requires-Dist", required, REQUIRED)
    yield from differences("Provides-Extra", set(metadata.get_all("Provides-Extra", [])), EXTRAS)
    if "txtasks = django_txtasks.pytest_plugin" not in entry_points:
        yield "the wheel does not tell pytest of its plugin"
    if not licensed:
        yield "the wheel has no LICENSE"
    if "# django-txtasks" not in str(metadata.get_payload()):
        yield "the wheel does not have the README as its description"


def look_at_sdist(path: Path) -> Iterable[str]:
    """Yield missing or unexpected files at the top, and leftovers anywhere."""
    with tarfile.open(path) as sdist:
        names = [name.partition("/")[2] for name in sdist.getnames()]
    tops = {name.split("/")[0] for name in names if name} - {".gitignore"}
    yield from differences("the sdist", tops, SDIST)
    for name in names:
        if "__pycache__" in name or name.endswith((".pyc", ".sqlite3", ".log")):
            yield f"the sdist has {name}"


def differences(what: str, found: set[str], wanted: set[str]) -> Iterable[str]:
    """Yield in words what two sets do not share."""
    yield from (f"{what} lacks {name}" for name in sorted(wanted - found))
    yield from (f"{what} has {name}, which nobody wanted" for name in sorted(found - wanted))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
