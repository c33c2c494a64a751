"""RESULTS.md is what the kept results say, and no table of numbers on the front pages lacks its command."""

import json
import re
import runpy
import subprocess
from pathlib import Path

import pytest

from sordino.literature.reproduce import table_named, verdicts
from sordino.literature.reproduce.tables import (
    MISSED,
    MODES,
    NOT_REPRODUCIBLE,
    NOT_RUN,
    REPRODUCED,
    Cell,
    Row,
    Table,
    count_kinds,
    count_words,
    rounded_settings,
    verdict,
)

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    *(sorted((ROOT / "docs").glob("*.md"))),
    *(page for room in ("solvers", "parties") for page in sorted((ROOT / "docs" / room).glob("*.md"))),
]
COMMAND = re.compile(r"`[^`]*(?:python |make |sordino )[^`]*`|made by |docs/figures/|benchmarks[./]")
MEASURED = re.compile(r"\|\s*\**(?:\d*\.\d{2,}|\d+\.\d+ ?%|\d+(?:\.\d+)? (?:ms|s|MB|GB)\b)")
PROSE = re.compile(
    r"(?<![\w./=-])(?:\d*\.?\d+ ?%|\d*\.\d{2,}|\d*\.\d+ times"
    r"|\d+(?:\.\d+)? (?:ms|seconds|minutes|s|kB|MB|GB)\b)"
)
# Numbers in prose that nobody measured: settings, versions, bounds that are proven, facts of a data set.
NOT_MEASURED = {
    "auto.md": {f"{share} %" for share in range(1, 100)},  # shares of a budget
    "decisions.md": {".99", "0.02 %"},
    "guide.md": {"0.99"},
    "heavy-tails.md": {"6 %", "693 MB", "46 %", "0.99"},
    "nonconvex.md": {"30 %"},
    "papers.md": {"4.4 times"},  # two formulas compared
    "flower.md": {"1.41"},
    "scale.md": {"4 MB", "15 seconds"},
    "transfer.md": {"1.179"},  # the block above computes it, and a test runs the block
    "two-stage.md": {"24 %", "27 %", "14 %"},  # two formulas compared
}


def test_the_page_is_what_the_kept_results_say():
    made = runpy.run_path(str(ROOT / "docs" / "figures" / "results.py"))["page"]()
    assert (ROOT / "RESULTS.md").read_text("utf-8") == made


def test_the_runs_on_the_page_on_scale_are_those_that_were_kept():
    made = runpy.run_path(str(ROOT / "docs" / "figures" / "scale_runs.py"))["page"]
    text = (ROOT / "docs" / "scale.md").read_text("utf-8")
    assert made(text) == text


def test_the_table_of_the_front_page_is_the_run_that_was_kept():
    made = runpy.run_path(str(ROOT / "docs" / "figures" / "front.py"))["page"]
    text = (ROOT / "README.md").read_text("utf-8")
    assert "| RCV1 sample" in text
    assert made(text) == text


@pytest.fixture(scope="module")
def maker():
    return runpy.run_path(str(ROOT / "docs" / "figures" / "kept.py"))


def test_tables_of_pages_are_made_from_the_files_that_are_kept(maker):
    for name in maker["BLOCKS"]:
        text = (ROOT / "docs" / name).read_text("utf-8")
        assert maker["page"](name, text) == text, name


def test_sentences_of_pages_have_the_numbers_of_the_files_that_are_kept(maker):
    assert maker["missing"]() == []


def test_the_table_of_peers_is_the_run_that_was_kept():
    made = runpy.run_path(str(ROOT / "docs" / "figures" / "peers.py"))["page"]
    text = (ROOT / "docs" / "comparison.md").read_text("utf-8")
    assert "| sordino |" in text
    assert made(text) == text


KEPT = sorted((ROOT / "benchmarks" / "results" / "reproduced").glob("*.json"))


SECTIONS = {NOT_RUN: "What is not run, and why", MISSED: "What is missed, and what would settle it"}


@pytest.fixture(params=KEPT, ids=[path.stem for path in KEPT])
def kept(request):
    """The file of a kept table."""
    if request.param.stem.endswith("networks") or request.param.stem == "liang-figure-3":
        pytest.importorskip("torch")
    return request.param


def test_every_miss_of_a_kept_table_is_explained_by_numbers_on_its_page(kept):
    page = kept.with_suffix(".md").read_text("utf-8")
    found = verdicts(kept.stem, kept.parent)
    assert count_words(found) in page
    text = (ROOT / "docs" / "evidence.md").read_text("utf-8")
    for kind, title in SECTIONS.items():  # the page of verdicts lists it with as many rows
        section = text.split(f"## {title}\n")[1].split("\n## ")[0]
        listed = dict(re.findall(r"`([a-z0-9-]+)` \((\d+)", section))
        assert int(listed.get(kept.stem, 0)) == count_kinds(found)[kind], title
    for row, said in found.items():
        assert f"| {said} |" in page, row  # the page is what the results say today
        if said.kind in (NOT_REPRODUCIBLE, MISSED):
            assert re.search(r"\d", said.words), row


def test_every_algorithm_that_is_certified_says_how_strong_the_evidence_is():
    text = (ROOT / "docs" / "papers.md").read_text("utf-8")
    table = text.split("<!-- made by docs/figures/verdicts.py -->")[1].split("<!-- end of the table -->")[0]
    section = text.split("## How strong the evidence is\n")[1].split("\n## ")[0]
    named = {line.split("|")[1].strip().split(",")[0] for line in table.strip().split("\n")[2:]}
    assert len(named) > 15
    assert not {name for name in named if name not in section}


def test_a_bar_that_is_missed_says_why():
    for path in sorted((ROOT / "benchmarks" / "results" / "bars").glob("*.json")):
        for bar in json.loads(path.read_text("utf-8"))["bars"]:
            assert bar["holds"] or not bar["why"].startswith("see the"), (path.name, bar["what"])


@pytest.fixture(scope="module")
def evidence():
    pytest.importorskip("torch")
    return runpy.run_path(str(ROOT / "docs" / "figures" / "evidence.py"))


@pytest.mark.parametrize("part", ["kept", "counts", "claims"])
def test_the_page_of_verdicts_is_what_the_kept_runs_say(evidence, part):
    text = (ROOT / "docs" / "evidence.md").read_text("utf-8")
    assert f"\n\n{evidence[part]()}\n\n" in text


def test_an_order_that_a_text_states_of_its_numbers_is_judged_by_the_rule_of_curves(evidence):
    claim = {"order": (("a",), ("b",)), "epsilons": (1.0,)}

    def judged(first, second, better="higher", likeness="same", of=(98.0, 97.0)):
        rows = [
            Row("set", method, epsilon, 1e-5, number, dict.fromkeys(MODES, "none"))
            for method, number in zip("ab", of)
            for epsilon in (1.0, 2.0)
        ]
        noise = {"paper": Cell((90.0,), {"add-remove": 9.0}), "default": "", "plain": ""}
        cells = {"a": {**noise, "sound": Cell(first)}, "b": {**noise, "sound": Cell(second)}}
        made = [(row, cells[row.method]) for row in rows]
        own = Table("t", "A table", "m", better, "Its set.", likeness, rows, trivial={"set": 50.0})
        printed, found, best = evidence["_claimed"](own, made, claim)
        assert len(printed) == len(found) == 1  # the other column is not claimed
        return printed["set/1"].kind, found["set/1"].kind, dict(best)

    assert judged((98.0, 98.0), (97.0, 97.0)) == (REPRODUCED, REPRODUCED, {"a": 1})  # errors of 2 and 3 %
    assert judged((97.0, 97.0), (98.0, 98.0))[1:] == (MISSED, {"b": 1})
    assert judged((97.0, 97.0), (98.0, 98.0), "lower", of=(98.0, 97.0))[0] == MISSED
    assert judged((40.0, 40.0), (45.0, 45.0), "lower", "stand-in", (98.0, 101.0))[0] == REPRODUCED


def test_a_run_with_a_plus_and_a_close_verdict_are_counted(evidence):
    row = Row("set", "ours", 1.0, 1e-5, 0.3, dict.fromkeys(MODES, "none"))
    cells = {"sound": Cell((0.3, 0.32)), "default": "none", "paper": "none", "plain": "none"}  # .31 ± .01
    made = [(row, cells)]
    own = Table("t", "A table", "m", "lower", "Its set.", "same", [row])

    def judged(commits):
        runs = ([{"value": 0.3, "commit": commit} for commit in commits],)
        return evidence["Judged"](own, made, row, verdict(own, row, made), runs)

    assert [evidence["_rests_on_a_plus"](judged(c)) for c in (("a", "b"), ("a", "b+"))] == [False, True]
    parts = evidence["_parts"](judged(("a", "b")))
    assert "of these, another verdict a standard error away" in parts  # no room beside .3: .30 reaches it
    assert "of these, one run of the method" not in parts
    assert "of these, one run of the method" in evidence["_parts"](judged(("a",)))


def test_every_kept_run_has_its_commit_its_seed_and_the_settings_of_today(kept):
    known = table_named(kept.stem).runs()
    for key, one in json.loads(kept.read_text("utf-8"))["runs"].items():
        assert rounded_settings(one["settings"]) == rounded_settings(known[key].settings), key
        assert one["outcomes"], key
        assert all(found["commit"] and found["seed"] >= 0 for found in one["outcomes"]), key


def test_every_commit_that_a_kept_result_names_is_one_of_this_history():
    """A commit that was rebased away after its runs can be checked out by nobody."""
    git = ["git", "-C", str(ROOT), "rev-list", "HEAD"]
    found = subprocess.run(git, capture_output=True, text=True, check=False)
    known = {line[:size] for line in found.stdout.split() for size in (7, 10)}
    if found.returncode or len(known) < 200:
        pytest.skip("no history, or a shallow one")
    named = re.compile(r'"commit": "(?:before )?([0-9a-f]{7,10})[0-9a-f]*\+?"')
    for path in sorted((ROOT / "benchmarks" / "results").rglob("*.json")):
        lost = set(named.findall(path.read_text("utf-8"))) - known
        assert not lost, path.name


@pytest.mark.parametrize("path", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_a_number_that_cites_a_kept_table_stands_in_it(path):
    """Numbers with one decimal before `reproduced/NAME.md`, back to a bar, a full stop or the last one."""
    for said, name in re.findall(
        r"([^|`]*)`reproduced/([a-z0-9-]+)\.md`", re.sub(r"`\w+`", "", path.read_text("utf-8"))
    ):
        page = (ROOT / "benchmarks" / "results" / "reproduced" / f"{name}.md").read_text("utf-8")
        known = [float(n) for n in re.findall(r"\d*\.\d+|\d+", page)]
        for number in re.findall(r"(?<![.\d])\d+\.\d(?!\d)", re.split(r"[a-z)]\. ", said)[-1]):
            near = [v for v in known if min(abs(v - float(number)), abs(100 * v - float(number))) <= 0.0501]
            assert near, (path.name, name, number)


def tables(text):
    """Yield the first line of each table of a page, with the section around it."""
    for section in re.split(r"^#", text, flags=re.M):
        lines = section.split("\n")
        rows = [i for i, line in enumerate(lines) if line.startswith("|")]
        if rows and any(MEASURED.search(lines[i]) for i in rows):
            yield lines[rows[0]], section


@pytest.mark.parametrize("path", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_a_table_of_measured_numbers_names_the_command_that_made_it(path):
    text = path.read_text("utf-8")
    whole = COMMAND.search(text.split("\n## ", 1)[0])  # a command at the top of a page speaks for all of it
    orphans = [head for head, section in tables(text) if not (whole or COMMAND.search(section))]
    assert not orphans


def prose(section):
    """Return the text of a section without tables, formulas and code, commands excepted."""
    lines = (line for line in section.split("\n") if not line.lstrip().startswith("|"))
    text = re.sub(r"\$[^$]*\$", "", "\n".join(lines))
    return re.sub(r"`[^`]*`", lambda found: found[0] if COMMAND.search(found[0]) else "", text)


@pytest.mark.parametrize("path", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_a_measured_number_in_a_sentence_has_a_command_in_its_section(path):
    text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.S)
    if COMMAND.search(text.split("\n## ", 1)[0]):
        return
    known = NOT_MEASURED.get(path.name, set())
    for section in re.split(r"^#", text, flags=re.M):
        numbers = set(PROSE.findall(prose(section))) - known
        assert not numbers or COMMAND.search(section), (section.split("\n")[0], sorted(numbers))


@pytest.mark.parametrize(
    "sentence", ["It takes 12 ms.", "The error is .213 here.", "It wins by 14 %.", "It is 1.2 times that."]
)
def test_a_sentence_with_a_number_is_found(sentence):
    assert PROSE.search(prose(sentence))
    assert not COMMAND.search(sentence)
    assert not PROSE.search(prose("At `epsilon=0.25` and $\\delta = 0.01$, version 3."))
