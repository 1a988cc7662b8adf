"""Reading an answer: its encoding, what came instead of JSON, and the declared fields."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from bide.core.answer import Reader, text_of
from bide.core.change import digest, event_payload
from bide.core.fields import parse_field_type
from bide.core.http import Headers
from bide.errors import AnswerError, SettingError

JSON = "application/json"


def reader(select: Mapping[str, str] | None = None, **fields: str) -> Reader:
    return Reader({name: parse_field_type(text) for name, text in fields.items()}, select)


def headers(content_type: str | None = JSON) -> Headers:
    return Headers([] if content_type is None else [("Content-Type", content_type)])


def read(body: bytes | str, content_type: str | None = JSON, **fields: str) -> dict[str, Any]:
    data = body.encode() if isinstance(body, str) else body
    return reader(None, **fields).read(data, headers(content_type))


def unread(body: bytes | str, content_type: str | None = JSON, **fields: str) -> AnswerError:
    with pytest.raises(AnswerError) as caught:
        read(body, content_type, **(fields or {"name": "str"}))
    assert len(str(caught.value)) < 500
    return caught.value


# --- fields ------------------------------------------------------------------------------------------------


def test_the_declared_fields_are_read_in_their_order() -> None:
    body = '{"at":"2026-11-30T18:00:00+01:00","more":[],"price":12.50,"symbol":"A","n":3}'
    found = read(body, symbol="str", price="number", n="int", at="datetime")
    assert found == {
        "symbol": "A",
        "price": Decimal("12.50"),
        "n": 3,
        "at": datetime(2026, 11, 30, 17, tzinfo=UTC),
    }
    assert list(found) == ["symbol", "price", "n", "at"]


def test_an_optional_field_may_be_null_or_missing() -> None:
    assert read('{"a":null}', a="str?", b="number?") == {"a": None, "b": None}
    assert read("{}", a="any?") == {"a": None}


def test_a_missing_field_is_named_with_those_that_came() -> None:
    error = unread('{"nome":"x","id":1}', name="str")
    assert error.where == "name"
    assert "no such field" in error.reason
    assert "nome, id" in error.reason
    assert '"str?"' in error.reason
    assert "it is empty" in unread("{}", name="str").reason


def test_a_null_field_is_named() -> None:
    error = unread('{"name":null}', name="str")
    assert error.where == "name"
    assert "got null" in error.reason


def test_a_field_of_the_wrong_type_is_named_with_what_came() -> None:
    error = unread('{"price":"12.50"}', price="number")
    assert error.where == "price"
    assert "expected number" in error.reason
    assert "'12.50'" in error.reason


@pytest.mark.parametrize("body", ["[]", '[{"name":"x"}]', '"name"', "1", "null", "true"])
def test_json_that_is_no_object_is_refused(body: str) -> None:
    error = unread(body, name="str")
    assert error.where == "name"
    assert "expected an object" in error.reason


# --- select ------------------------------------------------------------------------------------------------


def test_fields_are_selected() -> None:
    body = b'{"s":"A","data":{"price":1.10},"at":"x","list":[{"v":1},{"v":2}]}'
    select = {"symbol": "s", "price": "data.price", "total": "sum(list[].v)"}
    picked = reader(select, symbol="str", price="number", total="int", at="str")
    assert picked.read(body, headers()) == {"symbol": "A", "price": Decimal("1.10"), "total": 3, "at": "x"}


def test_fields_can_be_selected_of_a_list() -> None:
    picked = reader({"first": "[0].id", "count": "length(@)"}, first="int", count="int")
    assert picked.read(b'[{"id":7},{"id":8}]', headers()) == {"first": 7, "count": 2}


def test_an_expression_that_selects_nothing_is_named() -> None:
    picked = reader({"price": "data.prise"}, price="number")
    with pytest.raises(AnswerError) as caught:
        picked.read(b'{"data":{"price":1}}', headers())
    assert caught.value.where == "price"
    assert "'data.prise' selects nothing" in caught.value.reason
    assert '"number?"' in caught.value.reason
    assert reader({"price": "data.prise"}, price="number?").read(b"{}", headers()) == {"price": None}


def test_an_expression_that_selects_the_wrong_type_is_named() -> None:
    with pytest.raises(AnswerError) as caught:
        reader({"price": "data"}, price="number").read(b'{"data":"x"}', headers())
    assert caught.value.where == "price"
    assert "'data'" in caught.value.reason


def test_an_expression_that_fails_on_the_answer_is_named() -> None:
    with pytest.raises(AnswerError) as caught:
        reader({"price": "sum(data)"}, price="number").read(b'{"data":["x"]}', headers())
    assert caught.value.where == "price"
    assert "'sum(data)' cannot be worked out" in caught.value.reason


@pytest.mark.parametrize("expression", ["", "a.", "nope(a)", "abs(a, b)"])
def test_a_bad_expression_is_refused_when_it_is_declared(expression: str) -> None:
    with pytest.raises(SettingError) as caught:
        reader({"price": expression}, price="number")
    assert caught.value.setting == "select.price"


def test_a_selection_for_no_declared_field_is_refused() -> None:
    with pytest.raises(SettingError) as caught:
        reader({"prise": "a"}, price="number", symbol="str")
    assert caught.value.setting == "select.prise"
    assert "price, symbol" in caught.value.reason


def test_jmespath_is_loaded_only_where_something_is_selected() -> None:
    script = (
        "import sys; from bide.core.answer import Reader; Reader({}); assert 'jmespath' not in sys.modules;"
        "from bide.core.fields import FieldType; Reader({'a': FieldType('any')}, {'a': 'b'});"
        "assert 'jmespath' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


# --- what functions answer -----------------------------------------------------------------------------------


@dataclass
class Quote:
    symbol: str
    price: float


class Model(BaseModel):
    symbol: str
    price: Decimal


@pytest.mark.parametrize(
    "value",
    [{"symbol": "A", "price": 1.1, "more": 1}, Quote("A", 1.1), Model(symbol="A", price=Decimal("1.1"))],
)
def test_functions_answer_mappings_dataclasses_and_models(value: object) -> None:
    found = reader(None, symbol="str", price="number").read_value(value)
    assert found == {"symbol": "A", "price": Decimal("1.1")}


@pytest.mark.parametrize("value", [None, 1, "x", [{"symbol": "A"}], Quote, object()])
def test_functions_answer_nothing_else(value: object) -> None:
    with pytest.raises(AnswerError, match="from the function"):
        reader(None, symbol="str").read_value(value)


def test_what_a_function_answers_is_selected_too() -> None:
    picked = reader({"price": "data.price"}, price="number")
    assert picked.read_value({"data": {"price": 0.1}}) == {"price": Decimal("0.1")}


def test_a_field_that_a_function_left_out_is_named() -> None:
    with pytest.raises(AnswerError) as caught:
        reader(None, price="number").read_value(Quote("A", float("nan")))
    assert caught.value.where == "price"


# --- byte order mark, charset, UTF-8 -------------------------------------------------------------------------

TEXT = '{"name":"Prix: 5 \u20ac, \u041f\u0440\u0438\u0432\u0435\u0442 \U0001f600"}'
NAME = json.loads(TEXT)["name"]


def payload_of(body: bytes, content_type: str | None) -> str:
    return digest(event_payload(read(body, content_type, name="str"), ["name"]))


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (TEXT.encode(), JSON),
        (TEXT.encode(), None),
        (TEXT.encode(), ""),
        (TEXT.encode(), "application/json; charset=utf-8"),
        (TEXT.encode(), 'application/json;charset="UTF8"'),
        (TEXT.encode(), "application/json; Charset = 'utf-8'"),
        (TEXT.encode(), "application/json; charset=x-unknown"),
        (TEXT.encode(), "application/json; charset=us-ascii"),
        (TEXT.encode(), "application/json; charset=rot13"),
        (TEXT.encode(), "application/json; charset=unicode_escape"),
        (TEXT.encode(), "application/json; charset=idna"),
        (TEXT.encode(), "application/json; charset=\x00"),
        (TEXT.encode(), "application/json; charset="),
        (TEXT.encode(), 'application/json; profile="x"; charset=utf-8'),
        (TEXT.encode("utf-8-sig"), JSON),
        (TEXT.encode("utf-8-sig"), "application/json; charset=cp1251"),
        (TEXT.encode("utf-8-sig"), "application/json; charset=utf-16"),
        (b"\xff\xfe" + TEXT.encode("utf-16-le"), JSON),
        (b"\xfe\xff" + TEXT.encode("utf-16-be"), JSON),
        (b"\xff\xfe" + TEXT.encode("utf-16-le"), "application/json; charset=utf-8"),
        (b"\xff\xfe\x00\x00" + TEXT.encode("utf-32-le"), JSON),
        (b"\x00\x00\xfe\xff" + TEXT.encode("utf-32-be"), JSON),
        (TEXT.encode("utf-16-le"), "application/json; charset=utf-16"),
        (TEXT.encode("utf-16-le"), "application/json; charset=utf-16le"),
        (TEXT.encode("utf-16-be"), "application/json; charset=UTF-16BE"),
        (TEXT.encode("gb18030"), "application/json; charset=gbk"),
        (json.dumps(json.loads(TEXT)).encode(), "application/json; charset=iso-8859-1"),
    ],
)
def test_charset_disagreement_the_same_content_has_the_same_digest(
    body: bytes, content_type: str | None
) -> None:
    assert payload_of(body, content_type) == payload_of(TEXT.encode(), JSON)


@pytest.mark.parametrize(
    ("charset", "codec", "text"),
    [
        ("windows-1251", "cp1251", "Привет"),
        ("CP1251", "cp1251", "Привет"),
        ("koi8-r", "koi8-r", "Привет"),
        ("iso-8859-5", "iso-8859-5", "Привет"),
        ("iso-8859-1", "cp1252", "café €"),
        ("latin1", "cp1252", "café €"),
        ("iso-8859-15", "iso-8859-15", "café €"),
        ("iso-8859-9", "cp1254", "şğ€"),
        ("Shift_JIS", "shift_jis", "日本語"),
        ("euc-jp", "euc-jp", "日本語"),
        ("iso-2022-jp", "iso-2022-jp", "日本語"),
        ("euc-kr", "euc-kr", "한국어"),
        ("gb2312", "gb2312", "中文"),
        ("big5", "big5", "中文"),
        ("macintosh", "mac-roman", "café"),
        ("windows-874", "cp874", "ไทย"),
    ],
)
def test_charset_disagreement_a_known_charset_is_followed(charset: str, codec: str, text: str) -> None:
    body = f'{{"name":"{text}"}}'.encode(codec)
    assert read(body, f"application/json; charset={charset}", name="str") == {"name": text}


@pytest.mark.parametrize(
    ("body", "content_type", "codec"),
    [
        (b'{"name":"a\xffb"}', JSON, "utf-8"),
        (b'{"name":"a\xed\xa0\x80b"}', JSON, "utf-8"),
        ('{"name":"é"}'.encode("latin1"), JSON, "utf-8"),
        (b'\xef\xbb\xbf{"name":"\xff"}', "application/json; charset=latin1", "utf-8"),
        (b'{"name":"a\x81b"}', "application/json; charset=latin1", "cp1252"),
        (b"\xff\xfe{", JSON, "utf-16-le"),
    ],
)
def test_charset_disagreement_an_invalid_byte_is_a_bad_answer(
    body: bytes, content_type: str, codec: str
) -> None:
    error = unread(body, content_type)
    assert f"the body is not {codec}" in error.reason
    assert "at byte " in error.reason


def test_text_has_no_byte_order_mark() -> None:
    assert text_of(b"\xef\xbb\xbfx", headers()) == "x"
    assert text_of(b"", headers()) == ""
    assert text_of(b"\xff\xfe", headers()) == ""


@settings(deadline=None)
@given(st.text(st.characters(codec="utf-8")), st.sampled_from(["utf-8-sig", "utf-16", "utf-32", "utf-8"]))
def test_charset_disagreement_any_text_is_read_back(text: str, codec: str) -> None:
    body = json.dumps({"name": text}, ensure_ascii=False).encode(codec)
    assert read(body, "text/plain; charset=koi8-r" if codec != "utf-8" else None, name="str") == {
        "name": text
    }


# --- what came instead of JSON -------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"  \r\n", b"\xef\xbb\xbf", b"\xff\xfe", b"\xef\xbb\xbf \n"])
@pytest.mark.parametrize("content_type", [JSON, "text/html; charset=utf-8", None])
def test_error_page_as_baseline_an_empty_body_is_a_bad_answer(body: bytes, content_type: str | None) -> None:
    error = unread(body, content_type)
    assert "body is empty" in error.reason
    assert (content_type or "no content type").partition(";")[0] in error.reason


@pytest.mark.parametrize(
    ("content_type", "shown"),
    [("text/html; charset=utf-8", "text/html"), (JSON, JSON), (None, "no content type")],
)
def test_error_page_as_baseline_html_is_named(content_type: str | None, shown: str) -> None:
    page = "\n <!doctype html>\n<html>\n  <title>Please   log in</title>" + "x" * 10_000
    error = unread(page, content_type)
    assert f"expected JSON, got {shown} that begins" in error.reason
    assert "<!doctype html> <html> <title>Please log in</title>" in error.reason
    assert len(error.reason) < 200


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("Service unavailable", "text/plain"),
        ("Service unavailable", None),
        ("<xml/>", "application/xml"),
        ("a,b\n1,2", "text/csv"),
    ],
)
def test_error_page_as_baseline_text_is_named(body: str, content_type: str | None) -> None:
    reason = unread(body, content_type).reason
    assert reason.startswith(f"expected JSON, got {content_type or 'no content type'} that begins '{body[0]}")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"name":', "not JSON"),
        ('{"name":"x","name":"y"}', "stands twice"),
        ('{"name":NaN}', "NaN"),
        ('{"name":"\\ud800"}', "surrogate"),
        ("[" * 1000, "nested deeper"),
        ('{"name":1e99999999999999999999999}', "exponent"),
    ],
)
@pytest.mark.parametrize("content_type", [JSON, "text/html", None])
def test_bad_json_is_called_what_it_is(body: str, words: str, content_type: str | None) -> None:
    assert words in unread(body, content_type).reason


def test_a_bad_scalar_is_called_what_it_is_where_json_was_announced() -> None:
    assert unread("nul", "application/problem+json").reason.startswith("not JSON")
    assert unread("NaN", JSON).reason.startswith("NaN")


@pytest.mark.parametrize("content_type", ["text/html", "text/plain", None, "application/vnd.shop+json"])
def test_json_is_read_whatever_it_is_called(content_type: str | None) -> None:
    assert read('{"name":"x"}', content_type, name="str") == {"name": "x"}


def test_a_long_content_type_is_cut() -> None:
    assert len(unread("x", "a/" + "b" * 5000).reason) < 250


@settings(deadline=None)
@given(st.binary(max_size=60), st.one_of(st.none(), st.text(max_size=40)))
def test_no_body_does_worse_than_be_refused(body: bytes, content_type: str | None) -> None:
    unread(body, content_type, name="str", other="int")
