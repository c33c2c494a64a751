"""A headless Chromium, where there is one."""

from __future__ import annotations

import shutil
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]

# Every visible text against what is behind it, by the formula of WCAG 2; colours with an alpha are laid over.
CONTRAST = """() => {
  const parse = c => { const v = c.match(/[\\d.]+/g).map(Number); return [v[0], v[1], v[2], v[3] ?? 1]; };
  const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3]));
  const behind = e => {
    if (!e) return matchMedia('(prefers-color-scheme: dark)').matches ? [18, 18, 18] : [255, 255, 255];
    return over(parse(getComputedStyle(e).backgroundColor), behind(e.parentElement));
  };
  const light = c => {
    const f = c.map(x => x / 255).map(x => x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
    return .2126 * f[0] + .7152 * f[1] + .0722 * f[2]; };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement, text = walker.currentNode.textContent.trim();
    if (!text || !e.checkVisibility() || ['STYLE', 'SCRIPT'].includes(e.tagName)) continue;
    const back = behind(e), [a, b] = [light(over(parse(getComputedStyle(e).color), back)), light(back)];
    found.push([(Math.max(a, b) + .05) / (Math.min(a, b) + .05), text.slice(0, 40)]);
  }
  return found;
}"""
WIDE = """() => [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, pre')
  && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""


@contextmanager
def browser():
    """Open Chromium, or skip the test and say why."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        try:
            opened = driver.chromium.launch(executable_path=path, args=ARGUMENTS)
        except playwright.Error:
            pytest.skip("the Chromium on this machine does not start here")
        yield opened
        opened.close()


def judge(opened, page_path):
    """Open a page in all ways it will be read; return what is wrong with it, and how long it took to draw."""
    wrong, times = [], []
    for width in (360, 1200):
        for scheme in ("light", "dark"):
            context = opened.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
            page = context.new_page()
            _listen(page, wrong)
            page.goto(page_path.as_uri())
            where = f"{width} px, {scheme}"
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                wrong.append((where, page.evaluate(WIDE)))
            wrong += [(where, ratio, text) for ratio, text in page.evaluate(CONTRAST) if ratio < 4.5]
            times.append(page.evaluate("performance.getEntriesByType('navigation')[0].domComplete"))
            context.close()
    return wrong, max(times)


def _listen(page, wrong):
    """Note what a page says, fails at, or loads from elsewhere."""
    page.on("console", lambda message: wrong.append(("console", message.text)))
    page.on("pageerror", lambda error: wrong.append(("error", str(error))))
    page.on("request", lambda r: r.url.startswith(("file:", "data:")) or wrong.append(("loads", r.url)))


def printed(opened, page_path, folder):
    """Return the page as a PDF file on A4."""
    page = opened.new_page()
    page.goto(page_path.as_uri())
    out = folder / "page.pdf"
    page.pdf(path=out, format="A4")
    page.close()
    return out
