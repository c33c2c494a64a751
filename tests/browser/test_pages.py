"""Every page can be read on a phone, on a large screen, in the dark and on paper."""

import re

import pytest
from tests.browser.chromium import browser, judge, printed

import sordino
from sordino.kernel import public_generator
from sordino.report import write_ledger_report, write_report


@pytest.fixture(scope="module")
def chromium():
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Write one page of each kind; return them by name."""
    folder = tmp_path_factory.mktemp("pages")
    public = public_generator(0)
    X = public.normal(size=(1500, 30)) / 6
    y = (X[:, 0] > X[:, 1]).astype(int) + (X[:, 2] > 0.1)
    ledger = sordino.Ledger.open(folder / "ledger.db")
    ledger.create("a-name-of-a-data-set-that-is-rather-long-and-" * 3, sordino.BudgetPolicy(8.0, 1e-5))
    booked = {"ledger": ledger, "dataset_id": ledger.datasets()[0], "delta": 1e-6}
    model = sordino.LogisticRegression(1.0, data_norm=1.0, classes=[0, 1, 2], **booked).fit(X, y)
    score = sordino.private_score(model, X, y, epsilon=0.5, **booked)
    return {
        "fit": write_report(model, folder / "fit.html", scores={"accuracy": score}, author="Ada"),
        "weak": write_report(sordino.PCA(4, epsilon=50.0, data_norm=1.0).fit(X), folder / "weak.html"),
        "number": write_report(sordino.mean(X[:, 0]), folder / "number.html"),
        "ledger": write_ledger_report(ledger, folder / "ledger.html"),
        "report": _written(folder / "report.html", model.privacy_.to_html()),
    }


def _written(path, text):
    path.write_text(text, encoding="utf-8")
    return path


NAMES = ("fit", "weak", "number", "ledger", "report")


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_readable_everywhere_and_loads_nothing(name, chromium, pages):
    wrong, slowest = judge(chromium, pages[name])
    assert not wrong
    assert slowest < 1000


@pytest.mark.parametrize("name", NAMES)
def test_a_page_prints_on_a_few_sheets(name, chromium, pages, tmp_path):
    content = printed(chromium, pages[name], tmp_path).read_bytes()
    assert content.startswith(b"%PDF")
    sheets = len(re.findall(rb"/Type\s*/Page\b", content))
    assert 1 <= sheets <= 6


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_small_and_whole(name, pages):
    text = pages[name].read_text("utf-8")
    assert len(text.encode()) < 400_000
    assert not re.search(r"(src|href)=\"?https?:", text)
    assert "<script" not in text


def test_the_checks_of_a_page_find_what_is_wrong(chromium, tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<body style='background:#fff'><p style='color:#bbb'>pale</p><div style='width:2000px'>wide</div>"
        "<script>console.log('said')</script></body>"
    )
    wrong, _ = judge(chromium, bad)
    assert {"console"} <= {item[0] for item in wrong}
    assert any("pale" in str(item) for item in wrong)
    assert any("wide" in str(item) for item in wrong)
