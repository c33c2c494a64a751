"""The files around the code agree with it: dependencies, citation, templates, hosted checks."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from tests.house_rules import tree_of
from tools import matrix, release

import sordino

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def _yaml(path):
    return yaml.safe_load((ROOT / path).read_text("utf-8"))


MODULES = {  # where a package is imported by another name than it is installed by, or comes with another
    "PIL": "pillow",
    "dp_accounting": "dp-accounting",
    "jinja2": "Jinja2",
    "sklearn": "scikit-learn",
    "triton": "torch",  # builds for CUDA bring it; sordino.execute.draws does without on others
    "yaml": "PyYAML",
}


def _imported(*folders):
    """Return the packages from elsewhere that the Python files of these folders import."""
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    nodes = [node for path in files for node in ast.walk(tree_of(path.read_text("utf-8")))]
    named = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    named |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    tops = {name.partition(".")[0] for name in named}
    ours = {"sordino", "tests", "tools", "benchmarks", "docs", *(path.stem for path in files)}
    return {MODULES.get(top, top) for top in tops - ours - set(sys.stdlib_module_names)}


def _declared(*extras):
    """Return the packages that an install with these extras asks for."""
    lines = PROJECT["dependencies"] + [line for e in extras for line in PROJECT["optional-dependencies"][e]]
    return {re.match(r"[\w-]+", line).group() for line in lines} - {"sordino"}


def test_the_library_imports_what_it_declares_and_nothing_else():
    extras = set(PROJECT["optional-dependencies"]) - {"dev", "docs"}
    imported = _imported("src")
    assert imported <= _declared(*extras)
    assert _declared() <= imported


def test_tests_and_tools_import_nothing_that_a_full_install_lacks():
    # Benchmarks also name their rivals, which are installed by those who want to compare.
    assert _imported("tests", "tools", "docs") <= _declared(*PROJECT["optional-dependencies"])


def test_every_declared_package_is_pinned():
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()}
    same = {re.sub(r"[-_.]+", "-", name).lower() for name in pinned}
    assert {name.lower().replace("_", "-") for name in _declared(*PROJECT["optional-dependencies"])} <= same


def test_what_locks_files_is_not_promised_where_it_does_not_exist():
    systems = [c for c in PROJECT["classifiers"] if c.startswith("Operating System")]
    assert systems
    assert all("POSIX" in system for system in systems)


def test_the_citation_has_the_version_and_licence_of_the_package():
    cited = _yaml("CITATION.cff")
    assert (cited["version"], cited["license"]) == (sordino.__version__, PROJECT["license"])
    assert {"cff-version", "message", "title", "authors"} <= set(cited)


def test_hosted_checks_run_ours_on_every_python_that_is_promised():
    job = _yaml(".github/workflows/ci.yml")["jobs"]["check"]
    pythons = job["strategy"]["matrix"]["python-version"]
    promised = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert pythons == promised == ["3.11", "3.12", "3.13"]
    assert PROJECT["requires-python"] == f">={promised[0]}"
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_the_version_stands_in_one_place_of_the_package():
    assert PROJECT["dynamic"] == ["version"]
    assert "version" not in PROJECT
    assert release.version() == sordino.__version__


def test_no_extra_forces_one_version_on_others():
    every = [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
    assert not [line for line in PROJECT["dependencies"] + every if "==" in line]


def test_the_lowest_versions_are_tried_and_follow_extras_of_extras():
    lowest = matrix.lowest(["transformers"])
    assert "numpy==2.1" in lowest
    assert any(line.startswith("torch==") for line in lowest)
    named = {re.match(r"[\w-]+", line).group() for line in matrix.requirements(["transformers"])}
    assert named == {line.partition("==")[0] for line in lowest}
    assert all((ROOT / path).exists() for paths in matrix.SUITE.values() for path in paths)
    hosted = _yaml(".github/workflows/matrix.yml")["jobs"]["versions"]["strategy"]["matrix"]
    assert hosted["python-version"] == matrix.promised()


def test_a_tag_publishes_what_the_same_command_built_without_a_secret():
    jobs = _yaml(".github/workflows/release.yml")["jobs"]
    assert [s["run"] for s in jobs["build"]["steps"] if "run" in s] == [
        'python tools/release.py --tag "$GITHUB_REF_NAME"'
    ]
    assert jobs["publish"]["permissions"]["id-token"] == "write"
    assert jobs["publish"]["needs"] == "build"
    assert "secrets." not in (ROOT / ".github/workflows/release.yml").read_text("utf-8")
    used = [step["uses"].partition("@")[0] for step in jobs["publish"]["steps"] if "uses" in step]
    assert {"actions/attest-build-provenance", "actions/attest-sbom", "pypa/gh-action-pypi-publish"} <= set(
        used
    )


def test_the_pages_are_built_for_each_version_as_they_are_here():
    hosted, made = _yaml(".readthedocs.yaml"), (ROOT / "Makefile").read_text("utf-8")
    (install,) = hosted["build"]["jobs"]["install"]
    extras = re.search(r"^EXTRAS := (\S+)$", made, re.M)[1]
    assert install == f"pip install -c constraints.txt '.[{extras}]'"
    assert hosted["build"]["tools"]["python"] in matrix.promised()
    assert (ROOT / hosted["sphinx"]["configuration"]).exists()
    assert hosted["sphinx"]["fail_on_warning"]
    assert "sphinx-build -W" in made


def test_the_recipe_asks_for_what_the_package_asks_for():
    recipe = _yaml("distribution/conda.yaml")
    other = {"matplotlib": "matplotlib-base", "Jinja2": "jinja2", "tomli_w": "tomli-w"}
    wanted = [re.match(r"([\w-]+)(.*)", line).groups() for line in PROJECT["dependencies"]]
    asked = [f"{other.get(name, name)} {limits}" for name, limits in wanted]
    assert recipe["requirements"]["run"] == [f"python {PROJECT['requires-python']}", *asked]
    assert sordino.__version__.startswith(recipe["context"]["version"])


def test_the_bill_of_materials_names_us_and_what_we_bring():
    bill = release.bill([{"name": "numpy", "version": "2.4"}, {"name": "sordino", "version": "7"}])
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/sordino@7"
    assert [part["purl"] for part in bill["components"]] == ["pkg:pypi/numpy@2.4"]


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


def test_every_false_claim_is_listed_with_what_was_true_and_has_a_test():
    rows = re.findall(
        r"^\| (\d+) \| (.+?) \| (.+?) \| (.+?) \|$", (ROOT / "SECURITY.md").read_text("utf-8"), re.M
    )
    assert [int(row[0]) for row in rows] == list(range(1, 25))
    tests = (ROOT / "tests" / "hostile" / "test_false_claims.py").read_text("utf-8")
    assert {int(number) for number in re.findall(r"^def test_claim_(\d+)_", tests, re.M)} == set(range(1, 25))
