"""Makes a capture: ag-ui-adk with emit_messages_snapshot=True over a model that answers from a list.

Prints the response body, as SSE, of the run that capture.input.json asks for. Needs ag-ui-adk and google-adk.
"""

import asyncio
import json
import pathlib
import sys

from ag_ui.core import RunAgentInput
from ag_ui.encoder import EventEncoder
from ag_ui_adk import ADKAgent
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types


def weather(city: str) -> str:
    """Tells the weather of a city."""
    return f"{city}: 20C"


class ListedModel(BaseLlm):
    """Says one text with two tool calls, and another text once the tools have answered."""

    async def generate_content_async(self, llm_request, stream=False):
        answered = any(
            part.function_response
            for content in llm_request.contents
            for part in content.parts or []
        )
        if answered:
            text = "It is 20C in both."
            parts = []
        else:
            text = "Let me check. "
            parts = [
                types.Part.from_function_call(name="weather", args={"city": city})
                for city in ("Paris", "Rome")
            ]
        if stream:
            for word in text.split():
                yield LlmResponse(
                    content=types.Content(role="model", parts=[types.Part(text=word + " ")]),
                    partial=True,
                )
        yield LlmResponse(
            content=types.Content(role="model", parts=[types.Part(text=text), *parts]),
            partial=False,
        )


async def main() -> None:
    agent = ADKAgent(
        adk_agent=LlmAgent(name="assistant", model=ListedModel(model="listed"), tools=[weather]),
        app_name="evidence",
        user_id="user",
        use_in_memory_services=True,
        emit_messages_snapshot=True,
    )
    asked = pathlib.Path(__file__).with_name("capture.input.json")
    request = RunAgentInput.model_validate(json.loads(asked.read_text()))
    encoder = EventEncoder()
    async for event in agent.run(request):
        sys.stdout.write(encoder.encode(event))


if __name__ == "__main__":
    asyncio.run(main())
