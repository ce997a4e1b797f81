"""Recording of an ASGI application's AG-UI endpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from .client import Skein
from .errors import object_of
from .events import MAX_BYTES
from .publish import BaseRun, log

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class SkeinMiddleware:
    """Records each POST that has a RunAgentInput as JSON and is answered with server-sent events. All bytes pass unchanged, at once.

    paths, unless None, are the only ones that it looks at.
    """

    def __init__(
        self,
        app: App,
        skein: Skein | None = None,
        *,
        url: str | None = None,
        api_key: str | None = None,
        paths: Container[str] | None = None,
    ) -> None:
        if (skein is None) == (url is None):
            raise ValueError("pass skein=Skein(…) or url=, one of them")
        self._app, self._paths, self._skein = app, paths, skein or Skein(url or "", api_key=api_key)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, self._closing(send))
        is_candidate = scope["type"] == "http" and scope["method"] == "POST" and (self._paths is None or scope["path"] in self._paths)
        if not is_candidate or not _header(scope, b"content-type").startswith(b"application/json"):
            return await self._app(scope, receive, send)
        body, size, run, whole = [], 0, None, False

        async def take_input() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size <= MAX_BYTES:
                body.append(message.get("body", b""))
            return message

        async def take_events(message: Message) -> None:
            nonlocal run, whole
            await send(message)
            with _alone(run):
                if message["type"] == "http.response.start":
                    run = self._begin(b"".join(body), message) if size <= MAX_BYTES else None
                    body.clear()
                elif run and message["type"] == "http.response.body":
                    whole = not message.get("more_body", False)
                    run._feed(message.get("body", b""))

        cut: str | None = "the caller has left"
        try:
            await self._app(scope, take_input, take_events)
        except BaseException as error:
            cut = type(error).__name__
            raise
        finally:
            with _alone(run):
                if run:
                    run.close(None if whole else cut)

    def _begin(self, body: bytes, start: Message) -> BaseRun | None:
        """Begins a run, if the answer is a stream of events and the body an input."""
        if start["status"] != 200 or not _header(start, b"content-type").startswith(b"text/event-stream"):
            return None
        if not isinstance(object_of(body).get("messages"), list):
            return None
        if _header(start, b"content-encoding") not in (b"", b"identity"):
            log.warning("a compressed stream is not recorded: add SkeinMiddleware before the middleware that compresses")
            return None
        try:
            run = self._skein._run(BaseRun, body, None)
        except ValueError:  # without ids, it is no input
            return None
        run._open()
        return run

    def _closing(self, send: Send) -> Send:
        """Sends the last events before the server says that it is down: uvicorn then ends its process without Python's exit handlers."""

        async def close_first(message: Message) -> None:
            if message["type"].startswith("lifespan.shutdown."):
                await self._skein.close()
            await send(message)

        return close_first


@contextmanager
def _alone(run: BaseRun | None) -> Iterator[None]:
    """Keeps a fault of the recorder from the application, which goes on."""
    try:
        yield
    except Exception as error:
        log.exception("recording has failed")
        if run:
            run._miss(f"recording has failed: {error!r}")


def _header(of: MutableMapping[str, Any], name: bytes) -> bytes:
    return next((bytes(value).lower() for key, value in of.get("headers", ()) if key.lower() == name), b"")
