"""docs/glossary.md as data, and the links to it: each term and each symbol once per page, at its first use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..shapes import expect

LINE = re.compile(r'- <a id="([\w-]+)"></a>\*\*(.+?)\*\*(?: \((.+?)\))?: (.+?) \*Unit (\d\d)\.\*')
# Words in these places are not prose, or already lead elsewhere.
NOT_PROSE = ("title", "reference", "literal", "literal_block", "raw", "math_block", "caption", "thead")


class Entry(NamedTuple):
    """A term or a symbol: its anchor, how it is written, what it means, and the unit that teaches it."""

    anchor: str
    name: str
    others: tuple[str, ...]
    meaning: str
    unit: str

    @property
    def is_symbol(self) -> bool:
        return self.name.startswith("$")

    @property
    def forms(self) -> tuple[str, ...]:
        """All that leads here: of a symbol the formulas, without their dollars."""
        if self.is_symbol:
            return tuple(re.findall(r"\$(.+?)\$", " ".join([self.name, *self.others])))
        return (self.name, *self.others)


def read(path: Path) -> list[Entry]:
    """The entries of docs/glossary.md, in its order."""
    lines = [line for line in path.read_text(encoding="utf-8").split("\n") if line.startswith("- ")]
    found = []
    for line in lines:
        parts = LINE.fullmatch(line)
        expect(
            parts is not None,
            f'{path.name}: an entry is `- <a id="anchor"></a>**name** (forms): meaning *Unit 04.*`; got {line!r}.',
        )
        assert parts is not None
        anchor, name, others, meaning, unit = parts.groups()
        found.append(Entry(anchor, name, tuple((others or "").split(", ")) if others else (), meaning, unit))
    twice = {e.anchor for e in found if sum(other.anchor == e.anchor for other in found) > 1}
    expect(not twice, f"{path.name}: these anchors stand twice: {', '.join(sorted(twice))}.")
    return found


class Target(NamedTuple):
    """Where a word leads: an address, and what shows when the mouse rests on it."""

    address: str
    hint: str


def targets(entries: Iterable[Entry], glossary: str) -> tuple[dict[str, Target], dict[str, Target]]:
    """For words and for formulas: how each is written, and where it leads."""
    words: dict[str, Target] = {}
    formulas: dict[str, Target] = {}
    for entry in entries:
        target = Target(f"{glossary}#{entry.anchor}", re.sub(r"[$\\]", "", entry.meaning))
        for form in entry.forms:
            (formulas if entry.is_symbol else words)[form if entry.is_symbol else form.lower()] = target
    return words, formulas


class Linker:
    """Puts the links into one page, each target once."""

    def __init__(self, words: Mapping[str, Target], formulas: Mapping[str, Target]):
        self.words, self.formulas, self.used = words, formulas, set[str]()
        longest_first = sorted(words, key=len, reverse=True)  # "causal mask" before "mask"; a plural s is allowed
        self.pattern = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, longest_first))})s?(?![\w-])", re.IGNORECASE)

    def link_page(self, document: Any) -> None:
        """Walk through the page once, from top to bottom."""
        from docutils import nodes

        for node in list(document.findall(lambda n: isinstance(n, nodes.Text | nodes.math))):
            if is_prose(node):
                made = self.in_formula(node) if isinstance(node, nodes.math) else self.in_text(node)
                if made:
                    node.parent.replace(node, made)

    def in_formula(self, node: Any) -> list[Any]:
        target = self.formulas.get(node.astext().strip())
        return [self.link(target, node.deepcopy())] if target and target.address not in self.used else []

    def in_text(self, node: Any) -> list[Any]:
        """The text cut up at first uses; nothing where there is none."""
        from docutils import nodes

        text, parts, at = node.astext(), list[Any](), 0
        for found in self.pattern.finditer(text):
            target = self.words[found[1].lower()]
            if target.address not in self.used:
                parts += [nodes.Text(text[at : found.start()]), self.link(target, nodes.Text(found[0]))]
                at = found.end()
        return [*parts, nodes.Text(text[at:])] if parts else []

    def link(self, target: Target, content: Any) -> Any:
        from docutils import nodes

        self.used.add(target.address)
        shown = {"refuri": target.address, "reftitle": target.hint, "classes": ["term"]}
        return nodes.reference("", "", content, internal=True, **shown)


def is_prose(node: Any) -> bool:
    """Whether a text stands in a sentence."""
    if node.parent is not None and node.parent.tagname == "math":
        return False  # the formula as a whole is looked at
    while (node := node.parent) is not None:
        if node.tagname in NOT_PROSE or "cell_output" in node.get("classes", ()):
            return False
    return True
