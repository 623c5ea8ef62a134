"""Metrics: properties, BLEU against a hand-written one, and what they refuse to measure."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.metrics import DigitScore, bleu, by_digits, exact_match, perplexity, token_accuracy

SENTENCES = st.lists(st.lists(st.sampled_from("abcd"), max_size=4), min_size=1, max_size=6)


# --- exact match ----------------------------------------------------------------------------------------


def test_exact_match_is_the_share_of_equal_sentences():
    said = [["ein", "und", "vierzig"], ["vier"], ["zehn"], [], ["elf", "elf"]]
    meant = [["ein", "und", "vierzig"], ["vier", "zehn"], ["zehn"], [], ["elf"]]
    assert exact_match(said, meant) == 3 / 5


@given(SENTENCES, st.data())
def test_exact_match_does_not_depend_on_order_of_sentences(said, data):
    meant = data.draw(st.lists(st.sampled_from(said), min_size=len(said), max_size=len(said)))
    together = data.draw(st.permutations(list(zip(said, meant, strict=True))))
    assert exact_match([s for s, _ in together], [m for _, m in together]) == exact_match(said, meant)
    assert exact_match(said, said) == 1


def test_exact_match_takes_lists_for_tuples_and_ids_for_words():
    assert exact_match([(4, 5), [6]], [[4, 5], [7]]) == 0.5


# --- BLEU -----------------------------------------------------------------------------------------------


def bleu_by_hand(predictions, references) -> float:
    """BLEU-4 of Papineni et al. with one reference; an order without matches counts 1/2, 1/4, … of one."""
    logs, halves = [], 1
    for n in (1, 2, 3, 4):
        matches = possible = 0
        for said, meant in zip(predictions, references, strict=True):
            grams = Counter(tuple(said[i : i + n]) for i in range(len(said) - n + 1))
            allowed = Counter(tuple(meant[i : i + n]) for i in range(len(meant) - n + 1))
            matches += sum(min(count, allowed[gram]) for gram, count in grams.items())
            possible += sum(grams.values())
        if possible == 0 or (n == 1 and matches == 0):
            return 0.0
        if matches == 0:
            halves *= 2
        logs.append(math.log((matches or 1 / halves) / possible))
    said_words, meant_words = sum(map(len, predictions)), sum(map(len, references))
    brevity = 1.0 if said_words >= meant_words else math.exp(1 - meant_words / said_words)
    return 100 * brevity * math.exp(sum(logs) / 4)


def damaged(sentence: list[str], draw: random.Random) -> list[str]:
    """A plausible wrong answer: words lost, repeated, swapped for others."""
    words = [draw.choice("abcdef") if draw.random() < 0.2 else word for word in sentence]
    return [word for word in words for _ in range(draw.choice([0, 1, 1, 1, 1, 1, 2]))]


@pytest.mark.parametrize("seed", range(25))
def test_bleu_equals_bleu_by_hand(seed):
    draw = random.Random(seed)
    meant = [[draw.choice("abcdef") for _ in range(draw.randint(1, 11))] for _ in range(draw.randint(1, 8))]
    said = [damaged(sentence, draw) for sentence in meant]
    assert bleu(said, meant) == pytest.approx(bleu_by_hand(said, meant), abs=1e-9)


def test_bleu_of_one_pair_worked_out():
    said, meant = list("abcdex"), list("abcdef")
    assert bleu([said], [meant]) == pytest.approx(100 * (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25)
    assert bleu([said[:5]], [meant]) == pytest.approx(100 * math.exp(1 - 6 / 5))


def test_bleu_counts_over_the_corpus_and_not_per_sentence():
    said = [list("abcde"), list("abcdxy")]
    meant = [list("abcde"), list("abcdef")]
    together = bleu(said, meant)
    assert together == pytest.approx(bleu_by_hand(said, meant))
    assert together != pytest.approx((bleu(said[:1], meant[:1]) + bleu(said[1:], meant[1:])) / 2)


def test_bleu_at_its_ends():
    meant = [list("abcdef"), list("fedc")]
    assert bleu(meant, meant) == 100
    assert bleu([list("uvwxyz"), list("uvwx")], meant) == 0
    assert bleu([[], []], meant) == 0
    assert bleu([["zehn"]], [["zehn"]]) == 0, "no four words in the corpus: BLEU-4 has nothing to count"


def test_bleu_takes_tokens_as_they_are():
    said, meant = [["x,y!", "Z", ".", "'s", "ß"]], [["x,y!", "z", ".", "'s", "ß"]]
    assert bleu(said, meant) == pytest.approx(bleu_by_hand(said, meant))
    assert bleu([[4, 5, 6, 7]], [[4, 5, 6, 7]]) == 100


@pytest.mark.parametrize("token", ["two words", "", "tab\there"])
def test_bleu_refuses_tokens_that_fall_apart(token):
    with pytest.raises(ValueError, match="white space"):
        bleu([["a", token]], [["a", "b"]])


@pytest.mark.parametrize("measure", [exact_match, bleu])
def test_sentences_come_in_pairs_of_token_lists(measure):
    with pytest.raises(ValueError, match="predictions are empty"):
        measure([], [])
    with pytest.raises(ValueError, match=r"predictions and references .* got 1 and 2"):
        measure([["a"]], [["a"], ["b"]])
    with pytest.raises(TypeError, match="list of tokens; got the string 'a b'"):
        measure([["a", "b"]], ["a b"])
    with pytest.raises(TypeError, match="list of tokens"):
        measure(["a b"], [["a", "b"]])


# --- by digits ------------------------------------------------------------------------------------------


def test_by_digits_groups_by_length_of_the_number():
    numbers = [7, 999_999, 0, 10, 100_000, 99, 123_456, 9]
    correct = [True, False, False, True, True, True, True, False]
    assert by_digits(numbers, correct) == [
        DigitScore(digits=1, total=3, share=1 / 3),
        DigitScore(digits=2, total=2, share=1.0),
        DigitScore(digits=6, total=3, share=2 / 3),
    ]


@given(st.lists(st.tuples(st.integers(0, 10**6), st.booleans()), min_size=1))
def test_by_digits_loses_nobody(results):
    table = by_digits([n for n, _ in results], [right for _, right in results])
    assert sum(row.total for row in table) == len(results)
    assert sum(row.total * row.share for row in table) == pytest.approx(sum(right for _, right in results))
    assert [row.digits for row in table] == sorted({len(f"{n}") for n, _ in results})


def test_by_digits_takes_tensors():
    table = by_digits(torch.tensor([5, 50, 51]), torch.tensor([True, False, True]))
    assert table == [DigitScore(1, 1, 1.0), DigitScore(2, 2, 0.5)]


def test_by_digits_bad_input():
    with pytest.raises(ValueError, match="numbers are empty"):
        by_digits([], [])
    with pytest.raises(ValueError, match=r"numbers and correct .* got 2 and 1"):
        by_digits([1, 2], [True])
    with pytest.raises(ValueError, match="got -3"):
        by_digits([1, -3], [True, True])


# --- token accuracy and perplexity ----------------------------------------------------------------------


def test_token_accuracy_equals_a_loop_and_leaves_padding_out():
    generator = torch.Generator().manual_seed(3)
    logits_BTC = torch.randn(4, 7, 5, generator=generator)
    targets_BT = torch.randint(0, 5, (4, 7), generator=generator)
    for pad in (0, 2):
        hits = [
            max(range(5), key=lambda c, b=b, t=t: float(logits_BTC[b, t, c])) == targets_BT[b, t]
            for b in range(4)
            for t in range(7)
            if targets_BT[b, t] != pad
        ]
        assert 0 < len(hits) < 28
        assert float(token_accuracy(logits_BTC, targets_BT, pad)) == pytest.approx(sum(hits) / len(hits))


def test_token_accuracy_does_not_pay_for_predicted_padding():
    targets = torch.tensor([[4, 2, 0, 0, 0]])
    logits = torch.nn.functional.one_hot(torch.tensor([[4, 3, 0, 0, 0]]), 6).float()
    assert token_accuracy(logits, targets, pad=0) == 0.5
    assert token_accuracy(logits, torch.zeros_like(targets), pad=0).isnan()


def test_token_accuracy_bad_input():
    with pytest.raises(ValueError, match=r"logits \(2, 3, 5\) and targets \(2, 4\)"):
        token_accuracy(torch.zeros(2, 3, 5), torch.zeros(2, 4), pad=0)
    with pytest.raises(ValueError, match=r"at least one target"):
        token_accuracy(torch.zeros(0, 3, 5), torch.zeros(0, 3), pad=0)


def test_perplexity_of_a_fair_choice_is_the_number_of_choices():
    logits_NC, targets_N = torch.zeros(9, 17), torch.arange(9)
    assert perplexity(torch.nn.functional.cross_entropy(logits_NC, targets_N)) == pytest.approx(17)
    assert perplexity(0.0) == 1
    assert perplexity(1e6) == math.inf


@pytest.mark.parametrize("bad", [-0.1, math.nan])
def test_perplexity_bad_input(bad):
    with pytest.raises(ValueError, match=f"0 or more; got {bad}"):
        perplexity(bad)


def test_neither_torch_nor_sacrebleu_is_loaded_before_it_is_needed():
    code = "import sys, course_lib.metrics; print({'torch', 'sacrebleu'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
