"""Publishing of runs, for which the caller never waits."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from . import background
from .errors import SkeinError, object_of
from .events import MAX_BYTES, SSE, encode

if TYPE_CHECKING:
    from .client import Skein

E = TypeVar("E")

log = logging.getLogger("skein_agui")

_BATCH_BYTES, _BATCH_EVENTS = 60_000, 500  # ingest counts no body of up to 64 KiB as a stream, of which a tenant may have few
_COST = 100  # bytes of memory beside those of an event
_FIRST_PAUSE, _LAST_PAUSE, _CLOSING_PAUSE = 0.25, 15.0, 0.5  # seconds between attempts


@dataclass
class Stats:
    """What became of a run's events. reason is of the first one that was lost."""

    published: int = 0
    """Kafka acknowledged them."""
    dropped: int = 0
    """Not sent: the buffer was full, Skein refused the run, or the process ended."""
    refused: int = 0
    """No events, such as JSON without a type, or too large; or those of another publisher have their numbers."""
    unreadable: int = 0
    """Published, but no AG-UI client can read them."""
    reason: str | None = None


class BaseRun:
    """A run that is published. Its methods return at once and raise nothing. One thread at a time may call them."""

    def __init__(self, skein: Skein, thread_id: str, run_id: str, run_input: bytes, headers: Mapping[str, bytes]) -> None:
        self.thread_id, self.run_id, self.stats = thread_id, run_id, Stats()
        self._skein, self._input, self._headers, self._path = skein, run_input, headers, skein._path(thread_id, run_id)
        self._sse, self._seq, self._ended, self._closed = SSE(MAX_BYTES), 0, False, True
        self._is_sse: bool | None = None
        self._next: BaseRun | None = None  # the next run of the same stream
        self._watch: Future[bool] | None = None  # whether somebody asks that the run be stopped
        # Shared with the background thread, under the lock of skein.
        self._pending: deque[bytes] = deque()
        self._idle = False
        self._stopped: str | None = None  # why no event of the run can be sent any more
        self._away = False  # the last attempt to send has failed
        # Of the background thread: there is work; all is sent; all is sent or the last attempt failed.
        self._wake, self._sent, self._settled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def put(self, event: object) -> None:
        """Takes a copy of an event: an object of ag_ui.core, a dict, JSON text, or a piece of a stream of server-sent events."""
        try:
            data = encode(event)
        except Exception as error:  # whatever a foreign object raises is about this event
            return self._miss(f"{type(event).__name__} has no JSON: {error}")
        if isinstance(event, (str, bytes, bytearray, memoryview)):
            if self._is_sse is None:
                self._is_sse = data.lstrip()[:1] != b"{"  # the first text says it of all
            if self._is_sse:
                return self._feed(data)
        self._add(data.strip())

    @property
    def stop_requested(self) -> bool:
        """Whether somebody asked that the run be stopped. The first look begins to watch for it: a request more, open as long as the run.

        Who stops publishes the run's end: RUN_FINISHED with the outcome `cancelled`.
        """
        if self._next:
            return self._next.stop_requested
        if not self._watch:
            if self._closed:
                return False
            self._watch = background.submit(self._stop_asked())
        return self._watch.done() and not self._watch.cancelled() and self._watch.result()

    def close(self, cut: str | None = None) -> None:
        """Says that no event follows; cut is why the stream broke off. A run without its end gets RUN_ERROR, as by Skein's proxy."""
        if self._sse.partial and not cut:
            self._feed(b"\n\n")  # the end of the stream ends its last event
        if self._next:
            return self._next.close(cut)
        if self._closed:
            return
        if not self._ended:
            code, message = ("agent-cut", f"the stream broke off: {cut}") if cut else ("agent-no-end", "the stream has no end of the run")
            self._add(encode({"type": "RUN_ERROR", "message": message, "code": code}))
        self._finish()

    def _open(self, after: Future[None] | None = None) -> None:
        with self._skein._lock:
            if not self._skein._take(len(self._input) + _COST):
                self._stopped, self._input = "the buffer had no room for the run's input", b""
                self._skein._take(_COST, always=True)
            self._closed = False
            self._skein._runs.add(self)
        self._sender = background.submit(self._send(after))

    def _finish(self) -> None:
        with self._skein._lock:
            self._closed = True
        if self._watch:
            self._watch.cancel()
        background.loop().call_soon_threadsafe(self._work_came)

    def _feed(self, piece: bytes) -> None:
        for _, data in self._sse.feed(piece):
            if data:
                self._add(data)
            elif data is None:
                self._miss(f"an event has more than the {MAX_BYTES >> 20} MiB that Skein takes")

    def _miss(self, reason: str) -> None:
        """Counts an event that cannot be sent. It has a number: readers see the gap."""
        if self._next:
            return self._next._miss(reason)
        self._seq += 1
        self._lost("refused", 1, reason)

    def _add(self, data: bytes) -> None:
        if self._next:
            return self._next._add(data)
        ends = False
        if b'"RUN_' in data:
            event = object_of(data)
            ends = event.get("type") in ("RUN_FINISHED", "RUN_ERROR")
            if self._ended and event.get("type") == "RUN_STARTED":
                self._ended = False  # of the same id, it goes on with the numbers of this one
                if event.get("runId") != self.run_id:
                    return self._begin(event.get("runId"), data)
        # A line feed between tokens may as well be a CR; one inside a string is an error either way.
        line = b'{"seq":%d,"event":%b}\n' % (self._seq, data.replace(b"\n", b"\r"))
        self._seq += 1
        self._ended = self._ended or ends
        wake, reason = False, None
        with self._skein._lock:
            if self._stopped or self._closed:
                reason = self._stopped or "it came outside of the run's context: write `with skein.run(…) as run`"
            elif not self._skein._take(len(line) + _COST, always=ends):
                reason = "the buffer is full: Skein does not answer, or takes less than comes"
            else:
                self._pending.append(line)
                wake, self._idle = self._idle, False
        if reason:
            self._lost("dropped", 1, reason)
        elif wake:
            background.loop().call_soon_threadsafe(self._work_came)

    def _begin(self, run_id: Any, started: bytes) -> None:
        """Begins the next run of the stream, which has no input of its own."""
        try:
            self._next = BaseRun(self._skein, self.thread_id, run_id, b"", self._headers)
        except ValueError:  # no usable id: its events stay with this run, and Skein separates the two
            return self._add(started)
        self._next.stats = self.stats
        self._next._open(self._sender)
        self._finish()
        self._next._add(started)

    def _lost(self, what: Literal["dropped", "refused", "unreadable"], events: int, reason: str) -> None:
        with self._skein._lock:
            setattr(self.stats, what, getattr(self.stats, what) + events)
            first = self.stats.reason is None
            self.stats.reason = self.stats.reason or reason
        if first:
            log.warning("run %r of thread %r is not recorded as it was: %s", self.run_id, self.thread_id, reason)
        if self._skein.on_lost:
            try:
                self._skein.on_lost(self, events, reason)
            except Exception:
                log.exception("on_lost has failed")

    # What follows runs on the background thread.

    def _work_came(self) -> None:
        if not self._stopped:
            self._sent.clear()
        if not self._stopped and not self._away:
            self._settled.clear()
        self._wake.set()

    async def _stop_asked(self) -> bool:
        try:
            return await self._skein.when_stopped(self.thread_id, self.run_id)
        except Exception as error:
            log.warning("run %r of thread %r cannot be stopped from elsewhere: %s", self.run_id, self.thread_id, error)
            return False

    async def _send(self, after: Future[None] | None) -> None:
        try:
            if after:
                await asyncio.wrap_future(after)  # a run begins once the one before it is there
            await self._send_input()
            while True:
                with self._skein._lock:
                    empty = self._idle = not self._pending
                    over = empty and self._closed
                if empty:
                    self._sent.set()
                    self._settled.set()
                    if over:
                        return
                    await self._wake.wait()
                self._wake.clear()
                if not self._closed and len(self._pending) < _BATCH_EVENTS:
                    # For more events, or for the end. A request costs a millisecond: 100 open runs send no more of them than 20 do.
                    await until(self._wake, max(self._skein.linger, min(len(self._skein._runs) / 100, 1)))
                await self._send_batch()
        except Exception as error:
            log.exception("publishing has failed")
            self._stop(repr(error))
        finally:
            self._sent.set()
            self._settled.set()
            with self._skein._lock:
                self._skein._runs.discard(self)

    async def _send_input(self) -> None:
        try:
            if self._input:
                await self._deliver("PUT", "/input", self._input, "application/json")
        except SkeinError as error:
            if error.status in (400, 413):  # it is about the input: the events may do without it
                self._lost("refused", 0, f"the run's input: {error}")
            else:
                self._stop(str(error))
        with self._skein._lock:
            self._skein._held -= len(self._input) + _COST
            self._input = b""

    async def _send_batch(self) -> None:
        batch: list[bytes] = []
        size = 0
        with self._skein._lock:
            waiting = list(islice(self._pending, _BATCH_EVENTS))
        for line in waiting:
            if batch and size + len(line) > _BATCH_BYTES:
                break
            batch.append(line)
            size += len(line)
        if not batch:
            return
        try:
            answer = await self._deliver("POST", "/events", b"".join(batch), "application/vnd.skein.events+ndjson")
        except SkeinError as error:
            bad = error._bad
            if error.status not in (400, 413) or bad is None or bad >= len(batch):
                return self._stop(str(error))
            self._done(bad + 1, refused=1)  # those before it are there
            return self._lost("refused", 1, f"event {batch[bad][7:].split(b',', 1)[0].decode()}: {error}")
        different, unreadable = answer.get("different", 0), answer.get("unreadable", 0)
        self._done(len(batch), refused=different)
        if different:
            self._lost("refused", different, "Skein has other events of the same numbers: does something else publish this run?")
        if unreadable:
            why = [warning["detail"] for warning in answer.get("warnings", [])]
            self._lost("unreadable", unreadable, f"no client can read an event: {why[0] if why else 'it is not of AG-UI'}")

    async def _deliver(self, method: str, path: str, body: bytes, media_type: str) -> dict[str, Any]:
        """Sends until Skein answers. The numbers of events make it safe to send them again. It raises what a repeat cannot change."""
        pause = _FIRST_PAUSE
        while True:
            try:
                headers = {"Content-Type": media_type.encode(), **self._headers}
                answer = await self._skein._call(method, self._path + path, content=body, headers=headers)
            except SkeinError as error:
                if self._stopped or not error.transient:
                    raise
                self._away = True
                self._settled.set()
                wait = max(error.retry_after or 0, pause * random.uniform(0.5, 1))
                pause = min(2 * pause, _LAST_PAUSE)
                closing = self._skein._closing
                await (asyncio.sleep(min(wait, _CLOSING_PAUSE)) if closing.is_set() else until(closing, wait))
                continue
            self._away = False
            self._settled.clear()
            return object_of(answer.content)

    def _done(self, events: int, refused: int) -> None:
        """Removes the first events."""
        with self._skein._lock:
            if not self._stopped:  # else they were counted
                self._skein._held -= sum(len(self._pending.popleft()) + _COST for _ in range(events))
                self.stats.published += events - refused

    def _stop(self, reason: str) -> None:
        """Drops what waits, and all later events."""
        with self._skein._lock:
            if self._stopped:
                return
            lost, self._stopped = len(self._pending), reason
            self._skein._held -= sum(len(line) + _COST for line in self._pending)
            self._pending.clear()
        self._sent.set()
        self._settled.set()
        self._lost("dropped", lost, reason)

    async def _settle(self) -> None:
        """Waits until all is sent, or until Skein is away."""
        await until(self._settled, self._skein.flush_timeout)
        if self._next and not self._away:
            await self._next._settle()


class Run(BaseRun):
    """A run that is published, as a context, whose end waits until all is sent: for up to flush_timeout, or until Skein is away."""

    async def publish(self, events: AsyncIterable[E]) -> AsyncGenerator[E, None]:
        """Yields the events of an agent as they are, each at once, and publishes a copy."""
        try:
            async for event in events:
                self.put(event)
                yield event
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()  # if the caller has left before the end

    async def __aenter__(self) -> Run:
        self._open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close(kind.__name__ if kind else None)
        if error is None:
            await asyncio.wrap_future(background.submit(self._settle()))


async def until(event: asyncio.Event, timeout: float | None) -> bool:
    """Waits for an event, for up to timeout seconds, and returns whether it came."""
    try:
        return await asyncio.wait_for(event.wait(), timeout)
    except asyncio.TimeoutError:
        return False
