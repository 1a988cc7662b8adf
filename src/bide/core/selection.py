"""JMESPath over exact numbers.

``jmespath`` knows only ``int`` and ``float``. Here numbers are ``int`` or ``Decimal``, and no function rounds:
what cannot be had exactly is an error, but for ``avg``, which keeps 34 digits. A literal of an expression is the
decimal that Python shows for its double, so that ``1.1`` is 1.1.
"""

from __future__ import annotations

import decimal
import re
import warnings
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.functions import Functions
from jmespath.visitor import Options, TreeInterpreter

from bide.core.canonical import canonical, read_json
from bide.core.shown import shown_text
from bide.errors import AnswerError, SettingError


class Selection:
    """One JMESPath expression, compiled once.

    Raises ``SettingError`` under the name ``setting`` for what is no expression, for a function that JMESPath
    has not, and for a call with the wrong number of arguments.
    """

    __slots__ = ("_tree", "expression")

    def __init__(self, expression: object, setting: str = "select") -> None:
        if not isinstance(expression, str):
            raise SettingError(setting, f"a JMESPath expression is text, not {type(expression).__name__}")
        self.expression = expression
        try:
            self._tree = _exact(parsed(expression), setting)
        except JMESPathError as error:
            reason = str(error).partition("\n")[0].removesuffix(", for expression:").rstrip(":")
            raise SettingError(setting, f"{shown_text(expression, 80)} is no JMESPath: {reason}") from None
        except RecursionError:
            raise SettingError(setting, f"{shown_text(expression, 80)} is nested too deeply") from None

    def of(self, value: object) -> Any:
        """What the expression selects of ``value``; None where that is nothing.

        Raises ``AnswerError`` where it cannot be worked out for this value (a sum of texts, say).
        """
        try:
            return _INTERPRETER.visit(self._tree, value)
        except AnswerError:
            raise
        except decimal.Inexact:
            reason = f"the result has more than {_EXACT.prec} digits"
        except Exception as error:  # whatever an evaluator raises is about this answer
            reason = (str(error) or type(error).__name__)[:200]
        raise AnswerError("", f"{shown_text(self.expression, 80)} cannot be worked out: {reason}")

    def __repr__(self) -> str:
        return f"Selection({self.expression!r})"


def parsed(expression: str) -> Any:
    """The syntax tree of ``expression``; raises what ``jmespath`` raises for what is none.

    Text in backquotes that is no JSON (`` `done` ``), an older form that is much used, is read as text.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        return jmespath.compile(expression).parsed


def _exact(node: Any, setting: str) -> Any:
    """A copy of a syntax tree (the parser caches its own) with exact literals and checked function calls."""
    if not isinstance(node, dict):  # the bounds of a slice
        return node
    kind, value = node["type"], node.get("value")
    if kind == "literal":
        return {**node, "value": _exact_literal(value)}
    children = [_exact(child, setting) for child in node["children"]]
    if kind == "function_expression":
        _check_call(str(value), len(children), setting)
    return {**node, "children": children}


def _exact_literal(value: Any) -> Any:
    match value:
        case float():
            return Decimal(repr(value))
        case list():
            return [_exact_literal(element) for element in value]
        case dict():
            return {name: _exact_literal(member) for name, member in value.items()}
        case _:
            return value


def _check_call(name: str, given: int, setting: str) -> None:
    known = _ExactFunctions.FUNCTION_TABLE.get(name)
    if known is None:
        there = ", ".join(sorted(_ExactFunctions.FUNCTION_TABLE))
        raise SettingError(setting, f"JMESPath has no function {name}(); it has {there}")
    wanted = len(known["signature"])
    more = bool(wanted and known["signature"][-1].get("variadic"))
    if given == wanted or (more and given > wanted):
        return
    least = "at least " if more else ""
    raise SettingError(setting, f"{name}() takes {least}{wanted} argument{'s' * (wanted != 1)}, not {given}")


# --- functions ---------------------------------------------------------------------------------------------

_EXACT = decimal.Context(
    prec=4300,
    Emin=decimal.MIN_EMIN,
    Emax=decimal.MAX_EMAX,
    traps=[decimal.Inexact, decimal.InvalidOperation, decimal.Overflow],
)
_ROUNDED = decimal.Context(prec=34, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX, traps=[decimal.Overflow])

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
"""A number as JSON writes it (RFC 8259, 6)."""


def _as_decimal(number: float | Decimal) -> Decimal:
    return Decimal(repr(number)) if isinstance(number, float) else Decimal(number)


def _abs(number: float | Decimal) -> float | Decimal:
    return number.copy_abs() if isinstance(number, Decimal) else abs(number)


def _ceil(number: float | Decimal) -> Decimal:
    return _as_decimal(number).to_integral_value(ROUND_CEILING)


def _floor(number: float | Decimal) -> Decimal:
    return _as_decimal(number).to_integral_value(ROUND_FLOOR)


def _sum(numbers: list[float | Decimal]) -> Decimal:
    total = Decimal(0)
    for number in numbers:
        total = _EXACT.add(total, _as_decimal(number))
    return total


def _avg(numbers: list[float | Decimal]) -> Decimal | None:
    return _ROUNDED.divide(_sum(numbers), Decimal(len(numbers))) if numbers else None


def _to_number(value: object) -> object:
    if isinstance(value, str):
        return read_json(value) if _NUMBER.fullmatch(value.strip()) else None
    return value if _type(value) == "number" else None


def _to_string(value: object) -> str:
    return value if isinstance(value, str) else canonical(value)


def _type(value: object) -> str | None:
    return _TYPES.get(type(value))


_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    list: "array",
    dict: "object",
    int: "number",
    float: "number",
    Decimal: "number",
    type(None): "null",
}


class _ExactFunctions(Functions):  # type: ignore[misc]  # jmespath carries no types
    """The functions of JMESPath, taking ``Decimal`` for a number."""

    def _get_allowed_pytypes(self, types: list[str]) -> tuple[list[str], list[tuple[str, ...]]]:
        allowed, elements = super()._get_allowed_pytypes(types)
        return _with_decimal(allowed), [tuple(_with_decimal(list(names))) for names in elements]

    def _convert_to_jmespath_type(self, pyobject: str) -> str:
        return "number" if pyobject == "Decimal" else str(super()._convert_to_jmespath_type(pyobject))


def _with_decimal(names: list[str]) -> list[str]:
    return [*names, "Decimal"] if "float" in names else names


def _replace(functions: dict[str, Callable[[Any], Any]]) -> None:
    """Put ``functions`` in the place of those that ``jmespath`` has, under the same argument types."""
    table = _ExactFunctions.FUNCTION_TABLE
    for name, function in functions.items():
        table[name] = {**table[name], "function": lambda _, value, function=function: function(value)}


_replace(
    {
        "abs": _abs,
        "avg": _avg,
        "ceil": _ceil,
        "floor": _floor,
        "sum": _sum,
        "to_number": _to_number,
        "to_string": _to_string,
        "type": _type,
    }
)

_INTERPRETER = TreeInterpreter(Options(custom_functions=_ExactFunctions()))
