"""Releases and assumptions of a report, in words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sordino.runs import PrivacyReport, ReleaseReport

# What is asked, by the name that solvers give a release.
_ASKED = {
    "anchor": "the direction in which the model gets better",
    "batch": "the direction in which the model gets better, from a batch",
    "bounded": "means of the values and of their squares, within declared bounds",
    "center": "where the middle of the values lies",
    "classes": "how frequent the classes are",
    "columns": "the size of each column",
    "coordinate": "the number of the column that would improve the model most",
    "correction": "how that direction changes between two points",
    "counts": "how many records each group has",
    "derivative": "how much one column would improve the model",
    "features": "a histogram of how large the columns are",
    "first": "the direction in which the model gets better, at the start",
    "fit": "the model's coefficients",
    "gradient": "the direction in which the model gets better",
    "gradients": "a histogram of how large the steps of single records are",
    "gram": "how the columns vary together",
    "kinds": "which kinds of values the columns hold",
    "length": "slope and offset of the model's own margins",
    "levels": "which levels the columns hold, those that many records have",
    "mean": "the mean",
    "means": "the means of the columns, within declared bounds",
    "minimiser": "the best coefficients",
    "moments": "means and sizes of the columns",
    "norms": "a histogram of how long the rows are",
    "numbers": "counts of records in trees of intervals, one per column",
    "offset": "the mean of what the model leaves of the targets",
    "powers": "means of powers of the values",
    "product": "the product of the covariance and some axes",
    "recursion": "how the direction changes from step to step",
    "scales": "a histogram of how large the values are",
    "scores": "how well the model does on these records",
    "search": "how long the next step should be",
    "second": "how the columns vary together",
    "select": "which columns matter",
    "sizes": "a histogram of how large the values are",
    "snapshot": "the direction in which the model gets better, at a fixed point",
    "spectrum": "how much the records vary along the axes",
    "squares": "the size of each column",
    "start": "the direction in which the model gets better, at the start",
    "step": "the next step of the model",
    "sums": "sums of values by group",
    "support": "which columns matter",
    "tails": "a histogram of how large the steps of single records are",
    "targets": "a histogram of how large the targets are",
    "teacher": "the coefficients of a first model",
    "tree": "counts of records in a tree of intervals",
    "trees": "counts of records in trees of intervals, one per group",
    "triangle": "how the columns vary together",
    "update": "how the members would change the model",
    "values": "the direction in which the model gets better, for the chosen columns",
    "vertex": "the number of the column that would improve the model most",
    "whole": "the direction in which the model gets better, from whole records",
}
_NOISE = {
    "Gaussian": "Gaussian noise",
    "SymmetricGaussian": "Gaussian noise on a symmetric matrix",
    "Laplace": "Laplace noise",
    "NormGamma": "noise of random direction and length",
    "TiltedObjective": "a random tilt of what is minimised",
}


@dataclass(frozen=True)
class Said:
    """A line of the page: a name, a sentence, and who answers for it."""

    name: str
    sentence: str
    source: str = ""


def releases(report: PrivacyReport) -> list[Said]:
    """Return every release as a sentence."""
    return [Said(release.name, _release(release, report.unit)) for release in report.releases]


def _release(release: ReleaseReport, unit: str) -> str:
    asked = _ASKED.get(release.name, f"the answer to {release.name!r}")
    often = "Once" if release.times == 1 else f"{release.times} times"
    kind = release.mechanism.split(" ")[0]
    words = _NOISE.get(kind)
    if words is None:
        noise = f"chosen at random among the best ({release.mechanism})"
    else:
        times = f"{release.noise_multiplier:.3g} times what one {unit} can change"
        noise = f"with {words}, {times}" if release.noise_multiplier > 0 else "without any noise"
    exact = ", exactly rounded" if "lattice" in release.mechanism else ""
    return f"{often}: {asked}, from {_records(release.sampling)}, {noise}{exact}."


def _records(sampling: str) -> str:
    number = re.search(r"(\d[\d.e+-]*)", sampling)
    if sampling.startswith("Full"):
        return "all records"
    if sampling.startswith("Poisson") and number:
        return f"a secret random part of the records (each with a chance of {100 * float(number[1]):.3g} %)"
    if sampling.startswith("FixedSize") and number:
        return f"{number[1]} records drawn at random and kept secret"
    return "one part of the records each time" if sampling.startswith("Disjoint") else sampling


def assumptions(report: PrivacyReport, author: str) -> list[Said]:
    """Return what was assumed to be public, and who said so."""
    return [Said("", line, _declared_by(line, author)) for line in report.public]


def _declared_by(line: str, author: str) -> str:
    if ", the default" in line:
        return "nobody: the library's default"
    if "seen in" in line:
        return "nobody: read off the data"
    marks = ("the schema was learned", "(learned: ", "learned from records", "by a schema that was learned")
    if any(mark in line for mark in marks) or (line.startswith("levels of ") and line.endswith(" learned")):
        return "learned from records, for its own price"
    if line.startswith(("number of", "feature names")):
        return "the shape of the table"
    return f"declared by {author}"
