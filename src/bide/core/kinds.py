"""Kinds of stores in one word each, as metrics, prices and counts name them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

KINDS: Mapping[str, str] = MappingProxyType(
    {"postgres": "postgresql", "valkey": "redis", "valkeys": "redis", "rediss": "redis"}
)
"""The kind of store that a scheme of addresses means where it is another word."""


def kind_of(scheme: str) -> str:
    """The kind of store of an address with ``scheme``, known or not."""
    return KINDS.get(scheme, scheme)
