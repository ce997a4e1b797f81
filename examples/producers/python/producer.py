"""Sends runs to skein.events as docs/producing.md says: producer.py BROKERS TOPIC FILE

FILE is JSON Lines. A line with "run" begins a run and says whose it is: {"tenant": …, "thread": …, "run": …, "agent": …}.
A line with "type" is an event of that run, any other line its input. Inputs and events are sent as they stand there.
"""

import json
import sys
from urllib.parse import quote

from confluent_kafka import Producer

PART = {"safe": ""}  # of a key: A-Z a-z 0-9 - . _ ~ stay, every other byte of the UTF-8 becomes %XX


def main(brokers, topic, file):
    producer = Producer({
        "bootstrap.servers": brokers,
        "partitioner": "murmur2_random",  # Java's; librdkafka's own default puts threads elsewhere
        "acks": "all",
        "enable.idempotence": True,  # retries of the client neither double nor reorder
        "compression.type": "zstd",
        "message.max.bytes": 16 * 1024 * 1024 + 64 * 1024,  # one event of 16 MiB with its key and headers
    })
    failed = []

    def acknowledged(error, _):
        if error:
            failed.append(error)

    def send(line, kind, seq=None):
        headers = {"skein-version": "1", "skein-kind": kind, "run-id": run["run"]}
        if seq is not None:
            headers["seq"] = str(seq)
        if "agent" in run:
            headers["agent"] = run["agent"]
        headers = {name: value.encode() for name, value in headers.items()}  # a str would end at a NUL
        while not failed:
            try:
                return producer.produce(topic, key=key, value=line, headers=headers, on_delivery=acknowledged)
            except BufferError:  # the queue is full: wait for acknowledgements
                producer.poll(0.1)

    with open(file, "rb") as lines:
        for line in lines:
            line = line.rstrip(b"\r\n")
            members = json.loads(line)
            if "type" in members:
                send(line, "event", seq)
                seq += 1  # from 0 in each run, so that events which are sent again are dropped
            elif "run" in members:
                run, seq = members, 0
                key = quote(run["tenant"], **PART) + "/" + quote(run["thread"], **PART)
            else:
                send(line, "input")  # before the run's first event, without a number
            producer.poll(0)
            if failed:  # nothing may be written behind a gap
                producer.purge()
                break
    producer.flush()
    if failed:
        sys.exit(f"not all was sent: {failed[0]}; send the file again")


main(*sys.argv[1:])
