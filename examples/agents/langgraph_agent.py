"""A graph of LangGraph that speaks AG-UI. Its model is a fake, so it needs no key.

    python langgraph_agent.py 8002
"""
import itertools
import sys

import uvicorn
from ag_ui_langgraph import LangGraphAgent
from ag_ui.core import RunAgentInput
from ag_ui.encoder import EventEncoder
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route

from pause import between_events

model = GenericFakeChatModel(messages=itertools.cycle([AIMessage(content="Hello from a graph of LangGraph.")]))


async def chat(state, config):
    return {"messages": [await model.ainvoke(state["messages"], config)]}


graph = StateGraph(MessagesState)
graph.add_node("chat", chat)
graph.add_edge(START, "chat")
graph.add_edge("chat", END)
agent = LangGraphAgent(name="chat", graph=graph.compile(checkpointer=InMemorySaver()))


# What ag_ui_langgraph.add_langgraph_fastapi_endpoint does, with a pause between events.
async def run(request):
    called = RunAgentInput.model_validate_json(await request.body())
    encoder = EventEncoder(accept=request.headers.get("accept"))
    events = (encoder.encode(event) async for event in agent.clone().run(called))
    return between_events(StreamingResponse(events, media_type=encoder.get_content_type()))


uvicorn.run(Starlette(routes=[Route("/", run, methods=["POST"])]), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
