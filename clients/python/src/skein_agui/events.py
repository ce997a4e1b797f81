"""Events as bytes: of AG-UI's objects, and out of server-sent events."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")  # a CR at the end may be half of a CRLF


def encode(value: Any) -> bytes:
    """Returns a model as AG-UI's own encoder writes it, any other value as compact JSON, and text as it is, in UTF-8."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, BaseModel):
        return value.model_dump_json(by_alias=True).encode()
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # Half of a surrogate pair, as deltas may have, has no UTF-8. With backslashreplace it becomes JSON's escape.
    return bytes(value.encode("utf-8", "backslashreplace"))


class SSE:
    """Reads server-sent events from pieces that end anywhere. id is the last event id so far."""

    def __init__(self) -> None:
        self.id = ""
        self._pieces: list[bytes] = []
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> Iterator[tuple[str, bytes]]:
        """Yields the id and the data of each event that the piece completes. The data is empty if there is only an id."""
        if piece:
            self._pieces.append(piece)
        if b"\n" not in piece and b"\r" not in piece:
            return
        *lines, rest = _LINE_END.split(b"".join(self._pieces))
        self._pieces = [rest] if rest else []
        for line in lines:
            if not line:
                data, self._data = b"\n".join(self._data), []
                yield self.id, data
                continue
            name, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
            elif name == b"id":
                self.id = value.removeprefix(b" ").decode("utf-8", "replace")

    @property
    def partial(self) -> bool:
        """Whether an event has begun and not ended."""
        return bool(self._pieces or self._data)
