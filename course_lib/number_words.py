"""Numbers from 0 to 999,999 in English, German and French, as lists of word parts.

A few rules per language, and nothing to install. One part is one token, so joined parts give the written
number: English and French with spaces (or hyphens) between them, German with nothing at all.

    45     forty five          fünf und vierzig         quarante cinq
    80,080 eighty thousand     achtzig tausend          quatre vingt mille
           eighty              achtzig                  quatre vingts
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import index
from typing import SupportsIndex

LIMIT = 1_000_000


def _table(words: str) -> tuple[str, ...]:
    return tuple(words.split())


_ENGLISH = _table(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
)
_ENGLISH_TENS = _table("- ten twenty thirty forty fifty sixty seventy eighty ninety")
_GERMAN = _table(
    "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn "
    "sechzehn siebzehn achtzehn neunzehn"
)
_GERMAN_TENS = _table("- zehn zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig")
_FRENCH = _table("zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize")
_FRENCH_TENS = {
    10: ("dix",),
    20: ("vingt",),
    30: ("trente",),
    40: ("quarante",),
    50: ("cinquante",),
    60: ("soixante",),
    80: ("quatre", "vingt"),
}


def english(n: SupportsIndex) -> list[str]:
    """English words of `n`, without "and" or hyphens: 45,201 is forty five thousand two hundred one."""
    number = _checked(n)
    if number == 0:
        return [_ENGLISH[0]]
    thousands, rest = divmod(number, 1000)
    head = (*_english_group(thousands), "thousand") if thousands else ()
    return [*head, *_english_group(rest)]


def german(n: SupportsIndex) -> list[str]:
    """German parts of `n`, the unit before the ten: 45 is fünf und vierzig.

    One is "eins" where the number ends and "ein" where a part follows: 101,001 is
    ein hundert ein tausend eins.
    """
    number = _checked(n)
    if number == 0:
        return [_GERMAN[0]]
    thousands, rest = divmod(number, 1000)
    head = (*_german_group(thousands), "tausend") if thousands else ()
    tail = _german_group(rest)
    return [*head, *tail[:-1], "eins"] if rest % 100 == 1 else [*head, *tail]


def french(n: SupportsIndex) -> list[str]:
    """French parts of `n` as counted in France: soixante et onze, quatre vingt dix, and no "un" before mille.

    A multiplied "vingt" or "cent" takes an s at the very end of the number and nowhere else: quatre vingts,
    deux cents, but quatre vingt un, deux cent un, quatre vingt mille, deux cent mille.
    """
    number = _checked(n)
    if number == 0:
        return [_FRENCH[0]]
    thousands, rest = divmod(number, 1000)
    many = _french_group(thousands) if thousands > 1 else ()
    head = (*many, "mille") if thousands else ()
    tail = _french_group(rest)
    multiplied = rest % 100 == 80 or (rest % 100 == 0 and rest >= 200)
    return [*head, *tail[:-1], tail[-1] + "s"] if multiplied else [*head, *tail]


Speller = Callable[[SupportsIndex], list[str]]
LANGUAGES: dict[str, Speller] = {"english": english, "german": german, "french": french}


def speller(language: str) -> Speller:
    """The function that spells numbers in `language`: english, german or french."""
    if language not in LANGUAGES:
        raise ValueError(f"Numbers are spelled in {', '.join(LANGUAGES)}; got {language!r}.")
    return LANGUAGES[language]


def _checked(n: SupportsIndex) -> int:
    """`n` as an int from 0 to 999,999; True and 3.0 are no numbers to spell."""
    if isinstance(n, bool) or not hasattr(n, "__index__"):
        raise TypeError(
            f"Number words need a whole number, an int; got {n!r} of type {type(n).__name__}. "
            "A float or a string becomes one by int(...)."
        )
    number = index(n)
    if not 0 <= number < LIMIT:
        raise ValueError(f"Number words go from 0 to {LIMIT - 1:,}; got {number:,}.")
    return number


# A number has two groups of three digits. There are only a thousand groups: remembering them
# makes spelling as quick as looking up.


@cache
def _english_group(n: int) -> tuple[str, ...]:
    """English words of 1 … 999, nothing for 0."""
    if n >= 100:
        return (_ENGLISH[n // 100], "hundred", *_english_group(n % 100))
    if n >= 20:
        return (_ENGLISH_TENS[n // 10], *_english_group(n % 10))
    return (_ENGLISH[n],) if n else ()


@cache
def _german_group(n: int) -> tuple[str, ...]:
    """German parts of 1 … 999 as they stand before "tausend" (ein, not eins), nothing for 0."""
    if n >= 100:
        return (_GERMAN[n // 100], "hundert", *_german_group(n % 100))
    if n >= 20:
        unit_first = (_GERMAN[n % 10], "und") if n % 10 else ()
        return (*unit_first, _GERMAN_TENS[n // 10])
    return (_GERMAN[n],) if n else ()


@cache
def _french_group(n: int) -> tuple[str, ...]:
    """French parts of 1 … 999 as they stand before "mille" (no plural s), nothing for 0."""
    if n >= 100:
        many = (_FRENCH[n // 100],) if n >= 200 else ()
        return (*many, "cent", *_french_group(n % 100))
    if n <= 16:
        return (_FRENCH[n],) if n else ()
    # Scores, not tens, above sixty: 71 is 60 + 11 and 91 is 80 + 11.
    base = n // 10 * 10 if n < 60 else n // 20 * 20
    rest = n - base
    link = ("et",) if rest in (1, 11) and base < 80 else ()
    return (*_FRENCH_TENS[base], *link, *_french_group(rest))
