"""The arguments of a task: checked against its function's signature, written as JSON, and read back as they were.

pydantic does the work, prepared once for each function; it is imported when the first task is checked. What comes
back at the handler has the types of the annotations, whatever JSON made of it on the way.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bide.core.context import Context
from bide.core.results import Results
from bide.core.schemas import NO_JSON, READING, Flaw, Unannotated, prepare, problems_of, schema_of
from bide.errors import ArgumentError

if TYPE_CHECKING:
    from pydantic_core import CoreSchema, SchemaSerializer, SchemaValidator

SUBMIT_OPTIONS = ("delay", "at", "key", "limit_key", "priority", "within", "keep_result", "transaction")
"""What ``submit`` takes beside the arguments, so that no parameter of a task's function can be called so."""

_PARAMETER = inspect.Parameter


def read_signature(name: str, function: Callable[..., Any]) -> tuple[Signature | None, list[Flaw]]:
    """What the function of the task ``name`` takes and returns, or everything that is wrong with it."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return None, [
            Flaw("is a generator (it has a yield), which a call does not run", "Return the result.")
        ]
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None, [Flaw("has no signature that can be read", "Name a function written in Python.")]
    try:
        hints = typing.get_type_hints(_meant(function), include_extras=True)
    except Exception as error:  # whatever evaluating the user's annotations raises
        flaw = f"has an annotation that cannot be resolved: {type(error).__name__}: {error}"
        return None, [
            Flaw(flaw, "Import what it names where the module is loaded, not only for type checks.")
        ]
    contexts = [each.name for each in parameters if _is_context(hints.get(each.name))]
    flaws = []
    if len(contexts) > 1:
        flaws.append(Flaw(f"has {len(contexts)} parameters for the context", "Keep one of them."))
    taken = [each for each in parameters if each.name not in contexts]
    schemas: dict[str, CoreSchema] = {}
    for parameter in taken:
        made = _flaw_of(parameter) or _annotated(parameter, hints)
        if isinstance(made, Flaw):
            flaws.append(made)
        else:
            schemas[parameter.name] = made
    if flaws:
        return None, flaws
    return Signature(name, taken, schemas, next(iter(contexts), None), Results(name, hints)), []


class Signature:
    """What a task's function takes and returns.

    ``context`` is the parameter that gets the :class:`~bide.core.context.Context`, if one does. ``required`` are
    those that have no default, ``parameters`` all that take an argument.
    """

    def __init__(
        self,
        name: str,
        parameters: Sequence[inspect.Parameter],
        schemas: Mapping[str, CoreSchema],
        context: str | None,
        results: Results,
    ) -> None:
        self.name = name
        self.context = context
        self.results = results
        self.required = tuple(each.name for each in parameters if each.default is _PARAMETER.empty)
        self.parameters = tuple(each.name for each in parameters)
        self._positional = tuple(each.name for each in parameters if each.kind is not _PARAMETER.KEYWORD_ONLY)
        self._shown = f"{name}({', '.join(str(each) for each in parameters)})"
        self._validator, self._serializer = _arguments_of(schemas, self.required)

    def __str__(self) -> str:
        return self._shown if len(self._shown) <= 200 else f"{self._shown[:197]}..."

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Arguments as JSON text. Raises :class:`~bide.errors.ArgumentError` with all that is wrong with them."""
        named = self._named(args, kwargs) if args else kwargs
        try:
            values = self._validator.validate_python(named)
            return self._serializer.to_json(values, round_trip=True, by_alias=False).decode()
        except ValueError as error:  # pydantic's, of both directions
            problems = problems_of(error, self.parameters)
        raise self._refusal(problems)

    def encode_calls(self, calls: Sequence[Mapping[str, Any] | Sequence[Any]]) -> list[str]:
        """As :meth:`encode`, of each call of several: arguments by name, or by position. The error names it."""
        validate, write = self._validator.validate_python, self._serializer.to_json
        if all(type(call) is dict for call in calls):
            try:
                return [write(validate(call), round_trip=True, by_alias=False).decode() for call in calls]
            except ValueError:
                pass  # which it is, and all that is wrong with it, is found below
        return [self._encode_call(call, index) for index, call in enumerate(calls)]

    def _encode_call(self, call: Mapping[str, Any] | Sequence[Any], index: int) -> str:
        if isinstance(call, str) or not isinstance(call, Mapping | Sequence):
            problem = f"is {type(call).__name__}, and neither a mapping by name nor a sequence by position"
            raise self._refusal([f"call {index} {problem}"])
        try:
            return self.encode((), call) if isinstance(call, Mapping) else self.encode(call, {})
        except ArgumentError as error:
            raise self._refusal([f"call {index}: {problem}" for problem in error.problems]) from None

    def decode(self, payload: str) -> dict[str, Any]:
        """Arguments out of JSON text, by name. Raises :class:`~bide.errors.ArgumentError` where they do not fit."""
        try:
            values: dict[str, Any] = self._validator.validate_json(payload, by_name=True)
        except ValueError as error:
            problems = problems_of(error, self.parameters)
        else:
            return values
        if problems[0].startswith(NO_JSON):
            raise ArgumentError(f"the stored arguments cannot be read: {problems[0]}", problems, damaged=True)
        raise ArgumentError(f"the stored arguments do not fit {self}: {'; '.join(problems)}", problems)

    def _named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) > len(self._positional):
            most = len(self._positional)
            raise self._refusal([f"{len(args)} arguments by position, and it takes {most}"])
        named = dict(zip(self._positional, args, strict=False))
        twice = [f"{name} is given by position and by name" for name in named if name in kwargs]
        if twice:
            raise self._refusal(twice)
        named.update(kwargs)
        return named

    def _refusal(self, problems: Sequence[str]) -> ArgumentError:
        message = f"nothing was submitted; the arguments do not fit {self}: {'; '.join(problems)}"
        return ArgumentError(message, problems)


def _meant(function: Callable[..., Any]) -> Any:
    """The function whose annotations count."""
    target: Any = function
    while isinstance(target, functools.partial):
        target = target.func
    if not inspect.isroutine(target) and not isinstance(target, type):
        target = type(target).__call__
    return inspect.unwrap(target)


def _is_context(annotation: Any) -> bool:
    """Whether it means the context, also where the parameter has a default for calls by hand: ``Context | None``."""
    return annotation is Context or Context in typing.get_args(annotation)


def _flaw_of(parameter: inspect.Parameter) -> Flaw | None:
    match parameter.kind:
        case _PARAMETER.VAR_POSITIONAL | _PARAMETER.VAR_KEYWORD:
            return Flaw(f"takes any arguments ({parameter})", "Give each parameter a name of its own.")
        case _PARAMETER.POSITIONAL_ONLY:
            flaw = f"has a parameter {parameter.name!r} that cannot be given by name"
            return Flaw(flaw, "Remove the / from its signature.")
    if parameter.name in SUBMIT_OPTIONS:
        flaw = f"has a parameter {parameter.name!r}, which is an option of submit"
        return Flaw(flaw, "Give the parameter another name.")
    return None


def _annotated(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> CoreSchema | Flaw:
    made = schema_of(hints.get(parameter.name, Unannotated))
    if isinstance(made, Flaw):
        return Flaw(f"has a parameter {parameter.name!r} that {made.message}", made.suggestion)
    return made


def _arguments_of(
    schemas: Mapping[str, CoreSchema], required: Collection[str]
) -> tuple[SchemaValidator, SchemaSerializer]:
    from pydantic_core import core_schema

    shared: dict[str, CoreSchema] = {}
    fields = {
        name: core_schema.typed_dict_field(_without_shared(schema, shared), required=name in required)
        for name, schema in schemas.items()
    }
    arguments = core_schema.typed_dict_schema(fields, extra_behavior="forbid", config=READING)
    return prepare(core_schema.definitions_schema(arguments, list(shared.values())) if shared else arguments)


def _without_shared(schema: CoreSchema, shared: dict[str, CoreSchema]) -> CoreSchema:
    """``schema`` without the definitions that it refers to: two parameters may share them, and each is made once."""
    if schema["type"] != "definitions":
        return schema
    for definition in schema["definitions"]:
        shared[definition.get("ref", "")] = definition
    inner: CoreSchema = schema["schema"]
    return inner
