"""The ``[cost]`` block."""

from __future__ import annotations

from bide.config.shape import Table, read_table, text

COST_KEYS = ("prices",)


def read_prices_file(root: Table) -> str | None:
    """The file of prices that the block names; None where there is none, or it is wrong (reported)."""
    if "cost" not in root:
        return None
    block = read_table(root.place.at("cost"), root.entries["cost"], COST_KEYS)
    return block.find("prices", text) if block is not None else None
