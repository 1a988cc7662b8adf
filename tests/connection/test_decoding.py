"""Content codings undone within a cap, however the bytes are cut up."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.connection.decoding import Body, BodyError, codings_of
from tests.servers import gzip_bomb, zipped

CAP = 1 << 20
TEXT = b"the price of a pound of tea " * 100


def bare_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, Callable[[bytes], bytes]] = {"gzip": zipped, "x-gzip": zipped, "deflate": zlib.compress}


def packed(data: bytes, codings: list[str]) -> bytes:
    for coding in codings:
        data = PACKERS[coding](data)
    return data


def decoded(data: bytes, *codings: str, cap: int = CAP, piece: int = 1000) -> bytes:
    body = Body(codings, cap)
    for start in range(0, len(data), piece):
        body.feed(data[start : start + piece])
    return body.finish()


def refusal(data: bytes, *codings: str, cap: int = CAP, piece: int = 1000) -> BodyError:
    with pytest.raises(BodyError) as caught:
        decoded(data, *codings, cap=cap, piece=piece)
    return caught.value


@given(
    data=st.binary(max_size=3000),
    codings=st.lists(st.sampled_from(sorted(PACKERS)), max_size=4),
    piece=st.integers(1, 400),
)
def test_whatever_was_packed_comes_out_however_it_was_cut_up(
    data: bytes, codings: list[str], piece: int
) -> None:
    assert decoded(packed(data, codings), *codings, piece=piece) == data


@pytest.mark.parametrize("piece", [1, 2, 7, 100_000])
def test_members_of_one_gzip_body_are_joined(piece: int) -> None:
    assert decoded(zipped(b"one,") + zipped(b"") + zipped(b"two"), "gzip", piece=piece) == b"one,two"


@pytest.mark.parametrize("piece", [1, 3, 100_000])
def test_deflate_without_its_zlib_wrapping_is_read_too(piece: int) -> None:
    assert decoded(bare_deflate(TEXT), "deflate", piece=piece) == TEXT


def test_a_stack_is_undone_from_the_last_to_the_first() -> None:
    assert decoded(zlib.compress(zipped(TEXT)), "gzip", "deflate") == TEXT


def test_zeros_that_pad_a_gzip_body_are_passed_over() -> None:
    assert decoded(zipped(TEXT) + bytes(2000), "gzip", piece=100) == TEXT


def test_no_byte_at_all_is_an_empty_body_in_any_coding() -> None:
    assert decoded(b"", "gzip") == decoded(b"", "deflate") == decoded(b"") == b""


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_coding_cut_off_anywhere_is_incomplete(coding: str) -> None:
    whole = packed(b"x,y,z" * 20, [coding])
    for length in range(1, len(whole)):
        assert refusal(whole[:length], coding).kind == "incomplete", length


def test_a_stack_whose_inner_body_is_cut_off_is_incomplete() -> None:
    assert refusal(zipped(zipped(TEXT)[:-3]), "gzip", "gzip").kind == "incomplete"


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
@pytest.mark.parametrize("behind", [b"<html>", zlib.compress(b"more")])
def test_what_follows_a_coded_body_and_is_no_part_of_it_is_an_error(coding: str, behind: bytes) -> None:
    whole = packed(TEXT, [coding]) + behind
    for piece in (1, 100_000):
        assert refusal(whole, coding, piece=piece).kind == "encoding"


def test_a_member_after_padding_is_an_error() -> None:
    assert refusal(zipped(b"one") + bytes(5) + zipped(b"two"), "gzip").kind == "encoding"


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_damage_is_an_error(coding: str) -> None:
    whole = bytearray(packed(TEXT, [coding]))
    whole[len(whole) // 2] ^= 0xFF
    assert refusal(bytes(whole), coding).kind in ("encoding", "incomplete")
    assert refusal(b"plain text", coding).kind == "encoding"


def test_a_wrong_checksum_is_an_error() -> None:
    whole = bytearray(zipped(TEXT))
    whole[-6] ^= 0xFF
    assert refusal(bytes(whole), "gzip").kind == "encoding"


@pytest.mark.parametrize("coding", ["br", "zstd", "compress", "aes128gcm", "gzip;q=1"])
def test_an_unknown_coding_is_named_before_anything_is_read(coding: str) -> None:
    with pytest.raises(BodyError) as caught:
        Body(["gzip", coding], CAP)
    assert caught.value.kind == "encoding"
    assert coding in caught.value.reason


def test_an_unknown_coding_of_odd_characters_is_shown_escaped_and_short() -> None:
    with pytest.raises(BodyError) as caught:
        Body(["\x1b[31m" * 100], CAP)
    assert "\x1b" not in caught.value.reason
    assert len(caught.value.reason) < 300


def test_codings_on_top_of_each_other_are_bounded() -> None:
    assert decoded(packed(TEXT, ["gzip"] * 5), *["gzip"] * 5) == TEXT
    with pytest.raises(BodyError, match="6 times"):
        Body(["gzip"] * 6, CAP)


# --- caps --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codings", [[], ["gzip"], ["deflate"], ["gzip", "gzip"]])
def test_the_cap_is_exact_in_decoded_bytes(codings: list[str]) -> None:
    assert len(decoded(packed(bytes(5000), codings), *codings, cap=5000)) == 5000
    assert refusal(packed(bytes(5001), codings), *codings, cap=5000).kind == "too_large"


def test_a_body_that_packing_made_longer_is_taken_up_to_the_cap() -> None:
    noise = b"".join(zlib.crc32(bytes([n % 256, n // 256])).to_bytes(4, "big") for n in range(5000))
    assert len(zipped(noise)) > len(noise)
    assert decoded(zipped(noise), "gzip", cap=len(noise)) == noise


def test_a_small_body_that_unpacks_to_very_much_is_stopped_near_the_cap() -> None:
    bomb = gzip_bomb(64 << 20)
    tracemalloc.start()
    try:
        assert refusal(bomb, "gzip", cap=CAP, piece=len(bomb)).kind == "too_large"
        assert tracemalloc.get_traced_memory()[1] < 4 * CAP
    finally:
        tracemalloc.stop()


def test_a_bomb_between_two_codings_is_stopped_too() -> None:
    empties = gzip.compress(zipped(b"") * 400_000)  # unpacks to 8 MB of members that hold nothing
    assert len(empties) < CAP // 4
    assert refusal(empties, "gzip", "gzip", cap=CAP, piece=len(empties)).kind == "too_large"


def test_bytes_on_the_wire_are_capped_where_they_decode_to_nothing() -> None:
    assert refusal(zipped(b"") * 1000, "gzip", cap=10_000, piece=20).kind == "too_large"


def test_an_announced_length_over_the_cap_is_refused_before_it_is_read() -> None:
    Body([], 100).expect(100)
    for codings in ([], ["gzip"]):
        with pytest.raises(BodyError, match="more than 100 bytes"):
            Body(codings, 100).expect(10_000)


@pytest.mark.parametrize(
    ("fields", "codings"),
    [
        ([], []),
        (["gzip"], ["gzip"]),
        (["GZip , deflate"], ["gzip", "deflate"]),
        (["gzip", "gzip"], ["gzip", "gzip"]),
        (["identity", ", ,"], []),
    ],
)
def test_codings_are_read_from_every_field(fields: list[str], codings: list[str]) -> None:
    assert codings_of(fields) == codings
