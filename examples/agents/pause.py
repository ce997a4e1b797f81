"""A pause before each event, as a real model makes: AGENT_PAUSE, in seconds; 0.1 where it is not set."""
import asyncio
import os


def between_events(response):
    body = response.body_iterator

    async def slowly():
        async for chunk in body:
            yield chunk
            await asyncio.sleep(float(os.environ.get("AGENT_PAUSE", "0.1")))

    response.body_iterator = slowly()
    return response
