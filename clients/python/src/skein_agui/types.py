"""Answers of Skein, as its OpenAPI document describes them. A message is an AG-UI message, a position "partition:offset"."""

from typing import Any, Literal, TypedDict

Status = Literal["running", "finished", "error", "interrupted", "cancelled", "abandoned"]
Basis = Literal["input", "parent", "inferred", "none"]
ParentBy = Literal["explicit", "content", "latest", "none"]
Object = dict[str, Any]


class _Thread(TypedDict):
    threadId: str
    runs: int
    openRuns: int
    branches: int
    messages: int
    startedAt: str
    updatedAt: str
    lastRunId: str
    status: Status


class Thread(_Thread, total=False):
    title: str
    archived: bool


# Members that may be absent are in the class, the others in its base: NotRequired needs Python 3.11.
_Threads = TypedDict("_Threads", {"threads": list[Thread], "indexedTo": list[str]})
_Branch = TypedDict("_Branch", {"branchId": str, "runs": list[str], "tipRunId": str})
_Cancelled = TypedDict("_Cancelled", {"threadId": str, "runId": str, "position": str, "end": str, "status": Status})


class Threads(_Threads, total=False):
    next: str


class Branch(_Branch, total=False):
    parentBranchId: str
    forkRunId: str


class Cancelled(_Cancelled, total=False):
    synthetic: bool


class _LineageRun(TypedDict):
    runId: str
    parentBy: ParentBy
    branchId: str
    rootRunId: str
    depth: int
    status: Status
    messageCount: int
    startedAt: str
    first: str
    row: int


class LineageRun(_LineageRun, total=False):
    clientRunId: str
    parentRunId: str
    spawnedBy: str
    spawned: bool
    rewrote: list[str]
    agent: str
    endedAt: str
    stopped: bool
    synthetic: bool
    truncated: bool
    rawLost: bool
    parentInferred: bool
    durationMs: int
    question: str
    answer: str
    resumed: str
    resolution: str


class Lineage(TypedDict):
    threadId: str
    runs: list[LineageRun]
    branches: list[Branch]
    spawns: list[Object]
    tips: list[str]
    tipRunId: str
    picture: Object
    indexedTo: str


_From = TypedDict("_From", {"from": int})  # a keyword of Python


class _History(_From):
    threadId: str
    runId: str
    status: Status
    basis: Basis
    messages: list[Object]
    total: int
    state: Any
    forks: list[Object]
    through: str
    indexedTo: str


class History(_History, total=False):
    synthetic: bool
    truncated: bool
    rawLost: bool
    parentInferred: bool
    error: dict[str, str]
    interrupts: list[Object]
