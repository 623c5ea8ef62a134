"""The site's settings for Sphinx, and what it adds: formulas by KaTeX, links to the glossary, plain docstrings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util import logging

from .. import __version__
from . import STATIC, glossary
from .mathematics import Typesetter
from .pages import Edition


def theme_options(edition: Edition) -> dict[str, Any]:
    return {
        "logo": {"text": title(edition)},
        "search_bar_text": "Search the course",
        "navbar_persistent": [],  # the search stands in the side bar
        "show_toc_level": 2,
        "use_download_button": False,  # the way to the notebooks stands on each page
        "use_fullscreen_button": False,
        "repository_url": f"https://github.com/{edition.repository}" if edition.repository else "",
        "use_repository_button": bool(edition.repository),
        "footer_content_items": [],
        "pygments_light_style": "a11y-high-contrast-light",
        "pygments_dark_style": "a11y-high-contrast-dark",
    }


def title(edition: Edition) -> str:
    return "Attention and Transformers" + (" (instructor's edition)" if edition.instructor else "")


def settings(edition: Edition, shared: Path, packages: Path) -> dict[str, Any]:
    """Sphinx's configuration. `shared` holds what all pages use, `packages` what npm has fetched."""
    return {
        "project": "Attention and Transformers",
        "author": "The course authors",
        "release": __version__,
        "language": "en",
        "extensions": ["myst_nb", "sphinx.ext.autodoc", "course_lib.site.extension"],
        "myst_enable_extensions": ["dollarmath", "amsmath"],
        "myst_heading_anchors": 3,
        "myst_heading_slug_func": "course_lib.site.pages.slug",
        "nb_execution_mode": "off",  # the lectures come executed
        "nb_merge_streams": True,
        "html_theme": "sphinx_book_theme",
        "html_theme_options": theme_options(edition),
        "html_title": title(edition),
        "html_static_path": [str(STATIC), str(shared)],
        "html_css_files": ["katex.css", "figures.css", "site.css"],
        "html_js_files": ["figures.js"],
        "html_math_renderer": "katex",
        "html_copy_source": False,
        "html_show_sphinx": False,
        "html_permalinks_icon": "#",
        "autodoc_typehints_format": "short",
        "autodoc_inherit_docstrings": False,
        "default_role": "code",
        "course_edition": edition,
        "course_packages": str(packages),
    }


def setup(app: Any) -> dict[str, Any]:
    """What Sphinx calls. The two values are set by `settings`."""
    app.add_config_value("course_edition", None, "")
    app.add_config_value("course_packages", "", "")
    app.connect("builder-inited", begin_formulas)
    app.connect("build-finished", end_formulas)
    app.add_html_math_renderer("katex", (inline_formula, None), (displayed_formula, None))
    app.connect("doctree-resolved", link_terms)
    app.connect("autodoc-process-docstring", lambda app, what, name, obj, options, lines: as_they_stand(lines))
    return {"parallel_read_safe": False, "parallel_write_safe": False}


# --- formulas -----------------------------------------------------------------------------------------------


def begin_formulas(app: Any) -> None:
    app.builder.typeset = Typesetter(Path(app.config.course_packages))


def end_formulas(app: Any, error: Exception | None) -> None:
    app.builder.typeset.close()


def inline_formula(writer: Any, node: Any) -> None:
    writer.body.append(f'<span class="math">{formula(writer, node, display=False)}</span>')
    raise nodes.SkipNode


def displayed_formula(writer: Any, node: Any) -> None:
    writer.body.append(f'<div class="math">{formula(writer, node, display=True)}</div>\n')
    raise nodes.SkipNode


def formula(writer: Any, node: Any, display: bool) -> str:
    try:
        return writer.builder.typeset(node.astext(), display)
    except ValueError as error:
        logging.getLogger(__name__).warning(str(error), location=node)
        return ""


# --- terms --------------------------------------------------------------------------------------------------


def link_terms(app: Any, page: Any, name: str) -> None:
    """In a lecture, the first use of each term and symbol leads to the glossary, and that of a unit to its page."""
    if not name.startswith("units/"):
        return
    edition = app.config.course_edition
    entries = glossary.read(edition.root / "docs" / "glossary.md")
    words, formulas = glossary.targets(entries, app.builder.get_relative_uri(name, "glossary"))
    for unit in edition.units:
        if f"units/{unit.name}" != name:
            address = app.builder.get_relative_uri(name, f"units/{unit.name}")
            words[f"unit {unit.number}"] = glossary.Target(address, unit.title)
    glossary.Linker(words, formulas).link_page(page)


# --- docstrings ---------------------------------------------------------------------------------------------


def as_they_stand(lines: list[str]) -> None:
    """A docstring is plain text with code in backticks; say so to Sphinx, which would read signs as markup."""
    lines[:] = [as_markup(line) for line in lines]


def as_markup(line: str) -> str:
    """One line: signs that Sphinx would read as markup are escaped, code is marked as code, even in `head`s."""
    text = line.lstrip()
    made = ""
    for i, part in enumerate(re.split(r"`+([^`]+)`+", text)):
        made += f"\\ ``{part}``\\ " if i % 2 else re.sub(r"([\\*|_<>])", r"\\\1", part)
    return ("| " if len(line) > len(text) > 0 else "") + made
