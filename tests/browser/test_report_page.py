"""The report's page in a real browser: the toy table's, and the committed one of the default table."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bleuprint.verdicts.published import load_claims

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

ROOT = Path(__file__).parents[2]
SIZES = {"laptop": (1280, 900), "phone": (390, 844)}
PATIENCE_MS = 120_000  # on a quiet machine the charts need a second
DRAWN = "[...document.querySelectorAll('section.figure')].every(figure => figure.dataset.drawn)"
# Of every text that is shown, the contrast of its colour with what lies behind it (WCAG 2.2, 1.4.3).
CONTRASTS = """() => {
  const channel = value => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const parse = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || element.closest("script, style, #vg-tooltip-element")) continue;
    const style = getComputedStyle(element);
    const ink = light(parse(element instanceof SVGElement ? style.fill : style.color)), paper = light(behind(element));
    const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    found.push([contrast, element.textContent.trim().slice(0, 60)]);
  }
  return found.sort((a, b) => a[0] - b[0]).slice(0, 3);
}"""

MARKS_IN_FIRST_PANEL = """section => {
  const panel = section.querySelector(".cell .background") ?? section.querySelector(".root .background");
  const box = panel.getBoundingClientRect();
  return [...panel.parentNode.querySelectorAll(".mark-symbol.role-mark path")].filter(mark => {
    const { left, right, top, bottom } = mark.getBoundingClientRect();
    const x = (left + right) / 2, y = (top + bottom) / 2;
    return x >= box.left && x <= box.right && y >= box.top && y <= box.bottom;
  }).length;
}"""
TEXTS_CUT_OFF = """section => {
  const page = section.querySelector("svg").getBoundingClientRect();
  const inside = box => box.left >= page.left - 1 && box.right <= page.right + 1;
  return [...section.querySelectorAll("svg text")]
    .filter(text => getComputedStyle(text).opacity !== "0" && !inside(text.getBoundingClientRect()))
    .map(text => text.textContent);
}"""
LABELS_TOUCHING = """section => [...section.querySelectorAll(".role-axis-label")].flatMap(axis => {
  const shown = [...axis.querySelectorAll("text")].filter(text => getComputedStyle(text).opacity !== "0");
  const boxes = shown.map(text => text.getBoundingClientRect()).sort((a, b) => a.left - b.left);
  const level = boxes.every(box => Math.abs(box.top - boxes[0].top) < 1);
  return level ? boxes.slice(1).map((box, i) => box.left - boxes[i].right).filter(gap => gap < 4) : [];
})"""


@pytest.fixture(scope="module", params=["toy", "default"])
def report_page(request: pytest.FixtureRequest) -> Path:
    """Return the page of a table; that of the default one is not there while its results are being made anew."""
    if request.param == "toy":
        return Path(request.getfixturevalue("by_snakemake")) / "reports/demo/report.html"
    page = ROOT / "reports/default/report.html"
    if not page.is_file():
        pytest.skip("reports/default/report.html is not there: python -m bleuprint report")
    return page


@contextmanager
def opened(browser: "Browser", path: Path, size: str = "laptop", scheme: str = "light") -> "Iterator[Page]":
    """Open a page, wait for its charts and yield it; afterwards nothing was complained of and nothing else fetched."""
    width, height = SIZES[size]
    page = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        has_touch=size == "phone",
        is_mobile=size == "phone",
    )
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.resolve().as_uri())
    page.wait_for_function(DRAWN, timeout=PATIENCE_MS)
    try:
        yield page
        assert complaints == []
        assert requests == [path.resolve().as_uri()]
    finally:
        page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_all_of_it_is_there_and_fits(browser: "Browser", report_page: Path, size: str, scheme: str) -> None:
    with opened(browser, report_page, size, scheme) as page:
        width = SIZES[size][0]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("#claims h2").is_visible()
        claims = len(load_claims(report_page.parent.name))
        assert page.locator("#claims-table tbody tr .verdict").count() == claims
        names = page.locator("section.figure").evaluate_all("all => all.map(section => section.id)")
        assert {"figure-loss", "figure-bleu", "figure-lengths"} <= set(names)
        for name in names:
            chart = page.locator(f"#{name} .chart svg")
            box = chart.bounding_box()
            assert box is not None
            assert 0 < box["width"] <= width, name
            assert page.locator(f"#{name} .mark-symbol path, #{name} .mark-line path").count() > 0, name
        assert page.locator("#samples article").count() == 10
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
        assert dark == (scheme == "dark")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(browser: "Browser", report_page: Path, scheme: str) -> None:
    with opened(browser, report_page, "laptop", scheme) as page:
        page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
        assert [found for found in page.evaluate(CONTRASTS) if found[0] < 4.5] == []


def test_figures_have_words_and_tables_heads(browser: "Browser", report_page: Path) -> None:
    with opened(browser, report_page) as page:
        words = page.locator(".chart").evaluate_all("all => all.map(chart => chart.getAttribute('aria-label'))")
        assert all(len(text) > 60 for text in words)
        assert page.locator("th:not([scope])").count() == 0
        assert page.locator("html[lang]").count() == page.locator("h1").count() == 1


def test_the_keyboard_goes_everywhere(browser: "Browser", report_page: Path) -> None:
    with opened(browser, report_page) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "To the claims"
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")  # the button that changes the colours
        assert page.evaluate("document.documentElement.dataset.scheme") == "dark"
        page.wait_for_function(DRAWN, timeout=PATIENCE_MS)
        run = page.locator("#runs > details").first
        run.locator("summary").first.focus()
        page.keyboard.press("Enter")
        assert run.get_attribute("open") is not None


def test_attention_is_chosen_by_the_keyboard(browser: "Browser", report_page: Path) -> None:
    with opened(browser, report_page, "phone") as page:
        caption = page.locator("#attention-map caption")
        before = caption.inner_text()
        for name, key in (("run", "End"), ("kind", "ArrowDown"), ("sentence", "ArrowDown")):
            page.locator(f"#attention-controls [name={name}]").focus()
            page.keyboard.press(key)
        page.locator("#attention-controls [name=head]:checked").focus()
        page.keyboard.press("ArrowLeft")
        chosen = page.locator("#attention-controls [name=head]:checked")
        assert chosen.evaluate("radio => radio === document.activeElement")
        assert str(chosen.get_attribute("aria-label")) in caption.inner_text().replace(": ", ", ")
        assert "the source to itself" in caption.inner_text()
        assert caption.inner_text() != before
        rows = page.locator("#attention-map tbody tr")
        assert rows.count() == page.locator("#attention-map thead th").count()  # the source looks at itself
        for row in rows.all():
            shares = [int(text) for text in row.locator("td").all_inner_texts() if text]
            assert sum(shares) <= 102  # those below 10 % have no number
        box = page.locator("#attention-map").bounding_box()
        assert box is not None
        assert box["width"] <= SIZES["phone"][0]
        assert "line 1:" not in page.locator("[name=sentence] option:checked").inner_text()


def test_a_pointer_reads_marks_and_zooms(browser: "Browser", report_page: Path) -> None:
    with opened(browser, report_page) as page:
        chart = page.locator("#figure-loss")
        chart.scroll_into_view_if_needed()
        point = chart.locator(".mark-symbol.role-mark path").first.bounding_box()
        assert point is not None
        page.mouse.move(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
        page.wait_for_selector("#vg-tooltip-element.visible")
        assert "loss of" in page.locator("#vg-tooltip-element").inner_text()
        before = numbers(chart)
        page.keyboard.down("Control")
        page.mouse.wheel(0, -400)
        page.keyboard.up("Control")
        page.wait_for_timeout(500)
        assert numbers(chart) != before


def test_fingers_and_keyboard_zoom_by_buttons(browser: "Browser", report_page: Path) -> None:
    """Each button changes what is shown, a second look differs from the first, and the last one goes back."""
    with opened(browser, report_page, "phone") as page:
        for chart in page.locator("section.figure:has([data-move])").all():
            whole = numbers(chart)
            seen = [whole]
            for name in ("in", "left", "right", "out", "up", "down"):
                button = chart.locator(f"[data-move={name}]")
                if button.count():
                    button.focus()
                    page.keyboard.press("Enter")
                    page.wait_for_timeout(500)
                    assert numbers(chart) != seen[-1], f"{chart.get_attribute('id')}: {name}"
                    seen.append(numbers(chart))
            chart.locator("[data-move=whole]").click()
            page.wait_for_timeout(500)
            assert numbers(chart) == whole


def test_two_steps_in_still_show_marks_and_cut_nothing_off(browser: "Browser", report_page: Path) -> None:
    with opened(browser, report_page, "phone") as page:
        for chart in page.locator("section.figure:has([data-move])").all():
            for _ in range(2):
                chart.locator("[data-move=in]").click()
                page.wait_for_timeout(500)
            assert chart.evaluate(MARKS_IN_FIRST_PANEL) > 0, chart.get_attribute("id")
            assert chart.evaluate(TEXTS_CUT_OFF) == [], chart.get_attribute("id")
            assert chart.evaluate(LABELS_TOUCHING) == [], chart.get_attribute("id")


@pytest.mark.parametrize("size", SIZES)
def test_numbers_of_axes_stand_apart(browser: "Browser", report_page: Path, size: str) -> None:
    with opened(browser, report_page, size) as page:
        for chart in page.locator("section.figure").all():
            assert chart.evaluate(LABELS_TOUCHING) == [], chart.get_attribute("id")


def test_a_tap_near_a_mark_reads_it(browser: "Browser", report_page: Path) -> None:
    with opened(browser, report_page, "phone") as page:
        tooltip = page.locator("#vg-tooltip-element.visible")
        for chart in page.locator("section.figure").all():
            assert "tap on it" in chart.locator("figcaption").inner_text()
            mark = chart.locator(".mark-symbol.role-mark path").last
            mark.scroll_into_view_if_needed()
            page.wait_for_timeout(300)  # scrolling hides what is told
            box = mark.bounding_box()
            assert box is not None
            page.touchscreen.tap(box["x"] + box["width"] / 2 + 7, box["y"] + box["height"] / 2 + 7)
            tooltip.wait_for()
            assert "NaN" not in tooltip.inner_text()
            chart.locator("figcaption").tap()
            tooltip.wait_for(state="detached")


def test_tables_are_as_wide_as_a_phone(browser: "Browser", report_page: Path) -> None:
    with opened(browser, report_page, "phone") as page:
        tables = page.locator("main > section:not(#attention) > .scroller")
        assert tables.count() >= 3
        assert tables.evaluate_all("all => all.filter(box => box.scrollWidth > box.clientWidth).length") == 0
        assert page.locator("#scores .no-card").evaluate_all("all => all.filter(cell => cell.checkVisibility())") == []


def numbers(chart: "Locator") -> dict[str, str | None]:
    """Return the labels of a chart's axes, by their places."""
    labels = chart.locator(".role-axis-label text")
    return dict(labels.evaluate_all("found => found.map(text => [text.textContent, text.getAttribute('transform')])"))
