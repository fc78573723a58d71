"""Signs of life and news of a child, which its supervisor reads from a pipe."""

import os
import subprocess
import sys

import helpers
import pytest

from django_txtasks.processes import signs
from django_txtasks.processes.child import Assignment, Child

pytestmark = pytest.mark.once

STARTS_A_PROGRAM = """
import subprocess, sys
from django_txtasks.processes import signs
from django_txtasks.processes.orders import pipe_of_supervisor
pipe_of_supervisor()
program = subprocess.Popen(["sleep", "600"], close_fds=False)
signs.tell(b"l")
print(program.pid, flush=True)
sys.stdin.read()
"""
FORKS = """
import os, time
from django_txtasks.processes import signs
from django_txtasks.processes.child import Assignment, Child, Forked
child = Child(Assignment([]))
try:
    child.start(by_fork=True, siblings=[child])
except Forked:
    if not os.fork():
        signs.tell(b"x")  # a copy that a task makes says nothing
        os._exit(0)
    os.wait()
    for byte in (b"l", signs.TURNS, b"m"):
        signs.tell(byte)
    time.sleep(600)
said = b""
while len(said) < 2:
    child.hear(0.0)
    said += child.news()
os.kill(child.pid, 9)
print(said.decode(), child._pipes.hearing.has_begun)
"""


def test_a_child_by_its_command_line_tells_and_its_programs_do_not_hold_the_pipe():
    reader, writer = os.pipe()
    child, said = Child(Assignment([sys.executable, "-c", STARTS_A_PROGRAM], output=writer)), []
    child.start(by_fork=False)
    os.close(writer)
    with os.fdopen(reader) as output:
        program = int(output.readline())
        helpers.wait_until(lambda: child.hear(0.0) or said.append(child.news()) or b"l" in said)
        pipe = child._pipes.hearing._pipe
        helpers.wait_until(lambda: child._process.poll() is not None)
        try:
            assert os.read(pipe, 1) == b""  # the end of the pipe, although the program runs
        finally:
            os.kill(program, 9)
    assert child.ended() == 0
    assert child.news() == b""


def test_a_forked_child_tells_and_a_copy_of_it_does_not():
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    said = subprocess.check_output([sys.executable, "-c", FORKS], text=True, env=env)
    assert said == "lm True\n"


@pytest.fixture
def pipe():
    """Both ends of a pipe of signs in this process."""
    ear, mouth = signs.new_pipe()
    sender, hearing = signs._Signs(), signs.Hearing(ear)
    sender.use(mouth)
    yield sender, hearing
    hearing.close()
    sender.forget()


def test_a_full_pipe_makes_nobody_wait(pipe):
    sender, hearing = pipe
    for _ in range(100):
        sender.tell(b"t" * 4096)
    hearing.listen(3.0)
    assert hearing.silent == 0.0
    sender.tell(b"l")
    while not (news := hearing.news()):
        hearing.listen(0.0)
    assert news == b"l"


def test_a_loop_that_has_not_begun_says_nothing_and_one_that_hangs_is_silent(pipe):
    sender, hearing = pipe
    states = [None, True, False]
    heard = []
    for state in states:
        sender.vouch(lambda state=state: state)
        sender.show_life()
        hearing.listen(2.0)
        heard.append((hearing.has_begun, hearing.hangs, hearing.silent))
    assert heard == [(False, False, 2.0), (True, False, 0.0), (True, True, 2.0)]
