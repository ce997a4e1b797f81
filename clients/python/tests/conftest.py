"""A real `skein dev`, and servers with faults that it cannot have."""

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[3]
SKEIN = Path(os.environ.get("SKEIN_TEST_BIN", ROOT / "bin")) / "skein"
RECORDINGS = ROOT / "internal/recordings"


class Dev:
    """A `skein dev` on a folder; it can be stopped, and started again on the same port."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.options, self.folder, self.address = options, folder, f"127.0.0.1:{free_port()}"
        self.url = f"http://{self.address}"
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [SKEIN, "dev", "--data", self.folder, "--listen", self.address, "--kafka-listen", "127.0.0.1:0", *self.options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout
        said = ""
        while "skein is ready" not in said:
            line = self.process.stdout.readline()
            assert line, f"skein dev has ended: {said}"
            said += line
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        assert self.process.stdout
        self.process.stdout.close()

    def get(self, path: str, **query: str) -> httpx.Response:
        return httpx.get(self.url + "/v1/threads/" + path, params=query).raise_for_status()

    def events(self, thread: str, run: str) -> list[bytes]:
        """Returns the raw events of a run."""
        return self.get(f"{thread}/runs/{run}/events").content.splitlines()


@pytest.fixture(scope="session")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    server = Dev(tmp_path_factory.mktemp("dev"))
    yield server
    server.stop()


@pytest.fixture
def own_dev(tmp_path: Path) -> Iterator[Dev]:
    """A server that a test may stop."""
    server = Dev(tmp_path)
    yield server
    if server.process.poll() is None:
        server.stop()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


Answer = tuple[int, dict[str, str], bytes]


class Faulty:
    """A server that answers as a test says: answer gets method, path and body. It keeps the requests."""

    def __init__(self, answer: Callable[[str, str, bytes], Answer]) -> None:
        self.requests: list[tuple[str, str, bytes]] = []
        self.times: list[float] = []
        faulty = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_request(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                faulty.requests.append((self.command, self.path, body))
                faulty.times.append(time.monotonic())
                status, headers, text = answer(self.command, self.path, body)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(text)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = do_PATCH = handle_request

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def lines(self) -> list[dict]:
        """Returns the numbered lines of all requests."""
        return [json.loads(line) for method, _, body in self.requests if method == "POST" for line in body.splitlines()]


@pytest.fixture
def faulty() -> Iterator[Callable[[Callable[[str, str, bytes], Answer]], Faulty]]:
    servers: list[Faulty] = []

    def start(answer: Callable[[str, str, bytes], Answer]) -> Faulty:
        servers.append(Faulty(answer))
        return servers[-1]

    yield start
    for server in servers:
        server.server.shutdown()
        server.server.server_close()


def accepted(body: bytes, **members: object) -> Answer:
    return 200, {}, json.dumps({"accepted": len(body.splitlines()), **members}).encode()


def problem(status: int, headers: dict[str, str] | None = None, **members: object) -> Answer:
    text = json.dumps({"status": status, "title": "No", **members}).encode()
    return status, {"Content-Type": "application/problem+json", **(headers or {})}, text


def an_input(thread: str | None = None, run: str = "r", text: str = "Hello") -> dict:
    messages = [{"id": "u1", "role": "user", "content": text}]
    return {
        "threadId": thread or f"t-{uuid.uuid4()}",
        "runId": run,
        "state": {},
        "messages": messages,
        "tools": [],
        "context": [],
        "forwardedProps": {},
    }


def a_run(of: dict, deltas: int = 3, end: bool = True) -> list[dict]:
    ids = {"threadId": of["threadId"], "runId": of["runId"]}
    return [
        {"type": "RUN_STARTED", **ids},
        {"type": "TEXT_MESSAGE_START", "messageId": "a1", "role": "assistant"},
        *({"type": "TEXT_MESSAGE_CONTENT", "messageId": "a1", "delta": f"{n} "} for n in range(deltas)),
        *([{"type": "TEXT_MESSAGE_END", "messageId": "a1"}, {"type": "RUN_FINISHED", **ids}] if end else []),
    ]


async def play(events):
    """An agent."""
    for event in events:
        yield event


class Recording:
    """A run of the repository's recordings."""

    def __init__(self, path: Path) -> None:
        self.name = str(path.relative_to(RECORDINGS).with_suffix(""))
        self.input = path.with_suffix(".input.json").read_bytes()
        self.events = path.read_bytes().splitlines()
        ids = json.loads(self.input)
        self.thread, self.run = ids["threadId"], ids["runId"]
        self.files = path.with_suffix(".input.json"), path


def recordings() -> list[list[Recording]]:
    """Returns the recorded threads, each with its runs in order."""
    threads: dict[str, list[Recording]] = {}
    for path in sorted(RECORDINGS.glob("*/*.jsonl")):
        threads.setdefault(re.sub(r"-t\d$", "", str(path.with_suffix(""))), []).append(Recording(path))
    return list(threads.values())


class CuttingProxy:
    """A TCP proxy that cuts each connection after some seconds."""

    def __init__(self, upstream: str, after: float) -> None:
        self.upstream, self.after, self.cuts = upstream.removeprefix("http://").split(":"), after, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection((self.upstream[0], int(self.upstream[1])))
            for source, sink in ((caller, server), (server, caller)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()
            threading.Timer(self.after, self._cut, (caller, server)).start()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # cut

    def _cut(self, *sockets: socket.socket) -> None:
        self.cuts += 1
        for s in sockets:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the other side has closed it
            s.close()

    def close(self) -> None:
        self.listener.close()


def interrupt(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGTERM)
