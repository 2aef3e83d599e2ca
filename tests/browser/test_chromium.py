"""The browser that the other tests here drive is a real one."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_it_runs_scripts_and_knows_dark_and_light(browser: "Browser") -> None:
    page = browser.new_page(color_scheme="dark", viewport={"width": 390, "height": 800})
    page.set_content("<p>a</p><script>document.querySelector('p').textContent = innerWidth</script>")
    assert page.inner_text("p") == "390"
    assert page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    page.close()
