"""Pages that rc-opt makes, opened in headless Chromium."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(os.environ["RC_BIN"])


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        # Chromium's sandbox does not start for root, and the pages are our own.
        program = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        yield program
        program.close()


@pytest.fixture(scope="session")
def make_page(tmp_path_factory):
    """Compiles a file with options and returns the path of the page."""

    def make(source, *options):
        folder = tmp_path_factory.mktemp("view")
        page = folder / "page.html"
        command = [TOOLS / "rc-opt", *options, f"--view={page}", source, "-o", folder / "out.ir"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        return page

    return make


@pytest.fixture(scope="session")
def mlp(make_page):
    return make_page(ROOT / "examples/mlp.ir", "--fuse", "--lower-cuda", "--arch=sm_90a")


@pytest.fixture
def opened(browser):
    """Opens a page; fails if it wrote an error to the console or asked for anything but itself."""
    problems, contexts = [], []

    def open_page(path, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: None if request.url == path.as_uri() else problems.append(request.url))
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []
