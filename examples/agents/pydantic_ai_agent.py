"""An agent of pydantic-ai that speaks AG-UI. Its model is a fake, so it needs no key.

    python pydantic_ai_agent.py 8001
"""
import sys

import uvicorn
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.routing import Route

from pause import between_events

agent = Agent(TestModel(custom_output_text="Hello from an agent of pydantic-ai."))


async def run(request):
    return between_events(await AGUIAdapter.dispatch_request(request, agent=agent))


uvicorn.run(Starlette(routes=[Route("/", run, methods=["POST"])]), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
