"""A connection is taken only from the holder of the certificate that the plan pins."""

import asyncio
import hashlib
from types import SimpleNamespace

import pytest

from sordino.parties.mpc.links import Link, Member, Mesh

NAMES = ("north", "south", "west")


class _Transport:
    def __init__(self, certificate):
        self.written, self.aborted, self.certificate = b"", False, certificate

    def get_extra_info(self, _):
        return SimpleNamespace(getpeercert=lambda binary_form: self.certificate)

    def write(self, data):
        self.written += data

    def abort(self):
        self.aborted = True


def _meeting(certificate, calling):
    """Return the mesh of party 0 or 1 after meeting the other one, who shows this certificate."""
    pinned = hashlib.sha256(b"the right one").hexdigest()
    members = tuple(Member(n, "h", 1, pinned if n == "south" else "a" * 64) for n in NAMES)
    loop = asyncio.new_event_loop()
    try:
        mesh, transport = Mesh(members, 0, loop), _Transport(certificate)
        link = Link(mesh, 1 if calling else None, True)
        link.connection_made(transport)
        if not calling:
            link.data_received((1).to_bytes(2, "little"))
    finally:
        loop.close()
    return mesh, transport


@pytest.mark.parametrize("calling", [True, False])
def test_a_peer_with_another_certificate_than_the_pinned_one_is_turned_away(calling):
    mesh, transport = _meeting(b"the right one", calling)
    assert list(mesh.links) == [1]
    assert not transport.aborted
    for wrong in (b"signed by the same authority", None):
        mesh, transport = _meeting(wrong, calling)
        assert transport.aborted
        assert not mesh.links
        assert not transport.written
        said = str(mesh.failure) if calling else mesh.notes[0]
        assert "its certificate is not the one that the plan pins" in said
