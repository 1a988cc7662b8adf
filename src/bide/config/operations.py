"""The operations of a package: how a request looks and how its answer is read."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from bide.config.addresses import request_path
from bide.config.answers import Fields, Selections, check_names, field_type, fields, selections
from bide.config.references import BadReference, imported_function, reference_to
from bide.config.report import Place, nearest_or_known
from bide.config.requests import headers, json_data, query
from bide.config.shape import (
    Table,
    duration,
    flag,
    kind_of,
    read_table,
    text,
    whole,
)
from bide.core.declaration import RequestTemplate
from bide.core.fields import KINDS

OPERATION_KEYS = (
    "get",
    "request",
    "function",
    "answer",
    "select",
    "public",
    "input",
    "changes",
    "retry",
    "deadline",
)
REQUEST_KEYS = ("method", "path", "query", "headers", "body")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


@dataclass(frozen=True, slots=True)
class OperationShape:
    """An operation as far as it could be read.

    ``answer`` is None where it is no object of declared fields; ``answer_wrong`` says that this was a mistake
    already reported.
    """

    name: str
    answer: Fields | None
    answer_wrong: bool
    select: Selections
    takes_input: bool
    changes: bool
    public: bool
    retries: int
    deadline: timedelta
    request: RequestTemplate | None
    function: Callable[..., Any] | None
    reference: str | None


def read_operation(place: Place, name: str, value: object, folder: Path) -> OperationShape | None:
    """One operation. None where it is not even a table."""
    table = read_table(place, value, OPERATION_KEYS)
    if table is None:
        return None
    way = table.exactly_one(("get", "request", "function"), 'get = "/path"')
    request = _read_request(table, way)
    function = table.find("function", function_at(folder)) if way == "function" else None
    if function is not None:
        _check_async(place.at("function"), function)
    answer = table.find("answer", _answer)
    select = table.find("select", selections) or {}
    if "select" in table and way == "function":
        place.at("select").refuse_key(
            "selects from JSON, and a function answers the fields themselves", "Remove select."
        )
    elif answer is not None:
        check_names(place.at("select"), select, answer, "a field of the answer")
    return OperationShape(
        name=name,
        answer=answer,
        answer_wrong="answer" in table and answer is None and not isinstance(table.entries["answer"], str),
        select=select,
        takes_input=_takes_input(table),
        changes=table.read("changes", flag, False),
        public=table.read("public", flag, False),
        retries=table.read("retry", whole(0), 2),
        deadline=table.read("deadline", duration, timedelta(seconds=30)),
        request=request,
        function=function,
        reference=reference_to(function) if function is not None else None,
    )


def function_at(folder: Path) -> Callable[[Place, object], Callable[..., Any] | None]:
    """A reading of a function, or of ``"module:name"`` with ``folder`` on the import path."""

    def read(place: Place, value: object) -> Callable[..., Any] | None:
        if callable(value):
            return value
        if not isinstance(value, str):
            place.refuse(f"must be a function, not {kind_of(value)}", 'Name one, as in "my.module:name".')
            return None
        try:
            return imported_function(value, folder)
        except BadReference as error:
            place.refuse(error.reason, error.suggestion)
            return None

    return read


def _read_request(table: Table, way: str | None) -> RequestTemplate | None:
    """The request by the ``way`` that was chosen. Where it is not one, what is there is read for its mistakes."""
    if way == "get" or (way is None and "get" in table):
        path = table.find("get", request_path)
        if way == "get":
            return RequestTemplate("GET", path) if path is not None else None
    if way == "function" or "request" not in table:
        return None
    parts = read_table(table.place.at("request"), table.entries["request"], REQUEST_KEYS)
    if parts is None:
        return None
    found_path = parts.need("path", request_path, 'path = "/path"')
    method = parts.find("method", _method) or "GET"
    parameters = parts.find("query", query) or {}
    header_fields = parts.find("headers", headers) or {}
    body = parts.find("body", json_data)
    return (
        RequestTemplate(method, found_path, parameters, header_fields, body)
        if found_path is not None
        else None
    )


def _method(place: Place, value: object) -> str | None:
    word = text(place, value)
    if word is None or word in METHODS:
        return word
    place.refuse(f"{word!r} is not a method", nearest_or_known(word, METHODS))
    return None


def _answer(place: Place, value: object) -> Fields | None:
    """A table of fields. A single type is right too, and no object of fields, so None without a mistake."""
    if not isinstance(value, str):
        return fields(place, value)
    field_type(place, value)
    return None


def _takes_input(table: Table) -> bool:
    value = table.entries.get("input")
    if value is None or value == {}:
        return False
    place = table.place.at("input")
    if isinstance(value, str):
        field_type(place, value)
    elif isinstance(value, Mapping):
        fields(place, value)
    else:
        place.refuse(
            f"must be a table of fields, not {kind_of(value)}",
            f"Name its fields, each with a type of {', '.join(KINDS)}.",
        )
    return True


def _check_async(place: Place, function: Callable[..., Any]) -> None:
    """A plain function would block all other calls; one wrapped around an async function is trusted."""
    original = inspect.unwrap(function)
    if inspect.isfunction(original) and not inspect.iscoroutinefunction(original):
        place.refuse(f"{original.__name__} is not an async function", "Write it with async def.")
