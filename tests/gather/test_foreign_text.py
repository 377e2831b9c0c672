"""Strangers' text is shown, and neither acts on a terminal nor forges a line."""

from __future__ import annotations

import subprocess
import sys
import unicodedata

import pytest

from condor_advice.gather.foreign_text import one_line, shell_word, visible

HARMFUL = [
    chr(code)
    for code in (*range(0x110000),)
    if (chr(code) not in "\n\t" and unicodedata.category(chr(code)) in ("Cc", "Cs", "Zl", "Zp"))
    or unicodedata.bidirectional(chr(code)) in ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "PDI")
]


def test_every_control_and_direction_character_is_escaped() -> None:
    for character in HARMFUL:
        assert visible(character).isascii(), hex(ord(character))
        assert one_line(f"a{character}b").isprintable(), hex(ord(character))
    for code in (0xAD, 0x200B, 0x200D, 0x2060, 0xFEFF, 0xE0041, 0x3164):
        assert visible(chr(code)).isascii()


def test_what_people_write_stays_as_it_is() -> None:
    for text in ("naïve café", "Größe 5 µm", "日本語のファイル", "кластер", "a\tb\nc", "🙂"):
        assert visible(text) == text
    assert one_line("two\nlines\r\nand\ttab\u2028end") == "two lines and tab end"
    assert one_line("x" * 3000) == "x" * 2000 + " ..."


@pytest.mark.parametrize(
    "name",
    ["plain", "two words", "it's", "esc\x1b[2Jape", "line\nbreak", "\x07bell'\\", "\u202egnp.exe",
     "caf\u00e9\x1b", "no\udcffutf8"],
)  # fmt: skip
def test_a_quoted_word_is_printable_and_means_the_same_to_a_shell(name: str) -> None:
    word = shell_word(name)
    assert word.isprintable()
    done = subprocess.run(
        ["bash", "-c", f"printf %s {word}"], capture_output=True, check=True,
        env={"LANG": "C.UTF-8"},
    )  # fmt: skip
    assert done.stdout == name.encode("utf-8", "surrogateescape")


GUARDED = r"""
import sys
from condor_advice.gather.foreign_text import clear_screen, guard_terminal
guard_terminal()
print("a\x1b[2Jb\x9bc\u202ed\udcff\x1b]52;c;eA\x07 \x1b[1;32mgreen\x1b[0m \x1b[8mhidden\rx")
print("\x1b[31;8mhidden", file=sys.stderr)
raise SystemExit("\x1b[2J")
"""


def test_all_that_a_process_prints_is_guarded() -> None:
    done = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, timeout=60)
    assert done.stdout == (
        b"a\\x1b[2Jb\\x9bc\\u202ed\\udcff\\x1b]52;c;eA\\x07 "
        b"\x1b[1;32mgreen\x1b[0m \\x1b[8mhidden\\x0dx\n"
    )
    assert done.stderr == b"\\x1b[31;8mhidden\n\\x1b[2J\n"


def test_pages_and_cards_carry_neither_markup_nor_hidden_characters() -> None:
    from condor_advice.model.html_report import Section, page
    from condor_advice.model.registry.card import _inline

    evil = "<script>x</script>\u202e\x1b[2J"
    shown = page("title", [Section(evil, paragraphs=[evil], facts={evil: evil}, items=[evil])])
    assert "<script>" not in shown
    assert "\u202e" not in shown
    assert "\x1b" not in shown
    assert _inline({evil: evil + "\n# title"}).isprintable()
    assert "<script>" not in _inline([evil])
