"""One thread with an event loop of its own, which sends what runs publish: also while the caller's loop is busy, or after its end."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # before _exit is registered: handlers run in reverse order
import os
import threading
import weakref
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from .client import Skein

T = TypeVar("T")

clients: weakref.WeakSet[Skein] = weakref.WeakSet()

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_of_parents: list[object] = []


def loop() -> asyncio.AbstractEventLoop:
    """Returns the loop of the thread, which begins with the first call."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="skein-agui", daemon=True).start()
            # Before Python waits for other threads, while asyncio can still resolve host names, which it does on threads; and after it.
            getattr(threading, "_register_atexit", atexit.register)(_exit)
            atexit.register(_exit)
        return _loop


def submit(work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
    """Runs a coroutine on the thread."""
    return asyncio.run_coroutine_threadsafe(work, loop())


def wait(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine on the thread, and blocks until it is done."""
    future = submit(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()  # after Ctrl-C; else it is done
        raise


async def _close_all() -> None:
    await asyncio.gather(*[client._close() for client in clients])


def _exit() -> None:
    if _loop:
        wait(_close_all())


def _after_fork() -> None:
    """Begins anew in a child process, which has the loop, but not its thread. The parent sends what its runs have published."""
    global _lock, _loop
    # Kept: the loop's epoll is the parent's, too, and tasks that nobody refers to would complain.
    _of_parents.append((_loop, [vars(client).copy() for client in clients]))
    _lock, _loop = threading.Lock(), None
    for client in clients:
        client._begin()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)
