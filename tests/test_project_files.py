"""The files around the code agree with it: citation, templates, hosted checks."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def _yaml(path):
    return yaml.safe_load((ROOT / path).read_text("utf-8"))


def test_the_citation_has_the_version_and_licence_of_the_package():
    cited = _yaml("CITATION.cff")
    assert (cited["version"], cited["license"]) == (PROJECT["version"], PROJECT["license"])
    assert {"cff-version", "message", "title", "authors"} <= set(cited)


def test_hosted_checks_run_ours_on_every_python_that_is_promised():
    job = _yaml(".github/workflows/ci.yml")["jobs"]["check"]
    pythons = job["strategy"]["matrix"]["python-version"]
    promised = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert pythons == promised == ["3.11", "3.12", "3.13"]
    assert PROJECT["requires-python"] == f">={promised[0]}"
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


@pytest.mark.parametrize("path", [p for p in TEMPLATES if p.name != "config.yml"], ids=lambda p: p.name)
def test_a_template_asks_for_something(path):
    form = _yaml(path)
    assert {"name", "description", "body"} <= set(form)
    fields = [part for part in form["body"] if part["type"] != "markdown"]
    assert any(part.get("validations", {}).get("required") for part in fields)
    assert len({part["id"] for part in fields}) == len(fields)


def test_who_finds_a_false_guarantee_is_sent_to_the_private_way():
    for name in ("bug", "claim"):
        assert "SECURITY.md" in (ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml").read_text("utf-8")
