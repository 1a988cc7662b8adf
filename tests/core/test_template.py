"""Text with variables, and taking what they held out of other texts."""

from __future__ import annotations

import pytest

from bide.core.template import Template, hiding

ENVIRONMENT = {"TOKEN": "s3cret", "LONG": "s3cret-and-more", "SHORT": "abc", "EMPTY": ""}


def test_a_template_knows_its_variables_and_never_what_they_hold() -> None:
    template = Template("Bearer ${TOKEN} ${OTHER} ${TOKEN}")
    assert template.variables == ("TOKEN", "OTHER")
    assert template.missing(ENVIRONMENT) == ("OTHER",)
    assert "s3cret" not in repr(template)
    assert str(template) == "Bearer ${TOKEN} ${OTHER} ${TOKEN}"


def test_filling_puts_every_value_in_and_names_one_that_is_missing() -> None:
    assert Template("a ${TOKEN} $b {c} ${not a name}").fill(ENVIRONMENT) == "a s3cret $b {c} ${not a name}"
    with pytest.raises(KeyError, match="OTHER"):
        Template("${OTHER}").fill(ENVIRONMENT)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("bad token s3cret", "bad token ${TOKEN}"),
        ("S3CRET and s3cret-and-more", "${TOKEN} and ${LONG}"),
        ("abc is too short to be told from a word", "abc is too short to be told from a word"),
        ("nothing", "nothing"),
    ],
)
def test_values_are_hidden_whatever_their_case_the_longest_first(text: str, hidden: str) -> None:
    assert hiding(["TOKEN", "LONG", "SHORT", "EMPTY", "MISSING"], ENVIRONMENT)(text) == hidden


def test_where_there_is_nothing_to_hide_texts_stay_as_they_are() -> None:
    assert hiding(["SHORT", "MISSING"], ENVIRONMENT)("abc") == "abc"
