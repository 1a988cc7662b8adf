"""Calling outside APIs: one HTTP exchange (:class:`HttpClient`), and calls through a connection.

A call has a deadline from its first connection to its last byte, a cap on its decoded body, bounded redirects that
carry no credentials away, and a slot for each attempt. It answers a whole response or raises one
:class:`~bide.errors.CallError`, whose kinds are listed in :data:`CallErrorKind`.
"""

from bide.connection.client import Client, ConnectionClient
from bide.connection.failures import CallErrorKind
from bide.connection.transport import HttpClient

__all__ = ["CallErrorKind", "Client", "ConnectionClient", "HttpClient"]
