"""An agent without a framework, for uvicorn: each run begins and ends."""
import json


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    run = json.loads(body or b"{}")
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for kind in ("RUN_STARTED", "RUN_FINISHED"):
        event = {"type": kind, "threadId": run.get("threadId"), "runId": run.get("runId")}
        await send({"type": "http.response.body", "body": f"data: {json.dumps(event)}\n\n".encode(), "more_body": True})
    await send({"type": "http.response.body", "body": b""})
