"""What a reader does with the page of a compilation: with eyes, keyboard and screen reader."""

import pytest
from axe_playwright_python.sync_playwright import Axe

PARTS = ["Phases", "Graph", "Kernels", "Buffers", "Remarks"]


def test_parts_are_headed_and_linked(opened, mlp):
    page = opened(mlp)
    assert page.get_by_role("heading", level=1).inner_text() == "mlp.ir"
    assert page.get_by_role("heading", level=2).all_inner_texts() == PARTS
    for part in PARTS:
        page.get_by_role("navigation").get_by_role("link", name=part).click()
        assert page.get_by_role("region", name=part).is_visible()
    assert page.get_by_role("alert").inner_text() == ""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_screen_readers_are_told_everything(opened, mlp, scheme):
    """axe-core's rules: names, roles, contrast, order."""
    page = opened(mlp, color_scheme=scheme)
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_phases_by_keyboard(opened, mlp):
    page = opened(mlp)
    choice = page.get_by_label("After the pass")
    region = page.get_by_role("region", name="Phases")
    choice.focus()
    page.keyboard.press("Home")
    assert choice.locator("option:checked").inner_text().startswith("0. ")
    assert "tensor.linear" in region.inner_text() or "core.dot" in region.inner_text()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Later"
    page.keyboard.press("Enter")
    assert choice.locator("option:checked").inner_text().startswith("1. ")
    for _ in range(200):
        page.keyboard.press("Enter")
    assert choice.evaluate("e => e.selectedIndex === e.options.length - 1")
    page.get_by_label("whole module").check()
    assert "lines that are the same" not in region.inner_text()


def test_the_diff_shows_what_changed(opened, mlp):
    page = opened(mlp)
    choice = page.get_by_label("After the pass")
    names = choice.locator("option").all_inner_texts()
    choice.select_option(index=next(i for i, name in enumerate(names) if ". fuse:" in name))
    assert "core.fusion" in " ".join(page.locator("td.new").all_inner_texts())
    assert "core.fusion" not in " ".join(page.locator("td.old").all_inner_texts())


def test_graph_by_keyboard(opened, mlp):
    page = opened(mlp)
    region = page.get_by_role("region", name="Graph")
    page.get_by_label("Search").fill("fusion")
    count = int(region.get_by_role("status").inner_text().split()[0])
    assert count == page.locator(".node.found").count() > 0
    page.get_by_label("Search").fill("nothing has this name")
    assert region.get_by_role("status").inner_text().split()[0] == "0"
    graph = page.locator("svg.graph")
    place = lambda: page.locator("svg.graph > g").get_attribute("transform")
    graph.focus()
    for key in ["ArrowLeft", "ArrowDown", "+", "-"]:
        before = place()
        page.keyboard.press(key)
        assert place() != before, key
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.classList.contains('node')")
    first = page.evaluate("document.activeElement.getAttribute('aria-label')")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") != first
    chosen = region.locator("div.mono").inner_text()
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").split(",")[0].split(" ")[0] in chosen


def test_graph_by_pointer(opened, mlp):
    page = opened(mlp)
    node = page.locator(".node.fusion").first
    node.scroll_into_view_if_needed()
    node.click()
    assert "fused: " in page.get_by_role("region", name="Graph").inner_text()
    before = page.locator("svg.graph > g").get_attribute("transform")
    page.mouse.wheel(0, -200)
    assert page.locator("svg.graph > g").get_attribute("transform") != before


def test_kernels_and_buffers_have_figures(opened, mlp):
    page = opened(mlp)
    kernels = page.get_by_role("region", name="Kernels")
    assert kernels.get_by_role("row").count() > 1
    assert "predicted µs" in kernels.inner_text()
    buffers = page.get_by_role("region", name="Buffers")
    assert "held by %" in buffers.inner_text()
    page.get_by_text("buffers as a table").first.click()
    assert buffers.get_by_role("row").count() > 1


def test_remarks_are_filtered(opened, mlp):
    page = opened(mlp)
    region = page.get_by_role("region", name="Remarks")
    shown, total = region.get_by_role("status").inner_text().split(" of ")
    assert shown == total != "0"
    page.get_by_label("Show those with").fill("fuse")
    assert 0 < int(region.get_by_role("status").inner_text().split(" of ")[0]) <= int(total)
    page.get_by_label("Show those with").fill("no remark says this")
    assert region.get_by_role("status").inner_text() == f"0 of {total}"


def test_text_is_never_markup(opened, make_page, tmp_path):
    source = tmp_path / "a.ir"
    source.write_text('func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> attributes {my.note = "</script><b id=injected>"} {\n  func.return %x\n}\n')
    page = opened(make_page(source, "--canonicalize"))
    assert page.locator("#injected").count() == 0
    assert page.get_by_role("heading", level=2).all_inner_texts() == PARTS


def test_without_scripts(opened, mlp):
    page = opened(mlp, java_script_enabled=False)
    assert "This page needs JavaScript" in page.locator("body").inner_text()


def test_of_another_version(opened, mlp, tmp_path):
    other = tmp_path / "other.html"
    text = mlp.read_text()
    assert '"version":1' in text
    other.write_text(text.replace('"version":1', '"version":2', 1))
    page = opened(other)
    assert "of version 2, and this page shows version 1" in page.get_by_role("alert").inner_text()
