"""Permissions: everybody on the machine could read transcripts, which hold the salt of a commitment."""

import os
import stat

import pytest

from sordino.parties.mpc.transcript import Transcript


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_transcript_and_its_folder_are_its_owners_alone(tmp_path):
    """They were made with the usual permissions."""
    transcript = Transcript(tmp_path / "plan" / "transcript.jsonl")
    transcript.close()
    assert stat.S_IMODE(transcript.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(transcript.path.parent.stat().st_mode) == 0o700
