"""Text in any encoding is read as it was written, or refused; it is never guessed into rubbish."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.app.materials.decoding import ENCODINGS, decode_text
from server.app.materials.errors import MaterialError

CASES = Path(__file__).parents[3] / "cases"
CHINESE = "前缀缓存按块哈希复用键值，分块预填充切开长提示词。"
TRADITIONAL = "資料結構與演算法：期末考試於第十八週舉行，請攜帶學生證。作業遲交一天扣百分之十。" * 4
KOREAN = (
    "운영체제 강의 계획서: 과제는 매주 금요일까지 제출해야 합니다. 시험은 유월에 있습니다. " * 4
)
FRENCH = "Les étudiants déposent leur rapport à la fin de la séance, où qu’elle ait lieu. " * 4


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (CHINESE.encode(), "utf-8"),
        (b"\xef\xbb\xbf" + CHINESE.encode(), "utf-8-sig"),
        (CHINESE.encode("gb18030"), "gb18030"),
        (CHINESE.encode("utf-16"), "utf-16"),
        (b"\xfe\xff" + CHINESE.encode("utf-16-be"), "utf-16"),
        (CHINESE.encode("utf-32"), "utf-32"),
    ],
)
def test_chinese_text_is_read_in_its_encoding(data: bytes, encoding: str) -> None:
    decoded = decode_text(data)
    assert decoded.text == CHINESE
    assert decoded.encoding == encoding
    assert not decoded.is_guess


@pytest.mark.parametrize(
    ("text", "encoding"), [(TRADITIONAL, "big5"), (KOREAN, "euc_kr"), (FRENCH, "cp1252")]
)
def test_what_would_be_rare_characters_in_gb18030_is_something_else(
    text: str, encoding: str
) -> None:
    decoded = decode_text(text.encode(encoding))
    assert decoded.text == text
    assert decoded.is_guess


def test_nul_becomes_a_blank_and_line_ends_are_one() -> None:
    assert decode_text(b"Chunked\x00prefill\r\nsplits\ra prompt.\n").text == (
        "Chunked prefill\nsplits\na prompt.\n"
    )
    nul = decode_text((CASES / "nul_inside.txt").read_bytes()).text
    assert nul.startswith("Chunked prefill splits a long prompt.\n")


def test_a_byte_order_mark_is_no_text() -> None:
    text = decode_text((CASES / "notes_utf8_bom_crlf.txt").read_bytes()).text
    assert text.startswith("标题,Topic\n")
    assert "\r" not in text


def test_bytes_that_are_no_text_are_refused_by_name() -> None:
    with pytest.raises(MaterialError, match=r"photo\.txt") as refused:
        decode_text(bytes(range(256)) * 8 + b"\xff\xff", name="photo.txt")
    assert refused.value.code == "undecodable"


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_chosen_encoding_is_used_whatever_the_bytes_look_like(encoding: str) -> None:
    text = "plain words"
    assert decode_text(text.encode(encoding), encoding=encoding).text == text


@pytest.mark.parametrize(
    "encoding", ["utf-8", "punycode", "unicode_escape", "idna", "rot13", "no such"]
)
def test_a_chosen_encoding_that_does_not_fit_or_is_not_offered_is_refused(encoding: str) -> None:
    with pytest.raises(MaterialError, match=encoding) as refused:
        decode_text(CHINESE.encode("gb18030"), encoding=encoding)
    assert refused.value.code == "wrong_encoding"


@given(st.text())
def test_utf8_is_read_as_it_is(written: str) -> None:
    data = ("x" + written).encode("utf-8", "ignore")
    expected = data.decode().replace("\x00", " ").replace("\r\n", "\n").replace("\r", "\n")
    assert decode_text(data).text == expected


@given(st.binary(max_size=200))
def test_any_bytes_are_text_or_refused(data: bytes) -> None:
    try:
        text = decode_text(data).text
    except MaterialError:
        return
    text.encode()  # what cannot be written again cannot be stored
