"""Publishing to a server that is away, slow, or refuses."""

import asyncio
import json
import multiprocessing
import time
from collections import deque

import pytest

from conftest import a_run, accepted, an_input, free_port, play, problem
from skein_agui import Skein, SkeinError, sync


async def publish(skein: Skein, run_input: dict, events: list):
    async with skein.run(run_input) as run:
        assert [e async for e in run.publish(play(events))] == events
    return run


@pytest.mark.parametrize("status", [401, 403, 409])
async def test_what_cannot_succeed_ends_the_run_and_is_told(faulty, caplog, status):
    server = faulty(lambda *_: problem(status, reason="no", detail="not you"))
    lost = []
    run_input = an_input()
    async with Skein(server.url, on_lost=lambda run, n, reason: lost.append(n)) as skein:
        run = await publish(skein, run_input, a_run(run_input))
    assert len(server.requests) == 1
    assert (run.stats.published, run.stats.dropped) == (0, 7) and sum(lost) == 7
    assert f"not you (HTTP {status})" in run.stats.reason
    assert len([r for r in caplog.records if r.name == "skein_agui"]) == 1
    if status == 401:
        assert "pass a valid api_key" in caplog.text


@pytest.mark.parametrize("status", [425, 429, 503])
async def test_retry_after_is_kept_and_numbers_stay(faulty, status):
    def answer(method, path, body):
        if method == "POST" and len([r for r in server.requests if r[0] == "POST"]) <= 2:
            return problem(status, {"Retry-After": "1"})
        return accepted(body)

    server = faulty(answer)
    run_input = an_input()
    async with Skein(server.url, linger=0) as skein:
        run = await publish(skein, run_input, a_run(run_input))
        assert await skein.flush(10)
    assert (run.stats.published, run.stats.reason) == (7, None)
    posts = [at for at, request in zip(server.times, server.requests, strict=True) if request[0] == "POST"]
    assert posts[1] - posts[0] > 0.95 and posts[2] - posts[1] > 0.95
    first_tries = {line["seq"]: line["event"] for line in server.lines()}
    assert [first_tries[n] for n in sorted(first_tries)] == a_run(run_input)
    assert all(first_tries[line["seq"]] == line["event"] for line in server.lines())


async def test_a_bad_line_costs_only_itself(faulty):
    def answer(method, path, body):
        lines = body.splitlines()
        bad = next((n for n, line in enumerate(lines) if b'"delta":"1 "' in line), None)
        return accepted(body) if bad is None else problem(413, accepted=bad, detail="too large", line=bad + 1)

    server = faulty(answer)
    run_input = an_input()
    async with Skein(server.url) as skein:
        run = await publish(skein, run_input, a_run(run_input))
    assert (run.stats.published, run.stats.refused, run.stats.dropped) == (6, 1, 0)
    assert run.stats.reason == "event 3: too large (HTTP 413)"


async def test_a_refused_input_does_not_cost_the_events(faulty):
    server = faulty(lambda method, path, body: problem(400, detail="too many") if method == "PUT" else accepted(body))
    run_input = an_input()
    async with Skein(server.url) as skein:
        run = await publish(skein, run_input, a_run(run_input))
    assert run.stats.published == 7 and "input" in run.stats.reason


async def test_the_callers_stream_waits_for_nobody():
    """Neither for an address where nobody listens, nor for one that accepts and is silent."""
    silent = await asyncio.start_server(lambda reader, writer: asyncio.sleep(30), "127.0.0.1", 0)
    for port, longest in ((free_port(), 1.5), (silent.sockets[0].getsockname()[1], 3.5)):
        run_input = an_input()
        skein = Skein(f"http://127.0.0.1:{port}", flush_timeout=2)
        async with skein.run(run_input) as run:
            began = time.monotonic()
            assert len([e async for e in run.publish(play(a_run(run_input, deltas=5000)))]) == 5004
            assert time.monotonic() - began < 3  # of a busy machine; Skein's silence lasts 30
            await asyncio.sleep(0.1)
            began = time.monotonic()
        assert time.monotonic() - began < longest
        await skein.close()
        assert (run.stats.published, run.stats.dropped) == (0, 5004)
    silent.close()


async def test_the_buffer_is_bounded_and_an_end_finds_room(faulty):
    away = True

    def answer(method, path, body):
        return problem(503) if away else accepted(body)

    server = faulty(answer)
    run_input = an_input()
    skein = Skein(server.url, buffer_bytes=20_000)
    events = a_run(run_input, deltas=1000)
    run = await publish(skein, run_input, events)
    assert 0 < skein._held <= 20_500
    other = an_input(text="x" * 20_000)
    no_room = await publish(skein, other, a_run(other))
    away = False
    assert await skein.flush(10)
    assert skein._held == 0
    assert run.stats.published + run.stats.dropped == 1004 and run.stats.dropped > 500 and "buffer is full" in run.stats.reason
    assert server.lines()[-1] == {"seq": 1003, "event": events[-1]}
    assert no_room.stats.dropped == 7 and "no room" in no_room.stats.reason
    await skein.close()


async def test_a_broken_answer_is_asked_for_again(faulty):
    """The connection breaks after Skein took the events: they come again with the same numbers."""
    broken = []

    def answer(method, path, body):
        if method == "POST" and not broken:
            broken.append(body)
            return 200, {"Content-Length": "1000"}, b"{"  # and the connection hangs: the client's timeout breaks it
        return accepted(body)

    server = faulty(answer)
    run_input = an_input()
    async with Skein(server.url, timeout=0.5) as skein:
        run = await publish(skein, run_input, a_run(run_input))
        assert await skein.flush(10)
    assert run.stats.published == 7
    assert [line["seq"] for line in server.lines()][: len(broken[0].splitlines())] == list(range(len(broken[0].splitlines())))
    assert {line["seq"] for line in server.lines()} == set(range(7))


async def test_an_error_says_what_to_do(faulty):
    texts = {
        401: "no (HTTP 401): pass a valid api_key",
        404: "no (HTTP 404)",
        421: "no (HTTP 421): pass the address of ingest as url, and that of query as read_url",
        429: "no (HTTP 429): try again in 7 s",
        503: "no (HTTP 503): try again later",
    }
    for status, text in texts.items():
        server = faulty(lambda *_, s=status: problem(s, {"Retry-After": "7"} if s == 429 else {}, detail="no", reason="why"))
        async with Skein(server.url) as skein:
            with pytest.raises(SkeinError) as caught:
                await skein.history("t")
        assert str(caught.value) == text
        assert (caught.value.status, caught.value.reason, caught.value.detail) == (status, "why", "no")
        assert caught.value.retry_after == (7 if status == 429 else None)
    async with Skein(faulty(lambda *_: (502, {}, b"Bad gateway\n<html>")).url) as skein:
        with pytest.raises(SkeinError, match=r"^Bad gateway \(HTTP 502\): try again later$"):
            await skein.history("t")
    async with Skein(f"http://127.0.0.1:{free_port()}") as skein:
        with pytest.raises(SkeinError, match=r"no answer from .* is Skein running there"):
            await skein.history("t")


async def test_wrong_arguments_are_refused_at_once():
    with pytest.raises(ValueError, match="write http://HOST:PORT"):
        Skein("localhost:8420")
    skein = Skein()
    for wrong in ({}, {"threadId": "t"}, {"threadId": "..", "runId": "r"}, "no JSON", b"[]"):
        with pytest.raises(ValueError, match=r"threadId|runId"):
            skein.run(wrong)
    with pytest.raises(ValueError, match="threadId"):
        await skein.history("")


async def test_a_run_outside_of_its_context_is_told(faulty):
    server = faulty(lambda method, path, body: accepted(body))
    run_input = an_input()
    async with Skein(server.url) as skein:
        run = skein.run(run_input)
        assert [e async for e in run.publish(play(a_run(run_input)))] == a_run(run_input)
        run.close()
        later = await publish(skein, run_input, a_run(run_input))
        later.put(a_run(run_input)[0])
    assert (run.stats.dropped, later.stats.dropped, later.stats.published) == (7, 1, 7)
    assert run.stats.reason == later.stats.reason and "outside of the run's context" in run.stats.reason


async def test_a_label_that_no_header_can_hold_ends_the_run(faulty):
    server = faulty(lambda method, path, body: accepted(body))
    run_input = an_input()
    async with Skein(server.url) as skein:
        async with skein.run(run_input, labels={"user": "two\nlines"}) as run:
            assert [e async for e in run.publish(play(a_run(run_input)))] == a_run(run_input)
    assert run.stats.dropped == 7 and "cannot be sent" in run.stats.reason


async def test_a_connection_that_broke_costs_no_event(faulty):
    """Skein may still answer, when something between closes only the way to it."""

    def answer(method, path, body):
        posts = [r for r in server.requests if r[0] == "POST"]
        return problem(400, reason="cut", accepted=2, line=3) if method == "POST" and len(posts) == 1 else accepted(body)

    server = faulty(answer)
    run_input = an_input()
    async with Skein(server.url) as skein:
        run = await publish(skein, run_input, a_run(run_input))
        assert await skein.flush(10)
    assert (run.stats.published, run.stats.refused, run.stats.reason) == (7, 0, None)
    assert {line["seq"] for line in server.lines()} == set(range(7))


async def test_a_bad_request_that_names_no_line_ends_the_run(faulty):
    server = faulty(lambda method, path, body: problem(400, accepted=0, detail="a label is too long"))
    run_input = an_input()
    async with Skein(server.url) as skein:
        run = await publish(skein, run_input, a_run(run_input))
    assert (run.stats.dropped, run.stats.refused) == (7, 0) and len(server.requests) == 2


async def test_deep_json_raises_nothing(faulty):
    server = faulty(lambda method, path, body: accepted(body))
    run_input = an_input()
    deep = '{"type":"RUN_FINISHED","result":' + "[" * 5000 + "]" * 5000 + "}"
    async with Skein(server.url) as skein:
        async with skein.run(run_input) as run:
            run.put(deep)
    assert server.requests[-1][2].startswith(b'{"seq":0,"event":' + deep.encode())


@pytest.mark.parametrize(("start", "end"), [(b"data: ", b""), (b"x\r\ndata: ", b""), (b"data: ", b"\n"), (b"data: ", b"\r")])
async def test_a_stream_without_an_end_of_its_event_keeps_no_more_than_an_event_may_have(faulty, start, end):
    server = faulty(lambda method, path, body: accepted(body))
    run_input = an_input()
    events = [f"data: {json.dumps(event)}\n\n".encode() for event in a_run(run_input)]
    async with Skein(server.url) as skein:
        async with skein.run(run_input) as run:
            run.put(events[0])
            for _ in range(24):
                run.put(start + b"x" * (1 << 20) + end)
                assert run._sse._size <= 17 << 20
            run.put(b"\r\n\r\n")
            for event in events[1:]:
                run.put(event)
    assert (run.stats.published, run.stats.refused) == (7, 1) and "16 MiB" in run.stats.reason
    assert [line["event"] for line in server.lines()] == a_run(run_input)
    assert [line["seq"] for line in server.lines()] == [0, *range(2, 8)]


def work(skein: sync.Skein, run_input: dict) -> None:
    with skein.run(run_input) as run:
        assert list(run.publish(iter(a_run(run_input)))) == a_run(run_input)
    assert run.stats.published == 7 and skein._skein._held == 0


def idle(*_) -> None:
    pass


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("target", [idle, work])
def test_a_process_that_forks(faulty, target):
    """Its children neither hang, whether they use Skein or not, nor send what it publishes."""
    server = faulty(lambda method, path, body: accepted(body))
    one, two = an_input(), an_input()
    with sync.Skein(server.url, linger=0.5) as skein:
        with skein.run(one) as run:
            for event in a_run(one)[:4]:
                run.put(event)
            child = multiprocessing.get_context("fork").Process(target=target, args=(skein, two))
            child.start()
            child.join(20)
            child.kill()  # if it hangs
            for event in a_run(one)[4:]:
                run.put(event)
        assert child.exitcode == 0 and (run.stats.published, run.stats.reason) == (7, None)
    for run_input in (one, two)[: 1 + (target is work)]:
        bodies = [body for method, path, body in server.requests if method == "POST" and run_input["threadId"] in path]
        assert [json.loads(line)["event"] for body in bodies for line in body.splitlines()] == a_run(run_input)


async def test_no_event_is_added_while_others_are_taken(faulty):
    """Else a caller on another thread may break the iteration of the queue, which costs the run: rarely, so the lock is what is tested."""

    class Queue(deque):
        def __iter__(self):
            assert run._skein._lock.locked()
            return super().__iter__()

    server = faulty(lambda method, path, body: accepted(body))
    run_input = an_input()
    async with Skein(server.url) as skein:
        async with skein.run(run_input) as run:
            run._pending = Queue()
            assert [e async for e in run.publish(play(a_run(run_input)))] == a_run(run_input)
    assert (run.stats.published, run.stats.reason) == (7, None)
