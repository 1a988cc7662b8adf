"""Reading ``bide.toml``: what stands in it, and where it cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bide.config import read_file
from bide.core.declaration import Mistake
from bide.errors import DeclarationError


def refusal(path: Path) -> Mistake:
    """The one mistake that the file at ``path`` is refused for."""
    with pytest.raises(DeclarationError) as raised:
        read_file(path)
    (mistake,) = raised.value.mistakes
    return mistake


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("[app]\ntick = \n", 2, 8, "invalid value"),
        ("[app]\n  tick '1m'\n", 2, 8, "expected '=' after a key"),
        ("[app\n", 1, 5, "expected ']'"),
        ("[app]\ntick = '1m'\ntick = '2m'\n", 3, 12, "cannot overwrite a value"),
        ("[app]\n[packages]\n[app]\n", 3, 5, "cannot declare [app] twice"),
        ('[app]\ntick = "1m', 2, 11, "unterminated string"),
        ("a = [1,\n", 2, 1, "invalid value"),
        ("a = '\x01'\n", 1, 6, "invalid character"),
        ("a = 1_\n", 1, 6, "expected newline or end of document"),
    ],
)
def test_syntax(tmp_path: Path, text: str, line: int, column: int, says: str) -> None:
    path = tmp_path / "bide.toml"
    path.write_text(text)
    mistake = refusal(path)
    assert mistake.code == "config.syntax_invalid"
    assert mistake.where == f"{path}:{line}:{column}"
    assert f"is not TOML at line {line}, column {column}: " in mistake.message
    assert says in mistake.message
    assert "(at" not in mistake.message


def test_bytes_that_are_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "bide.toml"
    path.write_bytes("[app]\n# Grüße\n".encode("latin-1"))
    mistake = refusal(path)
    assert (mistake.code, mistake.where) == ("config.syntax_invalid", f"{path}:2:5")
    assert "byte 0xfc at line 2, column 5 is not UTF-8" in mistake.message
    assert "UTF-8" in (mistake.suggestion or "")


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "bide.toml"
    path.write_bytes(b"\xef\xbb\xbf[app]\r\ntick = '2m'\r\n")
    assert read_file(path) == {"app": {"tick": "2m"}}
    assert read_file(str(path)) == {"app": {"tick": "2m"}}


def test_an_empty_file_declares_nothing(tmp_path: Path) -> None:
    path = tmp_path / "bide.toml"
    path.write_text("")
    assert read_file(path) == {}


def test_nesting_without_end(tmp_path: Path) -> None:
    path = tmp_path / "bide.toml"
    path.write_text("a = " + "[" * 100_000 + "]" * 100_000)
    mistake = refusal(path)
    assert (mistake.code, mistake.where) == ("config.syntax_invalid", str(path))
    assert "nested too deeply" in mistake.message


def test_a_number_without_end(tmp_path: Path) -> None:
    path = tmp_path / "bide.toml"
    path.write_text("a = " + "9" * 10_000)
    mistake = refusal(path)
    assert (mistake.code, mistake.where) == ("config.syntax_invalid", str(path))
    assert "cannot be read" in mistake.message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    mistake = refusal(tmp_path / "bide.toml")
    assert (mistake.code, mistake.where) == ("config.file_unreadable", str(tmp_path / "bide.toml"))
    assert "no such file" in mistake.message
    assert "bide init" in (mistake.suggestion or "")


def test_a_folder_in_its_place(tmp_path: Path) -> None:
    mistake = refusal(tmp_path)
    assert (mistake.code, mistake.where) == ("config.file_unreadable", str(tmp_path))
    assert "is a folder" in mistake.message


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bide.toml"
    path.write_text("")

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, os.strerror(13), str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse)  # the mode of a file does not stop root
    mistake = refusal(path)
    assert mistake.code == "config.file_unreadable"
    assert "cannot be read: Permission denied" in mistake.message
