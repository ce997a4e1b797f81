"""The same without asyncio."""

import threading

import pytest

from conftest import Dev, a_run, an_input
from skein_agui import SkeinError
from skein_agui.sync import Skein
from test_read import text_of


def test_publish_and_read(dev: Dev):
    run_input = an_input()
    thread, events = run_input["threadId"], a_run(run_input)
    with Skein(dev.url, agent="helper") as skein:
        got = []
        reader = threading.Thread(target=lambda: got.extend(skein.stream(thread, "r")))
        reader.start()
        with skein.run(run_input, labels={"user": "ann"}) as run:
            assert list(run.publish(iter(events))) == events
        assert (run.stats.published, run.stats.reason) == (7, None)
        reader.join(20)
        assert text_of(got) == "0 1 2 " and got[-1] == events[-1]
        assert skein.history(thread)["messages"][-1]["content"] == "0 1 2 "
        assert skein.lineage(thread)["tipRunId"] == "r"
        assert [b["branchId"] for b in skein.branches(thread)] == ["r"]
        assert skein.checkout(thread, "r", at=3).messages[-1].content == "0 "
        assert skein.threads(prefix=thread)["threads"][0]["threadId"] == thread
        with pytest.raises(SkeinError, match="had ended"):
            skein.cancel(thread, "r")
        assert skein.flush(1)


def test_a_caller_that_leaves_ends_agent_and_run(dev: Dev):
    run_input = an_input()
    closed = []

    def agent():
        try:
            yield from a_run(run_input, end=False)
        finally:
            closed.append(True)

    with Skein(dev.url) as skein:
        with pytest.raises(KeyboardInterrupt), skein.run(run_input) as run:
            stream = run.publish(agent())
            next(stream)
            stream.close()
            raise KeyboardInterrupt
        assert closed and skein.flush(10)
        assert skein.history(run_input["threadId"])["error"]["message"] == "the stream broke off: KeyboardInterrupt"


def test_a_reader_that_leaves_closes_its_stream(dev: Dev):
    run_input = an_input()
    with Skein(dev.url) as skein:
        with skein.run(run_input) as run:
            run.put(a_run(run_input)[0])
        for event in skein.stream(run_input["threadId"]):
            assert event["type"] == "RUN_STARTED"
            break
