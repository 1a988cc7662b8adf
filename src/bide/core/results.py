"""What a task returns, written as JSON and read back as it was, for items that keep their result."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bide.core.schemas import Flaw, Unannotated, prepare, problems_of, said, schema_of
from bide.errors import ResultError

if TYPE_CHECKING:
    from pydantic_core import SchemaSerializer, SchemaValidator


class Results:
    """What a task's function returns, as JSON text and back; prepared when it is first needed."""

    def __init__(self, name: str, hints: Mapping[str, Any]) -> None:
        self._name = name
        self._annotation = hints.get("return", Unannotated)

    def flaw(self) -> Flaw | None:
        """Why nothing that the function returns can be kept, where that is so."""
        made = schema_of(self._annotation)
        return made if isinstance(made, Flaw) else None

    def encode(self, value: object) -> str:
        """``value`` as JSON text.

        Raises :class:`~bide.errors.ResultError` where it is not what was announced or, where nothing was, not what
        JSON can say: it would come back as something else.
        """
        validator, serializer = self._prepared
        if self._annotation is Unannotated:
            self._require_json(validator, value)
        try:
            return serializer.to_json(value, round_trip=True, by_alias=False, warnings="error").decode()
        except Exception as error:  # pydantic's, or one of a serializer of the user's
            why = said(error)
        raise ResultError(
            f"what {self._name} returned cannot be kept as JSON: {why}; "
            "return what its annotation says, or submit it without keep_result"
        )

    def decode(self, text: str) -> Any:
        """What ``text`` says, as the function returned it. Raises :class:`~bide.errors.ResultError`."""
        validator, _ = self._prepared
        try:
            return validator.validate_json(text, by_name=True)
        except ValueError as error:
            problems = problems_of(error, ())
        raise ResultError(f"the result that is kept is not what {self._name} returns: {'; '.join(problems)}")

    def _require_json(self, validator: SchemaValidator, value: object) -> None:
        try:
            validator.validate_python(value)
        except ValueError as error:
            problems = problems_of(error, ())
        else:
            return
        raise ResultError(
            f"what {self._name} returned cannot be kept as JSON: {'; '.join(problems)}; "
            "annotate what it returns, or submit it without keep_result"
        )

    @functools.cached_property
    def _prepared(self) -> tuple[SchemaValidator, SchemaSerializer]:
        made = schema_of(self._annotation)
        if isinstance(made, Flaw):
            raise ResultError(f"what {self._name} returns {made.message}; {made.suggestion}")
        return prepare(made)
