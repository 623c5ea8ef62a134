"""Data: ids that mean what they say, batches that lose nothing, files that are read line by line."""

from __future__ import annotations

import dataclasses
import json
import sys
import tracemalloc
from itertools import chain
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.data import (
    BOS,
    EOS,
    LONGEST_LINE,
    PAD,
    SPECIALS,
    UNK,
    ByteTokenizer,
    Vocabulary,
    batches,
    copy_task,
    encode_pairs,
    next_token_windows,
    number_pairs,
    number_vocabulary,
    pad_rows,
    python_docs_text,
    read_pairs,
)
from course_lib.number_words import LANGUAGES, english, french, german

WORDS = st.lists(st.sampled_from(["ein", "und", "zwanzig", "tausend", "vier"]), max_size=9)


def draws(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# --- Vocabulary -----------------------------------------------------------------------------------------


def test_special_ids_are_those_that_models_rely_on():
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)
    assert Vocabulary.build([]).words == SPECIALS


def test_vocabulary_orders_by_count_then_alphabet():
    words = Vocabulary.build([["b", "c", "a"], ["c", "b"], ["d", "c"]])
    assert words.words[4:] == ("c", "b", "a", "d")
    assert len(words) == 8
    assert words.encode(["d", "c"]) == [7, 4]
    assert Vocabulary.build([["d", "c"], ["a", "b", "c"], ["c", "b"]]) == words, "order of sentences is no matter"
    assert Vocabulary.build([["b", "c", "a"], ["c", "b"], ["d", "c"]], size=6).words[4:] == ("c", "b")


@given(st.lists(WORDS, min_size=1))
def test_known_words_come_back(sentences):
    vocabulary = Vocabulary.build(sentences)
    for sentence in sentences:
        ids = vocabulary.encode(sentence)
        assert UNK not in ids
        assert vocabulary.decode([BOS, *ids, EOS, PAD, PAD]) == sentence
        assert vocabulary.decode(torch.tensor([*ids, EOS])) == sentence


def test_decode_stops_at_the_first_eos_and_shows_the_unknown():
    vocabulary = Vocabulary.build([["a", "b"]])
    assert vocabulary.decode([BOS, 4, PAD, UNK, 5, EOS, 4, EOS]) == ["a", "<unk>", "b"]
    assert vocabulary.decode([4, 5]) == ["a", "b"], "an answer that never ended is still an answer"


def test_text_cannot_spell_a_special_token():
    vocabulary = Vocabulary.build([["a", "<eos>", "<pad>"]])
    assert vocabulary.words == (*SPECIALS, "a")
    assert vocabulary.encode(["<pad>", "<bos>", "<eos>", "never seen", "a"]) == [UNK, UNK, UNK, UNK, 4]


def test_vocabulary_survives_a_file():
    vocabulary = number_vocabulary("german")
    again = Vocabulary(json.loads(json.dumps(list(vocabulary.words))))
    assert again == vocabulary
    assert hash(again) == hash(vocabulary)
    assert again.encode(german(45)) == vocabulary.encode(german(45))


def test_vocabulary_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        number_vocabulary("german").words = ()


def test_vocabulary_bad_input():
    with pytest.raises(ValueError, match=r"starts with <pad>, <bos>, <eos>, <unk>; got \('a', 'b'\)"):
        Vocabulary(["a", "b"])
    with pytest.raises(ValueError, match="twice there: a"):
        Vocabulary([*SPECIALS, "a", "b", "a"])
    with pytest.raises(ValueError, match="twice there: <eos>"):
        Vocabulary([*SPECIALS, "<eos>"])
    with pytest.raises(ValueError, match="size counts the 4 specials too; got 3"):
        Vocabulary.build([["a"]], size=3)
    vocabulary = Vocabulary.build([["a"]])
    for bad in (5, -1):
        with pytest.raises(ValueError, match=f"0 to 4; got {bad}"):
            vocabulary.decode([4, bad])
    for wrong in (lambda: vocabulary.encode("a b"), lambda: Vocabulary.build(["a b"])):
        with pytest.raises(TypeError, match=r"list of words; got the string 'a b'. Try .split"):
            wrong()


# --- rows and pairs -------------------------------------------------------------------------------------


def test_rows_are_padded_behind():
    assert pad_rows([[5, 6], [], [7, 8, 9]]).tolist() == [[5, 6, 0], [0, 0, 0], [7, 8, 9]]
    assert pad_rows([[5]]).dtype == torch.long
    with pytest.raises(ValueError, match="no row"):
        pad_rows([])


def test_pairs_become_source_and_framed_target():
    source_words, target_words = Vocabulary.build([["a", "b"]]), Vocabulary.build([["x"], ["x", "y"]])
    source, target = encode_pairs([(["b"], ["y", "x"]), (["a", "?"], ["x"])], source_words, target_words)
    assert source.tolist() == [[5, PAD], [4, UNK]]
    assert target.tolist() == [[BOS, 5, 4, EOS], [BOS, 4, EOS, PAD]]


# --- numbers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("language", "spell"), [("german", german), ("french", french)])
def test_every_row_spells_its_number(language, spell):
    data = number_pairs(language, train=700, test=300, seed=5)
    for numbers, source, target in (
        (data.train_numbers, data.source_train, data.target_train),
        (data.test_numbers, data.source_test, data.target_test),
    ):
        assert len(numbers) == len(source) == len(target)
        for number, source_S, target_T in zip(numbers, source.tolist(), target.tolist(), strict=True):
            assert data.source_words.decode(source_S) == english(number)
            assert data.target_words.decode(target_T) == spell(number)
            length = 1 + len(spell(number))
            assert target_T[0] == BOS and target_T[length] == EOS
            assert set(target_T[length + 1 :]) <= {PAD}
            assert not {BOS, EOS, UNK} & set(source_S)


def test_the_usual_sizes_and_no_number_twice():
    data = number_pairs()
    assert (len(data.train_numbers), len(data.test_numbers)) == (20_000, 2_000)
    assert data.source_train.shape == (20_000, 9) and data.source_test.shape[0] == 2_000
    assert len({*data.train_numbers, *data.test_numbers}) == 22_000


def test_numbers_are_uniform():
    numbers = number_pairs(train=9_000, test=1_000, seed=1)
    for drawn in (numbers.train_numbers, numbers.test_numbers):
        tenths = torch.tensor(drawn) // 100_000
        counts = torch.bincount(tenths, minlength=10) / len(drawn)
        # Five standard deviations of a share of one tenth.
        assert (counts - 0.1).abs().max() < 5 * (0.1 * 0.9 / len(drawn)) ** 0.5


def test_the_seed_alone_decides():
    first, again, other = (number_pairs(train=50, test=20, seed=seed) for seed in (3, 3, 4))
    assert (first.train_numbers, first.test_numbers) == (again.train_numbers, again.test_numbers)
    assert torch.equal(first.target_train, again.target_train)
    assert set(first.train_numbers) != set(other.train_numbers)
    state = torch.get_rng_state()
    number_pairs(train=5, test=5)
    assert torch.equal(torch.get_rng_state(), state), "drawing data must not disturb the global generator"


def test_training_sets_of_all_sizes_share_the_test():
    small, large = (number_pairs(train=train, test=40, seed=2) for train in (30, 300))
    assert small.test_numbers == large.test_numbers
    assert small.train_numbers == large.train_numbers[:30]


def test_small_numbers_only_when_asked():
    data = number_pairs("french", train=80, test=20, below=100)
    assert sorted(data.train_numbers + data.test_numbers) == list(range(100))
    assert data.target_words == number_vocabulary("french"), "longer numbers must stay readable"


def test_any_number_can_be_encoded_with_the_same_words():
    data = number_pairs(train=20, test=10, below=100)
    source, target = data.encode([999_999, 7])
    assert data.source_words.decode(source[0]) == english(999_999)
    assert data.target_words.decode(target[1]) == ["sieben"]
    assert source.shape == (2, 9)


@pytest.mark.parametrize("language", LANGUAGES)
def test_vocabulary_knows_every_number_below_a_million(language):
    vocabulary = number_vocabulary(language)
    seen = {word for n in range(0, 1_000_000, 37) for word in LANGUAGES[language](n)}
    seen |= {word for n in range(3_000) for word in LANGUAGES[language](n)}
    assert set(vocabulary.words) == seen | set(SPECIALS)


def test_number_pairs_bad_input():
    with pytest.raises(ValueError, match="spelled in english, german, french; got 'latin'"):
        number_pairs("latin")
    with pytest.raises(ValueError, match="below = 100; got 90 and 11"):
        number_pairs(train=90, test=11, below=100)
    with pytest.raises(ValueError, match="at least 1"):
        number_pairs(train=0)
    with pytest.raises(ValueError, match="1 to 1,000,000; got 1000001"):
        number_pairs(below=1_000_001)


def test_copy_task_repeats_or_reverses():
    digits = Vocabulary.build([english(n) for n in range(10)])
    source, target = copy_task(7, 500, digits, seed=1)
    assert source.shape == (500, 7) and target.shape == (500, 9)
    assert torch.equal(target[:, 1:-1], source)
    assert (target[:, 0] == BOS).all() and (target[:, -1] == EOS).all()
    assert set(source.flatten().tolist()) == set(range(4, 14)), "every digit, and no special token"
    same_source, backwards = copy_task(7, 500, digits, seed=1, reverse=True)
    assert torch.equal(same_source, source)
    assert backwards[0, 1:-1].tolist() == source[0].tolist()[::-1]
    assert not torch.equal(copy_task(7, 500, digits, seed=2)[0], source)


def test_copy_task_bad_input():
    digits = Vocabulary.build([["one"]])
    with pytest.raises(ValueError, match="at least 1; got 0 and 5"):
        copy_task(0, 5, digits)
    with pytest.raises(ValueError, match="no word"):
        copy_task(3, 5, Vocabulary(SPECIALS))


# --- batches --------------------------------------------------------------------------------------------


def numbered_pairs(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pair i has i % 4 + 1 source tokens and i % 3 + 2 target tokens, the token telling which pair it is."""
    source = pad_rows([[10 + i] * (i % 4 + 1) for i in range(count)])
    target = pad_rows([[BOS, *[10 + i] * (i % 3), EOS] for i in range(count)])
    return torch.nn.functional.pad(source, (0, 3)), torch.nn.functional.pad(target, (0, 2))


def first_tokens(stream) -> list[list[int]]:
    return [batch.source[:, 0].tolist() for batch in stream]


@given(st.integers(1, 23), st.integers(1, 9), st.integers(0, 2**32))
def test_an_epoch_has_every_pair_once_and_nothing_is_lost(count, size, seed):
    source, target = numbered_pairs(count)
    seen = []
    for batch in batches(source, target, size, generator=draws(seed)):
        assert len(batch.source) <= size
        for source_S, in_T, out_T in zip(*batch, strict=True):
            pair = int(source_S[0]) - 10
            seen.append(pair)
            assert source_S[source_S != PAD].tolist() == [10 + pair] * (pair % 4 + 1)
            whole = [BOS, *[10 + pair] * (pair % 3), EOS]
            assert [BOS, *out_T[out_T != PAD].tolist()] == whole
            assert in_T.tolist() == [BOS, *out_T.tolist()[:-1]], "target_in is target_out, one step late"
        assert (batch.source != PAD).any(0).all(), "no column is padding only"
        assert (batch.target_out != PAD).any(0).all()
        assert int(batch.tokens) == sum(pair % 3 + 1 for pair in (batch.source[:, 0] - 10).tolist())
    assert sorted(seen) == list(range(count))


def test_epochs_are_shuffled_anew_and_steps_run_across_them():
    source, target = numbered_pairs(11)
    rows = first_tokens(batches(source, target, 4, generator=draws(0), epochs=2))
    assert [len(row) for row in rows] == [4, 4, 3, 4, 4, 3]
    first, second = [*chain(*rows[:3])], [*chain(*rows[3:])]
    assert sorted(first) == sorted(second) and first != second
    assert first_tokens(batches(source, target, 4, generator=draws(0), steps=5)) == rows[:5]


def test_same_generator_same_batches_and_none_means_in_order():
    source, target = numbered_pairs(11)
    in_order = first_tokens(batches(source, target, 4, generator=None))
    assert in_order == [[10, 11, 12, 13], [14, 15, 16, 17], [18, 19, 20]]
    one, same, other = (first_tokens(batches(source, target, 4, generator=draws(s))) for s in (1, 1, 2))
    assert one == same != other
    assert one != in_order


def test_zero_steps_and_zero_epochs_are_no_batches():
    source, target = numbered_pairs(5)
    assert list(batches(source, target, 2, generator=None, steps=0)) == []
    assert list(batches(source, target, 2, generator=None, epochs=0)) == []


def test_a_row_of_padding_and_padding_inside_keep_their_width():
    source = torch.tensor([[0, 0, 0, 0], [5, 0, 6, 0]])
    target = torch.tensor([[BOS, EOS, 0], [BOS, EOS, 0]])
    both = [batch.source.tolist() for batch in batches(source, target, 1, generator=None)]
    assert both == [[[0]], [[5, 0, 6]]]


def test_the_batch_goes_to_the_device_and_the_data_stays():
    source, target = numbered_pairs(5)
    batch = next(batches(source, target, 2, generator=None, device="meta"))
    assert {part.device.type for part in batch} == {"meta"}
    assert source.device.type == "cpu"


def test_batches_bad_input_is_refused_at_once():
    source, target = numbered_pairs(5)
    for bad_source, bad_target in ((source[:4], target), (source[0], target), (source, target[0])):
        with pytest.raises(ValueError, match="a row per pair; got"):
            batches(bad_source, bad_target, 2, generator=None)
    for bad_source, bad_target in (
        (source[:0], target[:0]),
        (source[:, :0], target),
        (source, target[:, :1]),
    ):
        with pytest.raises(ValueError, match="at least one pair"):
            batches(bad_source, bad_target, 2, generator=None)
    with pytest.raises(ValueError, match="at least 1; got 0"):
        batches(source, target, 0, generator=None)
    with pytest.raises(ValueError, match="not both; got 3 and 1"):
        batches(source, target, 2, generator=None, steps=3, epochs=1)
    for count in ({"steps": -1}, {"epochs": -1}):
        with pytest.raises(ValueError, match="negative"):
            batches(source, target, 2, generator=None, **count)


# --- files of sentence pairs ----------------------------------------------------------------------------


def write(tmp_path, content: bytes):
    path = tmp_path / "pairs.tsv"
    path.write_bytes(content)
    return path


def test_pairs_are_read_as_they_are_published(tmp_path):
    text = "\ufeffGo.\tGeh.\tCC-BY 2.0: x & y\r\n\r\n  \nHi !\tGrüß\u2028dich\x85 – süß!\t\t\n a b \tc"
    expected = [("Go.", "Geh."), ("Hi !", "Grüß\u2028dich\x85 – süß!"), ("a b", "c")]
    path = write(tmp_path, text.encode())
    assert list(read_pairs(path)) == expected
    assert list(read_pairs(str(path))) == expected


def test_columns_can_be_chosen(tmp_path):
    path = write(tmp_path, b"17\tGo.\t99\tGeh.\n")
    assert list(read_pairs(path, columns=(1, 3))) == [("Go.", "Geh.")]
    assert list(read_pairs(path, columns=(3, 1))) == [("Geh.", "Go.")]
    with pytest.raises(ValueError, match=r"line 1: expected at least 5 columns .* got 4: '17'"):
        list(read_pairs(path, columns=(1, 4)))
    with pytest.raises(ValueError, match="two places counted from 0"):
        list(read_pairs(path, columns=(0, -1)))


@settings(max_examples=40)
@given(st.lists(st.tuples(*[st.text(st.characters(codec="utf-8", exclude_characters="\t\n\r"), min_size=1)] * 2)))
def test_any_text_survives_the_file(tmp_path_factory, pairs):
    path = tmp_path_factory.mktemp("pairs") / "any.tsv"
    kept = [(a.strip(), b.strip()) for a, b in pairs if a.strip() and b.strip()]
    path.write_text("".join(f"{a}\t{b}\n" for a, b in kept), encoding="utf-8-sig", newline="")
    assert list(read_pairs(path)) == kept


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"only one column", "expected at least 2 columns .* got 1: 'only one column'"),
        (b"left\t", "one side of the pair is empty: 'left', ''"),
        (b" \tright", "one side of the pair is empty: '', 'right'"),
        (b"\t", "one side of the pair is empty"),
        (b"caf\xe9\tKaffee", "not UTF-8 .* at byte 3"),
        (b"x" * LONGEST_LINE + b"\ty", "longer than 1,048,576 bytes"),
    ],
)
def test_a_bad_line_is_named_and_those_before_it_are_read(tmp_path, line, message):
    path = write(tmp_path, b"a\tb\n\nc\td\n" + line + b"\ne\tf\n")
    pairs = read_pairs(path)
    assert [next(pairs), next(pairs)] == [("a", "b"), ("c", "d")]
    with pytest.raises(ValueError, match=rf"pairs\.tsv, line 4: {message}"):
        next(pairs)


def test_a_byte_order_mark_counts_only_at_the_start(tmp_path):
    path = write(tmp_path, "a\tb\n\ufeffc\td\n".encode())
    assert list(read_pairs(path)) == [("a", "b"), ("\ufeffc", "d")]
    assert list(read_pairs(write(tmp_path, b"\xef\xbb\xbf"))) == list(read_pairs(write(tmp_path, b""))) == []


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        next(read_pairs(tmp_path / "none.tsv"))


def test_the_file_is_never_held(tmp_path):
    path = write(tmp_path, b"one sentence of a corpus\tein Satz eines Korpus\n" * 30_000)
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_pairs(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 30_000
    assert peak < path.stat().st_size / 10


def test_a_file_without_line_ends_is_given_up_early(tmp_path):
    pairs = read_pairs(write(tmp_path, b"\0" * (8 * LONGEST_LINE)))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"line 1: longer than .* is this a text file"):
            next(pairs)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * LONGEST_LINE


# --- text for language models ---------------------------------------------------------------------------


def test_python_documents_itself():
    text = python_docs_text()
    assert text == python_docs_text()
    assert len(text) > 200_000
    assert "lambda" in text and "\n" in text


def test_topics_follow_the_alphabet(monkeypatch):
    topics = {"while": "loops", "and": "booleans", "if": "branches"}
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", SimpleNamespace(topics=topics))
    assert python_docs_text() == "booleans\nbranches\nloops"


def test_a_python_without_its_documentation_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(ImportError, match="without pydoc_data"):
        python_docs_text()


@given(st.text(st.characters()))
def test_bytes_are_reversible_for_any_text(text):
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode(text)
    assert all(0 <= i < len(tokenizer) for i in ids)
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(torch.tensor(ids, dtype=torch.long)) == text


@given(st.lists(st.integers(0, 255)))
def test_any_bytes_can_be_shown(ids):
    assert isinstance(ByteTokenizer().decode(ids), str)


def test_byte_tokenizer_by_hand():
    tokenizer = ByteTokenizer()
    assert tokenizer.encode("aß") == [97, 0xC3, 0x9F]
    assert tokenizer.decode([97, 0xC3]) == "a\ufffd", "half a letter"
    assert tokenizer.decode(torch.tensor([65])) == "A", "one id is not a count of bytes"
    assert len(tokenizer) == 256
    for bad in (256, -1):
        with pytest.raises(ValueError, match=rf"0 to 255; got \[{bad}\]"):
            tokenizer.decode([65, bad])


@pytest.mark.parametrize("kind", [list, torch.tensor])
def test_windows_are_text_and_the_targets_are_one_ahead(kind):
    ids = kind(range(100, 130))
    pairs = list(next_token_windows(ids, block=6, batch=4, generator=draws(0), steps=40))
    assert len(pairs) == 40
    starts = set()
    for inputs_BT, targets_BT in pairs:
        assert inputs_BT.shape == targets_BT.shape == (4, 6)
        assert inputs_BT.dtype == torch.long
        assert torch.equal(targets_BT, inputs_BT + 1)
        assert torch.equal(inputs_BT, inputs_BT[:, :1] + torch.arange(6))
        starts |= set(inputs_BT[:, 0].tolist())
    assert starts == set(range(100, 124)), "every place where a window fits, the last one included"


def test_windows_follow_their_generator_and_device():
    ids = torch.arange(50, dtype=torch.uint8)
    one, same, other = (next(next_token_windows(ids, 5, 7, draws(s), 1))[0] for s in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert one.dtype == torch.long, "bytes are a fine way to keep a text, and embeddings want long"
    inputs, targets = next(next_token_windows(ids, 5, 7, draws(1), 1, device="meta"))
    assert inputs.device.type == targets.device.type == "meta"


def test_the_only_window_of_a_short_text():
    inputs, targets = next(next_token_windows([7, 8, 9], 2, 1, draws(0), 1))
    assert (inputs.tolist(), targets.tolist()) == ([[7, 8]], [[8, 9]])


def test_windows_bad_input_is_refused_at_once():
    with pytest.raises(ValueError, match="need 4; the text has 3"):
        next_token_windows([7, 8, 9], 3, 1, draws(0), 1)
    with pytest.raises(ValueError, match=r"one row of tokens; got shape \(2, 3\)"):
        next_token_windows(torch.zeros(2, 3), 1, 1, draws(0), 1)
    for block, batch in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match=f"at least 1; got {block} and {batch}"):
            next_token_windows([7, 8, 9], block, batch, draws(0), 1)
