"""Unsuccessful answers of Skein."""

from __future__ import annotations

import json
from typing import Any

import httpx

# What to do, where Skein's own text cannot know it.
_ADVICE = {
    0: "is Skein running there? Start it with `skein dev`, or pass another url",
    401: "pass a valid api_key",
    403: "use a key with the scope that the call needs: publish to record and stop, read for the rest",
    421: "pass the address of ingest as url, and that of query as read_url",
}


class SkeinError(Exception):
    """Skein refused a call, or did not answer it (status 0). The text says what happened and what to do.

    reason is a short name for programs, such as "run-ended"; retry_after is in seconds, None if Skein named no time.
    """

    def __init__(self, status: int, reason: str, detail: str, retry_after: float | None = None) -> None:
        self.status, self.reason, self.detail, self.retry_after = status, reason, detail, retry_after
        self._bad: int | None = None  # which event of the request was refused, counted from 0; Kafka acknowledged those before it
        text = f"{detail} (HTTP {status})" if status else detail
        if status in _ADVICE:
            text += f": {_ADVICE[status]}"
        elif self.transient:
            text += ": try again later" if retry_after is None else f": try again in {retry_after:g} s"
        super().__init__(text)

    @property
    def transient(self) -> bool:
        """Whether the same call may succeed later."""
        return self.status in (0, 408, 425, 429) or self.status >= 500 or self.reason == "cut"  # what Skein calls a broken connection


def object_of(text: bytes) -> dict[str, Any]:
    """Returns a JSON object, {} if the text is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # too deep
        return {}
    return value if isinstance(value, dict) else {}


def unanswered(error: httpx.RequestError, url: str) -> SkeinError:
    """Returns the error of a call without an answer."""
    if isinstance(error, httpx.LocalProtocolError):  # nothing was sent, such as a label with a line break
        return SkeinError(400, "invalid-request", f"the request cannot be sent: {error}")
    return SkeinError(0, "unreachable", f"no answer from {url} ({str(error) or type(error).__name__})")


def refusal(answer: httpx.Response) -> SkeinError:
    """Returns the error of an answer that is no success, and that was read."""
    problem = object_of(answer.content)  # {} if something in between answered
    first_line = answer.text.strip().split("\n", 1)[0][:300]
    detail = problem.get("detail") or problem.get("title") or (not problem and first_line) or answer.reason_phrase
    seconds = answer.headers.get("Retry-After", "")
    error = SkeinError(answer.status_code, problem.get("reason", ""), detail, float(seconds) if seconds.isdecimal() else None)
    if "line" in problem:
        error._bad = problem.get("accepted")
    return error
