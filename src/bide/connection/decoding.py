"""Content codings undone as the bytes come in, with a limit on what comes out of every stage.

``gzip`` (several members one after the other are one body, RFC 1952, 2.2), ``deflate`` (the zlib format that
RFC 9110, 8.4.1.2 means, and the bare one that some servers send), and stacks of them, undone in reverse of the
order in which they are listed (RFC 9110, 8.4). Memory stays near the limit whatever the sizes claimed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, Protocol

ACCEPTED = "gzip, deflate"
"""What an Accept-Encoding header asks for: everything that is undone here."""

DEEPEST = 5
"""Most codings on top of each other. Honest servers use one; each more multiplies what a small body can cost."""

_PIECE = 1 << 16
"""Most bytes that a stage hands on at a time."""


class BodyError(Exception):
    """A body cannot be taken. ``reason`` continues a sentence about the answer."""

    def __init__(self, kind: Literal["too_large", "encoding", "incomplete", "protocol"], reason: str) -> None:
        self.kind = kind
        self.reason = reason
        super().__init__(reason)


class Body:
    """Collects a body: feed it what the wire brings, then ``finish``.

    ``codings`` are the names from Content-Encoding in their order; ``cap`` is the most decoded bytes. The same
    holds for the bytes on the wire and between two codings, with the little that packing may add.
    Raises :class:`BodyError` (``"encoding"``) at once for codings that are not known here.
    """

    def __init__(self, codings: Sequence[str], cap: int) -> None:
        self._cap = cap
        # Deflate adds at most 5 bytes to 16 KiB that it cannot make smaller; gzip a header and a trailer.
        self._packed_cap = cap + cap // 1024 + 1024 if codings else cap
        self._fed = 0
        self._whole = bytearray()
        self._stages = [_stage(coding) for coding in reversed(codings)]
        if len(self._stages) > DEEPEST:
            raise BodyError("encoding", f"is coded {len(self._stages)} times over; {DEEPEST} are undone")
        self._passed = [0] * len(self._stages)

    def expect(self, length: int) -> None:
        """Hear that ``length`` bytes are to come. Raises :class:`BodyError` where that is too many."""
        if length > self._packed_cap:
            raise self._too_large()

    def feed(self, data: bytes) -> None:
        """Take the next bytes from the wire. Raises :class:`BodyError` as soon as a limit is passed."""
        self._fed += len(data)
        if self._fed > self._packed_cap:
            raise self._too_large()
        self._pass_on(0, data)

    def finish(self) -> bytes:
        """The whole body. Raises :class:`BodyError` (``"incomplete"``) where a coding has not come to its end.

        No byte at all is an empty body in any coding.
        """
        if self._fed and not all(stage.ended() for stage in self._stages):
            raise BodyError("incomplete", "ended in the middle of its compressed body")
        return bytes(self._whole)

    def _pass_on(self, index: int, data: bytes) -> None:
        if index < len(self._stages):
            for piece in self._stages[index].undo(data):
                self._passed[index] += len(piece)
                if self._passed[index] > self._packed_cap:
                    raise self._too_large()
                self._pass_on(index + 1, piece)
            return
        if len(self._whole) + len(data) > self._cap:
            raise self._too_large()
        self._whole += data

    def _too_large(self) -> BodyError:
        return BodyError("too_large", f"has a body of more than {self._cap} bytes")


def codings_of(fields: Sequence[str]) -> list[str]:
    """The codings in the values of the Content-Encoding fields, in lower case, ``identity`` left out."""
    listed = (coding.strip().lower() for value in fields for coding in value.split(","))
    return [coding for coding in listed if coding not in ("", "identity")]


class _Stage(Protocol):
    """One coding being undone."""

    def undo(self, data: bytes) -> Iterator[bytes]:
        """What ``data`` makes available, in pieces."""
        ...

    def ended(self) -> bool:
        """Whether the coded data may end here."""
        ...


class _Gzip:
    def __init__(self) -> None:
        self._member = _member()
        self._between = False
        """Between two members, or after the last: only a new one, or zeros that pad, may follow."""
        self._padded = False

    def undo(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._between:
                data = self._begin_member(data)
                continue
            yield from _inflated(self._member, data)
            data = self._member.unused_data
            self._between = self._member.eof

    def ended(self) -> bool:
        return self._between

    def _begin_member(self, data: bytes) -> bytes:
        rest = data.lstrip(b"\0")
        self._padded = self._padded or len(rest) < len(data)
        if rest and self._padded:
            raise BodyError("encoding", "has bytes behind its gzip body")
        if rest:
            self._member = _member()
            self._between = False
        return rest


class _Deflate:
    def __init__(self) -> None:
        self._first = b""
        self._stream: zlib._Decompress | None = None

    def undo(self, data: bytes) -> Iterator[bytes]:
        if self._stream is None:
            data = self._first = self._first + data
            if len(data) < 2:
                return
            self._stream = zlib.decompressobj(15 if _is_zlib(data) else -15)
        if data and self._stream.eof:
            raise BodyError("encoding", "has bytes behind its deflate body")
        yield from _inflated(self._stream, data)
        if self._stream.unused_data:
            raise BodyError("encoding", "has bytes behind its deflate body")

    def ended(self) -> bool:
        return self._stream is not None and self._stream.eof


_STAGES: dict[str, Callable[[], _Stage]] = {"gzip": _Gzip, "x-gzip": _Gzip, "deflate": _Deflate}
"""``x-gzip`` is the same as ``gzip`` (RFC 9110, 8.4.1.3)."""


def _stage(coding: str) -> _Stage:
    known = _STAGES.get(coding)
    if known is None:
        shown = (
            coding
            if coding.isprintable() and len(coding) <= 40
            else coding[:40].encode("unicode_escape").decode()
        )
        raise BodyError("encoding", f"is coded as {shown!r}, which was not asked for and cannot be undone")
    return known()


def _member() -> zlib._Decompress:
    return zlib.decompressobj(31)  # 16 for the gzip format, 15 for the largest window


def _is_zlib(data: bytes) -> bool:
    """Whether the first two bytes are a zlib header (RFC 1950, 2.2): method 8, and a multiple of 31."""
    return data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0


def _inflated(stream: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    """Pieces of at most ``_PIECE`` bytes, so that a small input with a huge output is met piece by piece."""
    while True:
        try:
            piece = stream.decompress(data, _PIECE)
        except zlib.error as error:
            raise BodyError("encoding", f"has a compressed body that is damaged ({_reason(error)})") from None
        if piece:
            yield piece
        data = stream.unconsumed_tail
        if stream.eof or (not data and len(piece) < _PIECE):
            return


def _reason(error: zlib.error) -> str:
    return str(error).rpartition(": ")[2]
