"""The server behind ``--probe-port``: slow, many or wrong clients cost a worker neither descriptors nor time."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import sys
import threading
import urllib.error
import urllib.request
from datetime import timedelta
from pathlib import Path

import helpers
import pytest
from django.core.management import CommandError, call_command
from probe import tasks
from servers import free_port

from django_txtasks.management.probing import probes_at
from django_txtasks.processes import probe_server
from django_txtasks.processes.probes import Liveness, Probes

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc")


@pytest.fixture
def probes():
    liveness = Liveness(timedelta(seconds=15))
    started = Probes(liveness, 0, "127.0.0.1")
    yield started
    started.close()


def code(port, host="127.0.0.1", path="/live"):
    """Return the status of an answer, or None without an answer."""
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=10) as got:
            return got.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def connect(port, sent=b"GET /live HTTP/1.1\r\nX-A: "):
    client = socket.create_connection(("127.0.0.1", port), timeout=30)
    client.sendall(sent)
    return client


def has_hung_up(client, sent=b""):
    """Send these bytes, and say whether the server has closed the connection."""
    client.setblocking(False)
    try:
        client.send(sent)
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_a_client_that_sends_byte_by_byte_is_ended(probes, monkeypatch):
    monkeypatch.setattr(probe_server, "REQUEST_SECONDS", 0.2)
    client = connect(probes.port)

    helpers.wait_until(lambda: has_hung_up(client, sent=b"a"))
    client.close()
    assert code(probes.port) == 200


def test_there_are_so_many_connections_and_the_oldest_makes_room(probes, monkeypatch):
    monkeypatch.setattr(probe_server, "REQUEST_SECONDS", 3600)
    most = probe_server.MAX_CONNECTIONS
    clients = [connect(probes.port) for _ in range(most + 40)]
    helpers.wait_until(lambda: sum(map(has_hung_up, clients)) == 40)
    assert all(map(has_hung_up, clients[:40]))
    assert code(probes.port) == 200
    for client in clients:
        client.close()


def test_an_accept_that_fails_is_tried_again_after_a_rest(probes):
    """As long as there is no descriptor left; without a rest it would take a core."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    client = socket.socket()
    thread = probes._thread
    try:
        with open(os.devnull) as last:
            resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno(), hard))
        with pytest.raises(OSError, match="Too many"):
            os.open(os.devnull, os.O_RDONLY)
        client.connect(("127.0.0.1", probes.port))
        client.sendall(b"GET /live HTTP/1.1\r\n\r\n")
        helpers.wait_until(lambda: rests(thread))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    client.settimeout(30)
    assert client.recv(100).startswith(b"HTTP/1.1 200 OK")
    client.close()


def rests(thread):
    """Return True if the thread waits for time to pass, and not for an event."""
    frame = sys._current_frames().get(thread.ident)
    names = set()
    while frame is not None:
        names.add(frame.f_code.co_qualname if hasattr(frame.f_code, "co_qualname") else "")
        frame = frame.f_back
    return "Event.wait" in names


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"GET /live HTTP/1.1\r\n\r\n", b"200 OK"),
        (b"GET /live?x=%00 HTTP/1.0\n\n", b"200 OK"),
        (b"HEAD /ready HTTP/1.1\r\n\r\n", b"503 Service Unavailable"),
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"POST /live HTTP/1.1\r\nContent-Length: 9\r\n\r\n", b"501 Not Implemented"),
        (b"\x16\x03\x01\x00\xff\r\n\r\n", b"400 Bad Request"),
        (b"GET /live\r\n\r\n", b"400 Bad Request"),
        (b"GET /" + b"a" * 9_000, b"400 Bad Request"),
        (b"GET /live HTTP/1.1\r\nA: " + b"a" * 9_000, b"431 Request Header Fields Too Large"),
    ],
)
def test_each_request_gets_one_answer(probes, request_, answer):
    client = connect(probes.port, request_)
    client.settimeout(30)
    got = b""
    with contextlib.suppress(ConnectionResetError):  # bytes that nobody has read reset a connection
        while part := client.recv(1_000):
            got += part
    assert got.startswith(b"HTTP/1.1 " + answer + b"\r\n")
    assert got.endswith(b"\r\n\r\n") == request_.startswith(b"HEAD")
    client.close()


def test_a_request_may_come_in_parts(probes):
    client = connect(probes.port, b"GET /live HT")
    assert not has_hung_up(client)
    client.setblocking(True)
    client.sendall(b"TP/1.1\r\n\r\n")
    assert client.recv(100).startswith(b"HTTP/1.1 200 OK")
    client.close()


@pytest.mark.parametrize(
    ("address", "other"), [("127.0.0.1", "127.0.0.2"), ("127.0.0.2", "127.0.0.1")]
)
@LINUX
def test_it_answers_at_its_address_only(address, other):
    started = Probes(Liveness(timedelta(1)), 0, address)
    assert code(started.port, address) == 200
    assert code(started.port, other) is None
    started.close()


def test_it_answers_at_all_addresses_if_none_is_named():
    started = Probes(Liveness(timedelta(1)), 0)
    assert code(started.port, "127.0.0.1") == 200
    if socket.has_dualstack_ipv6():
        assert code(started.port, "[::1]") == 200
    started.close()


@pytest.mark.parametrize("command", ["runworkers", "runcleaner"])
def test_an_address_that_cannot_be_used_is_said_at_once(rows, command):
    with pytest.raises(CommandError, match=r"--probe-address 192\.0\.2\.1 cannot be used"):
        call_command(command, probe_port=free_port(), probe_address="192.0.2.1")
    with pytest.raises(CommandError, match="needs --probe-port"):
        call_command(command, probe_address="127.0.0.1")


@pytest.mark.parametrize("command", ["runworkers", "runcleaner"])
@pytest.mark.parametrize("port", ["65536", "99999"])
def test_a_port_that_does_not_exist_is_refused_before_any_process_starts(command, port):
    """As an error of the worker process it would have started one process after the other."""
    with pytest.raises(CommandError, match=f"'{port}' is not a port"):
        call_command(command, f"--probe-port={port}")


@LINUX
@pytest.mark.once
def test_slow_clients_take_nothing_from_a_worker(processes):
    """Sockets that do not finish their request took its descriptors, a core, and with them all its work."""
    port = free_port()
    processes.start(
        "runworkers", "--threads=1", f"--probe-port={port}", "--probe-address=127.0.0.1"
    )
    helpers.wait_until(lambda: code(port, path="/ready") == 200)
    (pid,) = helpers.worker_pids()
    before = descriptors(pid)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (256, 256))
    clients, taken = [], []
    for _ in range(400):
        with contextlib.suppress(OSError):
            clients.append(connect(port))
        taken.append(descriptors(pid))
    tasks.note.enqueue("during")
    helpers.wait_until(lambda: taken.append(descriptors(pid)) or helpers.runs("during") == 1)
    assert max(taken) <= before + probe_server.MAX_CONNECTIONS + 10
    assert code(port) == 200
    for client in clients:
        client.close()


def descriptors(pid):
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_a_port_without_its_own_thread_is_refused_by_name(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    port = free_port()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(CommandError, match="cannot be used: can't start new thread"):
        probes_at(port, "127.0.0.1", Liveness(timedelta(1)))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))  # it is free again
