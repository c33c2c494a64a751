"""A fit walks through so many files and no more."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_fit_walks_through_no_more_files_than_it_did():
    command = [sys.executable, "tools/walks.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "CSR fit" in done.stdout
    assert "sordino fit" in done.stdout
