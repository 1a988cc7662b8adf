"""What an examination of a store finds: one finding for each thing that the design needs of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Judgement = Literal["good", "doubtful", "refused", "unknown"]
"""``good``: as it should be. ``doubtful``: it works, and may cost or lose something. ``refused``: bide does not run
on it. ``unknown``: it could not be found out, for want of a permission for example."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one thing. ``subject`` names it (``"round trip"``), ``found`` says what there is.

    ``step`` is what to do about it, empty where it is good. ``value`` and ``unit`` give a measured number.
    """

    subject: str
    judgement: Judgement
    found: str
    step: str = ""
    value: float | None = None
    unit: str = ""


def is_usable(findings: list[Finding]) -> bool:
    """Whether bide runs on what was examined."""
    return all(finding.judgement != "refused" for finding in findings)
