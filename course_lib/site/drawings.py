"""A small drawing for each unit, for the map of the course: shapes on a dark card, 160 × 96, no text to translate.

They decorate: what a unit is about stands beside them in words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

WIDTH, HEIGHT = 160, 96
INK, FAINT = "#efe9fb", "#8f7fc4"
VIRIDIS = ((68, 60, 140), (59, 110, 160), (33, 160, 150), (94, 201, 98), (253, 231, 37))  # its dark end lifted


def colour(weight: float) -> str:
    """A weight from 0 to 1 as a colour that shows on the card."""
    place = min(1.0, max(0.0, weight)) * (len(VIRIDIS) - 1)
    low = min(int(place), len(VIRIDIS) - 2)
    mixed = (a + (place - low) * (b - a) for a, b in zip(VIRIDIS[low], VIRIDIS[low + 1], strict=True))
    return "#" + "".join(f"{round(part):02x}" for part in mixed)


def box(x: float, y: float, width: float, height: float, fill: str, corner: float = 3) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{corner:g}" fill="{fill}"/>'


def dot(x: float, y: float, radius: float, fill: str) -> str:
    return f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{fill}"/>'


def path(shape: str, stroke: str = INK, width: float = 2) -> str:
    return f'<path d="{shape}" fill="none" stroke="{stroke}" stroke-width="{width:g}" stroke-linecap="round"/>'


def line(x1: float, y1: float, x2: float, y2: float, stroke: str = INK, width: float = 2) -> str:
    return path(f"M{x1:g} {y1:g}L{x2:g} {y2:g}", stroke, width)


def grid(weights: Sequence[Sequence[float | None]], x: float, y: float, cell: float) -> str:
    """A table of weights; None is a pair that may not meet."""
    squares = []
    for i, row in enumerate(weights):
        for j, weight in enumerate(row):
            fill = "#3a2a6b" if weight is None else colour(weight)
            squares.append(box(x + j * cell, y + i * cell, cell - 1.5, cell - 1.5, fill, 2))
    return "".join(squares)


def bars(heights: Sequence[float], x: float, y: float, width: float) -> str:
    """Bars that stand on y; a height of 1 is 60 high."""
    return "".join(
        box(x + i * width, y - 60 * h, width - 3, max(60 * h, 2), colour(0.25 + 0.75 * h), 2)
        for i, h in enumerate(heights)
    )


# --- one drawing per unit -----------------------------------------------------------------------------------


def welcome() -> str:
    """A way with fourteen stops."""
    stops = [(14 + 132 * t, 48 + 26 * math.sin(2 * math.pi * t)) for t in (i / 13 for i in range(14))]
    road = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in stops)
    return path(road, FAINT, 2) + "".join(dot(x, y, 4.5, colour(i / 13)) for i, (x, y) in enumerate(stops))


def rnn() -> str:
    """Words go through one small vector."""
    words = "".join(
        dot(20 + 20 * i, 48, 7, colour(0.15 + 0.12 * i)) + line(27 + 20 * i, 48, 33 + 20 * i, 48) for i in range(4)
    )
    out = "".join(line(106, 48, 136, y) + dot(142, y, 6, colour(0.8)) for y in (22, 48, 74))
    return words + box(95, 38, 11, 20, colour(1)) + out


def rnn_attention() -> str:
    """Weights that cross, as German numbers do."""
    pairs, places = ((0, 2), (1, 1), (2, 0), (3, 3)), (28, 62, 96, 130)
    lines = "".join(line(places[a], 26, places[b], 70, colour(0.95 if a != b else 0.6), 4) for a, b in pairs)
    words = "".join(box(x - 12, y, 24, 11, INK) for x in places for y in (14, 71))
    return lines + words


def self_attention() -> str:
    """Every token reads every token."""
    places = (24, 61, 98, 135)
    arcs = [(0, 1, 0.4), (0, 2, 0.9), (0, 3, 0.5), (1, 2, 0.6), (1, 3, 0.8), (2, 3, 0.3)]
    drawn = "".join(
        path(
            f"M{places[a]} 66Q{(places[a] + places[b]) / 2:g} {66 - 26 * (b - a)} {places[b]} 66", colour(w), 1 + 3 * w
        )
        for a, b, w in arcs
    )
    return drawn + "".join(dot(x, 70, 8, INK) for x in places)


def queries_keys_values() -> str:
    """One vector, three roles."""
    fan = "".join(path(f"M46 48C70 48 70 {y} 92 {y}", FAINT) for y in (20, 48, 76))
    roles = "".join(box(94, y - 10, 46, 20, colour(w)) for y, w in ((20, 0.95), (48, 0.65), (76, 0.3)))
    return fan + box(20, 30, 24, 36, INK) + roles


def scaling() -> str:
    """Too sharp, and just right."""
    return (
        bars((0.03, 1, 0.03, 0.03), 16, 78, 15) + line(80, 20, 80, 78, FAINT) + bars((0.3, 0.6, 0.42, 0.2), 92, 78, 15)
    )


def multi_head() -> str:
    """Four heads, four ways to look."""
    looks: list[Callable[[int, int], float]] = [
        lambda i, j: 0.95 if i == j else 0.1,
        lambda i, j: 0.95 if j == i - 1 or i == j == 0 else 0.1,
        lambda i, j: 0.95 if j == 1 else 0.15,
        lambda i, j: 0.35 + 0.15 * ((i + 2 * j) % 3),
    ]
    heads = [[[look(i, j) for j in range(4)] for i in range(4)] for look in looks]
    return "".join(grid(head, 9 + 37 * n, 32, 8.3) for n, head in enumerate(heads))


def masking() -> str:
    """A triangle, with its diagonal."""
    seen = [[0.25 + 0.75 * (j + 1) / (i + 1) if j <= i else None for j in range(6)] for i in range(6)]
    return grid(seen, 41, 9, 13)


def positions() -> str:
    """Clocks of different speed."""
    waves = []
    for n, turns in enumerate((4, 2, 1)):
        points = ((12 + x, 20 + 28 * n - 10 * math.sin(2 * math.pi * turns * x / 136)) for x in range(0, 137, 2))
        waves.append(path("M" + "L".join(f"{x} {y:.1f}" for x, y in points), colour(0.95 - 0.33 * n), 3))
    return "".join(waves)


def transformer_block() -> str:
    """Two parts, and a road around each."""
    parts = line(72, 90, 72, 6) + box(48, 54, 48, 22, colour(0.4)) + box(48, 16, 48, 22, colour(0.85))
    roads = "".join(path(f"M72 {y + 28}H116V{y - 5}H72", FAINT) + dot(72, y - 5, 4, INK) for y in (54, 16))
    return roads + parts


def encoder_decoder() -> str:
    """Two stacks; one reads the other."""
    left = "".join(box(22, 62 - 21 * n, 40, 17, colour(0.3 + 0.15 * n)) for n in range(3))
    right = "".join(box(98, 62 - 21 * n, 40, 17, colour(0.65 + 0.15 * n)) for n in range(3))
    return left + right + "".join(path(f"M62 28C80 28 80 {y} 97 {y}") for y in (28, 49, 70))


def gpt() -> str:
    """Text so far, and what may come next."""
    text = "".join(box(14 + 18 * i, 74, 15, 10, INK) for i in range(5))
    return text + bars((0.12, 0.3, 1.0, 0.45), 106, 84, 12) + line(12, 66, 96, 66, FAINT)


def efficient_attention() -> str:
    """A window, and a few that everybody sees."""
    kept = [[0.9 if abs(i - j) <= 1 else 0.55 if 0 in (i, j) else None for j in range(9)] for i in range(9)]
    return grid(kept, 40, 8, 9)


def training_budget() -> str:
    """The loss falls, and the budget holds."""
    fall = "".join(f"L{14 + x:g} {18 + 58 * (1 - math.exp(-x / 26)):.1f}" for x in range(2, 133, 3))
    return (
        line(14, 80, 148, 80, FAINT) + path(f"M14 18{fall}", colour(0.95), 3.5) + line(112, 14, 112, 80, colour(0.3), 2)
    )


DRAWINGS: tuple[Callable[[], str], ...] = (
    welcome, rnn, rnn_attention, self_attention, queries_keys_values, scaling, multi_head,
    masking, positions, transformer_block, encoder_decoder, gpt, efficient_attention, training_budget,
)  # fmt: skip


def drawing(unit: str) -> str:
    """The drawing of unit "04"."""
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true" focusable="false">{DRAWINGS[int(unit)]()}</svg>'
