"""Build the wheel and the source archive, check them, and use the wheel in an empty environment.

    python tools/release.py

Everything goes to dist/: the two archives, and ``sbom.json`` (CycloneDX), the packages of a plain install.
Nothing is published: .github/workflows/release.yml does that, with this command, when a version is tagged.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from email import message_from_bytes
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
SMOKE = """
import sys
from importlib import metadata

import numpy as np
import sordino

assert "site-packages" in sordino.__file__, sordino.__file__
assert metadata.version("sordino") == sordino.__version__
X = np.random.default_rng(0).normal(size=(300, 4))
model = sordino.LogisticRegression(epsilon=1.0, data_norm=3.0).fit(X, X[:, 0] > 0)
again = sordino.load(model.save("model.sordino"))
assert (again.predict(X) == model.predict(X)).all() and model.privacy_.epsilon <= 1.0
assert sordino.PrivacyReport.from_json(model.privacy_.to_json()).status == "unverified copy"
assert "torch" not in sys.modules
"""


def version() -> str:
    """Return the version, from the one place that has it."""
    text = (ROOT / "src" / "sordino" / "__init__.py").read_text("utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, re.M)
    assert found is not None
    return found[1]


def environment(place: Path, *packages: str) -> Path:
    """Make an environment with these packages, and return its programs."""
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    subprocess.run([place / "bin" / "python", "-m", "pip", "install", "-q", *packages], check=True)
    return place / "bin"


def built(tools: Path) -> tuple[Path, Path]:
    """Build both archives, check what they say of themselves, and return wheel and source."""
    shutil.rmtree(DIST, ignore_errors=True)
    subprocess.run([tools / "python", "-m", "build", "--outdir", DIST, ROOT], check=True)
    wheel, source = (next(DIST.glob(pattern)) for pattern in ("*.whl", "*.tar.gz"))
    subprocess.run([tools / "twine", "check", "--strict", wheel, source], check=True)
    check_archives(wheel, source)
    return wheel, source


def check_archives(wheel: Path, source: Path) -> None:
    """Refuse archives that lack a file, carry one too many, or name another version."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        facts = message_from_bytes(archive.read(next(n for n in names if n.endswith("/METADATA"))))
    kept = {path for path in (ROOT / "src" / "sordino").rglob("*") if path.is_file()}
    ours = {str(p.relative_to(ROOT / "src")) for p in kept if "__pycache__" not in p.parts}
    inside = {name for name in names if ".dist-info/" not in name}
    assert inside == ours, f"wheel and source differ: {sorted(inside ^ ours)[:5]}"
    assert facts["Version"] == version()
    with tarfile.open(source) as archive:
        top = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert {"src", "tests", "pyproject.toml", "LICENSE", "CITATION.cff"} <= top, sorted(top)
    for text in facts.get_payload(), json.dumps(facts.items()):
        assert not re.search(r"/(root|home|work|tmp)/", str(text)), "the metadata hold a path"


def used(wheel: Path) -> list[dict[str, str]]:
    """Install the wheel where nothing else is, run it, and return what came along."""
    around = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SORDINO"))}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        programs = environment(place / "env", str(wheel))
        for words in (
            [programs / "sordino", "version"],
            [programs / "python", "-m", "sordino", "--help"],
            [programs / "python", "-c", SMOKE],
            [programs / "sordino", "demo", "--report", "demo.html"],
        ):
            subprocess.run(words, check=True, cwd=place, env=around)
        assert (place / "demo.html").stat().st_size > 10_000
        words = [programs / "python", "-m", "pip", "list", "--format=json"]
        listed = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
    return [one for one in listed if one["name"] not in ("pip", "setuptools")]


def bill(packages: list[dict[str, str]]) -> dict[str, Any]:
    """Return the bill of materials of a plain install (CycloneDX)."""
    parts = [
        {
            "type": "library",
            "name": one["name"],
            "version": one["version"],
            "purl": f"pkg:pypi/{one['name'].lower().replace('_', '-')}@{one['version']}",
        }
        for one in packages
    ]
    own = next(part for part in parts if part["name"] == "sordino")
    others = [part for part in parts if part is not own]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": own},
        "components": others,
    }


def main() -> None:
    """Do it all, or stop at the first thing that is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tag", help="Refuse unless the version is this tag's, such as v0.2.0.")
    tag = parser.parse_args().tag
    if tag is not None and tag != f"v{version()}":
        sys.exit(f"The tag {tag} is not the version {version()} of src/sordino/__init__.py.")
    with tempfile.TemporaryDirectory() as folder:
        wheel, source = built(environment(Path(folder) / "tools", "build", "twine"))
    (DIST / "sbom.json").write_text(json.dumps(bill(used(wheel)), indent=2) + "\n")
    print(f"Ready: {wheel.name}, {source.name} and sbom.json in dist/.")


if __name__ == "__main__":
    main()
