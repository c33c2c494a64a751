"""Mechanisms, samplings and noise live where they are proven, and each checker catches its offender."""

import importlib
from pathlib import Path

import pytest
from tests.house_rules import mechanism_parts, noise_sources, noise_uses

from sordino import kernel

PACKAGE = Path(kernel.__file__).resolve().parents[1]
MODULES = sorted(PACKAGE.rglob("*.py"))


def _findings(check, rooms):
    """Return what a checker finds outside some rooms."""
    paths = [path.relative_to(PACKAGE) for path in MODULES]
    elsewhere = [
        path for path in paths if ("reproduce" if "reproduce" in path.parts else path.parts[0]) not in rooms
    ]
    return [(str(path), *f) for path in elsewhere for f in check((PACKAGE / path).read_text("utf-8"))]


def test_mechanisms_and_samplings_live_in_the_kernel_and_in_papers_only():
    found = _findings(mechanism_parts, rooms={"kernel", "literature"})
    assert not found, f"mechanisms or samplings outside kernel/ and literature/: {found}"


def test_the_rule_knows_every_mechanism_and_sampling_of_the_kernel():
    def is_part(value):
        return isinstance(value, type) and (hasattr(value, "privatise") or hasattr(value, "amplify"))

    names = [name for name in kernel.__all__ if is_part(getattr(kernel, name))]
    assert len(names) >= 12
    for name in names:
        assert mechanism_parts(f"from sordino.kernel import {name}\nclass Own({name}): ...")


@pytest.mark.parametrize(
    "offender",
    [
        "class Free:\n    def privatise(self, value, sensitivity, noise):\n        return value",
        "class Lucky:\n    def amplify(self, event, times, relation, population):\n        return None",
        "class Free:\n    privatise = lambda self, value, sensitivity, noise: value",
        "class Free:\n    privatise: object = print",
        "def build(kind):\n    kind.privatise = print",
        "def build(kind):\n    setattr(kind, 'amplify', print)",
        "def build():\n    class Free:\n        async def privatise(self): ...",
        "from sordino.kernel.mechanism import Additive\nclass Own(Additive): ...",
        "from sordino.kernel import Gaussian as Normal\nclass Own(Normal): ...",
        "import sordino.kernel as k\nclass Own(k.Poisson): ...",
        "from sordino.kernel import Mechanism\nclass Own(Mechanism): ...",
        "from sordino.kernel import Gaussian\nOwn = type('Own', (Gaussian,), {})",
        "from sordino.literature.pca import WishartNotPrivate\nclass Own(WishartNotPrivate): ...",
    ],
)
def test_a_planted_mechanism_or_sampling_is_found(offender):
    assert mechanism_parts(offender)


@pytest.mark.parametrize(
    "innocent",
    [
        "from sordino.kernel import Gaussian\nnoise = Gaussian(2.0)",
        "def answer(release, value, noise):\n    return release.mechanism.privatise(value, 2.0, noise)",
        "from sordino.kernel import ClippedSum\nclass Own(ClippedSum): ...",
        "class Poisson:\n    pass\nclass Zero(Poisson): ...",
        "from sordino.kernel import Gaussian\nkind = type(Gaussian(2.0))",
    ],
)
def test_an_innocent_use_is_not_taken_for_a_mechanism(innocent):
    assert mechanism_parts(innocent) == []


# The two executors that are given a noise source, and what their rooms draw for models: masks and views.
SOURCES = ("NoiseSource", "fresh_noise", "noise", "noisy_total")
NOISY = ("execute/torch.py", "execute/draws.py", "execute/parties/")


def test_noise_is_added_by_the_kernel_the_papers_and_the_two_noisy_executors_only():
    found = _findings(noise_uses, rooms={"kernel", "literature"})
    found = [one for one in found if not one[0].startswith(NOISY)]
    assert not found, f"noise that the kernel does not add: {found}"


def test_no_executor_but_the_two_noisy_ones_has_access_to_a_noise_source():
    found = _findings(
        noise_sources, rooms={"reproduce", *(path.name for path in PACKAGE.iterdir())} - {"execute"}
    )
    paths = [path for path in MODULES if "def total(self, question" in path.read_text("utf-8")]
    assert len(paths) >= 6
    others = [path for path in paths if path.parts[len(PACKAGE.parts)] not in {"execute", "kernel"}]
    for path in others:  # a plan beside an executor may name mechanisms
        sources = [f for f in noise_sources(path.read_text("utf-8")) if f[1].endswith(SOURCES)]
        found += [(str(path.relative_to(PACKAGE)), *f) for f in sources]
    found = [one for one in found if not one[0].startswith(NOISY)]
    assert not found, f"an executor that could draw noise: {found}"


def test_an_executor_is_noisy_only_where_the_kernel_says_so():
    defining = [path for path in MODULES if "def noisy_total(" in path.read_text("utf-8")]
    found = {str(path.relative_to(PACKAGE)) for path in defining}
    assert found == {"kernel/curator.py", "execute/torch.py", "execute/parties/executor.py"}


@pytest.mark.parametrize(
    "offender",
    [
        "from sordino.kernel import NoiseSource",
        "from sordino.kernel.noise import fresh_noise",
        "from sordino import kernel\nsource = kernel.NoiseSource.from_os()",
        "from sordino.kernel import Gaussian as Normal",
        "class E:\n    def total(self, question, batch, noise): ...",
        "class E:\n    def total(self, question, batch):\n        return self.inner.noisy_total(question)",
    ],
)
def test_a_planted_way_to_a_noise_source_is_found(offender):
    assert noise_sources(offender)


def test_an_executor_may_say_which_batches_it_takes():
    assert noise_sources("from sordino.kernel import Full, Poisson, Question\nkinds = (Full, Poisson)") == []


@pytest.mark.parametrize(
    "offender",
    [
        "def local(w, noise):\n    return w + noise.normal(3)",
        "def local(self, w):\n    return w + self._noise.laplace(3)",
        "def local(w, noise):\n    return Gaussian(2.0).privatise(w, 1.0, noise)",
        "class E:\n    def total(self, m):\n        return m.privatise(1, 2, 3)",
    ],
)
def test_planted_noise_is_found(offender):
    assert noise_uses(offender)


def test_anybody_may_use_public_randomness():
    assert noise_uses("def design(public):\n    return public.normal(size=3)") == []


def test_all_parts_of_papers_are_marked_as_printed():
    for path in sorted((PACKAGE / "literature").glob("[!_]*.py")):
        module = importlib.import_module(f"sordino.literature.{path.stem}")
        for kind in vars(module).values():
            here = isinstance(kind, type) and kind.__module__ == module.__name__
            if here and (hasattr(kind, "privatise") or hasattr(kind, "amplify")):
                assert issubclass(kind, kernel.Printed), kind
                assert kind.printed, kind
