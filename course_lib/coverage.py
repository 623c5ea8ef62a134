"""What the course covers, as a table: outcome → lecture section → exercises → misconceptions; system → library → tests.

`course build` writes docs/coverage.md from this; a test sees that every name in it exists.
"""

from __future__ import annotations

from typing import NamedTuple

from . import exercises
from .outcomes import OUTCOMES
from .units import UNITS

# Where each outcome is taught: a `## ` heading of its unit's lecture.
SECTIONS = {
    "01-a": "An RNN reads one word after the other",
    "01-b": "Grammar needs the future",
    "01-c": "Accuracy falls as sentences grow",
    "01-d": "The states of an RNN wait for each other",
    "01-e": "The gradient fades on its way to the first word",
    "02-a": "A small network scores every source word",
    "02-b": "Padded words are masked before the softmax",
    "02-c": "The alignment crosses where German does",
    "02-d": "Two sources, or one",
    "02-e": "A product can score as well",
    "03-a": "Loops and matrices give the same numbers",
    "03-b": "The weights depend on the input, and on nothing else",
    "03-c": "Shuffling the tokens shuffles the outputs",
    "03-d": "A dot product is a cosine only for unit vectors",
    "04-a": "One vector plays three roles",
    "04-b": "The output is a weighted sum of values",
    "04-c": "All pairs are one matrix product",
    "04-d": "Queries may come from another sequence",
    "04-e": "A soft lookup blends all values",
    "04-f": "Rows or columns: the same numbers, transposed",
    "05-a": "A dot product of random vectors has variance d_k",
    "05-b": "A saturated softmax passes no gradient",
    "05-c": "The largest score can be subtracted",
    "05-d": "With the scale a model learns, without it the model stalls",
    "06-a": "Splitting is a reshape and a swap",
    "06-b": "All heads at once are separate attentions",
    "06-c": "Eight heads cost as much as one",
    "06-d": "torch computes the same numbers",
    "06-e": "A sharp head need not matter",
    "07-a": "Masks broadcast, and combine with “and”",
    "07-b": "Nothing leaks, to the last bit",
    "07-c": "A row with nothing to attend to gives NaN",
    "08-a": "Moving on by k is a rotation",
    "08-b": "Shuffling is noticed once positions are added",
    "08-c": "Trained models say which encodings extrapolate",
    "08-d": "Rotary turns queries and keys",
    "09-a": "Layer normalisation gives each token mean 0 and variance 1",
    "09-b": "The block can be counted",
    "09-c": "Residuals and norms decide whether a deep stack learns",
    "09-d": "Stacked attention only averages again",
    "10-a": "Every part of it is your own",
    "10-b": "The target is shifted by one word",
    "10-c": "A beam keeps several sentences alive",
    "10-d": "Cross-attention crosses where German does",
    "11-a": "Without an encoder, the text predicts itself",
    "11-b": "A cache never computes a key twice",
    "11-c": "Temperature and top-k say how daring the text is",
    "11-d": "Published weights fit, if you turn them",
    "12-a": "A pattern leaves pairs out",
    "12-b": "What is left out becomes an error",
    "12-c": "Doubling the words doubles some costs and quadruples others",
    "12-d": "A softmax can be computed piece by piece",
    "13-a": "A batch in parts has the gradient of the whole",
    "13-b": "Checkpointing forgets, and computes again",
    "13-c": "What adds up small things stays in float32",
    "13-d": "A Transformer's words do not wait for each other",
    "13-e": "The last model is made of your own parts",
}


class System(NamedTuple):
    """A system that the course builds: where it stands in the library, and the test that proves it."""

    title: str
    library: tuple[str, ...]
    tests: tuple[str, ...]


SYSTEMS = {
    "S1": System(
        "RNN encoder–decoder",
        ("rnn.RNNCell", "rnn.GRUCell", "rnn.LSTMCell", "seq2seq.Seq2Seq"),
        (
            "test_rnn.py::test_a_step_equals_torchs_cell_in_value_and_gradient",
            "test_seq2seq.py::test_equals_a_plain_loop_over_words_in_value_and_gradient",
        ),
    ),
    "S2": System(
        "bidirectional encoder",
        ("rnn.Bidirectional",),
        ("test_rnn.py::test_bidirectional_equals_torch_on_padded_sentences",),
    ),
    "S3": System(
        "word windows",
        ("rnn.WindowEncoder", "rnn.minimum_steps"),
        ("test_rnn.py::test_window_encoder_equals_convolutions",),
    ),
    "S4": System(
        "additive and multiplicative attention",
        ("attention.AdditiveAttention", "attention.general_scores", "seq2seq.AttentionSeq2Seq"),
        (
            "test_attention.py::test_equals_the_formula_word_by_word",
            "test_seq2seq.py::test_weights_sum_to_one_over_the_words_and_are_zero_on_padding",
        ),
    ),
    "S5": System(
        "self-attention without parameters",
        ("attention.self_attention", "by_hand.self_attention"),
        ("test_attention.py::test_self_attention_is_a_set_operation",),
    ),
    "S6": System(
        "queries, keys and values",
        ("attention.explicit", "attention.fused"),
        ("test_attention.py::test_both_roads_equal_the_formula_in_value_and_gradient",),
    ),
    "S7": System(
        "scaling",
        ("attention.attention", "attention.softmax"),
        (
            "test_attention.py::test_bias_and_scale_enter_before_the_softmax",
            "test_attention.py::test_large_logits_stay_finite",
        ),
    ),
    "S8": System(
        "multi-head attention",
        ("attention.MultiHeadAttention",),
        (
            "test_attention.py::test_multi_head_equals_torch_in_value_weights_and_gradient",
            "test_attention.py::test_multi_head_equals_separate_attentions",
        ),
    ),
    "S9": System(
        "causal and padding masks",
        ("masks.causal", "masks.padding", "masks.both"),
        (
            "test_masks.py::test_causal_sees_itself_and_the_past_also_after_a_cache",
            "test_attention.py::test_no_leak_from_the_future_in_value_and_gradient",
        ),
    ),
    "S10": System(
        "positions: sinusoids, learned, relative, rotary, ALiBi, disentangled",
        (
            "positions.sinusoidal",
            "positions.LearnedPositions",
            "positions.RelativePositions",
            "positions.Rotary",
            "positions.Alibi",
            "positions.Disentangled",
        ),
        (
            "test_positions.py::test_the_table_is_the_formula_for_any_width",
            "test_positions.py::test_relative_positions_are_the_loop",
            "test_positions.py::test_rotate_is_that_of_gpt_j",
            "test_positions.py::test_slopes_are_those_of_bloom",
            "test_positions.py::test_disentangled_scores_are_those_of_hugging_face",
        ),
    ),
    "S11": System(
        "feed-forward network",
        ("blocks.FeedForward",),
        ("test_blocks.py::test_feed_forward_equals_numpy_by_hand",),
    ),
    "S12": System(
        "residuals and layer normalisation, pre and post",
        ("blocks.layer_norm", "blocks.Residual"),
        (
            "test_blocks.py::test_layer_norm_written_out_equals_torch_and_numpy",
            "test_blocks.py::test_residual_goes_around",
        ),
    ),
    "S13": System(
        "scaled embeddings",
        ("blocks.look_up", "transformer.Transformer"),
        ("test_transformer.py::test_embeddings_start_with_the_width_asked_for",),
    ),
    "S14": System(
        "encoder stack",
        ("blocks.EncoderBlock", "transformer.Transformer"),
        ("test_blocks.py::test_encoder_block_equals_torch",),
    ),
    "S15": System(
        "decoder stack",
        ("blocks.DecoderBlock", "transformer.Transformer"),
        (
            "test_blocks.py::test_decoder_block_equals_torch",
            "test_transformer.py::test_equals_torch_in_value_and_gradient",
        ),
    ),
    "S16": System(
        "greedy and beam decoding",
        ("decoding.greedy", "decoding.beam"),
        (
            "test_decoding.py::test_greedy_takes_the_most_probable_token_each_time",
            "test_decoding.py::test_beam_search_is_the_one_in_plain_python",
        ),
    ),
    "S17": System(
        "training: teacher forcing, padding, label smoothing, warm-up",
        ("training.fit", "training.cross_entropy_sum", "training.warmup_inverse_sqrt"),
        (
            "test_training.py::test_fit_is_the_loop_written_by_hand",
            "test_training.py::test_cross_entropy_sum_is_the_formula_and_torchs",
            "test_training.py::test_schedule_of_the_paper_is_its_formula",
        ),
    ),
    "S18": System(
        "GPT-2 with a key–value cache",
        ("gpt.GPT", "attention.KeyValue"),
        (
            "test_gpt.py::test_same_logits_and_gradients_as_hugging_face",
            "test_gpt.py::test_a_cache_equals_recomputation",
        ),
    ),
    "S19": System(
        "GPT-3: dense and banded layers, byte-level text",
        ("gpt.BandedAttention", "data.ByteTokenizer"),
        (
            "test_gpt.py::test_every_second_layer_sees_a_band_only",
            "test_gpt.py::test_initialisation_is_gpt2s",
        ),
    ),
    "S20": System(
        "what attention, recurrence and convolution cost",
        ("rnn.counts", "bench"),
        ("test_rnn.py::test_counts_of_rnn_and_attention",),
    ),
    "S21": System(
        "Linformer", ("efficient.Linformer",), ("test_efficient.py::test_linformer_is_its_formula_word_by_word",)
    ),
    "S22": System("BigBird", ("sparse.bigbird",), ("test_sparse.py::test_bigbird_has_its_three_parts",)),
    "S23": System(
        "Sparse Transformer and block-sparse patterns",
        ("sparse.strided", "sparse.fixed", "sparse.block_sparse"),
        (
            "test_sparse.py::test_equal_to_exact_attention_with_the_mask_in_float64",
            "test_sparse.py::test_memory_grows_with_the_length_and_not_with_its_square",
        ),
    ),
    "S24": System(
        "Transformer-XL",
        ("transformer_xl.TransformerXL",),
        ("test_transformer_xl.py::test_the_four_terms_pair_by_pair_value_and_gradient",),
    ),
    "S25": System(
        "exact attention by tiles",
        ("efficient.tiled",),
        ("test_efficient.py::test_tiled_is_exact_for_every_size_of_tile",),
    ),
    "S26": System(
        "half precision",
        ("training.autocast",),
        ("test_training.py::test_bfloat16_is_for_the_arithmetic_alone",),
    ),
    "S27": System(
        "gradient accumulation",
        ("training.add_gradients",),
        ("test_training.py::test_accumulated_gradient_is_the_gradient_of_the_big_batch",),
    ),
    "S28": System(
        "gradient checkpointing",
        ("switches.checkpointed",),
        ("test_training.py::test_recomputing_gives_the_same_gradient_for_less_memory",),
    ),
}


def page() -> str:
    """The table as Markdown."""
    lines = ["# What the course covers", "", "*Generated by `course build` from `course_lib/coverage.py`.*", ""]
    lines += ["## Outcomes", "", "| outcome | lecture, section | exercises | misconceptions |", "|---|---|---|---|"]
    lines += [outcome_row(key) for key in OUTCOMES]
    lines += ["", "## Systems", "", "| | system | library | proved by |", "|---|---|---|---|"]
    for key, system in SYSTEMS.items():
        names = ", ".join(f"`{name}`" for name in system.library)
        tests = "<br>".join(f"`{test}`" for test in system.tests)
        lines.append(f"| {key} | {system.title} | {names} | {tests} |")
    return "\n".join(lines) + "\n"


def outcome_row(key: str) -> str:
    """One outcome: where it is taught, where it is tested, and which wrong ideas are known there."""
    unit = key[:2]
    stem = next(u.name for u in UNITS if u.number == unit)
    tested = [e for e in exercises.of_unit(unit) if key in e.outcomes] if unit in exercises.UNITS else []
    asked = "<br>".join(f"{e.id} {e.title}" for e in tested)
    known = "<br>".join(f"{e.id}: {', '.join(m.name for m in e.misconceptions)}" for e in tested if e.misconceptions)
    where = f"[{stem}](../notebooks/{stem}.ipynb), “{SECTIONS[key]}”"
    return f"| **{key}** {OUTCOMES[key]} | {where} | {asked} | {known} |".replace("\n", " ")
