"""Skein for Python: record AG-UI runs while they stream, restore them, follow them, and branch from any event of theirs.

The same without asyncio is in skein_agui.sync.
"""

from .client import LiveEvent, Skein
from .errors import SkeinError
from .middleware import SkeinMiddleware
from .publish import Run, Stats

__all__ = ["LiveEvent", "Run", "Skein", "SkeinError", "SkeinMiddleware", "Stats"]
