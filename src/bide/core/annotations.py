"""Field types out of Python annotations, so that fields can be declared by a class.

What cannot be told is left as it was written; the check of declarations refuses it at its place.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

_WORDS: tuple[tuple[tuple[type, ...], str], ...] = (
    ((bool,), "bool"),
    ((int,), "int"),
    ((float, Decimal), "number"),
    ((str,), "str"),
    ((datetime,), "datetime"),
    ((Mapping,), "object"),
    ((list, tuple), "list"),
)
"""Words by class, the first that fits: a bool is an int to Python, and text is a sequence."""


def declared_fields(declared: object) -> object:
    """Names and types of declared fields as text, such as ``{"price": "number", "note": "str?"}``.

    ``declared`` is a mapping of names to words or annotations, or a dataclass, a ``TypedDict``, a pydantic
    model or any other class with annotations; a single type is answered as its word.
    """
    if isinstance(declared, Mapping):
        return {name: field_word(annotation) for name, annotation in declared.items()}
    if isinstance(declared, type) and (annotations := _annotations(declared)):
        return {name: field_word(annotation) for name, annotation in annotations.items()}
    return field_word(declared)


def field_word(annotation: object) -> object:
    """The field type that an annotation means, such as ``"int"`` for ``int`` and ``"str?"`` for ``str | None``.

    Text is answered as it is, and so is an annotation that means no field type.
    """
    if isinstance(annotation, str):
        return annotation
    words = _words(annotation)
    kinds = words - {None}
    if kinds == {"int", "number"}:
        kinds = {"number"}
    if len(kinds) != 1:
        return annotation
    return f"{kinds.pop()}?" if None in words else kinds.pop()


def _words(annotation: Any) -> set[str | None]:
    """The kinds that a value of this annotation may have; None for null. Empty where it cannot be told."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is None or annotation is type(None):
        return {None}
    if annotation is Any or annotation is object:
        return {"any"}
    if origin is typing.Union or origin is types.UnionType:
        members = [_words(argument) for argument in arguments]
        return set().union(*members) if all(members) else set()
    if origin is typing.Literal:
        return set().union(*(_words(type(value)) for value in arguments))
    if origin is typing.NotRequired:
        return _words(arguments[0]) | {None}
    if origin in {typing.Annotated, typing.Required, typing.Final}:
        return _words(arguments[0])
    if (meant := getattr(annotation, "__supertype__", None)) is not None:  # a NewType
        return _words(meant)
    if (meant := getattr(annotation, "__value__", None)) is not None:  # an alias made with `type`
        return _words(meant)
    kind = origin or annotation
    return _class_words(kind) if isinstance(kind, type) else set()


def _class_words(kind: type) -> set[str | None]:
    if kind is Sequence:
        return {"list"}
    for classes, word in _WORDS:
        if issubclass(kind, classes):
            return {word}
    return {"object"} if dataclasses.is_dataclass(kind) or hasattr(kind, "model_fields") else set()


def _annotations(declared: type) -> dict[str, Any]:
    """The annotated fields of a class; as they are written where one of them cannot be resolved."""
    models = getattr(declared, "model_fields", None)
    if isinstance(models, Mapping):
        return {name: field.annotation for name, field in models.items()}
    try:
        hints = typing.get_type_hints(declared, include_extras=True)
    except Exception:  # whatever evaluating the user's annotations raises
        hints = dict(declared.__annotations__)
    optional: frozenset[str] = getattr(declared, "__optional_keys__", frozenset())
    if dataclasses.is_dataclass(declared):
        hints = {field.name: hints.get(field.name, field.type) for field in dataclasses.fields(declared)}
    return {
        name: typing.NotRequired[hint] if name in optional and not isinstance(hint, str) else hint
        for name, hint in hints.items()
        if not name.startswith("_") and typing.get_origin(hint) is not typing.ClassVar
    }
