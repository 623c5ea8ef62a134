"""From an executed notebook's outputs to a page's figures: pictures as files, and figures that move without a kernel.

A live figure is a picture with its saved state beside it; static/figures.js puts the figure itself in the picture's
place. Scripts and pictures are files named by their content, so that no two pages carry the same one twice.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import struct
from typing import Any

VIEW, STATE = "application/vnd.jupyter.widget-view+json", "application/vnd.jupyter.widget-state+json"
INLINE_PICTURE = re.compile(r'src="data:image/png;base64,([^"]+)"')
BAR = re.compile(r".*\d+%\|")  # tqdm's, which has nothing to say once it is full
NEEDS_KERNEL = (
    '<p class="needs-kernel"><strong>This one needs a running notebook.</strong> '
    "It computes in Python: download the notebook at the top of this page and try it there.</p>"
)


class Files:
    """The files that the pages share: name and content. The same content has the same name."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def add(self, data: bytes, suffix: str) -> str:
        """Keep a file; returns its name."""
        name = hashlib.sha256(data).hexdigest()[:16]
        self.content[name + suffix] = data
        return name

    def add_script(self, source: str) -> str:
        """A figure's module, wrapped so that it loads from a server and from a disk alike."""
        name = hashlib.sha256(source.encode()).hexdigest()[:16]
        self.content[f"{name}.js"] = f"courseFigures.define({json.dumps(name)}, {json.dumps(source)});\n".encode()
        return name


def static_outputs(notebook: dict[str, Any], files: Files, up: str) -> None:
    """Turn all outputs into HTML and text that need no kernel, in place. `up` leads from the page to the root."""
    models = notebook["metadata"].pop("widgets", {}).get(STATE, {}).get("state", {})
    for cell in notebook["cells"]:
        outputs = [static_output(output, models, files, up) for output in cell.get("outputs", [])]
        if cell["cell_type"] == "code":
            cell["outputs"] = [output for output in outputs if output is not None]


def static_output(output: dict[str, Any], models: dict[str, Any], files: Files, up: str) -> dict[str, Any] | None:
    data = output.get("data", {})
    if VIEW in data:
        state = models.get(data[VIEW]["model_id"], {}).get("state", {})
        if "_esm" in state:
            shown = live(state, base64.b64decode(joined(data["image/png"])), joined(data["text/plain"]), files, up)
        elif BAR.match(joined(data.get("text/plain", ""))):
            return None
        else:
            shown = NEEDS_KERNEL
        return output | {"data": {"text/html": shown}}
    if "text/html" in data:
        return output | {"data": data | {"text/html": pictures_as_files(joined(data["text/html"]), files, up)}}
    return output


def joined(text: str | list[str]) -> str:
    """A text of a notebook, which may be kept as a list of lines."""
    return text if isinstance(text, str) else "".join(text)


def live(state: dict[str, Any], png: bytes, alt: str, files: Files, up: str) -> str:
    """A figure that moves: its picture, and what its script needs to take the picture's place."""
    script = files.add_script(state["_esm"])
    files.add(state.get("_css", "").encode(), ".css")
    traits = {k: v for k, v in state.items() if k[0] != "_" and k not in ("layout", "tabbable", "tooltip")}
    saved = json.dumps(traits, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    picture = f"<img {source_of(png, files, up)} alt={quoted(alt)}>"
    return (
        f'<div class="course-figure" data-script="{script}">{picture}'
        f'<script type="application/json">{saved}</script></div>'
    )


def live_widget(widget: Any, files: Files, up: str) -> str:
    """The same, of a figure that is at hand in this very process."""
    return live(widget.get_state(), widget.picture().png(), widget.alt(), files, up)


def pictures_as_files(text: str, files: Files, up: str) -> str:
    """A picture that stands in the page as text becomes a file, which a browser fetches when it comes near."""
    return INLINE_PICTURE.sub(lambda found: source_of(base64.b64decode(found[1]), files, up), text)


def source_of(png: bytes, files: Files, up: str) -> str:
    """The attributes of an <img>: where it is, and its size, so that nothing jumps when it arrives."""
    width, height = struct.unpack(">II", png[16:24])
    name = files.add(png, ".png")
    return f'src="{up}_static/figures/{name}.png" width="{width}" height="{height}" loading="lazy"'


def quoted(text: str) -> str:
    return f'"{html.escape(text)}"'
