"""Arguments of tasks: checked against a signature, written as JSON, and read back with the same types."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer

from bide.core.arguments import SUBMIT_OPTIONS, Signature, read_signature
from bide.core.context import Context
from bide.errors import ArgumentError, ResultError

if TYPE_CHECKING:
    from decimal import Context as OnlyForTypeChecks


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: float


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    number: int = Field(alias="orderNumber")
    lines: list[str] = []
    parent: Order | None = None


def fails(value: object) -> str:
    """A serializer of the user's."""
    raise RuntimeError


def signature_of(function: Callable[..., Any]) -> Signature:
    signature, flaws = read_signature(getattr(function, "__name__", "task"), function)
    assert flaws == []
    assert signature is not None
    return signature


def flaws_of(function: Callable[..., Any]) -> list[str]:
    signature, flaws = read_signature("task", function)
    assert signature is None
    assert all(flaw.suggestion.endswith(".") for flaw in flaws)
    return [flaw.message for flaw in flaws]


def refused(signature: Signature, *args: Any, **kwargs: Any) -> tuple[str, ...]:
    with pytest.raises(ArgumentError) as caught:
        signature.encode(args, kwargs)
    assert "nothing was submitted" in str(caught.value)
    assert str(signature) in str(caught.value)
    return caught.value.problems


async def mail(to: str, subject: str, *, urgent: bool = False) -> None: ...


# --- there and back -------------------------------------------------------------------------------------------------


async def everything(  # type: ignore[no-untyped-def]  # one of its parameters has no annotation
    *,
    when: datetime,
    day: date,
    length: timedelta,
    price: Decimal,
    raw: bytes,
    ratio: float,
    which: UUID,
    colour: Colour,
    point: Point,
    order: Order,
    numbers: set[int],
    pair: tuple[int, str],
    anything: dict[str, bytes],
    unannotated,
) -> None: ...


VALUES: dict[str, Any] = {
    "when": datetime(2026, 1, 31, 9, 30, tzinfo=UTC),
    "day": date(2026, 1, 31),
    "length": timedelta(minutes=90, milliseconds=5),
    "price": Decimal("1.10"),
    "raw": b"\xff\x00",
    "ratio": math.inf,
    "which": UUID(int=7),
    "colour": Colour.RED,
    "point": Point(1, 2.5),
    "order": Order(orderNumber=3, lines=["a"], parent=Order(orderNumber=2)),
    "numbers": {1, 2},
    "pair": (1, "one"),
    "anything": {"a": b"\xfe"},
    "unannotated": {"list": [1, None, True], "text": "x"},
}


def test_arguments_come_back_with_the_types_of_their_annotations() -> None:
    signature = signature_of(everything)
    back = signature.decode(signature.encode((), VALUES))
    assert back == VALUES
    assert {name: type(value) for name, value in back.items()} == {
        name: type(value) for name, value in VALUES.items()
    }


@given(st.text(), st.floats(allow_nan=False), st.binary(), st.decimals(allow_nan=False, allow_infinity=False))
def test_what_went_in_comes_out(text: str, number: float, raw: bytes, exact: Decimal) -> None:
    def task(text: str, number: float, raw: bytes, exact: Decimal) -> None: ...

    signature = signature_of(task)
    values = {"text": text, "number": number, "raw": raw, "exact": exact}
    assert signature.decode(signature.encode((), values)) == values


def test_a_number_that_is_none_comes_back() -> None:
    def task(number: float) -> None: ...

    signature = signature_of(task)
    assert math.isnan(signature.decode(signature.encode((math.nan,), {}))["number"])


def test_arguments_are_given_by_position_or_by_name_and_defaults_are_the_functions() -> None:
    signature = signature_of(mail)
    assert signature.encode(("a@example.org", "hi"), {}) == '{"to":"a@example.org","subject":"hi"}'
    assert signature.encode((), {"subject": "hi", "to": "a"}) == signature.encode(("a",), {"subject": "hi"})
    assert signature.decode('{"to":"a","subject":"b","urgent":true}')["urgent"] is True
    assert "urgent" not in signature.decode('{"to":"a","subject":"b"}')
    assert signature.required == ("to", "subject")
    assert signature.parameters == ("to", "subject", "urgent")


def test_what_can_be_converted_is_converted_when_it_is_submitted() -> None:
    def task(count: int, when: datetime) -> None: ...

    payload = signature_of(task).encode(("3", "2026-01-31T09:00:00Z"), {})
    assert payload == '{"count":3,"when":"2026-01-31T09:00:00Z"}'


def test_two_parameters_of_one_recursive_type_share_it() -> None:
    def task(first: Order, second: Order) -> None: ...

    signature = signature_of(task)
    orders = {"first": Order(orderNumber=1), "second": Order(orderNumber=2, parent=Order(orderNumber=1))}
    assert signature.decode(signature.encode((), orders)) == orders


def test_a_context_is_no_argument() -> None:
    def task(to: str, context: Context) -> None: ...

    signature = signature_of(task)
    assert signature.context == "context"
    assert signature.parameters == ("to",)
    assert signature.encode(("a",), {}) == '{"to":"a"}'
    assert refused(signature, "a", context="mine") == ("there is no parameter 'context'",)


def test_a_context_may_have_a_default_for_calls_by_hand() -> None:
    def task(to: str, context: Context | None = None) -> None: ...

    signature = signature_of(task)
    assert (signature.context, signature.parameters) == ("context", ("to",))


def test_methods_partials_and_callable_objects_have_signatures_too() -> None:
    class Mailer:
        def send(self, to: Decimal) -> None: ...

        def __call__(self, to: Decimal) -> None: ...

    def base(prefix: str, to: Decimal) -> None: ...

    @functools.wraps(base)
    def wrapped(*args: Any, **kwargs: Any) -> None: ...

    for function in (Mailer().send, Mailer(), functools.partial(base, "x")):
        assert signature_of(function).decode('{"to":"1.0"}') == {"to": Decimal("1.0")}
    assert signature_of(wrapped).parameters == ("prefix", "to")


def test_a_task_without_parameters_takes_none() -> None:
    def task() -> None: ...

    signature = signature_of(task)
    assert signature.encode((), {}) == "{}"
    assert signature.decode("{}") == {}


# --- arguments that do not fit ----------------------------------------------------------------------------------


def test_everything_that_is_wrong_is_said_at_once() -> None:
    def task(to: str, when: datetime, order: Order) -> None: ...

    problems = refused(signature_of(task), too="x", when="yesterday", order={"orderNumber": "x", "line": 1})
    assert problems[0] == "to is missing"
    assert problems[1].startswith("when: input should be a valid datetime")
    assert problems[2].startswith("order.orderNumber: input should be a valid integer")
    assert problems[3] == "order.line: extra inputs are not permitted"
    assert problems[4] == "there is no parameter 'too' (Did you mean 'to'?)"


def test_too_many_twice_and_unknown() -> None:
    signature = signature_of(mail)
    assert refused(signature, "a", "b", "c") == ("3 arguments by position, and it takes 2",)
    assert refused(signature, "a", to="b") == ("to is given by position and by name",)
    assert "there is no parameter 'xyz'" in refused(signature, xyz=1)


def test_values_are_not_repeated_since_they_may_be_secrets() -> None:
    def task(token: int, other) -> str: ...  # type: ignore[no-untyped-def, empty-body]  # as a user may write it

    signature = signature_of(task)
    with pytest.raises(ArgumentError) as caught:
        signature.encode(("hunter2",), {"other": object(), "hunter3": 1})
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ResultError) as failed:
        signature.results.encode(Decimal(54321))
    assert "54321" not in str(failed.value)


def test_what_has_no_annotation_takes_what_json_can_say() -> None:
    def task(thing) -> None: ...  # type: ignore[no-untyped-def]  # as a user may write it

    for value in (datetime.now(UTC), math.nan, {"a": [math.inf]}, {1}, b"b", (1,)):
        (problem,) = refused(signature_of(task), value)
        assert (
            problem
            == "thing has no annotation, and its value is not what JSON can say; annotate the parameter"
        )


def test_text_that_no_utf8_can_hold_is_refused() -> None:
    (problem,) = refused(signature_of(mail), "\ud800", "x")
    assert "surrogates not allowed" in problem


def test_many_problems_are_counted() -> None:
    def task(numbers: list[int]) -> None: ...

    problems = refused(signature_of(task), ["x"] * 30)
    assert len(problems) == 11
    assert problems[-1] == "and 20 more"


def test_several_calls_are_encoded_each_as_one() -> None:
    signature = signature_of(mail)
    calls: list[Mapping[str, str] | Sequence[str]] = [
        {"to": "a", "subject": "b"},
        ("a", "b"),
        MappingProxyType({"to": "c", "subject": "d"}),
    ]
    one, other = (signature.encode((), {"to": to, "subject": subject}) for to, subject in ("ab", "cd"))
    assert signature.encode_calls(calls) == [one, one, other]
    assert signature.encode_calls(calls[:1]) == [one]
    assert signature.encode_calls([]) == []


def test_a_call_among_several_is_named() -> None:
    signature, good = signature_of(mail), {"to": "a", "subject": "b"}
    for call, problem in {
        ("a",): "call 2: subject is missing",
        "ab": "call 2 is str, and neither a mapping by name nor a sequence by position",
        3: "call 2 is int, and neither a mapping by name nor a sequence by position",
    }.items():
        with pytest.raises(ArgumentError) as caught:
            signature.encode_calls([good, good, call])  # type: ignore[list-item]  # what a user may give
        assert caught.value.problems == (problem,)
    with pytest.raises(ArgumentError) as caught:
        signature.encode_calls([good, {"to": "a"}, good])
    assert caught.value.problems == ("call 1: subject is missing",)


def test_stored_arguments_of_another_signature_say_what_does_not_fit() -> None:
    signature = signature_of(mail)
    with pytest.raises(ArgumentError, match="subject is missing; there is no parameter 'body'") as caught:
        signature.decode('{"to":"a","body":"b"}')
    assert not caught.value.damaged
    assert "do not fit mail(to: str, subject: str" in str(caught.value).replace("'", "")
    with pytest.raises(ArgumentError) as caught:
        signature.decode("[1]")
    assert not caught.value.damaged


@pytest.mark.parametrize("payload", ["", "{", '{"to":', "nonsense", '{"a":1}}'])
def test_stored_arguments_that_are_no_json_are_damaged(payload: str) -> None:
    with pytest.raises(ArgumentError, match="cannot be read: no JSON") as caught:
        signature_of(mail).decode(payload)
    assert caught.value.damaged


def test_a_long_signature_is_cut() -> None:
    def task(
        the_first_of_many_parameters: dict[str, str],
        the_second_of_many_parameters: dict[str, str],
        the_third_of_many_parameters: dict[str, str],
        the_fourth_of_many_parameters: dict[str, str],
        the_fifth_of_many_parameters: dict[str, str],
    ) -> None: ...

    assert len(str(signature_of(task))) == 200


# --- functions that cannot be tasks -------------------------------------------------------------------------------


def test_every_flaw_of_a_function_is_told() -> None:
    class Strange: ...

    def task(
        first: int, /, at: datetime, one: Context, two: Context, odd: Strange, *args: int, **kwargs: int
    ) -> None: ...

    task.__annotations__ |= {"odd": Strange, "one": Context, "two": Context}
    messages = flaws_of(task)
    assert len(messages) == 6
    assert "has 2 parameters for the context" in messages
    assert "has a parameter 'first' that cannot be given by name" in messages
    assert "has a parameter 'at', which is an option of submit" in messages
    assert "takes any arguments (*args: 'int')" in messages
    assert "takes any arguments (**kwargs: 'int')" in messages
    assert any(
        message.startswith("has a parameter 'odd' that is annotated with what pydantic cannot read")
        for message in messages
    )


@pytest.mark.parametrize("option", SUBMIT_OPTIONS)
def test_no_parameter_is_called_as_an_option_of_submit(option: str) -> None:
    made: dict[str, Any] = {}
    exec(f"def task({option}): ...", made)
    assert flaws_of(made["task"]) == [f"has a parameter {option!r}, which is an option of submit"]


def test_generators_and_what_has_no_signature() -> None:
    def generates() -> Any:
        yield 1

    async def generates_too() -> Any:
        yield 1

    for function in (generates, generates_too):
        assert "is a generator" in flaws_of(function)[0]
    assert flaws_of(dict) == ["has no signature that can be read"]


def test_an_annotation_that_is_there_for_type_checks_only() -> None:
    def task(context: OnlyForTypeChecks) -> None: ...

    (message,) = flaws_of(task)
    assert message.startswith("has an annotation that cannot be resolved: NameError")


# --- results --------------------------------------------------------------------------------------------------


def test_results_come_back_with_the_type_that_was_announced() -> None:
    def orders() -> list[Order]: ...  # type: ignore[empty-body]  # only its annotation counts

    def instant() -> datetime | None: ...

    def raw() -> bytes: ...  # type: ignore[empty-body]  # only its annotation counts

    def unannotated(): ...  # type: ignore[no-untyped-def]  # as a user may write it

    for function, value in {
        orders: [Order(orderNumber=1)],
        instant: datetime(2026, 1, 31, tzinfo=UTC),
        raw: b"\xff",
        unannotated: {"a": [1, None]},
    }.items():
        results = signature_of(function).results
        assert results.flaw() is None
        assert results.decode(results.encode(value)) == value
    assert signature_of(instant).results.encode(None) == "null"


def test_a_result_that_is_not_what_was_announced_is_an_error_that_says_so() -> None:
    def task() -> int: ...  # type: ignore[empty-body]  # only its annotation counts

    results = signature_of(task).results
    with pytest.raises(ResultError, match=r"what task returned cannot be kept as JSON: expected `int`"):
        results.encode("three")
    with pytest.raises(ResultError, match="the result that is kept is not what task returns: input should"):
        results.decode('"three"')


def test_a_result_that_json_cannot_say() -> None:
    def task(): ...  # type: ignore[no-untyped-def]  # as a user may write it

    def own() -> Annotated[int, PlainSerializer(fails)]: ...  # type: ignore[empty-body]

    why = "input was not a valid JSON value; annotate what it returns, or submit"
    for value in (object(), math.nan, [{"a": -math.inf}], {1}, b"b", (1,), datetime.now(UTC)):
        with pytest.raises(ResultError, match=f"what task returned cannot be kept as JSON: {why}"):
            signature_of(task).results.encode(value)
    with pytest.raises(ResultError, match=r"dict\.a: input was not a valid JSON value"):
        signature_of(task).results.encode({"a": {1}})
    with pytest.raises(ResultError, match="surrogates not allowed"):
        signature_of(task).results.encode("\ud800")
    with pytest.raises(ResultError, match="Error calling function `fails`: RuntimeError"):
        signature_of(own).results.encode(1)


def test_a_result_whose_annotation_pydantic_cannot_read() -> None:
    class Strange: ...

    def task() -> Strange: ...  # type: ignore[empty-body]  # only its annotation counts

    task.__annotations__["return"] = Strange
    results = signature_of(task).results
    flaw = results.flaw()
    assert flaw is not None
    assert flaw.message.startswith("is annotated with what pydantic cannot read")
    with pytest.raises(ResultError, match="Annotate it with a type that JSON can carry"):
        results.encode(Strange())


def test_a_validator_of_the_users_may_refuse_in_its_own_words() -> None:
    def even(value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return value

    def task(number: Annotated[int, AfterValidator(even)]) -> None: ...

    task.__annotations__["number"] = Annotated[int, AfterValidator(even)]
    assert refused(signature_of(task), 3) == ("number: value error, must be even",)
