"""The reference model: everything in the memory of one process, gone when it ends."""

from bide.providers.memory.provider import MemoryProvider

__all__ = ["MemoryProvider"]
