"""The app's agent: pydantic-ai with its TestModel, so it needs no key. It answers what it was asked, a word at a time.

    python agent.py 8000
"""
import asyncio
import os
import sys
import time

import uvicorn
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.routing import Route

agent = Agent(instructions="Help to plan a trip.")


async def run(request):
    adapter = await AGUIAdapter.from_request(request, agent=agent)
    asked = [message.content for message in adapter.run_input.messages if message.role == "user"]
    answer = (f"“{asked[-1]}” is question {len(asked)} here, at {time.strftime('%H:%M:%S')}. I answer slowly, so that you can "
              "reload the page, open it in another tab, or kill what stands in between: the answer goes on. Skein reads it from me and "
              "keeps every event, whoever listens. Edit your question or ask for another answer, and both versions stay.")

    async def slowly():
        async for event in adapter.run_stream(model=TestModel(custom_output_text=answer)):
            yield event
            await asyncio.sleep(float(os.environ.get("AGENT_PAUSE", "0.15")))

    return adapter.streaming_response(slowly())


uvicorn.run(Starlette(routes=[Route("/", run, methods=["POST"])]), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
