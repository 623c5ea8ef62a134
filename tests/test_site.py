"""`course site`: its parts one by one, and then a site of three units in Chromium, with every other host blocked."""

from __future__ import annotations

import argparse
import base64
import contextlib
import functools
import html.parser
import http.server
import json
import os
import re
import shutil
import threading
import urllib.parse
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import browser
import pytest
import test_browser
import test_style

from course_lib import exercises, plots, shapes, site, widgets
from course_lib.site import drawings, figures, glossary, lecture_page, lectures, pages, vendor
from course_lib.units import UNITS

ROOT = Path(__file__).resolve().parents[1]
UNIT_04 = next(unit for unit in UNITS if unit.number == "04")
ONLY_04 = pages.Edition(ROOT, (UNIT_04,))
PNG = plots.bars([0.2, 0.8], ["a", "b"], title="two").png()


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    site.add_arguments(parser)
    return parser.parse_args(words)


# --- where the site goes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [".", "..", "/"])
def test_a_folder_that_holds_the_course_is_refused(place):
    with pytest.raises(ValueError, match="holds the course itself"):
        site.refuse_bad_folder((ROOT / place).resolve(), ROOT)


def test_only_a_new_an_empty_or_an_own_folder_is_taken(tmp_path):
    out = tmp_path / "out"
    site.refuse_bad_folder(out, ROOT)
    out.mkdir()
    site.refuse_bad_folder(out, ROOT)
    (out / "thesis.txt").write_text("ten years of work")
    with pytest.raises(ValueError, match="not a course site"):
        site.refuse_bad_folder(out, ROOT)
    (out / site.MARK).write_text("{}")
    site.refuse_bad_folder(out, ROOT)
    with pytest.raises(ValueError, match="is a file"):
        site.refuse_bad_folder(out / "thesis.txt", ROOT)


def test_a_bad_question_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(ValueError, match="no unit 99"):
        site.main(arguments("--out", str(tmp_path / "out"), "--root", str(ROOT), "--units", "99"))
    with pytest.raises(ValueError, match="--jobs"):
        site.main(arguments("--out", str(tmp_path / "out"), "--root", str(ROOT), "--jobs", "0"))
    with pytest.raises(ValueError, match="pyproject"):
        site.main(arguments("--out", str(tmp_path / "out"), "--root", str(tmp_path)))
    assert not (tmp_path / "out").exists()


def test_units_are_those_that_are_there_in_their_order():
    edition = site.read_edition(ROOT, "07,04", instructor=False)
    assert [unit.number for unit in edition.units] == ["04", "07"]
    assert edition.has("07") and not edition.has("05")


# --- executed once ------------------------------------------------------------------------------------------


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A library of one file and one lecture, to change at will."""
    (tmp_path / "course_lib").mkdir()
    (tmp_path / "course_lib" / "idea.py").write_text("x = 1")
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "lock.txt").write_text("numpy==2")
    (tmp_path / "notebooks" / "04_x.ipynb").write_text("{}")
    monkeypatch.setattr(lectures, "LIBRARY", tmp_path / "course_lib")
    return tmp_path


def test_what_was_executed_is_remembered_until_something_changes(course):
    path, cache = course / "notebooks" / "04_x.ipynb", course / "cache"
    assert lectures.remembered(path, cache) is None
    lectures.remember(path, cache, {"cells": ["done"]}, [course / "course_lib" / "idea.py"])
    assert lectures.remembered(path, cache) == {"cells": ["done"]}
    (course / "course_lib" / "other.py").write_text("not used by this lecture")
    assert lectures.remembered(path, cache) == {"cells": ["done"]}
    for changed in ("lock.txt", "notebooks/04_x.ipynb", "course_lib/idea.py"):
        before = (course / changed).read_text()
        (course / changed).write_text(before + "\n")
        assert lectures.remembered(path, cache) is None, changed
        (course / changed).write_text(before)
    (course / "course_lib" / "idea.py").unlink()
    assert lectures.remembered(path, cache) is None


def test_one_execution_is_kept_for_each_lecture(course):
    path, cache = course / "notebooks" / "04_x.ipynb", course / "cache"
    for text in ("{}", "{ }"):
        path.write_text(text)
        lectures.remember(path, cache, {}, [])
    assert len(list((cache / "executed").iterdir())) == 1


def test_the_scripts_of_the_figures_on_the_page_count_as_used(course):
    module = course / "course_lib" / "idea.py"
    for name, text in {"kit.js": "const a;", "figure.js": "run()", "other.js": "stop()", "kit.css": ".cf {}"}.items():
        module.with_name(name).write_text(text)
    book = notebook_with(models=[{"_esm": "const a;\nrun()", "_css": ".cf {}"}, {"value": 1}])
    assert {path.name for path in lectures.with_scripts([module], book)} == {
        "idea.py",
        "kit.js",
        "figure.js",
        "kit.css",
    }


@pytest.mark.slow
def test_a_lecture_that_fails_says_why_and_is_not_kept(tmp_path):
    path = tmp_path / "notebooks" / "04_x.ipynb"
    path.parent.mkdir()
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "outputs": [], "execution_count": None}
    book = {"cells": [cell | {"source": "1 / 0"}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(book))
    with pytest.raises(ValueError, match=r"04_x.ipynb does not run to its end: ZeroDivisionError"):
        lectures.executed([path], tmp_path / "cache", jobs=1)
    assert not (tmp_path / "cache" / "executed").exists()


# --- what comes from elsewhere ------------------------------------------------------------------------------


def test_packages_are_locked_with_checksums_and_name_no_host():
    lock = json.loads((Path(vendor.HERE) / "package-lock.json").read_text())
    wanted = json.loads((Path(vendor.HERE) / "package.json").read_text())
    for name, package in lock["packages"].items():
        assert "resolved" not in package
        assert not name or package["integrity"].startswith("sha512-")
    for name, version in {**wanted["dependencies"], **wanted["devDependencies"]}.items():
        assert lock["packages"][f"node_modules/{name}"]["version"] == version


def test_without_npm_the_way_to_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ValueError, match=r"needs npm.*nodejs\.org"):
        vendor.packages(tmp_path)
    assert not list(tmp_path.glob("npm-*"))


# --- the glossary -------------------------------------------------------------------------------------------

ENTRIES = glossary.read(ROOT / "docs" / "glossary.md")


def lecture_text() -> str:
    books = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
    return "\n".join("".join(c["source"]) for book in books for c in book["cells"] if c["cell_type"] == "markdown")


def test_every_symbol_of_the_notation_is_in_the_glossary():
    formulas = {form for entry in ENTRIES if entry.is_symbol for form in entry.forms}
    written = {"K": "d_k", "V": "d_v"}
    assert {written.get(letter, letter) for letter in shapes.KEY} <= formulas
    assert {"X", "Q", "K", "V", "A", "W_q", "W_k", "W_v", "W_O", r"\sqrt{d_k}"} <= formulas


def test_every_term_and_symbol_is_used_in_a_lecture():
    text = lecture_text()
    words, _ = glossary.targets(ENTRIES, "glossary.html")
    found = {match[1].lower() for match in glossary.Linker(words, {}).pattern.finditer(text)}
    for entry in ENTRIES:
        if entry.is_symbol:
            assert any(form in text for form in entry.forms), f"no lecture uses {entry.name}"
        else:
            assert any(form.lower() in found for form in entry.forms), f"no lecture uses {entry.name!r}"


def test_no_form_means_two_things():
    counts = Counter(form.lower() if not entry.is_symbol else form for entry in ENTRIES for form in entry.forms)
    assert [form for form, count in counts.items() if count > 1] == []


def test_every_entry_names_a_unit_that_exists():
    assert {entry.unit for entry in ENTRIES} <= {unit.number for unit in UNITS}


@pytest.mark.parametrize(
    "line", ["- **query**: no anchor. *Unit 04.*", '- <a id="query"></a>**query**: no unit.', "- query: nothing"]
)
def test_a_broken_entry_is_named(tmp_path, line):
    file = tmp_path / "glossary.md"
    file.write_text(line)
    with pytest.raises(ValueError, match=r"glossary.md: an entry is"):
        glossary.read(file)


def test_anchors_are_unique(tmp_path):
    file = tmp_path / "glossary.md"
    file.write_text('- <a id="a"></a>**one**: x *Unit 04.*\n- <a id="a"></a>**two**: y *Unit 04.*')
    with pytest.raises(ValueError, match="stand twice: a"):
        glossary.read(file)


def linked(*nodes_of_page):
    """The links that a page of these nodes gets, as (text, address)."""
    nodes = pytest.importorskip("docutils.nodes")
    from docutils.utils import new_document

    page = new_document("page")
    page += nodes_of_page
    terms = [
        glossary.Entry("mask", "mask", (), "who may", "07"),
        glossary.Entry("causal-mask", "causal mask", (), "no future", "07"),
        glossary.Entry("query", "query", ("queries",), "what is asked", "04"),
        glossary.Entry("symbol-t", "$T$", (), "length", "04"),
    ]
    before = page.astext()
    glossary.Linker(*glossary.targets(terms, "g.html")).link_page(page)
    assert page.astext() == before  # no word is lost or added
    return [(link.astext(), link["refuri"]) for link in page.findall(nodes.reference)]


def test_first_uses_are_linked_and_the_longest_term_wins():
    nodes = pytest.importorskip("docutils.nodes")
    first = nodes.paragraph("", "A causal mask hides the future; Masks differ, and this mask too.")
    second = nodes.paragraph("", "Queries ask. A query. Unmasked is another word, and so is mask-like.")
    assert linked(first, second) == [
        ("causal mask", "g.html#causal-mask"),
        ("Masks", "g.html#mask"),
        ("Queries", "g.html#query"),
    ]


def test_no_link_where_there_is_no_prose():
    nodes = pytest.importorskip("docutils.nodes")
    elsewhere = nodes.reference("", "mask", refuri="other.html")
    output = nodes.container("", nodes.paragraph("", "mask"), classes=["cell_output"])
    section = nodes.section("", nodes.title("", "mask"), nodes.paragraph("", "", nodes.literal("", "mask"), elsewhere))
    code = nodes.literal_block("", "mask")
    assert linked(section, code, output) == [("mask", "other.html")]


def test_a_formula_that_is_a_symbol_is_linked_once():
    nodes = pytest.importorskip("docutils.nodes")
    formulas = [nodes.math("", text) for text in ("T", "T", "T^2")]
    assert linked(nodes.paragraph("", "", *formulas)) == [("T", "g.html#symbol-t")]


# --- figures ------------------------------------------------------------------------------------------------


def notebook_with(*outputs, models=()):
    cells = [{"cell_type": "code", "metadata": {}, "source": "x", "outputs": list(outputs)}]
    states = {f"model{i}": {"state": state} for i, state in enumerate(models)}
    return {"cells": cells, "metadata": {"widgets": {figures.STATE: {"state": states}}}}


def view(number: int, **more):
    data = {figures.VIEW: {"model_id": f"model{number}"}} | more
    return {"output_type": "display_data", "data": data, "metadata": {}}


def shown(notebook, files=None):
    figures.static_outputs(notebook, files or figures.Files(), up="../")
    assert "widgets" not in notebook["metadata"]
    return [output["data"]["text/html"] for output in notebook["cells"][0]["outputs"]]


def test_a_live_figure_is_a_picture_with_its_state_and_one_script_for_all_of_its_kind():
    files = figures.Files()
    state = {"_esm": "export default {}", "_css": ".cf {}", "_view_name": "x", "layout": "y", "query": [1, 2]}
    png = base64.b64encode(PNG).decode()
    hostile = state | {"query": "</script><b>"}
    outputs = [view(i, **{"image/png": png, "text/plain": 'a "figure" <1>'}) for i in range(2)]
    one, two = shown(notebook_with(*outputs, models=[state, hostile]), files)
    assert json.loads(re.search(r"json\">(.*?)</script>", one)[1]) == {"query": [1, 2]}
    assert json.loads(re.search(r"json\">(.*?)</script></div>$", two)[1]) == {"query": "</script><b>"}
    assert two.count("</script>") == 1
    assert 'alt="a &quot;figure&quot; &lt;1&gt;"' in one and 'loading="lazy"' in one
    assert sorted(Path(name).suffix for name in files.content) == [".css", ".js", ".png"]
    (script,) = (text.decode() for name, text in files.content.items() if name.endswith(".js"))
    assert script.startswith("courseFigures.define(") and "export default {}" in script


def test_what_needs_a_kernel_says_so_and_a_progress_bar_goes():
    bar, panel = view(0, **{"text/plain": "training:   0%|   | 0/300"}), view(1, **{"text/plain": "Retrain: choose"})
    (only,) = shown(notebook_with(bar, panel, models=[{}, {}]))
    assert "needs a running notebook" in only


def test_a_picture_in_the_text_becomes_a_file_with_its_size():
    files = figures.Files()
    picture = plots.bars([0.2, 0.8], ["a", "b"], title="two")
    output = {"output_type": "display_data", "data": {"text/html": picture._repr_html_()}, "metadata": {}}
    (text,) = shown(notebook_with(output, output | {}), files)[:1]
    assert "base64" not in text and 'alt="two: a 0.20, b 0.80."' in text
    assert re.search(r'src="\.\./_static/figures/\w+\.png" width="\d+" height="\d+" loading="lazy"', text)
    assert list(files.content.values()) == [PNG]


def test_every_figure_of_the_library_is_anywidget_s_or_says_that_it_needs_a_kernel():
    """What the site brings to life; a figure of another kind would silently become a sentence."""
    asleep = {name for name in dir(widgets) if not hasattr(getattr(widgets, name), "_esm")}
    assert asleep == {"Progress", "Retrain"}


# --- pages --------------------------------------------------------------------------------------------------


def test_the_reference_lists_every_module_that_learners_use():
    layers = (names for layer, names in test_style.LAYERS.items() if layer not in ("learn", "teach"))
    assert sorted(name for names in layers for name in names) == sorted(
        name for names in pages.REFERENCE.values() for name in names
    )


def test_pages_are_there_for_all_that_is_promised():
    made = pages.markdown(ONLY_04, figures.Files())
    assert {"index.md", "glossary.md", "coverage.md", "misconceptions/index.md", "misconceptions/04.md"} <= set(made)
    assert "reference/attention.md" in made and "misconceptions/05.md" not in made
    assert "<!--" not in made["index.md"]
    assert 'href="units/04_queries_keys_values.html"' in made["index.md"] and "05_scaling" not in made["index.md"]


def test_solutions_and_hints_are_in_the_instructor_s_edition_only():
    public, full = (pages.misconceptions(UNIT_04, pages.Edition(ROOT, UNITS, taught)) for taught in (False, True))
    for exercise in exercises.of_unit("04"):
        assert all(pages.plain(wrong.idea) in public for wrong in exercise.misconceptions)
        assert all(pages.plain(hint) in full and pages.plain(hint) not in public for hint in exercise.hints)
        assert f"def {exercise.name}(" in full and f"def {exercise.name}(" not in public


def test_a_section_of_a_unit_that_is_not_built_is_no_link():
    assert pages.lecture_link(ONLY_04, "05", "Large scores") == "05, “Large scores”"
    assert (
        pages.lecture_link(ONLY_04, "04", "A: b, c") == "[04, “A: b, c”](../units/04_queries_keys_values.ipynb#a-b-c)"
    )
    assert "](../notebooks" not in pages.coverage(ONLY_04)


def test_a_plain_sentence_stays_plain():
    assert pages.plain("W_k * [1] <b> $x$ `a_b`") == r"W\_k \* \[1\] \<b\> \$x\$ `a_b`"


def test_each_unit_has_a_drawing_of_its_own():
    made = [drawings.drawing(unit.number) for unit in UNITS]
    assert len(set(made)) == len(UNITS) == len(drawings.DRAWINGS)
    for text in made:
        assert ElementTree.fromstring(text).get("aria-hidden") == "true"


def page_of(edition, *sources, outputs=()):
    """A unit's page from a small notebook: its cells' sources, and the outputs of its last cell."""
    cells = [{"cell_type": "markdown", "metadata": {}, "source": text} for text in ("generated from", *sources)]
    cells.insert(1, {"cell_type": "code", "metadata": {"tags": ["colab"]}, "source": "pip", "outputs": []})
    cells.append({"cell_type": "code", "metadata": {}, "source": "x", "outputs": list(outputs)})
    made = lecture_page.unit_page(UNIT_04, {"cells": cells, "metadata": {}}, edition, figures.Files())
    return [figures.joined(cell["source"]) for cell in made["cells"]], made["cells"]


def test_a_unit_s_page_has_links_on_top_and_exercises_at_the_end():
    (title, links, intro, code, end), _ = page_of(ONLY_04, "# 04 Title\n\nHello")
    assert (title, intro, code) == ("# 04 Title", "Hello", "x")
    assert "downloads/notebooks/04_" in links and "downloads/exercises/04_" in links and "solutions" not in links
    assert "colab.research" not in links and "mybinder" not in links
    for exercise in exercises.of_unit("04"):
        row = next(line for line in end.split("\n") if line.startswith(f"| [{exercise.id} "))
        assert f"| {exercise.minutes} | {exercise.points} |" in row


def test_colab_and_binder_are_linked_where_the_repository_is_known():
    (_, links, *_), _ = page_of(pages.Edition(ROOT, UNITS, True, "me/course"), "# 04 Title")
    assert (
        "https://colab.research.google.com/github/me/course/blob/main/notebooks/04_queries_keys_values.ipynb" in links
    )
    assert "https://mybinder.org/v2/gh/me/course/main?labpath=notebooks/04_queries_keys_values.ipynb" in links
    assert "downloads/solutions/04_" in links


def test_notebooks_that_a_text_names_become_links():
    text = "`exercises/04_queries_keys_values.ipynb`, `notebooks/05_scaling.ipynb`"
    (_, _, made, *_), _ = page_of(ONLY_04, f"# 04 T\n{text}")
    assert '<a href="../downloads/exercises/04_queries_keys_values.ipynb">' in made
    assert "`notebooks/05_scaling.ipynb`" in made  # not built here


def test_no_path_of_this_machine_and_no_link_to_a_notebook_is_published():
    told = f"{ROOT}/course_lib/by_hand.py:3: warning\n/tmp/ipykernel_12/34.py:2: overflow\nsaved in {ROOT}\n"
    stream = {"output_type": "stream", "name": "stderr", "text": [told]}
    table = '<a href="../exercises/04_queries_keys_values.ipynb">go</a> <a href="05_scaling.ipynb">next</a>'
    data = {"output_type": "display_data", "data": {"text/html": table}, "metadata": {}}
    _, cells = page_of(ONLY_04, "# 04 T", outputs=[stream, data])
    text, links = cells[-2]["outputs"]
    assert text["text"] == "course_lib/by_hand.py:3: warning\nthis cell:2: overflow\nsaved in the course's folder\n"
    assert links["data"]["text/html"] == '<a href="04_queries_keys_values.html#exercises">go</a> next'


@pytest.mark.parametrize(
    ("line", "markup"),
    [
        ("softmax(x)ᵢ * |x| <y_z>", r"softmax(x)ᵢ \* \|x\| \<y\_z\>"),
        ("many `head`s", r"many \ ``head``\ s"),
        ("    y = a * b", r"| y = a \* b"),
        ("", ""),
    ],
)
def test_docstrings_stand_as_they_are(line, markup):
    pytest.importorskip("sphinx")
    from course_lib.site.extension import as_markup

    assert as_markup(line) == markup


# --- the built site -----------------------------------------------------------------------------------------

BUILT = "00,04,07"
CORE = (
    "index.html", "units/00_welcome.html", "units/04_queries_keys_values.html", "units/07_masking.html",
    "glossary.html", "coverage.html", "misconceptions/index.html", "misconceptions/04.html", "reference/attention.html",
)  # fmt: skip


def built(edition: str, cache: Path, out: Path) -> Path:
    words = ["--out", str(out), "--cache", str(cache), "--root", str(ROOT)]
    assert site.main(arguments(*words, *edition.split())) == 0, "Sphinx complained: see what it printed"
    return out


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    for package in ("sphinx", "myst_nb", "sphinx_book_theme"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("cache")
    try:
        vendor.packages(folder)
    except ValueError as error:
        pytest.skip(f"the site's packages cannot be fetched: {error}")
    return folder


@pytest.fixture(scope="module")
def public(cache, tmp_path_factory):
    return built(f"--units {BUILT}", cache, tmp_path_factory.mktemp("public") / "site")


class Links(html.parser.HTMLParser):
    """A page's ids, and where its links and files lead."""

    def __init__(self, text: str):
        super().__init__()
        self.ids, self.to, self.without_alt = set[str](), set[str](), list[str]()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids |= {given[name] for name in ("id", "name") if given.get(name)}
        self.to |= {given[name] for name in ("href", "src") if given.get(name)}
        if tag == "img" and not given.get("alt"):
            self.without_alt.append(self.get_starttag_text())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_link_leads_somewhere_and_none_to_another_host(public):
    found = {path: Links(path.read_text(encoding="utf-8")) for path in public.rglob("*.html")}
    wrong = []
    for path, page in found.items():
        assert page.without_alt == [], path
        for link in page.to:
            parts = urllib.parse.urlsplit(link)
            there = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            ids = found[there].ids if there in found else {parts.fragment}
            if parts.scheme or parts.netloc or not there.is_file() or parts.fragment not in ids | {""}:
                wrong.append((path.name, link))
    assert wrong == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_public_site_holds_no_answers(public):
    everything = "".join(path.read_text(encoding="utf-8") for path in public.rglob("*.html"))
    assert not (public / "downloads" / "solutions").exists()
    assert str(ROOT) not in everything
    for exercise in (*exercises.of_unit("04"), *exercises.of_unit("07")):
        assert exercise.hints[2] not in html.unescape(re.sub(r"<[^>]+>", "", everything))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_instructor_s_edition_comes_from_the_cache_and_has_the_answers(public, cache, tmp_path, monkeypatch):
    def not_again(*args):
        raise AssertionError("a lecture was executed twice")

    monkeypatch.setattr(lectures, "execute", not_again)
    made = built("--units 04 --instructor", cache, tmp_path / "site")
    page = (made / "misconceptions" / "04.html").read_text(encoding="utf-8")
    assert exercises.of_unit("04")[2].hints[0] in html.unescape(page) and "Solution" in page
    assert (made / "downloads" / "solutions" / "04_queries_keys_values.ipynb").exists()
    assert "instructor's edition" in html.unescape((made / "index.html").read_text(encoding="utf-8"))


# --- in the browser -----------------------------------------------------------------------------------------

in_browser = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]


@contextlib.contextmanager
def served(folder: Path):
    """The folder on loopback; yields its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()


@pytest.fixture(scope="module")
def address(public):
    browser.find_browser()
    with served(public) as where:
        yield where


def wake_figures(page) -> None:
    """Scroll to every figure of the page, and wait until it lives."""
    boxes = page.locator(".course-figure")
    for i in range(boxes.count()):
        boxes.nth(i).scroll_into_view_if_needed()
        page.wait_for_function(
            "i => document.querySelectorAll('.course-figure')[i].dataset.live", arg=i, timeout=30_000
        )


@pytest.mark.skipif(os.environ.get("COURSE_SLOW") != "1", reason="builds a site: set COURSE_SLOW=1 to ask for it")
class TestInTheBrowser:
    pytestmark = in_browser

    @pytest.mark.parametrize(("width", "theme"), [(1300, "light"), (1300, "dark"), (400, "light")])
    def test_pages_are_accessible_and_fit(self, address, cache, width, theme):
        """axe-core finds nothing against WCAG 2.1 AA, nothing is wider than the window, nobody else is asked."""
        axe = (vendor.packages(cache) / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
        rules = "{runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'], resultTypes: ['violations']}"
        with browser.open_page(width=width) as page:
            page.emulate_media(color_scheme=theme)
            for name in CORE:
                page.goto(address + name)
                assert page.locator("html").get_attribute("data-theme") == theme
                wake_figures(page)
                page.evaluate(axe)
                found = page.evaluate(f"axe.run(document, {rules})")["violations"]
                told = [(v["id"], v["nodes"][0]["html"][:200]) for v in found]
                assert told == [], f"{name}, {theme}, {width} px"
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is too wide"
            assert page.strangers == [] and page.errors == []

    def test_figures_answer_without_a_kernel(self, address):
        with browser.open_page() as page:
            page.goto(address + "units/04_queries_keys_values.html")
            wake_figures(page)
            for name in ("SoftDictionary", "Arrows", "WeightedSum", "EditKV"):
                test_browser.same_numbers(name, test_browser.figure(page, name))
            soft, arrows, edit = (test_browser.figure(page, n) for n in ("SoftDictionary", "Arrows", "EditKV"))
            query, key = soft.locator("circle[aria-label=query]"), arrows.locator("circle[aria-label='key 1']")
            number = edit.locator("input[aria-label='k1, column 1']")
            test_browser.moved("SoftDictionary", soft, lambda: test_browser.press(soft.locator("input"), "ArrowLeft"))
            test_browser.moved("SoftDictionary", soft, lambda: test_browser.drag(page, query, -40, -30))
            test_browser.moved("Arrows", arrows, lambda: test_browser.press(key, "ArrowRight"))
            test_browser.moved("EditKV", edit, lambda: number.fill("3"))
            assert page.errors == []

    def test_figures_live_on_a_page_opened_from_a_disk(self, public):
        browser.find_browser()
        with browser.open_page() as page:
            page.goto((public / "index.html").as_uri())
            wake_figures(page)
            assert page.locator(".cf input[aria-label=temperature]").count() == 1
            assert page.errors == []

    def test_without_scripts_there_are_pictures_and_formulas(self, address):
        with browser.open_page() as page:
            context = page.context.browser.new_context(java_script_enabled=False)
            still = context.new_page()
            still.goto(address + "units/04_queries_keys_values.html")
            picture = still.locator(".course-figure img").first
            picture.scroll_into_view_if_needed()
            assert picture.is_visible() and "soft dictionary" in picture.get_attribute("alt")
            assert still.locator(".katex").count() > 50

    def test_search_finds_offline(self, address):
        with browser.open_page() as page:
            page.goto(address + "search.html?q=temperature")
            page.wait_for_selector("#search-results li a")
            found = page.eval_on_selector_all("#search-results li a", "links => links.map(link => link.href)")
            assert any("04_queries_keys_values" in link for link in found)
            assert page.strangers == [] and page.errors == []

    def test_the_keyboard_is_enough(self, address):
        """Skip to the text, open the search, change the theme: no mouse needed."""
        with browser.open_page() as page:
            page.goto(address + "index.html")
            page.keyboard.press("Tab")
            assert "Skip" in page.evaluate("document.activeElement.textContent")
            page.keyboard.press("Control+k")
            page.wait_for_selector("dialog[open] input[type=search]")
            page.keyboard.press("Escape")
            page.locator("button.theme-switch-button:visible").first.focus()
            for key in ("Enter", "ArrowDown", "ArrowDown", "Enter"):  # the menu: light, dark, system
                page.keyboard.press(key)
            page.wait_for_function("document.documentElement.dataset.theme === 'dark'", timeout=10_000)

    def test_terms_lead_to_the_glossary(self, address):
        with browser.open_page() as page:
            page.goto(address + "units/04_queries_keys_values.html")
            links = page.locator("a.term")
            targets = links.evaluate_all("links => links.map(link => link.href)")
            assert len(targets) == len(set(targets)) > 20
            page.locator("a.term", has_text="softmax").first.click()
            page.wait_for_url("**/glossary.html#softmax")

    def test_weight_and_first_figure(self, address):
        """Printed: what a page weighs with all that it fetches, and when its first figure lives. At most 3 MB."""
        for name in CORE:
            with browser.open_page() as page:
                sizes: dict[str, int] = {}
                page.on("requestfinished", lambda r, sizes=sizes: sizes.update({r.url: r.sizes()["responseBodySize"]}))
                page.goto(address + name)
                wake_figures(page)
                lives = page.eval_on_selector_all(".course-figure", "boxes => boxes.map(box => +box.dataset.live)")
                first = f", first figure after {min(lives)} ms" if lives else ""
                print(f"\n{name}: {sum(sizes.values()) / 1e6:.2f} MB in {len(sizes)} files{first}")
                assert sum(sizes.values()) < 3e6
