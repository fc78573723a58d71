"""Processes and directories that end, at the latest, together with the process that made them.

Nothing here knows what a server is. The promise is kept by a guard: a small shell that waits
for its standard input to close, which the kernel sees to even after `kill -9`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import IO, Any

PATIENCE = 20  # seconds for a process to stop when asked to

# Each line on its input replaces the last one: what to end, as arguments of kill. QUIT is what
# PostgreSQL takes for "at once, but release the shared memory"; the others just die of it.
_GUARD = """
trap '' HUP INT TERM
while read -r targets; do latest=$targets; done
if [ -n "$latest" ]; then
    kill -QUIT $latest
    for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 $latest || break; sleep 0.1; done
    kill -KILL $latest
fi
if [ -n "$2" ]; then
    for file in $(grep -lszFx "$2" /proc/[0-9]*/environ); do
        process=${file#/proc/}
        kill -KILL "${process%/environ}"
    done
fi
rm -rf "$1" || { sleep 1; rm -rf "$1"; }
"""


class Guard:
    """Ends processes and removes a directory when closed, or when this process dies.

    Args:
        directory: the directory to remove.
        mark: `NAME=value`; processes with this in their environment are ended, too, so that no children are
            left behind (on Linux).
    """

    def __init__(self, directory: Path | None = None, *, mark: str = "") -> None:
        self._shell = subprocess.Popen(
            ["sh", "-c", _GUARD, "guard", str(directory or ""), mark],
            cwd="/",
            env={"PATH": os.defpath},  # without the mark of a guard that guards ourselves
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # no Ctrl-C reaches it
        )

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self.wait()

    def watch(self, *targets: int) -> None:
        """End these from now on, and no others: ids of processes, or of groups if negative."""
        assert self._shell.stdin is not None
        self._shell.stdin.write(" ".join(map(str, targets)).encode() + b"\n")
        self._shell.stdin.flush()

    def close(self) -> None:
        """End the watched processes without waiting for them; see `wait`."""
        assert self._shell.stdin is not None
        self._shell.stdin.close()

    def wait(self) -> None:
        """Wait until everything has ended and the directory is gone."""
        self._shell.wait()


class Home:
    """A private directory and the processes that live in it, as an unprivileged user.

    Args:
        kept: the directory, which stays when the processes have ended; None = a new one, which goes with them.
    """

    def __init__(self, name: str, kept: Path | None = None) -> None:
        # Straight below /tmp: the path of a socket may have 107 bytes, TMPDIR often has more.
        self.path = kept or Path(tempfile.mkdtemp(prefix=f"txtasks-{name}-", dir="/tmp"))
        self.path.mkdir(parents=True, exist_ok=True)
        self._guard = Guard(None if kept else self.path)
        self._processes: list[subprocess.Popen[bytes]] = []
        if os.geteuid() == 0:
            shutil.chown(self.path, **_unprivileged())

    def spawn(
        self,
        command: list[str | Path],
        *,
        env: dict[str, str],
        stdin: int | IO[bytes] = subprocess.DEVNULL,
    ) -> subprocess.Popen[bytes]:
        """Start a program here; its output goes to a file that `output` reads."""
        with (self.path / f"{Path(command[0]).name}.out").open("ab") as out:
            process = subprocess.Popen(
                command,
                cwd=self.path,
                env={**env, "HOME": str(self.path)},
                stdin=stdin,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # its own group: signals reach its children, not ours
                **_as_unprivileged_user(),
            )
        self._processes.append(process)
        self._tell_guard()
        return process

    def run(
        self,
        command: list[str | Path],
        *,
        env: dict[str, str],
        stdin: int | IO[bytes] = subprocess.DEVNULL,
    ) -> None:
        """Run a program here to its end.

        Raises:
            RuntimeError: it failed; the message ends with its output.
        """
        process = self.spawn(command, env=env, stdin=stdin)
        status = process.wait()
        self._forget(process)
        if status:
            raise RuntimeError(f"{command[0]} ended with {status}:\n{self.output()}")

    @property
    def pids(self) -> list[int]:
        """The processes that were started here and not stopped."""
        return [process.pid for process in self._processes]

    @property
    def running(self) -> bool:
        """Return True if all processes started here are running."""
        return all(process.poll() is None for process in self._processes)

    def stop(self, sig: signal.Signals) -> None:
        """See that each process stops, the last started first; keep the files."""
        for process in reversed(self._processes.copy()):
            process.send_signal(sig)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            self._forget(process)

    def close(self) -> None:
        """End every process at once and remove the directory."""
        self._guard.close()
        for process in self._processes:
            process.wait()
        self._processes.clear()
        self._guard.wait()

    def output(self) -> str:
        """Return the last lines of everything that was printed here."""
        return "\n".join(file.read_text(errors="replace")[-2000:] for file in self._outputs())

    def _outputs(self) -> list[Path]:
        return sorted([*self.path.glob("*.out"), *self.path.glob("log/*.log")])

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        self._processes.remove(process)
        self._tell_guard()

    def _tell_guard(self) -> None:
        self._guard.watch(*(-process.pid for process in self._processes))


def _as_unprivileged_user() -> dict[str, Any]:
    """Return arguments for Popen: servers refuse to run as root, and should."""
    return {**_unprivileged(), "extra_groups": []} if os.geteuid() == 0 else {}


def _unprivileged() -> dict[str, int]:
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid}
