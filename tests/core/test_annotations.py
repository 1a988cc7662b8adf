"""Field types out of Python annotations."""

from __future__ import annotations

import enum
import sys
import typing
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    Union,
)

import pydantic
import pytest

from bide.core.annotations import declared_fields, field_word


class Currency(enum.StrEnum):
    EUR = "EUR"


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Inner:
    a: int


Symbol = NewType("Symbol", str)


class Alias:
    """What ``type Number = int`` makes from Python 3.12 on, as far as it is looked at."""

    __value__ = int


@pytest.mark.parametrize(
    ("annotation", "word"),
    [
        (str, "str"),
        (int, "int"),
        (float, "number"),
        (Decimal, "number"),
        (bool, "bool"),
        (datetime, "datetime"),
        (dict, "object"),
        (dict[str, int], "object"),
        (Mapping[str, Any], "object"),
        (Inner, "object"),
        (list, "list"),
        (list[int], "list"),
        (tuple[int, ...], "list"),
        (Sequence[int], "list"),
        (Sequence, "list"),
        (Any, "any"),
        (object, "any"),
        (Currency, "str"),
        (Level, "int"),
        (Symbol, "str"),
        (Alias, "int"),
        (Literal["a", "b"], "str"),
        (Literal["a", None], "str?"),
        (Annotated[int, "units"], "int"),
        (NotRequired[int], "int?"),
        (typing.Required[int], "int"),
        (int | None, "int?"),
        (Optional[str], "str?"),  # noqa: UP045 - the older spelling is read too
        (Union[int, float, None], "number?"),  # noqa: UP007
        (int | Decimal, "number"),
        (Any | None, "any?"),
        (Annotated[int | None, "units"], "int?"),
        ("number?", "number?"),
        ("no such type", "no such type"),
    ],
)
def test_words(annotation: object, word: str) -> None:
    assert field_word(annotation) == word


@pytest.mark.parametrize(
    "annotation", [complex, bytes, int | str, int | complex, None, 3, set[int], type[int], []]
)
def test_what_is_no_field_type_is_left_for_the_check(annotation: object) -> None:
    assert field_word(annotation) is annotation


FIELDS = {"symbol": "str", "price": "number", "note": "str?"}


@dataclass
class AsDataclass:
    symbol: str
    price: Decimal
    note: str | None = None
    count: ClassVar[int] = 0
    _hidden: int = field(default=0)
    argument: InitVar[int] = 0


class AsTypedDict(TypedDict):
    symbol: str
    price: float
    note: NotRequired[str]


class AllOptional(TypedDict, total=False):
    symbol: str


class AsModel(pydantic.BaseModel):
    symbol: str
    price: Decimal
    note: str | None = None
    count: ClassVar[int] = 0


class AsTuple(NamedTuple):
    symbol: str
    price: Decimal
    note: str | None


class Plain:
    symbol: str
    price: float
    note: str | None


@pytest.mark.parametrize("declared", [AsDataclass, AsTypedDict, AsModel, AsTuple, Plain, dict(FIELDS)])
def test_fields_of_classes(declared: object) -> None:
    assert declared_fields(declared) == FIELDS


def test_mappings_may_mix_words_and_types() -> None:
    assert declared_fields({"a": str, "b": "number?", "c": int | None}) == {
        "a": "str",
        "b": "number?",
        "c": "int?",
    }


def test_a_typed_dict_of_optional_keys() -> None:
    assert declared_fields(AllOptional) == {"symbol": "str?"}


@pytest.mark.parametrize(
    ("declared", "word"), [(list, "list"), (dict, "object"), (str, "str"), ("any", "any"), (3, 3)]
)
def test_a_single_type_is_its_word(declared: object, word: object) -> None:
    assert declared_fields(declared) == word


def test_annotations_that_cannot_be_resolved_are_left_as_they_are_written() -> None:
    class Unresolved:
        price: Nowhere  # type: ignore[name-defined]  # noqa: F821 - that is the point
        note: str

    class UnresolvedKeys(TypedDict, total=False):
        price: Nowhere  # type: ignore[name-defined]  # noqa: F821

    assert declared_fields(Unresolved) == {"price": "Nowhere", "note": "str"}
    assert sys.version_info >= (3, 11)
    assert set(typing.cast("dict[str, object]", declared_fields(UnresolvedKeys))) == {"price"}
