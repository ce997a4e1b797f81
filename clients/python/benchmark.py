"""Measures what SkeinMiddleware costs the process of an application, per event: python benchmark.py http://127.0.0.1:8420 [--quick]

It plays the same stream through an application without and with the middleware, and compares the processor time of the whole
process, the background thread included, until Skein has everything.
"""

import asyncio
import json
import sys
import time
import uuid

from skein_agui import Skein, SkeinMiddleware

ROUNDS = 3
WORKLOADS = {
    "1 run of 5,000 events, as fast as they come": (1, 4996, None),
    "10 runs side by side, 200 events a second each": (10, 396, 200.0),
    "10 runs side by side, 50 events a second each": (10, 96, 50.0),
}


def chunks(run_id: str, deltas: int) -> list[bytes]:
    events = [
        {"type": "RUN_STARTED", "threadId": run_id, "runId": run_id},
        {"type": "TEXT_MESSAGE_START", "messageId": "a", "role": "assistant"},
        *({"type": "TEXT_MESSAGE_CONTENT", "messageId": "a", "delta": f" token {n}"} for n in range(deltas)),
        {"type": "TEXT_MESSAGE_END", "messageId": "a"},
        {"type": "RUN_FINISHED", "threadId": run_id, "runId": run_id},
    ]
    return [f"data: {json.dumps(event)}\n\n".encode() for event in events]


async def play(app, runs: int, deltas: int, per_second: float | None) -> None:
    """Plays runs side by side; each sends per_second events a second, or all at once."""

    async def one() -> None:
        run_id = str(uuid.uuid4())
        body = json.dumps(
            {"threadId": run_id, "runId": run_id, "state": {}, "messages": [], "tools": [], "context": [], "forwardedProps": {}}
        )
        messages = iter([{"type": "http.request", "body": body.encode(), "more_body": False}])

        async def receive():
            return next(messages)

        async def send(message):
            await asyncio.sleep(1 / per_second if per_second else 0)  # the caller takes it

        scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-type", b"application/json")]}
        scope["chunks"] = chunks(run_id, deltas)
        await app(scope, receive, send)

    await asyncio.gather(*[one() for _ in range(runs)])


async def agent(scope, receive, send) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for chunk in scope["chunks"]:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def measure(skein: Skein, runs: int, deltas: int, per_second: float | None) -> float:
    """Returns microseconds of processor time an event: the median of the rounds."""
    recorded, costs = SkeinMiddleware(agent, skein), []
    for _ in range(ROUNDS):
        used = []
        for app in agent, recorded:
            before = time.process_time()
            await play(app, runs, deltas, per_second)
            assert await skein.flush(60)
            used.append(time.process_time() - before)
        costs.append((used[1] - used[0]) / (runs * (deltas + 4)) * 1e6)
    return sorted(costs)[ROUNDS // 2]


async def main() -> None:
    lost = []
    async with Skein(sys.argv[1], on_lost=lambda run, events, reason: lost.append(reason)) as skein:
        await play(SkeinMiddleware(agent, skein), 1, 10, None)  # imports and connects
        for name, workload in WORKLOADS.items():
            if workload[2] == 50 and "--quick" in sys.argv:
                continue
            print(f"{name}: {await measure(skein, *workload):.0f} µs an event", flush=True)
    if lost:
        sys.exit(f"lost: {lost[0]}")


asyncio.run(main())
