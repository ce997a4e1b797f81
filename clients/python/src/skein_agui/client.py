"""The client of Skein's HTTP API."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from types import EllipsisType, TracebackType
from typing import Any, TypeVar, cast
from urllib.parse import quote

import httpx
from ag_ui.core import RunAgentInput

from . import background
from .errors import SkeinError, object_of, refusal, unanswered
from .events import SSE, encode
from .publish import BaseRun, Run, until
from .types import Branch, Cancelled, History, Lineage, Threads

R = TypeVar("R", bound=BaseRun)
T = TypeVar("T")


class LiveEvent(dict[str, Any]):
    """An AG-UI event of a live stream. id is what to pass as last_event_id to go on after it; "" if the next one with an id includes it."""

    id: str = ""


class _Commented(Exception):
    """The comment has come that a reader waits for."""


@dataclass(eq=False)
class Options:
    """Where Skein is, and how to publish."""

    url: str = "http://127.0.0.1:8420"
    """The address of `skein dev`, of a gateway, or of ingest."""
    _: KW_ONLY
    read_url: str | None = None
    """The address of query, if it has another one."""
    api_key: str | None = field(default=None, repr=False)
    agent: str | None = None
    """The producer's name, by which runs can be searched."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of all runs, by which they can be searched."""
    buffer_bytes: int = 64 << 20
    """How much memory events may take until Skein has them; those that find no room are dropped, but for a run's end."""
    linger: float = 0.2
    """Seconds for which events wait for others to be sent with; with more than 20 open runs, up to 1 s."""
    flush_timeout: float = 5.0
    """Seconds that the end of a run's context, close and the exit of Python wait at most for events to be sent."""
    timeout: float = 30.0
    """Seconds to wait for an answer."""
    on_lost: Callable[[BaseRun, int, str], None] | None = None
    """Called on any thread with the run, a number of events that it lost, and why."""

    def __post_init__(self) -> None:
        for address in (self.url, self.read_url or self.url):
            if not address.startswith(("http://", "https://")):
                raise ValueError(f"{address!r} is no address: write http://HOST:PORT")


class Skein(Options):
    """Skein, for asyncio. All loops and threads may share one; a run belongs to one at a time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._runs: set[BaseRun] = set()
        self._begin()
        background.clients.add(self)

    def run(self, run_input: RunAgentInput | Mapping[str, Any] | str | bytes, *, labels: Mapping[str, str] | None = None) -> Run:
        """Returns a run to publish: `async with skein.run(input) as run`. The input names the thread and the run."""
        return self._run(Run, run_input, labels)

    def stream(self, thread: str, run: str | None = None, *, last_event_id: str = "") -> AsyncGenerator[LiveEvent, None]:
        """Yields the events of a run to its end; without a run, those of the thread's latest run, and then of its next ones, without end.

        It goes on where a connection broke off. Who joins late gets snapshots of what there was before.
        """
        return self._follow(self._path(thread, run) + "/stream", last_event_id)

    async def when_stopped(self, thread: str, run: str) -> bool:
        """Waits until somebody asks that a run be stopped, and returns True; False once the run has ended."""
        try:
            async for _ in self._follow(self._path(thread, run) + "/stream", until=b"stop requested"):
                pass
        except _Commented:
            return True
        return False

    async def _follow(self, path: str, last: str = "", until: bytes | None = None) -> AsyncGenerator[LiveEvent, None]:
        """Yields the events of a live stream. With until, a comment that raises _Commented, it waits for a Skein that does not answer."""

        def comment(text: bytes) -> None:
            if text == until:
                raise _Commented

        answered, pause = until is not None, 0.1
        while True:
            before: list[LiveEvent] = []  # events without an id come again if the connection breaks before the next id
            wait = pause
            try:
                headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity", **({"Last-Event-ID": last} if last else {})}
                timeout = httpx.Timeout(self.timeout, read=60)  # the server is never silent for more than 15 s
                async with self._client().stream("GET", self._url(path), headers=headers, timeout=timeout) as answer:
                    if answer.status_code == 204:
                        return
                    if not answer.is_success:
                        await answer.aread()
                        raise refusal(answer)
                    answered, sse = True, SSE(on_comment=comment)
                    sse.id = last
                    async for piece in answer.aiter_raw():
                        for event_id, data in sse.feed(piece):
                            if data:
                                before.append(LiveEvent(object_of(data)))
                            if event_id == last:
                                continue
                            last = event_id
                            if before:
                                before[-1].id, pause, wait = last, 0.1, 0.1
                            for event in before:
                                yield event
                            before.clear()
            except httpx.RequestError as error:
                if not answered:
                    raise unanswered(error, self._url("")) from error
            except SkeinError as error:
                if not error.transient:
                    raise
                wait = max(error.retry_after or 0, wait)
            if before and before[-1].get("code") == "skein-erased":  # it has no id: nothing follows it
                yield before[-1]
                return
            await asyncio.sleep(wait)
            pause = min(2 * wait, 10)

    async def history(self, thread: str, run: str | None = None) -> History:
        """Returns messages and state at the end of a run; without a run, of the thread's latest tip."""
        return await self._json(History, "GET", self._path(thread, run) + "/history")

    async def lineage(self, thread: str) -> Lineage:
        """Returns the runs and branches of a thread."""
        return await self._json(Lineage, "GET", self._path(thread) + "/lineage")

    async def branches(self, thread: str) -> list[Branch]:
        """Returns the branches of a thread."""
        return (await self.lineage(thread))["branches"]

    async def threads(self, **query: str | int) -> Threads:
        """Returns a page of threads: prefix, title, archived, status, agent, since and limit select; after is next of the page before."""
        return await self._json(Threads, "GET", "/v1/threads", params=query)

    async def checkout(self, thread: str, run: str | None = None, at: int | None = None) -> RunAgentInput:
        """Returns an input that continues from the end of a run, or from one of its events: with it, an agent makes a branch."""
        query = {} if at is None else {"at": at}
        answer = await self._call("GET", self._path(thread, run) + "/checkout", params=query)
        return RunAgentInput.model_validate_json(answer.content)

    async def cancel(self, thread: str, run: str | None, reason: str | None = None) -> Cancelled:
        """Stops a run, or the thread's open runs if it is None, and returns how it ended. The reason is for people."""
        body = {} if reason is None else {"reason": reason}
        return await self._json(Cancelled, "POST", self._path(thread, run) + "/cancel", json=body)

    async def update_thread(
        self, thread: str, *, title: str | EllipsisType | None = ..., archived: bool | EllipsisType = ...
    ) -> dict[str, Any]:
        """Changes the title of a thread (None: it has none), or whether it is archived."""
        body = {name: value for name, value in (("title", title), ("archived", archived)) if value is not ...}
        return await self._json(dict[str, Any], "PATCH", self._path(thread), json=body)

    async def flush(self, timeout: float | None = None) -> bool:
        """Waits until Skein has all events, for up to timeout seconds, and returns whether it has."""
        return await asyncio.wrap_future(background.submit(self._flush(timeout)))

    async def close(self) -> None:
        """Sends what is left, for up to flush_timeout seconds, drops the rest and closes connections. Python's exit does it, too."""
        await asyncio.wrap_future(background.submit(self._close()))
        if client := self._clients.pop(asyncio.get_running_loop(), None):
            await client.aclose()

    async def __aenter__(self) -> Skein:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def _begin(self) -> None:
        """Begins, or begins anew in a forked process, where runs of the parent take no more events."""
        for run in self._runs:
            run._stopped, run._settled = "the process has forked: its parent publishes the run", asyncio.Event()
            run._settled.set()
        self._clients: dict[asyncio.AbstractEventLoop, httpx.AsyncClient] = {}
        self._lock, self._held, self._runs = threading.Lock(), 0, set()
        self._closing = asyncio.Event()  # of the background thread

    def _run(self, kind: type[R], run_input: RunAgentInput | Mapping[str, Any] | str | bytes, labels: Mapping[str, str] | None) -> R:
        body = encode(run_input)
        ids: dict[str, Any] = object_of(body)
        headers = {f"Skein-Label-{key}": value.encode() for key, value in {**self.labels, **(labels or {})}.items()}
        if self.agent:
            headers["Skein-Agent"] = self.agent.encode()
        return kind(self, ids.get("threadId", ""), ids.get("runId", ""), body, headers)

    def _path(self, thread: Any, run: Any = None) -> str:
        for name, value in {"threadId": thread, "runId": "-" if run is None else run}.items():
            if not isinstance(value, str) or value in ("", ".", ".."):
                raise ValueError(f"{name} is {value!r}: it has to be a string, and neither empty nor . or ..")
        return f"/v1/threads/{quote(thread, safe='')}" + (f"/runs/{quote(run, safe='')}" if run is not None else "")

    def _url(self, path: str, method: str = "GET") -> str:
        return ((method == "GET" and self.read_url) or self.url).rstrip("/") + path

    def _client(self) -> httpx.AsyncClient:
        """Returns the running loop's client: connections belong to a loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._clients:
                self._clients = {of: client for of, client in self._clients.items() if not of.is_closed()}
                self._clients[loop] = httpx.AsyncClient(
                    headers={"Authorization": f"Bearer {self.api_key}"} if self.api_key else {},
                    timeout=httpx.Timeout(self.timeout, connect=min(self.timeout, 5)),
                    limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
                )
            return self._clients[loop]

    async def _call(self, method: str, path: str, **request: Any) -> httpx.Response:
        url = self._url(path, method)
        try:
            answer = await self._client().request(method, url, **request)
        except httpx.RequestError as error:
            raise unanswered(error, url) from error
        if not answer.is_success:
            raise refusal(answer)
        return answer

    async def _json(self, kind: type[T], method: str, path: str, **request: Any) -> T:
        return cast(T, (await self._call(method, path, **request)).json())

    def _take(self, size: int, always: bool = False) -> bool:
        """Takes memory of the buffer. The caller holds the lock."""
        if fits := always or self._held + size <= self.buffer_bytes:
            self._held += size
        return fits

    async def _flush(self, timeout: float | None) -> bool:
        with self._lock:
            runs = list(self._runs)
        return all(await asyncio.gather(*[until(run._sent, timeout) for run in runs]))

    async def _close(self) -> None:
        self._closing.set()
        await self._flush(self.flush_timeout)
        with self._lock:
            unsent = [run for run in self._runs if run._pending or run._input]
        for run in unsent:
            run._stop(f"Skein did not take it within the {self.flush_timeout:g} s before the exit")
        self._closing.clear()
        if client := self._clients.pop(asyncio.get_running_loop(), None):
            await client.aclose()
