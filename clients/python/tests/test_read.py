"""Reading from a real Skein."""

import asyncio
import json

import pytest

from conftest import ROOT, CuttingProxy, Dev, a_run, an_input, play
from skein_agui import LiveEvent, Skein, SkeinError, types


async def publish(skein: Skein, run_input: dict, events: list | None = None) -> None:
    async with skein.run(run_input) as run:
        async for _ in run.publish(play(a_run(run_input) if events is None else events)):
            pass


async def test_reads(dev: Dev):
    first = an_input(f"thread/é-{id(dev)}")
    thread = first["threadId"]
    async with Skein(dev.url) as skein:
        await publish(skein, first)
        history = await skein.history(thread)
        assert history == await skein.history(thread, "r")
        assert [m["content"] for m in history["messages"]] == ["Hello", "0 1 2 "]
        for run, text in (("edit", "Bye"), ("more", "Hello")):
            checkout = await skein.checkout(thread, "r")
            edited = {**first, "runId": run, "messages": [{"id": f"{run}-1", "role": "user", "content": text}]}
            if run == "more":
                edited["messages"] = [m.model_dump(by_alias=True) for m in checkout.messages] + edited["messages"]
            events = a_run(edited)
            for event in events:
                if "messageId" in event:
                    event["messageId"] = run
            await publish(skein, edited, events)
        assert {b["branchId"] for b in await skein.branches(thread)} == {"r", "edit"}
        assert [r["runId"] for r in (await skein.lineage(thread))["runs"]] == ["r", "edit", "more"]
        middle = await skein.checkout(thread, "r", at=4)
        assert (middle.thread_id, middle.messages[-1].content) == (thread, "0 1 ")
        assert middle.run_id not in ("r", "edit", "more")
        listed = await skein.threads(prefix="thread/")
        assert [t["threadId"] for t in listed["threads"]] == [thread]
        await skein.update_thread(thread, title="Ein Gruß", archived=True)
        while not (listed := (await skein.threads(prefix="thread/", archived="yes"))["threads"]):  # a list does not wait for the index
            await asyncio.sleep(0.05)
        assert [(t["threadId"], t.get("title"), t.get("archived")) for t in listed] == [(thread, "Ein Gruß", True)]
        with pytest.raises(SkeinError) as caught:
            await skein.update_thread(thread, title="two\nlines")
        assert caught.value.status == 400
        with pytest.raises(SkeinError) as caught:
            await skein.history("no such thread")
        assert caught.value.status == 404
        for run in ("r", None):
            with pytest.raises(SkeinError) as caught:
                await skein.cancel(thread, run, "too late")
            assert (caught.value.status, caught.value.reason) == (409, "run-ended")


async def test_cancel_of_a_run_that_nobody_can_stop_says_so(dev: Dev):
    run_input = an_input()
    async with Skein(dev.url) as skein:
        async with skein.run(run_input) as run:
            run.put(a_run(run_input)[0])
            assert await skein.flush(10)
            with pytest.raises(SkeinError) as caught:
                await skein.cancel(run_input["threadId"], "r", "enough")
        assert (caught.value.status, caught.value.reason) == (409, "not-ended")


async def read(events, of: list[LiveEvent] | None = None) -> list[LiveEvent]:
    of = [] if of is None else of
    async for event in events:
        of.append(event)
    return of


def text_of(events: list[LiveEvent]) -> str:
    """Returns the assistant's text, as a client would hold it that joined in the middle."""
    text = ""
    for event in events:
        if event["type"] == "MESSAGES_SNAPSHOT":
            text = "".join(m["content"] for m in event["messages"] if m["role"] == "assistant")
        text += event.get("delta", "")
    return text


async def test_a_stream_waits_for_its_run_and_ends_with_it(dev: Dev):
    run_input = an_input()
    async with Skein(dev.url) as skein:
        reader = asyncio.create_task(read(skein.stream(run_input["threadId"], "r")))
        await asyncio.sleep(0.3)
        await publish(skein, run_input)
        events = await asyncio.wait_for(reader, 20)
        assert text_of(events) == "0 1 2 " and events[-1]["type"] == "RUN_FINISHED"
        assert events[-1].id and await read(skein.stream(run_input["threadId"], "r", last_event_id=events[-1].id)) == []
        whole = await read(skein.stream(run_input["threadId"], "r", last_event_id="seq:0"))
        assert whole == a_run(run_input)[1:]
        assert await read(skein.stream(run_input["threadId"], "r", last_event_id=whole[2].id)) == whole[3:]


@pytest.mark.parametrize("whole_thread", [False, True])
async def test_a_stream_goes_on_through_a_proxy_that_cuts_it(dev: Dev, whole_thread: bool):
    run_input = an_input()
    events = a_run(run_input, deltas=120)
    proxy = CuttingProxy(dev.url, after=0.4)

    async def slowly():
        for event in events:
            yield event
            await asyncio.sleep(0.015)

    async with Skein(dev.url, read_url=proxy.url) as skein:
        got: list[LiveEvent] = []
        reader = asyncio.create_task(read(skein.stream(run_input["threadId"], None if whole_thread else "r"), got))
        async with skein.run(run_input) as run:
            async for _ in run.publish(slowly()):
                pass
        if whole_thread:
            while not any(e["type"] == "RUN_FINISHED" for e in got):
                await asyncio.sleep(0.05)
            reader.cancel()
        else:
            await asyncio.wait_for(reader, 20)
    proxy.close()
    assert proxy.cuts >= 3
    assert text_of(got) == "".join(f"{n} " for n in range(120)) and got[-1] == events[-1]


async def test_the_stream_of_an_erased_thread_ends(dev: Dev):
    run_input = an_input()
    async with Skein(dev.url) as skein:
        await publish(skein, run_input)
        got: list[LiveEvent] = []
        reader = asyncio.create_task(read(skein.stream(run_input["threadId"]), got))
        while not any(e["type"] == "RUN_FINISHED" for e in got):
            await asyncio.sleep(0.05)
        (await skein._call("DELETE", f"/v1/threads/{run_input['threadId']}"))
        await asyncio.wait_for(reader, 20)
        assert got[-1]["code"] == "skein-erased"


async def test_publishing_through_a_proxy_that_cuts_connections(dev: Dev):
    run_input = an_input()
    events = a_run(run_input, deltas=100)
    proxy = CuttingProxy(dev.url, after=0.15)
    async with Skein(proxy.url, read_url=dev.url, linger=0.01) as skein:
        async with skein.run(run_input) as run:
            for event in events:
                run.put(event)
                await asyncio.sleep(0.01)
        assert await skein.flush(20)
    proxy.close()
    assert proxy.cuts >= 3 and run.stats.published == len(events) and run.stats.reason is None
    assert [json.loads(e) for e in dev.events(run_input["threadId"], "r")] == events


async def test_one_client_serves_many_loops(dev: Dev):
    skein = Skein(dev.url)
    run_input = an_input()
    await publish(skein, run_input)
    for _ in range(2):
        other = await asyncio.to_thread(lambda: asyncio.run(skein.history(run_input["threadId"])))
        assert other == await skein.history(run_input["threadId"])
    await skein.close()


def test_types_are_those_of_the_openapi_document():
    schemas = json.loads((ROOT / "schemas/openapi.json").read_text())["components"]["schemas"]
    for ours, theirs in {
        types.Thread: "Thread",
        types.Threads: "Threads",
        types.Branch: "Branch",
        types.LineageRun: "LineageRun",
        types.Lineage: "Lineage",
        types.History: "History",
        types.Cancelled: "CancelledRun",
    }.items():
        schema = schemas[theirs]
        assert set(ours.__annotations__) == set(schema["properties"]), theirs
        assert ours.__required_keys__ == frozenset(schema["required"]), theirs
    assert list(types.Status.__args__) == schemas["Status"]["enum"]
    assert list(types.ParentBy.__args__) == schemas["ParentBy"]["enum"]
    assert list(types.Basis.__args__) == schemas["History"]["properties"]["basis"]["enum"]


async def test_cancel_stops_a_run_that_looks_for_it(dev: Dev):
    run_input = an_input()
    events = a_run(run_input, deltas=2000)
    ids = {"threadId": run_input["threadId"], "runId": "r"}
    async with Skein(dev.url, linger=0.05) as skein:
        cancelled = asyncio.create_task(skein.when_stopped(run_input["threadId"], "r"))
        async with skein.run(run_input) as run:
            async for _ in run.publish(play(events)):
                await asyncio.sleep(0.01)
                if run._seq == 50:
                    stop = asyncio.create_task(skein.cancel(ids["threadId"], "r", "enough"))
                if run.stop_requested:
                    run.put(events[-2])
                    run.put({"type": "RUN_FINISHED", **ids, "outcome": {"type": "cancelled"}})
                    break
        assert 50 <= run._seq < 1000
        stopped = await asyncio.wait_for(stop, 10)
        assert (stopped["status"], stopped.get("synthetic")) == ("cancelled", None)
        assert await asyncio.wait_for(cancelled, 10)
        assert run._watch.result()


async def test_a_run_that_ends_is_watched_no_longer(dev: Dev):
    run_input = an_input()
    async with Skein(dev.url) as skein:
        async with skein.run(run_input) as run:
            async for _ in run.publish(play(a_run(run_input))):
                assert not run.stop_requested
        assert run._watch.done() and not run.stop_requested
        assert not await skein.when_stopped(run_input["threadId"], "r")
