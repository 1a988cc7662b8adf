"""How annotated values become JSON and come back, by pydantic, which is imported when the first is asked for."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any

from bide.core.names import did_you_mean

if TYPE_CHECKING:
    from pydantic_core import CoreConfig, CoreSchema, ErrorDetails, SchemaSerializer, SchemaValidator

READING: CoreConfig = {"val_json_bytes": "base64"}
WRITING: CoreConfig = {"ser_json_bytes": "base64", "ser_json_inf_nan": "strings"}
"""Bytes are Base64 and NaN is text in JSON, so that both come back."""

NO_JSON = "no JSON: "
"""How the problem of a text begins that is none."""

_MOST_PROBLEMS = 10
_SHOWN_VALUE = re.compile(r" \[input_value=.*?input_type=\w+\]")
_UNEXPECTED = re.compile(
    r"PydanticSerializationUnexpectedValue\(E(xpected .*?) - serialized value may not be as expected\)"
)


@dataclass(frozen=True, slots=True)
class Flaw:
    """Why a function cannot be a task's, and one next step."""

    message: str
    suggestion: str


class Unannotated:
    """Stands for an annotation where there is none: what JSON can say comes back as it was."""


def schema_of(annotation: Any) -> CoreSchema | Flaw:
    """How pydantic reads and writes what is annotated so."""
    from pydantic import AfterValidator, JsonValue, TypeAdapter

    unannotated = Annotated[JsonValue, AfterValidator(_said_by_json)]
    try:
        schema = TypeAdapter(unannotated if annotation is Unannotated else annotation).core_schema
    except Exception as error:  # whatever the annotation makes pydantic, or a hook of the user's, raise
        reason = str(error).splitlines()[0].partition(". Set `")[0]
        return Flaw(
            f"is annotated with what pydantic cannot read: {reason}",
            "Annotate it with a type that JSON can carry.",
        )
    return schema


def prepare(schema: CoreSchema) -> tuple[SchemaValidator, SchemaSerializer]:
    """What reads and what writes values of ``schema``."""
    from pydantic_core import SchemaSerializer, SchemaValidator

    return (
        SchemaValidator(schema, READING),
        SchemaSerializer(schema, WRITING),
    )


def problems_of(error: ValueError, names: Collection[str]) -> list[str]:
    """What is wrong, in words that hold no value: those may be secrets."""
    if not hasattr(error, "errors"):  # it could not be written
        return [said(error)]
    details: list[ErrorDetails] = error.errors(include_url=False)
    problems = [_problem(each, names) for each in details[:_MOST_PROBLEMS]]
    if (more := len(details) - _MOST_PROBLEMS) > 0:
        problems.append(f"and {more} more")
    return problems


def said(error: Exception) -> str:
    """The text of an error of pydantic on one line, without the value that it shows."""
    lines = [line.strip() for line in str(error).splitlines()]
    lines = [line for line in lines if line and not line.startswith("Pydantic serializer warnings")]
    text = _SHOWN_VALUE.sub("", "; ".join(lines))
    return _UNEXPECTED.sub(r"e\1", text) or type(error).__name__


def _said_by_json(value: Any) -> Any:
    """``value``, unless a number in it is none to JSON: it would come back as text."""
    from pydantic_core import PydanticCustomError

    inner = [value]
    for each in inner:
        if isinstance(each, dict):
            inner += each.values()
        elif isinstance(each, list):
            inner += each
        elif isinstance(each, float) and not isfinite(each):
            raise PydanticCustomError("invalid-json-value", "input was not a valid JSON value")
    return value


def _problem(detail: ErrorDetails, names: Collection[str]) -> str:
    where = ".".join(str(part) for part in detail["loc"])
    if len(detail["loc"]) == 1:
        if detail["type"] == "missing":
            return f"{where} is missing"
        if detail["type"] == "extra_forbidden":
            near = did_you_mean(where, names)
            return f"there is no parameter {where!r}{f' ({near})' if near else ''}"
        if detail["type"] == "invalid-json-value":
            return (
                f"{where} has no annotation, and its value is not what JSON can say; annotate the parameter"
            )
    message = detail["msg"].replace("Invalid JSON: ", NO_JSON)
    message = f"{message[:1].lower()}{message[1:]}"
    return f"{where}: {message}" if where else message
