"""A lecture's page: the executed notebook with a way to the notebooks on top and the exercises at the end."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

from ..outcomes import OUTCOMES
from ..units import Unit
from .figures import Files, joined, static_outputs
from .pages import Edition, exercises_of, plain, slug

NOTEBOOK = re.compile(r"`(notebooks|exercises|solutions)/(\d\d_\w+)\.ipynb`")
LINK_IN_OUTPUT = re.compile(r'<a href="(\.\./exercises/)?(\d\d_\w+)\.ipynb">(.*?)</a>')
KERNEL_FILE = re.compile(r"/\S*/ipykernel_\d+/\d+\.py")


def unit_page(unit: Unit, executed: dict[str, Any], edition: Edition, files: Files) -> dict[str, Any]:
    """The notebook that becomes the page."""
    notebook = copy.deepcopy(executed)
    static_outputs(notebook, files, up="../")
    title, *body = lecture_cells(notebook)
    for cell in body:
        if cell["cell_type"] == "markdown":
            cell["source"] = with_links(joined(cell["source"]), edition)
        else:
            cell["outputs"] = [tidy(output, edition) for output in cell["outputs"]]
    end = [text_cell("exercises", exercise_table(unit))] if exercises_of(unit) else []
    notebook["cells"] = [title, text_cell("links", ways_to_work(unit, edition)), *body, *end]
    return notebook


def text_cell(name: str, source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": source}


def lecture_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Title, introduction, and the rest; without the cells that only a notebook needs."""
    cells = [cell for cell in notebook["cells"][1:] if "colab" not in cell["metadata"].get("tags", [])]
    title, _, rest = joined(cells[0]["source"]).partition("\n")
    head = cells[0] | {"id": "title", "source": title}
    return [head, cells[0] | {"source": rest.strip()}, *cells[1:]]


def ways_to_work(unit: Unit, edition: Edition) -> str:
    """Links below the title: download, and where the repository is known, Colab and Binder."""
    folders = {"notebooks": "lecture", "exercises": "exercises", "solutions": "solutions"}
    if not exercises_of(unit):
        folders = {"notebooks": "lecture"}
    elif not edition.instructor:
        del folders["solutions"]
    links = [
        f'<a href="../downloads/{folder}/{unit.name}.ipynb" download>Download the {what}</a>'
        for folder, what in folders.items()
    ]
    if edition.repository:
        file, owner = f"notebooks/{unit.name}.ipynb", edition.repository
        colab = f"https://colab.research.google.com/github/{owner}/blob/main/{file}"
        binder = f"https://mybinder.org/v2/gh/{owner}/main?labpath={file}"
        links += [f'<a href="{colab}">Open in Colab</a>', f'<a href="{binder}">Open in Binder</a>']
    if exercises_of(unit):
        links.append('<a href="#exercises">Go to the exercises</a>')
    return f'<p class="unit-links">{" ".join(links)}</p>'


def exercise_table(unit: Unit) -> str:
    """The unit's exercises: what they ask, how long they take, what they show. No answers."""
    known = exercises_of(unit)
    minutes, points = sum(e.minutes for e in known), sum(e.points for e in known)
    lines = [
        "## Exercises",
        "",
        f"{len(known)} exercises, about {minutes} minutes, {points} points. Download the notebook at the top of this "
        f"page; `check(...)` says at once what is right, and which of the [known wrong "
        f"ideas](../misconceptions/{unit.number}.md) is behind what is not.",
        "",
        "| exercise | minutes | points | you can then |",
        "|---|---|---|---|",
    ]
    for e in known:
        anchor = slug(f"{e.id} {e.title}")
        can = "; ".join(plain(OUTCOMES[key]) for key in e.outcomes)
        name = f"[{e.id} {plain(e.title)}](../misconceptions/{unit.number}.md#{anchor})"
        lines.append(f"| {name} | {e.minutes} | {e.points} | {can} |")
    return "\n".join(lines)


def with_links(text: str, edition: Edition) -> str:
    """Notebooks that the text names become links: a lecture to its page, exercises to their file."""

    def linked(found: re.Match[str]) -> str:
        folder, name = found.groups()
        if not edition.has(name[:2]) or (folder == "solutions" and not edition.instructor):
            return found[0]
        address = f"{name}.html" if folder == "notebooks" else f"../downloads/{folder}/{name}.ipynb"
        return f'<a href="{address}"><code>{folder}/{name}.ipynb</code></a>'

    return NOTEBOOK.sub(linked, text)


def tidy(output: dict[str, Any], edition: Edition) -> dict[str, Any]:
    """No path of the machine that built the site, and links that lead to pages."""
    if "text" in output:
        return output | {"text": without_paths(joined(output["text"]), edition.root)}
    shown = output.get("data", {}).get("text/html")
    if not shown:
        return output

    def page_link(found: re.Match[str]) -> str:
        folder, name, words = found.groups()
        return f'<a href="{name}.html{"#exercises" if folder else ""}">{words}</a>' if edition.has(name[:2]) else words

    return output | {"data": output["data"] | {"text/html": LINK_IN_OUTPUT.sub(page_link, joined(shown))}}


def without_paths(text: str, root: Path) -> str:
    return KERNEL_FILE.sub("this cell", text).replace(f"{root}/", "").replace(str(root), "the course's folder")
