r"""Run a command with a PostgreSQL of its own that restarts so many times, each so many seconds.

    TXTASKS_TEST_BATCH_MEMBERS=10000 python tests/restarting.py 5 30 \
        pytest -s -o faulthandler_timeout=0 tests/test_batch_storm.py
"""

import os
import subprocess
import sys

from servers import Postgres


def main(restarts: int, seconds: float, *command: str) -> int:
    """Return what the command returns."""
    done = 0
    with Postgres() as server:
        env = {**os.environ, "TXTASKS_DATABASE_URL": server.url}
        with subprocess.Popen(command, env=env) as process:
            while done < restarts:
                try:
                    process.wait(seconds)
                    break
                except subprocess.TimeoutExpired:
                    server.stop()
                    server.start()
                    done += 1
            status = process.wait()
    print(f"{done} restarts of PostgreSQL")
    return status


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:]))
