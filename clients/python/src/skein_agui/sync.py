"""Skein without asyncio: the same code, on one background thread."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import fields
from types import EllipsisType, TracebackType
from typing import Any, TypeVar

from ag_ui.core import RunAgentInput

from . import background, client
from .client import LiveEvent, Options
from .publish import BaseRun
from .types import Branch, Cancelled, History, Lineage, Threads

E = TypeVar("E")


class Run(BaseRun):
    """A run that is published, as a context, whose end waits until all is sent: for up to flush_timeout, or until Skein is away."""

    def publish(self, events: Iterable[E]) -> Generator[E, None, None]:
        """Yields the events of an agent as they are, each at once, and publishes a copy."""
        try:
            for event in events:
                self.put(event)
                yield event
        finally:
            if isinstance(events, Generator):
                events.close()  # if the caller has left before the end

    def __enter__(self) -> Run:
        self._open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close(kind.__name__ if kind else None)
        if error is None:
            background.wait(self._settle())


class Skein(Options):
    """skein_agui.Skein, whose methods return when they are done."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._skein = client.Skein(**{f.name: getattr(self, f.name) for f in fields(self)})

    def run(self, run_input: RunAgentInput | Mapping[str, Any] | str | bytes, *, labels: Mapping[str, str] | None = None) -> Run:
        return self._skein._run(Run, run_input, labels)

    def stream(self, thread: str, run: str | None = None, *, last_event_id: str = "") -> Generator[LiveEvent, None, None]:
        events = self._skein.stream(thread, run, last_event_id=last_event_id)

        async def following() -> LiveEvent | None:
            return await anext(events, None)

        try:
            while (event := background.wait(following())) is not None:
                yield event
        finally:
            background.wait(events.aclose())

    def history(self, thread: str, run: str | None = None) -> History:
        return background.wait(self._skein.history(thread, run))

    def lineage(self, thread: str) -> Lineage:
        return background.wait(self._skein.lineage(thread))

    def branches(self, thread: str) -> list[Branch]:
        return background.wait(self._skein.branches(thread))

    def threads(self, **query: str | int) -> Threads:
        return background.wait(self._skein.threads(**query))

    def checkout(self, thread: str, run: str | None = None, at: int | None = None) -> RunAgentInput:
        return background.wait(self._skein.checkout(thread, run, at))

    def cancel(self, thread: str, run: str | None, reason: str | None = None) -> Cancelled:
        return background.wait(self._skein.cancel(thread, run, reason))

    def when_stopped(self, thread: str, run: str) -> bool:
        return background.wait(self._skein.when_stopped(thread, run))

    def update_thread(self, thread: str, *, title: str | EllipsisType | None = ..., archived: bool | EllipsisType = ...) -> dict[str, Any]:
        return background.wait(self._skein.update_thread(thread, title=title, archived=archived))

    def flush(self, timeout: float | None = None) -> bool:
        return background.wait(self._skein.flush(timeout))

    def close(self) -> None:
        background.wait(self._skein.close())

    def __enter__(self) -> Skein:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
