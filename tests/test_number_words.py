"""Number words: read back by a parser, equal to num2words, pinned by hand where that is wrong."""

from __future__ import annotations

import random
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from num2words import num2words

from course_lib.number_words import LANGUAGES, LIMIT, english, french, german, speller

NUMBERS = st.integers(0, LIMIT - 1)
ONES = {
    "english": "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen",
    "german": "ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn "
    "sechzehn siebzehn achtzehn neunzehn",
    "french": "un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize",
}
TENS = {
    "english": "twenty thirty forty fifty sixty seventy eighty ninety",
    "german": "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig",
    "french": "vingt trente quarante cinquante soixante",
}
HUNDRED = ("hundred", "hundert", "cent", "cents")
THOUSAND = ("thousand", "tausend", "mille")


def value(parts: list[str], language: str) -> int:
    """What a reader understands: add up, multiply by hundred and thousand, four times twenty is eighty."""
    words = {word: n for n, word in enumerate(ONES[language].split(), start=1)}
    words |= {word: 10 * n for n, word in enumerate(TENS[language].split(), start=2)}
    words |= {"eins": 1, "vingts": 20, "und": 0, "et": 0, "null": 0, "zero": 0, "zéro": 0}
    total = group = 0
    for part in parts:
        if part in THOUSAND:
            total, group = 1000 * (group or 1), 0
        elif part in HUNDRED:
            group = 100 * (group or 1)
        elif part in ("vingt", "vingts") and group % 100 == 4:
            group += 76
        else:
            group += words[part]
    return total + group


def test_numbers_that_people_get_wrong():
    assert " ".join(english(45_201)) == "forty five thousand two hundred one"
    assert " ".join(english(110_013)) == "one hundred ten thousand thirteen"
    assert german(45) == ["fünf", "und", "vierzig"]
    assert [" ".join(german(n)) for n in (1, 16, 17, 30, 67, 76)] == [
        "eins",
        "sechzehn",
        "siebzehn",
        "dreißig",
        "sieben und sechzig",
        "sechs und siebzig",
    ]
    assert " ".join(german(1_001)) == "ein tausend eins"
    assert " ".join(german(21_121)) == "ein und zwanzig tausend ein hundert ein und zwanzig"
    assert [english(0), german(0), french(0)] == [["zero"], ["null"], ["zéro"]]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (17, "dix sept"),
        (21, "vingt et un"),
        (61, "soixante et un"),
        (70, "soixante dix"),
        (71, "soixante et onze"),
        (77, "soixante dix sept"),
        (80, "quatre vingts"),
        (81, "quatre vingt un"),
        (90, "quatre vingt dix"),
        (91, "quatre vingt onze"),
        (100, "cent"),
        (101, "cent un"),
        (180, "cent quatre vingts"),
        (200, "deux cents"),
        (201, "deux cent un"),
        (1_000, "mille"),
        (1_100, "mille cent"),
        (2_000, "deux mille"),
        (80_000, "quatre vingt mille"),
        (80_080, "quatre vingt mille quatre vingts"),
        (200_000, "deux cent mille"),
        (200_200, "deux cent mille deux cents"),
        (101_001, "cent un mille un"),
    ],
)
def test_french_orthography(number, text):
    assert french(number) == text.split()


@given(NUMBERS)
def test_ones_own_parser_reads_every_number_back(number):
    for language, spell in LANGUAGES.items():
        assert value(spell(number), language) == number


@given(NUMBERS)
def test_parts_are_single_words(number):
    for spell in LANGUAGES.values():
        assert all(re.fullmatch(r"[a-zäöüßé]+", part) for part in spell(number))


def test_english_keeps_ten_before_unit_and_german_crosses_them():
    for number in (n for n in range(21, 100) if n % 10):
        ten, unit = english(number)
        assert (english(number - number % 10), english(number % 10)) == ([ten], [unit])
        german_unit, link, german_ten = german(number)
        assert german(number - number % 10) == [german_ten]
        assert link == "und"
        assert german_unit == german(100 * (number % 10))[0]


# --- against num2words ----------------------------------------------------------------------------------

BOUNDARIES = sorted(
    {*range(1_101)}
    | {power + step for power in (10_000, 100_000, 1_000_000) for step in range(-101, 102) if power + step < LIMIT}
    | {thousands * 1_000 + rest for thousands in range(1, 1_000) for rest in (0, 1, 80, 200)}
)
SAMPLE = random.Random(7).sample(range(LIMIT), 3_000)


def wrong_in_num2words(number: int) -> bool:
    """It writes "hunderteinstausend", with an s that no one says, when x01 stands before thousand."""
    return number >= 101_000 and number // 1_000 % 100 == 1


def test_english_equals_num2words():
    for number in BOUNDARIES + SAMPLE:
        words = re.findall(r"[a-z]+", num2words(number, lang="en"))
        assert english(number) == [word for word in words if word != "and"], number


def test_german_equals_num2words_where_that_is_right():
    for number in BOUNDARIES + SAMPLE:
        text = num2words(number, lang="de")
        if wrong_in_num2words(number):
            text = text.replace("einstausend", "eintausend")
        assert "".join(german(number)) == text, number


def test_german_before_thousand_pinned_by_hand():
    for place, hundred in enumerate(ONES["german"].split()[:9], start=1):
        assert " ".join(german(place * 100_000 + 1_000)) == f"{hundred} hundert ein tausend"
    assert " ".join(german(101_001)) == "ein hundert ein tausend eins"
    assert " ".join(german(701_101)) == "sieben hundert ein tausend ein hundert eins"
    assert " ".join(german(401_021)) == "vier hundert ein tausend ein und zwanzig"
    assert " ".join(german(111_000)) == "ein hundert elf tausend"


def test_french_equals_num2words():
    for number in BOUNDARIES + SAMPLE:
        assert french(number) == num2words(number, lang="fr").replace("-", " ").split(), number


# --- kinds of input -------------------------------------------------------------------------------------


def test_each_call_gives_a_list_of_its_own():
    for spell in LANGUAGES.values():
        spell(45).append("changed")
        assert "changed" not in spell(45)


def test_integers_of_numpy_are_integers():
    assert german(np.int64(45)) == german(45)


@pytest.mark.parametrize("spell", LANGUAGES.values(), ids=LANGUAGES)
@pytest.mark.parametrize("bad", [True, False, 3.0, "45", None, [4]])
def test_what_is_no_whole_number_is_refused(spell, bad):
    with pytest.raises(TypeError, match=f"whole number.*{type(bad).__name__}"):
        spell(bad)


@pytest.mark.parametrize("spell", LANGUAGES.values(), ids=LANGUAGES)
@pytest.mark.parametrize("bad", [-1, LIMIT, 10**12])
def test_numbers_out_of_range_are_refused(spell, bad):
    with pytest.raises(ValueError, match=rf"0 to 999,999; got {bad:,}"):
        spell(bad)


def test_languages_by_name():
    assert [speller(name) for name in ("english", "german", "french")] == [english, german, french]
    with pytest.raises(ValueError, match="english, german, french; got 'latin'"):
        speller("latin")


def test_needs_nothing_but_the_standard_library():
    code = "import sys, course_lib.number_words; print({'torch', 'numpy', 'num2words'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
