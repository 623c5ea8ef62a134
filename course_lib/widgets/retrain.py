"""Unit 02's other figure: train the RNN with attention again, with another hidden size. Here the kernel computes."""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import ipywidgets

from .. import plots
from ..shapes import expect

if TYPE_CHECKING:
    from torch import Tensor

    from ..data import TranslationData

Pairs = tuple["Tensor", "Tensor"]  # source (N, S) and target (N, T)


class Trained(NamedTuple):
    """What came of one training: the share of exact translations, the time, and one alignment to look at."""

    hidden: int
    exact: float
    seconds: float
    source: list[str]
    target: list[str]
    weights: Tensor

    def picture(self) -> plots.Picture:
        """The alignment, target words as rows."""
        return plots.weights(self.weights, self.target, self.source, title=f"Alignment with hidden size {self.hidden}")


def retrain(
    hidden: int,
    words: TranslationData,
    training: Pairs,
    testing: Pairs,
    *,
    number: int = 45,
    steps: int = 150,
    seed: int = 0,
    on_step: Callable[[int], object] | None = None,
) -> Trained:
    """Train an RNN with attention whose decoder has `hidden` numbers in its state; test it; align one number."""
    import torch

    from ..data import batches
    from ..seq2seq import AttentionSeq2Seq, Seq2SeqConfig
    from ..training import TrainConfig, fit

    began = time.perf_counter()
    sizes = Seq2SeqConfig(len(words.source_words), len(words.target_words), d_hidden=hidden)
    with torch.random.fork_rng(devices=[]):  # nobody else's random numbers should change because of a button
        torch.default_generator.manual_seed(seed)
        model = AttentionSeq2Seq(sizes)
    order = torch.Generator().manual_seed(seed)
    config = TrainConfig(steps=steps, lr=1e-2, warmup=20)
    fit(
        model,
        batches(*training, 32, generator=order, steps=steps),
        config,
        progress=False,
        on_step=on_step,
    )
    seconds = time.perf_counter() - began
    source, target = words.encode([number])
    with torch.no_grad():
        weights_TS = model.align(source, target[:, :-1])[0]
    said = words.target_words.decode(target[0])
    return Trained(
        hidden,
        exact_share(model, words, testing),
        seconds,
        words.source_words.decode(source[0]),
        [*said, "<eos>"],
        weights_TS,
    )


def exact_share(model: object, words: TranslationData, testing: Pairs) -> float:
    """The share of test numbers that the model translates without a mistake."""
    from ..decoding import greedy
    from ..metrics import exact_match

    source, target = testing
    said = greedy(model, source, max_length=target.shape[1])
    return exact_match(*([words.target_words.decode(row) for row in rows] for rows in (said, target)))


class Retrain(ipywidgets.VBox):
    """A hidden size to choose, a button, and below it what came of the training."""

    def __init__(
        self,
        words: TranslationData,
        training: Pairs,
        testing: Pairs,
        *,
        sizes: Sequence[int] = (16, 32, 64),
        number: int = 45,
        steps: int = 150,
    ):
        expect(len(sizes) > 0 and min(sizes) >= 1, f"sizes should be whole numbers from 1 on; got {list(sizes)}.")
        self.work = (words, training, testing)
        self.number, self.steps = number, steps
        self.size = ipywidgets.Dropdown(
            options=list(sizes), description="hidden size", style={"description_width": "initial"}
        )
        self.button = ipywidgets.Button(description="train", tooltip="train with this hidden size")
        self.bar = ipywidgets.IntProgress(max=steps, description="training", style={"description_width": "initial"})
        self.result = ipywidgets.HTML("<p role='status'>Nothing is trained yet.</p>")
        self.button.on_click(lambda button: self.train())
        super().__init__([ipywidgets.HBox([self.size, self.button, self.bar]), self.result])

    def train(self) -> None:
        """What the button does: train, and show the result, or what went wrong."""
        self.button.disabled, self.bar.value = True, 0
        self.say(f"Training with hidden size {self.size.value} …")
        try:
            trained = retrain(self.size.value, *self.work, number=self.number, steps=self.steps, on_step=self.advance)
        except Exception as error:
            # Whatever it is: a callback's traceback ends up in a log that nobody reads.
            self.say(f"Training stopped: {error}")
        else:
            self.say(
                f"Hidden size {trained.hidden}: {trained.exact:.1%} of the unseen numbers are translated exactly, "
                f"after {trained.seconds:.1f} seconds of training.",
                trained.picture()._repr_html_(),
            )
        finally:
            self.button.disabled = False

    def advance(self, step: int) -> None:
        self.bar.value = step

    def say(self, text: str, picture: str = "") -> None:
        self.result.value = f"<p role='status'>{html.escape(text)}</p>{picture}"

    def __repr__(self) -> str:
        return f"Retrain: choose a hidden size ({', '.join(map(str, self.size.options))}) and press “train”."
