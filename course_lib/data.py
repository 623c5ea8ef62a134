"""Text as tensors of token ids: number words to translate, sentence pairs, and bytes for language models.

Every tensor of tokens is padded with PAD on the right. Data stays on the CPU; batches move.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from course_lib.number_words import LIMIT, speller
from course_lib.shapes import expect, shape

PAD, BOS, EOS, UNK = range(4)
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
LONGEST_LINE = 1 << 20


# --- Words and their ids ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Vocabulary:
    """A row of words; a word's id is its place. The first four are SPECIALS, which no text can spell.

    `list(vocabulary.words)` is all there is to save, `Vocabulary(words)` brings it back.
    """

    words: Sequence[str]
    ids: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        words = tuple(self.words)
        expect(
            words[: len(SPECIALS)] == SPECIALS,
            f"A vocabulary starts with {', '.join(SPECIALS)}; got {words[: len(SPECIALS)]}. "
            "Vocabulary.build(sentences) puts them there.",
        )
        ids = {word: place for place, word in enumerate(words)}
        twice = [word for place, word in enumerate(words) if ids[word] != place]
        expect(not twice, f"Each word stands once in a vocabulary; twice there: {', '.join(twice[:5])}.")
        object.__setattr__(self, "words", words)
        object.__setattr__(self, "ids", {word: ids[word] for word in words[len(SPECIALS) :]})

    @classmethod
    def build(cls, sentences: Iterable[Sequence[str]], size: int | None = None) -> Vocabulary:
        """The words of `sentences`, the most frequent first, ties by alphabet; at most `size` ids."""
        counts: Counter[str] = Counter()
        for sentence in sentences:
            counts.update(_tokens(sentence))
        expect(
            size is None or size >= len(SPECIALS),
            f"size counts the {len(SPECIALS)} specials too; got {size}.",
        )
        ordered = sorted(counts.keys() - set(SPECIALS), key=lambda word: (-counts[word], word))
        return cls((*SPECIALS, *ordered)[:size])

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, words: Sequence[str]) -> list[int]:
        """One id per word, UNK for a word that is not in the vocabulary."""
        return [self.ids.get(word, UNK) for word in _tokens(words)]

    def decode(self, ids: Iterable[int] | Tensor) -> list[str]:
        """The words up to the first EOS, without BOS and PAD."""
        words = []
        for place in _plain(ids):
            expect(0 <= place < len(self), f"Ids of this vocabulary go from 0 to {len(self) - 1}; got {place}.")
            if place == EOS:
                break
            if place not in (PAD, BOS):
                words.append(self.words[place])
        return words


def _tokens(sentence: Sequence[str]) -> Sequence[str]:
    """A string is a sequence of letters, which is not what anybody means here."""
    if isinstance(sentence, str):
        raise TypeError(f"A sentence is a list of words; got the string {sentence[:40]!r}. Try .split() on it.")
    return sentence


def _plain(ids: Iterable[int] | Tensor) -> list[int]:
    return ids.cpu().tolist() if isinstance(ids, Tensor) else list(ids)


def pad_rows(rows: Sequence[Sequence[int]]) -> Tensor:
    """Rows of ids as one tensor (rows, longest), PAD behind the shorter ones."""
    expect(len(rows) > 0, "There is no row of token ids to make a tensor of.")
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows], dtype=torch.long)


def encode_pairs(
    pairs: Iterable[tuple[Sequence[str], Sequence[str]]], source_words: Vocabulary, target_words: Vocabulary
) -> tuple[Tensor, Tensor]:
    """Pairs of word lists as tensors: source (N, S), and target (N, T) as BOS, words, EOS."""
    sources, targets = [], []
    for source, target in pairs:
        sources.append(source_words.encode(source))
        targets.append([BOS, *target_words.encode(target), EOS])
    return pad_rows(sources), pad_rows(targets)


# --- Numbers to translate -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TranslationData:
    """English number words and their translation: for training, and others for testing."""

    language: str
    source_words: Vocabulary
    target_words: Vocabulary
    train_numbers: tuple[int, ...]
    test_numbers: tuple[int, ...]
    source_train: Tensor
    target_train: Tensor
    source_test: Tensor
    target_test: Tensor

    def encode(self, numbers: Iterable[int]) -> tuple[Tensor, Tensor]:
        """Source (N, S) and target (N, T) of any numbers below a million."""
        return _encode_numbers(numbers, self.language, self.source_words, self.target_words)


def number_pairs(
    language: str = "german",
    train: int = 20_000,
    test: int = 2_000,
    seed: int = 0,
    below: int = LIMIT,
) -> TranslationData:
    """Different numbers, drawn uniformly below `below`, in English and in `language`.

    The test numbers do not depend on `train`, and a smaller training set is the beginning of a larger one, so
    results for different amounts of training data can be compared. The vocabularies are always the same.
    """
    expect(1 <= below <= LIMIT, f"below goes from 1 to {LIMIT:,}; got {below}.")
    expect(
        train >= 1 and test >= 1 and train + test <= below,
        f"train and test are at least 1 and together at most below = {below:,}; got {train:,} and {test:,}. "
        "No number may stand in both.",
    )
    source_words, target_words = number_vocabulary("english"), number_vocabulary(language)
    # The test numbers come from the end, out of reach of the training set as it grows.
    order = torch.randperm(below, generator=torch.Generator().manual_seed(seed))
    train_numbers, test_numbers = order[:train].tolist(), order[below - test :].tolist()
    return TranslationData(
        language,
        source_words,
        target_words,
        tuple(train_numbers),
        tuple(test_numbers),
        *_encode_numbers(train_numbers, language, source_words, target_words),
        *_encode_numbers(test_numbers, language, source_words, target_words),
    )


def number_vocabulary(language: str) -> Vocabulary:
    """All words that spell numbers below a million in `language`."""
    spell = speller(language)
    # 0 … 1000 holds every word there is: above it, groups of three digits repeat.
    return Vocabulary.build(spell(number) for number in range(1001))


def _encode_numbers(
    numbers: Iterable[int], language: str, source_words: Vocabulary, target_words: Vocabulary
) -> tuple[Tensor, Tensor]:
    english, other = speller("english"), speller(language)
    return encode_pairs(((english(n), other(n)) for n in numbers), source_words, target_words)


def copy_task(
    length: int, size: int, vocabulary: Vocabulary, seed: int = 0, *, reverse: bool = False
) -> tuple[Tensor, Tensor]:
    """`size` random sentences of `length` words as source and, between BOS and EOS, again as target.

    With `reverse`, the target is the source read backwards.
    """
    expect(length >= 1 and size >= 1, f"length and size are at least 1; got {length} and {size}.")
    expect(len(vocabulary) > len(SPECIALS), "The vocabulary holds no word besides the special ones.")
    generator = torch.Generator().manual_seed(seed)
    source_BS = torch.randint(len(SPECIALS), len(vocabulary), (size, length), generator=generator)
    copied_BS = source_BS.flip(1) if reverse else source_BS
    edge_B1 = torch.ones(size, 1, dtype=torch.long)
    return source_BS, torch.cat([edge_B1 * BOS, copied_BS, edge_B1 * EOS], dim=1)


# --- Batches ------------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """What a model reads and what it should answer: target_out is target_in, one token ahead."""

    source: Tensor
    target_in: Tensor
    target_out: Tensor

    @property
    def tokens(self) -> Tensor:
        """How many tokens count in the loss, as a tensor on the batch's device: padding does not."""
        return (self.target_out != PAD).sum()


def batches(
    source: Tensor,
    target: Tensor,
    size: int,
    *,
    generator: torch.Generator | None,
    steps: int | None = None,
    epochs: int | None = None,
    device: str | torch.device | None = None,
) -> Iterator[Batch]:
    """Batches of `size` pairs, each trimmed to its longest source and target, on `device`.

    An epoch is every pair once, in an order drawn from `generator` (None: as they stand); its last batch may
    be smaller. Say how many `epochs` (one unless told), or how many `steps`, over as many epochs as it takes.
    """
    expect(
        source.ndim == target.ndim == 2 and len(source) == len(target),
        f"source should be (N, S) and target (N, T), a row per pair; got {shape(source)}, {shape(target)}.",
    )
    expect(
        source.numel() > 0 and target.shape[1] >= 2,
        "There should be at least one pair, and every target has BOS and EOS; "
        f"got {shape(source)} and {shape(target)}.",
    )
    expect(size >= 1, f"The batch size is at least 1; got {size}.")
    expect(steps is None or epochs is None, f"Give steps or epochs, not both; got {steps} and {epochs}.")
    if steps is None:
        steps = (1 if epochs is None else epochs) * math.ceil(len(source) / size)
    expect(steps >= 0, f"steps and epochs cannot be negative; got {steps} and {epochs}.")
    # Lengths are read once, on the CPU, so that no batch has to ask a GPU how long it is.
    lengths = _lengths(source), _lengths(target)
    chosen = islice(_shuffled_rows(len(source), size, generator), steps)
    return (_batch(source, target, rows, *lengths, device) for rows in chosen)


def _shuffled_rows(count: int, size: int, generator: torch.Generator | None) -> Iterator[Tensor]:
    """The rows of each batch, epoch after epoch without end."""
    while True:
        order = torch.arange(count) if generator is None else torch.randperm(count, generator=generator)
        yield from order.split(size)


def _batch(
    source: Tensor,
    target: Tensor,
    rows: Tensor,
    source_lengths: Tensor,
    target_lengths: Tensor,
    device: str | torch.device | None,
) -> Batch:
    source_BS = source[rows, : int(source_lengths[rows].max())].to(device)
    target_BT = target[rows, : int(target_lengths[rows].max())].to(device)
    return Batch(source_BS, target_BT[:, :-1], target_BT[:, 1:])


def _lengths(tokens_NT: Tensor) -> Tensor:
    """Length of each row without the padding behind it; one at least, so that no batch is empty."""
    places_T = torch.arange(1, tokens_NT.shape[1] + 1)
    return ((tokens_NT.cpu() != PAD) * places_T).amax(dim=1).clamp(min=1)


# --- Sentence pairs from a file -----------------------------------------------------------------------------


def read_pairs(path: str | Path, columns: tuple[int, int] = (0, 1)) -> Iterator[tuple[str, str]]:
    """Sentence pairs of a tab-separated UTF-8 file, one line at a time, however large the file is.

    The first two columns are the pair; others, such as attributions, are left out. Where ids stand before the
    sentences, `columns=(1, 3)` picks the texts. Blank lines are skipped.
    """
    expect(len(columns) == 2 and min(columns) >= 0, f"columns are two places counted from 0; got {columns}.")
    with open(path, "rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=1):
            where = f"{path}, line {number}"
            expect(len(line) < LONGEST_LINE, f"{where}: longer than {LONGEST_LINE:,} bytes; is this a text file?")
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise ValueError(f"{where}: not UTF-8 ({error.reason} at byte {error.start}).") from error
            if text.strip(" "):
                yield _pair(text.split("\t"), columns, where)


def _pair(fields: list[str], columns: tuple[int, int], where: str) -> tuple[str, str]:
    expect(
        len(fields) > max(columns),
        f"{where}: expected at least {max(columns) + 1} columns with tabs between them; "
        f"got {len(fields)}: {fields[0][:60]!r}.",
    )
    source, target = (fields[column].strip() for column in columns)
    expect(bool(source and target), f"{where}: one side of the pair is empty: {source[:60]!r}, {target[:60]!r}.")
    return source, target


# --- Text for language models -------------------------------------------------------------------------------


def python_docs_text() -> str:
    """Python's own reference as one text: it ships with CPython, and differs from version to version."""
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise ImportError(
            "This Python comes without pydoc_data, its built-in documentation; "
            "any text of your own will do instead: Path(...).read_text(encoding='utf-8')."
        ) from error
    return "\n".join(topics[name] for name in sorted(topics))


class ByteTokenizer:
    """Text as its UTF-8 bytes: 256 ids, nothing is unknown, and decode(encode(text)) == text, always."""

    def __len__(self) -> int:
        return 256

    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8", errors="surrogatepass"))

    def decode(self, ids: Iterable[int] | Tensor) -> str:
        """The text; bytes that are no text, such as half a letter, show as the replacement character."""
        places = _plain(ids)
        wrong = [place for place in places if not 0 <= place < 256]
        expect(not wrong, f"Byte ids go from 0 to 255; got {wrong[:3]}.")
        try:
            return bytes(places).decode("utf-8", errors="surrogatepass")
        except UnicodeDecodeError:
            return bytes(places).decode("utf-8", errors="replace")


def next_token_windows(
    ids: Tensor | Sequence[int],
    block: int,
    batch: int,
    generator: torch.Generator,
    steps: int,
    *,
    device: str | torch.device | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """`steps` batches of windows at random places: inputs (batch, block), and targets one token ahead."""
    tokens = torch.as_tensor(ids, dtype=torch.long)
    expect(tokens.ndim == 1, f"ids should be one row of tokens; got shape {shape(tokens)}.")
    expect(block >= 1 and batch >= 1 and steps >= 0, f"block and batch are at least 1; got {block} and {batch}.")
    expect(
        len(tokens) > block,
        f"A window of {block} tokens and the one after it need {block + 1}; the text has {len(tokens)}.",
    )
    places_T = torch.arange(block + 1)
    starts = (torch.randint(len(tokens) - block, (batch, 1), generator=generator) for _ in range(steps))
    windows = (tokens[start_B1 + places_T].to(device) for start_B1 in starts)
    return ((window_BT[:, :-1], window_BT[:, 1:]) for window_BT in windows)
