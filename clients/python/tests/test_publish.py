"""Publishing to a real Skein."""

import asyncio
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ag_ui.core import Event, RunAgentInput
from ag_ui.encoder import EventEncoder
from pydantic import TypeAdapter, ValidationError

from conftest import SKEIN, Dev, a_run, an_input, play, recordings
from skein_agui import Skein
from skein_agui.events import encode

SOURCE = str(Path(__file__).parents[1] / "src")


def in_form(events: list[bytes], form: int) -> list[object]:
    """Returns events as an endpoint may yield them."""
    stream = b"".join(b"data: " + event + b"\n\n" for event in events)
    return [
        lambda: [event.decode() for event in events],
        lambda: [f"data: {event.decode()}\n\n" for event in events],
        lambda: [stream[at : at + 777] for at in range(0, len(stream), 777)],
        lambda: list(events),
    ][form % 4]()


async def publish(skein: Skein, run_input: object, events: list) -> object:
    async with skein.run(run_input) as run:
        assert [event async for event in run.publish(play(events))] == events
    return run


@pytest.fixture(scope="module")
def published_by_command(tmp_path_factory: pytest.TempPathFactory):
    """A server with all recordings, published by `skein publish`."""
    server = Dev(tmp_path_factory.mktemp("command"))
    for n, run in enumerate(run for thread in recordings() for run in thread):
        files = [str(file) for file in run.files]
        last = n % 10 == 0  # the others need not wait for the index
        command = [SKEIN, "publish", files[1], "--input", files[0], "--url", server.url, *([] if last else ["--no-wait"])]
        subprocess.run(command, check=True, capture_output=True)
    yield server
    server.stop()


def history(server: Dev, thread: str, run: str) -> dict:
    answer = server.get(f"{thread}/runs/{run}/history").json()
    for place in ("through", "indexedTo"):
        del answer[place]
    for fork in answer["forks"]:
        for alternative in fork["alternatives"]:
            del alternative["startedAt"]
    return answer


async def test_recordings_have_the_bytes_that_were_given_and_the_history_of_skein_publish(dev: Dev, published_by_command: Dev):
    threads = recordings()
    assert len(threads) == 46 and sum(map(len, threads)) == 69

    async def one(n: int, thread) -> None:
        for run in thread:
            stats = (await publish(skein, run.input, in_form(run.events, n))).stats
            assert (stats.dropped, stats.refused) == (0, 0), (run.name, stats)
            assert await skein.flush(30)

    async with Skein(dev.url) as skein:
        await asyncio.gather(*[one(n, thread) for n, thread in enumerate(threads)])
    for thread in threads:
        for run in thread:
            assert dev.events(run.thread, run.run) == [e for e in published_by_command.events(run.thread, run.run)], run.name
            assert history(dev, run.thread, run.run) == history(published_by_command, run.thread, run.run), run.name
            if not any(b'"THINKING_' in event for event in run.events):  # its malformed events are no raw events of the run
                assert dev.events(run.thread, run.run) == run.events, run.name


async def test_objects_are_written_as_the_encoder_of_ag_ui_does(dev: Dev):
    adapter = TypeAdapter(Event)
    unknown = 0
    for run in (run for thread in recordings() for run in thread):
        for event in run.events:
            try:
                model = adapter.validate_json(event)
            except ValidationError:
                unknown += b'"THINKING_' in event
                assert b'"THINKING_' in event, event
                continue
            assert b"data: " + encode(model) + b"\n\n" == EventEncoder().encode(model).encode()
    assert unknown == 12
    run_input = RunAgentInput.model_validate(an_input())
    events = [adapter.validate_python(event) for event in a_run(run_input.model_dump(by_alias=True))]
    async with Skein(dev.url, agent="helper") as skein:
        await publish(skein, run_input, events)
        assert dev.events(run_input.thread_id, "r") == [encode(event) for event in events]
        assert (await skein.lineage(run_input.thread_id))["runs"][0]["agent"] == "helper"


async def test_dicts_keep_every_character(dev: Dev):
    run_input = an_input()
    events = a_run(run_input)
    events[2]["delta"] = "Zürich \ud83d 東京 \u2028 \n"
    async with Skein(dev.url, labels={"team": "Zürich"}) as skein:
        run = await publish(skein, run_input, events)
    assert [json.loads(event) for event in dev.events(run.thread_id, "r")] == events
    assert "東京".encode() in dev.events(run.thread_id, "r")[2]


async def test_what_is_no_event_is_counted_and_costs_only_itself(dev: Dev, caplog: pytest.LogCaptureFixture):
    lost = []
    run_input = an_input()
    events = a_run(run_input)
    strange = [{"no": "type"}, "{broken", object(), {"type": "RAW", "event": float("nan")}, "data: [DONE]\n\n", {"type": "NO_SUCH_TYPE"}]
    mixed = [events[0], *strange, *events[1:]]
    async with Skein(dev.url, on_lost=lambda run, events, reason: lost.append((events, reason))) as skein:
        run = await publish(skein, run_input, mixed)
        assert run.stats.refused == 5 and run.stats.unreadable == 1 and run.stats.dropped == 0
        assert run.stats.published == len(events) + 1
        assert sum(n for n, _ in lost) == 6
        assert [record.levelname for record in caplog.records if record.name == "skein_agui"] == ["WARNING"]
        assert run.stats.reason in caplog.text
    assert [json.loads(event) for event in dev.events(run.thread_id, "r")] == [events[0], strange[-1], *events[1:]]
    assert dev.get(f"{run.thread_id}/runs/r").json()["stats"]["anomalies"]["seq-gap"] > 0


async def test_two_publishers_of_one_run(dev: Dev):
    run_input = an_input()
    events = a_run(run_input)
    others = [*events[:2], {**events[2], "delta": "other"}, *events[3:]]
    async with Skein(dev.url) as one, Skein(dev.url) as two:
        first = await publish(one, run_input, events)
        second = await publish(two, run_input, others)
    assert (first.stats.published, first.stats.refused) == (7, 0)
    assert (second.stats.published, second.stats.refused) == (6, 1)  # of the six, Skein has the same bytes
    assert "something else" in second.stats.reason
    assert [json.loads(event) for event in dev.events(run_input["threadId"], "r")] == events


async def test_a_caller_that_leaves_closes_the_agent_and_ends_the_run(dev: Dev):
    run_input = an_input()
    closed = []

    async def agent():
        try:
            for event in a_run(run_input, end=False):
                yield event
            await asyncio.sleep(60)
        finally:
            closed.append(True)

    async def endpoint():
        async with skein.run(run_input) as run:
            async for event in run.publish(agent()):
                yield event

    async def caller():
        async for _ in endpoint():
            pass

    async with Skein(dev.url) as skein:
        task = asyncio.create_task(caller())
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert closed == [True]
        assert await skein.flush(10)
        history = await skein.history(run_input["threadId"])
    assert history["status"] == "error"
    assert history["error"] == {"message": "the stream broke off: CancelledError", "code": "agent-cut"}
    assert history["messages"][-1]["content"] == "0 1 2 "


async def test_errors_of_the_agent_reach_the_caller_and_the_record(dev: Dev):
    run_input = an_input()

    async def agent():
        yield a_run(run_input)[0]
        raise ZeroDivisionError("secret")

    async with Skein(dev.url) as skein:
        with pytest.raises(ZeroDivisionError):
            async with skein.run(run_input) as run:
                async for _ in run.publish(agent()):
                    pass
        assert await skein.flush(10)
        assert (await skein.history(run_input["threadId"]))["error"]["message"] == "the stream broke off: ZeroDivisionError"


@pytest.mark.parametrize("events", [a_run(an_input("t"), end=False), ["neither JSON nor an event"], []])
async def test_a_stream_without_an_end_gets_one(dev: Dev, events: list):
    run_input = an_input()
    async with Skein(dev.url) as skein:
        await publish(skein, run_input, events)
        assert (await skein.history(run_input["threadId"]))["error"]["code"] == "agent-no-end"


async def test_two_runs_in_one_stream(dev: Dev):
    first = an_input()
    second, again = {**first, "runId": "r2"}, a_run({**first, "runId": "r2"})
    again[1]["messageId"] = again[2]["messageId"] = again[3]["messageId"] = again[4]["messageId"] = again[5]["messageId"] = "a2"
    async with Skein(dev.url) as skein:
        run = await publish(skein, first, a_run(first) + a_run(second) + again)
        assert run.stats.published == 21
        runs = (await skein.lineage(first["threadId"]))["runs"]
        assert [(r["runId"], r.get("parentRunId"), r["status"]) for r in runs] == [
            ("r", None, "finished"),
            ("r2", "r", "finished"),
            ("r2~2", "r2", "finished"),
        ]


async def test_a_restart_of_skein_in_the_middle_costs_nothing(own_dev: Dev):
    run_input = an_input()
    events = a_run(run_input, deltas=40)

    async def agent():
        for n, event in enumerate(events):
            yield event
            await asyncio.sleep(0.02)
            if n == 10:
                await asyncio.to_thread(own_dev.stop)
            if n == 20:
                starting.append(asyncio.create_task(asyncio.to_thread(own_dev.start)))

    starting: list[asyncio.Task] = []
    async with Skein(own_dev.url) as skein:
        async with skein.run(run_input) as run:
            assert [e async for e in run.publish(agent())] == events
        await starting[0]
        assert await skein.flush(30)
    assert run.stats.published == len(events) and run.stats.reason is None
    assert [json.loads(event) for event in own_dev.events(run.thread_id, "r")] == events


PROGRAM = """
import json, logging, sys
sys.path[:0] = [{source!r}, {tests!r}]
from conftest import a_run
from skein_agui import Skein
logging.basicConfig(format="%(message)s")
run_input = json.loads(sys.argv[2])
skein = Skein(sys.argv[1], flush_timeout=float(sys.argv[3]), on_lost=lambda run, n, why: print("lost", n, flush=True))
run = skein.run(run_input)
run._open()  # without a context, whose end would wait
for event in a_run(run_input):
    run.put(event)
run.close()
"""


def run_program(url: str, run_input: dict, deadline: float) -> subprocess.CompletedProcess:
    program = PROGRAM.format(source=SOURCE, tests=str(Path(__file__).parent))
    command = [sys.executable, "-c", program, url, json.dumps(run_input), str(deadline)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, env={**os.environ, "NO_PROXY": "*"})


def test_the_exit_of_python_sends_what_is_left(dev: Dev):
    """Nothing is connected by then, and the host's name not resolved."""
    run_input = an_input()
    done = run_program(dev.url.replace("127.0.0.1", "localhost"), run_input, 10)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [json.loads(event) for event in dev.events(run_input["threadId"], "r")] == a_run(run_input)


def test_the_exit_of_python_ends_at_its_deadline_and_tells():
    done = run_program("http://127.0.0.1:9", an_input(), 0.7)
    assert (done.returncode, done.stdout) == (0, "lost 7\n")
    assert done.stderr.count("\n") == 1 and "within the 0.7 s before the exit" in done.stderr


def test_logging_has_no_events(dev: Dev, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG, "skein_agui")
    run_input = an_input(text="a secret")
    asyncio.run(_publish_alone(dev.url, run_input))
    assert "secret" not in "".join(record.getMessage() for record in caplog.records if record.name == "skein_agui")


async def _publish_alone(url: str, run_input: dict) -> None:
    async with Skein(url) as skein:
        await publish(skein, run_input, [{"type": "RAW", "event": {1, 2}}, *a_run(run_input)])
