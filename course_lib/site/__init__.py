"""`course site`: the course as a website that needs no kernel, no other host, and no installation to be read.

lectures.py executes, figures.py makes outputs that stand alone, pages.py and lecture_page.py write the pages, Sphinx
and extension.py build them. Here the steps follow each other.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from .. import build
from ..shapes import expect
from ..units import UNITS
from ..validate import choose, step
from . import lectures, vendor
from .figures import Files
from .lecture_page import unit_page
from .pages import Edition, exercises_of, markdown

# Where the theme's own pages leave a reader of the screen without words.
NAMED = {
    '<summary><span class="toctree-toggle"': '<summary aria-label="pages below"><span class="toctree-toggle"',
    'search-button-field search-button__button pst-js-only" title="Search" aria-label="Search"': (
        'search-button-field search-button__button pst-js-only" title="Search"'  # it says "Search Ctrl+K" itself
    ),
}
STATIC = Path(__file__).parent / "static"  # the site's own styles and scripts
MARK = "course-site.json"  # in a folder that this command made, and may therefore replace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the website goes")
    parser.add_argument("--units", default="", metavar="04,07", help="only these units (all)")
    parser.add_argument("--instructor", action="store_true", help="an edition with solutions and hints; not to publish")
    parser.add_argument(
        "--cache", type=Path, metavar="DIR", help="executed lectures and npm packages (.course-site beside --out)"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="lectures at a time (one per core)")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the course's folder (here)")


def main(args: argparse.Namespace) -> int:
    """Build the site. It appears whole or not at all; 1 where Sphinx has something to complain about."""
    expect(args.jobs >= 1, f"--jobs is how many lectures run at a time, 1 or more; got {args.jobs}.")
    root, out = args.root.resolve(), args.out.resolve()
    refuse_bad_folder(out, root)
    edition = read_edition(root, args.units, args.instructor)
    cache = (args.cache or out.parent / ".course-site").resolve()
    packages = vendor.packages(cache)
    notebooks = [root / "notebooks" / f"{unit.name}.ipynb" for unit in edition.units]
    executed = lectures.executed(notebooks, cache, args.jobs)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".build-") as name:
        work = Path(name)
        write_sources(work, edition, executed, packages)
        complaints = run_sphinx(work, edition, packages)
        finish(work / "html", edition)
        put_in_place(work / "html", out)
    where = f"The site is in {out}: open {out / 'index.html'}, or put the folder on a web server."
    print("\n".join([*complaints, where]))
    return 1 if complaints else 0


# --- what is asked for --------------------------------------------------------------------------------------


def read_edition(root: Path, units: str, instructor: bool) -> Edition:
    """Which units, and where they are published."""
    expect((root / "pyproject.toml").exists(), f"There is no pyproject.toml in {root}: is this the course's folder?")
    with open(root / "pyproject.toml", "rb") as file:
        repository = tomllib.load(file).get("tool", {}).get("course", {}).get("repository", "")
    there = [unit for unit in UNITS if (root / "notebooks" / f"{unit.name}.ipynb").exists()]
    chosen = choose(units, {unit.number for unit in there})
    return Edition(root, tuple(unit for unit in there if unit.number in chosen), instructor, repository)


def refuse_bad_folder(out: Path, root: Path) -> None:
    """The folder is replaced as a whole, so it must be new, empty, or a site that this command made."""
    expect(
        not root.is_relative_to(out),
        f"--out {out} holds the course itself: name a folder of its own, such as {root.parent / 'course-site'}.",
    )
    expect(not out.exists() or out.is_dir(), f"--out {out} is a file: name a folder.")
    foreign = out.is_dir() and any(out.iterdir()) and not (out / MARK).exists()
    expect(not foreign, f"--out {out} holds files that are not a course site: name a new or an empty folder.")


# --- the steps ----------------------------------------------------------------------------------------------


def write_sources(work: Path, edition: Edition, executed: dict[str, Any], packages: Path) -> None:
    """All that Sphinx reads: pages, executed lectures, and the files that pages share."""
    files, source = Files(), work / "source"
    pages = markdown(edition, files)
    for unit in edition.units:
        notebook = unit_page(unit, executed[unit.name], edition, files)
        pages[f"units/{unit.name}.ipynb"] = json.dumps(notebook, ensure_ascii=False)
    for name, text in pages.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text, encoding="utf-8")
    shared = work / "shared"
    (shared / "figures").mkdir(parents=True)
    for name, content in files.content.items():
        (shared / "figures" / name).write_bytes(content)
    styles = [content for name, content in files.content.items() if name.endswith(".css")]
    (shared / "figures.css").write_bytes(b"\n".join(styles))
    copy_katex(packages / "katex" / "dist", shared)


def copy_katex(katex: Path, shared: Path) -> None:
    """KaTeX's styles and the fonts that today's browsers read."""
    shutil.copy(katex / "katex.min.css", shared / "katex.css")
    (shared / "fonts").mkdir()
    for font in (katex / "fonts").glob("*.woff2"):
        shutil.copy(font, shared / "fonts")


def run_sphinx(work: Path, edition: Edition, packages: Path) -> list[str]:
    """Build the pages; returns Sphinx's warnings, each of which is something to mend."""
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    from . import extension

    warnings = io.StringIO()
    pages = sum(1 for file in (work / "source").rglob("*.*"))
    with step("building pages", 2 * pages) as bar, patch_docutils(), docutils_namespace():
        app = Sphinx(
            srcdir=work / "source",
            confdir=None,
            outdir=work / "html",
            doctreedir=work / "doctrees",
            buildername="html",
            confoverrides=extension.settings(edition, work / "shared", packages),
            status=None,
            warning=warnings,
        )
        app.connect("doctree-read", lambda app, page: bar.update())
        app.connect("doctree-resolved", lambda app, page, name: bar.update())
        app.build()
    said = re.sub(r"\x1b\[[0-9;]*m", "", warnings.getvalue()).replace(f"{work / 'source'}/", "")
    return [line for line in said.split("\n") if line]


def finish(html: Path, edition: Edition) -> None:
    """Notebooks to download, no dead weight, and a mark that says what this folder is."""
    for folder in build.FOLDERS if edition.instructor else build.FOLDERS[:2]:
        (html / "downloads" / folder).mkdir(parents=True)
        for unit in edition.units:
            if folder == "notebooks" or exercises_of(unit):
                shutil.copy(edition.root / folder / f"{unit.name}.ipynb", html / "downloads" / folder)
    for page in html.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for unnamed, named in NAMED.items():
            text = text.replace(unnamed, named)
        page.write_text(text, encoding="utf-8")
    # The theme's icons come as a font as well, 115 kB instead of the script's 1.5 MB.
    (html / "_static" / "scripts" / "fontawesome.js").write_text("// The icons are a font.\n")
    unneeded_files = [
        *html.rglob("*.map"),
        *(html / "_static").glob("*.html"),
        html / ".buildinfo",
        html / "objects.inv",
    ]
    for unneeded in unneeded_files:
        unneeded.unlink(missing_ok=True)
    (html / ".nojekyll").touch()  # so that GitHub Pages publishes the folders whose names begin with _
    told = {"edition": "instructor" if edition.instructor else "public", "units": [u.number for u in edition.units]}
    (html / MARK).write_text(json.dumps(told) + "\n", encoding="utf-8")


def put_in_place(html: Path, out: Path) -> None:
    """The new site takes the old one's place."""
    if out.exists():
        shutil.rmtree(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(html, out)
