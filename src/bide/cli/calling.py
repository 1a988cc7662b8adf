"""Making the request of a wait, once for each attempt, through the layer that all connections use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta

from bide.connection.preparing import Prepared, base_of, prepared_operation
from bide.connection.transport import CALL_DEADLINE, HttpClient
from bide.core.answer import Reader
from bide.core.declaration import Operation
from bide.core.http import Response
from bide.core.template import Template, hiding
from bide.core.wait_declaration import Address
from bide.errors import SettingError

_OPEN = frozenset({"accept", "accept-language", "content-type", "user-agent"})
"""Header fields that hold no secret."""


class AddressProbe:
    """Sends the request of ``address`` and answers the response, whatever its status.

    Variables are filled from ``environment`` here. ``timeout`` is that of one request; None is 30 s. Raises
    ``SettingError`` for a variable that is missing, and ``CallError`` for what cannot be asked.
    """

    def __init__(
        self, address: Address, http: HttpClient, environment: Mapping[str, str], timeout: timedelta | None
    ) -> None:
        self._prepared = _prepared(address, environment)
        self._http = http
        self._timeout = CALL_DEADLINE if timeout is None else timeout.total_seconds()

    async def __call__(self) -> Response:
        made = self._prepared
        return await self._http.send(made.request, timeout=self._timeout, bound=made.bound, shown=made.shown)


def _prepared(address: Address, environment: Mapping[str, str]) -> Prepared:
    for where, template in _templates(address):
        for name in template.missing(environment):
            raise SettingError(
                where, f"the environment variable {name} is not set, and is needed here; set it"
            )
    base = base_of(address.connection, environment)
    operation = Operation(address.connection.name, {}, Reader({}, None), request=address.request)
    prepared = prepared_operation(base, operation, environment)
    if address.text is None:
        return prepared
    return replace(prepared, request=replace(prepared.request, body=address.text.fill(environment).encode()))


def _templates(address: Address) -> list[tuple[str, Template]]:
    """Every text of the request, with where it was given."""
    found = [("url", address.connection.base_url), ("url", address.request.path)]
    found += [(f"headers.{name}", text) for name, text in address.connection.headers.items()]
    found += [("body", text) for text in (address.text, *_texts(address.request.body)) if text is not None]
    return found


def _texts(body: object) -> list[Template]:
    match body:
        case str():
            return [Template(body)]
        case Mapping():
            return [text for member in body.values() for text in _texts(member)]
        case list() | tuple():
            return [text for element in body for text in _texts(element)]
        case _:
            return []


def hiding_secrets(address: Address, environment: Mapping[str, str]) -> Callable[[str], str]:
    """A function that takes out of a text what the request was given in confidence.

    Those are the values of variables, and those of header fields: the other side may repeat them.
    """
    secrets = {
        name: environment[name]
        for _, template in _templates(address)
        for name in template.variables
        if name in environment
    }
    secrets |= {
        name: template.text.rpartition(" ")[2]
        for name, template in address.connection.headers.items()
        if not template.variables and name.lower() not in _OPEN
    }
    return hiding(secrets, secrets)
