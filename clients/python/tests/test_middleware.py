"""The middleware in FastAPI and Starlette, on uvicorn."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
import uvicorn
from ag_ui.core import RunAgentInput
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.responses import StreamingResponse as Stream
from starlette.routing import Route

from conftest import Dev, Faulty, a_run, accepted, an_input, free_port, interrupt
from skein_agui import Skein, SkeinMiddleware, sync
from skein_agui.publish import BaseRun


def sse(events: list[dict]) -> list[bytes]:
    return [f"data: {json.dumps(event)}\n\n".encode() for event in events]


class Served:
    """An application on uvicorn, in a thread."""

    def __init__(self, app) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="critical"))
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.server.should_exit = True
        self.thread.join(20)


def test_fastapi_in_one_line(dev: Dev):
    app = FastAPI()
    app.add_middleware(SkeinMiddleware, url=dev.url)

    @app.post("/")
    async def agent(run_input: RunAgentInput):
        return StreamingResponse(iter(sse(a_run(run_input.model_dump(by_alias=True)))), media_type="text/event-stream")

    run_input = an_input()
    with Served(app) as served:
        answer = httpx.post(served.url, json=run_input)
    assert answer.content == b"".join(sse(a_run(run_input)))
    assert dev.events(run_input["threadId"], "r") == [chunk[6:-2] for chunk in sse(a_run(run_input))]
    sent = dev.get(f"{run_input['threadId']}/runs/r/events", all="true").content.splitlines()
    assert sent[0] == answer.request.content  # the input, byte for byte


def starlette(skein: Skein, events, **options) -> Starlette:
    """Returns an application whose /stream answers with the pieces that events returns for an input."""

    async def stream(request: Request):
        return Stream(events(await request.json()), media_type="text/event-stream")

    async def echo(request: Request):
        return JSONResponse(await request.json())

    async def upload(request: Request):
        return PlainTextResponse(str(len(await request.body())))

    async def other(request: Request):
        await request.body()
        return Stream(iter([b"data: 1\n\n"]), media_type="text/event-stream")

    routes = [Route("/stream", stream, methods=["POST", "PUT"]), Route("/echo", echo, methods=["POST"])]
    routes += [Route("/upload", upload, methods=["POST"]), Route("/other", other, methods=["POST"])]
    return Starlette(routes=routes, middleware=[Middleware(SkeinMiddleware, skein, **options)])


def test_everything_else_is_untouched(faulty):
    server: Faulty = faulty(lambda method, path, body: accepted(body))
    run_input = an_input()
    with Served(
        starlette(Skein(server.url), lambda given: iter(sse(a_run(given))), paths=["/stream", "/echo", "/upload", "/other"])
    ) as app:
        assert httpx.post(app.url + "/echo", json=run_input).json() == run_input
        assert httpx.post(app.url + "/upload", content=b"x" * 17_000_000, headers={"Content-Type": "application/json"}).text == "17000000"
        assert httpx.post(app.url + "/upload", content=b"x" * 1000).text == "1000"
        for strange in ([1], {"messages": []}, {"threadId": "t", "runId": "r"}, {**run_input, "threadId": "."}):
            assert httpx.post(app.url + "/other", json=strange).content == b"data: 1\n\n"
        assert httpx.post(app.url + "/other", content=b"{", headers={"Content-Type": "application/json"}).status_code == 200
        assert httpx.put(app.url + "/stream", json=run_input).status_code == 200
        assert httpx.post(app.url + "/none", json=run_input).status_code == 404
    with Served(starlette(Skein(server.url), lambda given: iter(sse(a_run(given))), paths=["/else"])) as app:
        assert httpx.post(app.url + "/stream", json=run_input).content == b"".join(sse(a_run(run_input)))
    assert server.requests == []


def test_a_compressed_stream_is_not_recorded_and_told(faulty, caplog):
    server: Faulty = faulty(lambda method, path, body: accepted(body))
    run_input = an_input()

    async def stream(request: Request):
        return Stream(iter(sse(a_run(run_input, deltas=100))), media_type="text/event-stream")

    gzip = Middleware(GZipMiddleware, exclude_content_types=())
    app = Starlette(routes=[Route("/", stream, methods=["POST"])], middleware=[Middleware(SkeinMiddleware, url=server.url), gzip])
    with Served(app) as served:
        assert httpx.post(served.url, json=run_input).content == b"".join(sse(a_run(run_input, deltas=100)))
    assert server.requests == [] and "compressed" in caplog.text


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_pieces_may_end_anywhere(dev: Dev, size: int):
    run_input = an_input()
    whole = b"\xef\xbb\xbf: hello\r\n\r\n" + b"".join(sse(a_run(run_input))).replace(b"\n", b"\r\n").removesuffix(b"\r\n")
    with Served(starlette(Skein(dev.url), lambda _: (whole[at : at + size] for at in range(0, len(whole), size)))) as app:
        assert httpx.post(app.url + "/stream", json=run_input).content == whole
    assert [json.loads(e) for e in dev.events(run_input["threadId"], "r")] == a_run(run_input)


def test_an_exception_of_the_application(dev: Dev):
    run_input = an_input()

    async def events(given):
        for chunk in sse(a_run(given, end=False)):
            yield chunk
        raise ZeroDivisionError

    with Served(starlette(Skein(dev.url), events)) as app, pytest.raises(httpx.RemoteProtocolError):
        httpx.post(app.url + "/stream", json=run_input)
    error = dev.get(f"{run_input['threadId']}/history").json()["error"]
    assert error["code"] == "agent-cut" and "broke off" in error["message"]


def test_a_client_that_goes_away(dev: Dev):
    run_input = an_input()
    body = json.dumps(run_input).encode()

    async def events(given):
        for n in range(10_000):
            for chunk in sse([*(a_run(given, end=False) if n == 0 else []), {"type": "CUSTOM", "name": "tick", "value": n}]):
                yield chunk
            await asyncio.sleep(0.01)

    skein = Skein(dev.url)
    with Served(starlette(skein, events)) as app:
        with socket.create_connection(("127.0.0.1", int(app.url.rsplit(":", 1)[1]))) as client:
            client.sendall(
                b"POST /stream HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            while b"tick" not in client.recv(1 << 16):
                pass
        deadline = time.monotonic() + 10
        while skein._runs and time.monotonic() < deadline:
            time.sleep(0.02)
    history = dev.get(f"{run_input['threadId']}/history").json()
    assert history["error"]["message"] == "the stream broke off: the caller has left"


def test_cancel_stops_a_run_of_the_proxy(tmp_path: Path):
    run_input = an_input()

    async def events(given):
        for chunk in sse(a_run(given, end=False)):
            yield chunk
        await asyncio.sleep(60)

    with Served(starlette(Skein("http://127.0.0.1:9"), events, paths=[])) as agent:
        dev = Dev(tmp_path, "--agent", f"slow={agent.url}/stream")
        with sync.Skein(dev.url) as skein, httpx.stream("POST", dev.url + "/v1/agents/slow", json=run_input) as stream:
            chunks = stream.iter_text()
            while '"delta": "2 "' not in next(chunks):
                pass
            stopped = skein.cancel(run_input["threadId"], "r", "enough")
            assert (stopped["status"], stopped["synthetic"]) == ("cancelled", True)
            assert "enough" in "".join(chunks)
        dev.stop()


PROGRAM = """
import json, sys
sys.path[:0] = [{source!r}, {tests!r}]
import uvicorn
from test_middleware import Skein, a_run, sse, starlette
app = starlette(Skein(sys.argv[1], linger=0.5), lambda given: iter(sse(a_run(given))))
uvicorn.run(app, port=int(sys.argv[2]), log_level="warning")
"""


def test_a_server_that_is_terminated_sends_what_is_left(dev: Dev):
    port, run_input = free_port(), an_input()
    program = PROGRAM.format(source=str(Path(__file__).parents[1] / "src"), tests=str(Path(__file__).parent))
    with subprocess.Popen([sys.executable, "-c", program, dev.url, str(port)]) as process:
        deadline = time.monotonic() + 30
        while True:
            try:
                httpx.post(f"http://127.0.0.1:{port}/stream", json=run_input)
                break
            except httpx.ConnectError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        interrupt(process)
        assert process.wait(20) == -15  # so uvicorn ends: without Python's exit handlers
    assert [json.loads(e) for e in dev.events(run_input["threadId"], "r")] == a_run(run_input)


def test_it_needs_one_address():
    for wrong in ({}, {"skein": Skein(), "url": "http://127.0.0.1:1"}):
        with pytest.raises(ValueError, match="one of them"):
            SkeinMiddleware(None, **wrong)


@pytest.mark.parametrize("method", ["_open", "_feed"])
def test_a_fault_of_the_recorder_does_not_reach_the_caller(faulty, caplog, monkeypatch, method):
    server: Faulty = faulty(lambda method, path, body: accepted(body))
    run_input, lost = an_input(), []
    monkeypatch.setattr(BaseRun, method, lambda *_: 1 / 0)
    skein = Skein(server.url, on_lost=lambda run, n, reason: lost.append(reason), flush_timeout=0.1)
    with Served(starlette(skein, lambda given: iter(sse(a_run(given))))) as app:
        assert httpx.post(app.url + "/stream", json=run_input).content == b"".join(sse(a_run(run_input)))
    assert "recording has failed" in caplog.text and "ZeroDivisionError" in caplog.text
    assert any("recording has failed" in reason for reason in lost) == (method != "_open")  # before it, there is no run


def test_deep_json_passes(dev: Dev):
    run_input = an_input()
    deep = b'data: {"type":"RUN_FINISHED","result":' + b"[" * 5000 + b"]" * 5000 + b"}\n\n"
    with Served(starlette(Skein(dev.url), lambda given: iter([*sse(a_run(given, end=False)), deep]))) as app:
        assert httpx.post(app.url + "/stream", json=run_input).content == b"".join([*sse(a_run(run_input, end=False)), deep])
    assert dev.get(f"{run_input['threadId']}/history").json()["messages"][-1]["content"] == "0 1 2 "
