"""Events as bytes: of AG-UI's objects, and out of server-sent events."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel

MAX_BYTES = 16 << 20  # of an event, or an input: ingest takes none above

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

    def __init__(self, limit: int | None = None, on_comment: Callable[[bytes], None] | None = None) -> None:
        self.id = ""
        self._limit, self._on_comment = limit, on_comment
        self._pieces: list[bytes] = []
        self._data: list[bytes] = []
        self._size = self._data_size = 0  # of both, of data, in bytes of memory
        self._dropping = False  # to the end of an event

    def feed(self, piece: bytes) -> Iterator[tuple[str, bytes | None]]:
        """Yields the id and the data of each event that the piece completes. The data is empty if there is only an id.

        It is None for an event that is dropped, because limit bytes of it have come without its end.
        """
        if piece:
            self._pieces.append(piece)
            self._size += len(piece)
        if b"\n" in piece or b"\r" in piece:
            yield from self._lines()
        if self._limit and self._size > self._limit:
            # What follows of the line becomes a comment. Its last byte may be a CR.
            self._pieces = [b":" + self._pieces[-1][-1:]] if self._pieces else []
            self._data, self._size, self._data_size = [], 0, 0
            if not self._dropping:
                self._dropping = True
                yield self.id, None

    def _lines(self) -> Iterator[tuple[str, bytes]]:
        *lines, rest = _LINE_END.split(b"".join(self._pieces))
        self._pieces = [rest] if rest else []
        for line in lines:
            if not line:
                data, self._data, self._data_size, self._dropping = b"\n".join(self._data), [], 0, False
                yield self.id, data
                continue
            name, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")
            if name == b"data" and not self._dropping:
                self._data.append(value.removeprefix(b" "))
                self._data_size += len(line) + 40
            elif not name and self._on_comment:
                self._on_comment(value.strip())
            elif name == b"id":
                self.id = value.removeprefix(b" ").decode("utf-8", "replace")
        self._size = len(rest) + self._data_size

    @property
    def partial(self) -> bool:
        """Whether an event has begun and not ended."""
        return bool(self._pieces or self._data or self._dropping)
