"""Sums between three or more parties on Shamir shares, secure against a minority that lies as it likes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ssl
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sordino.errors import InvalidInputError, PartyError
from sordino.execute.parties.engine import Draw, joint_noise, valid_total
from sordino.execute.parties.field import Field, Residues
from sordino.kernel import NoiseSource
from sordino.kernel.arrays import Ints
from sordino.parties.mpc.links import Credentials, Limits, Member, Mesh, connect

PIECE = 1 << 22  # bytes of a long message that travel at once
SHORT = 1 << 16  # bytes that another member's message may be longer than ours
# Coordinates of a release that are computed at once, in all members' shares together: a release of any length
# is a row of messages of a few megabytes, each after a second or so of work.
INSIDE, PLAIN = 4096, 1 << 17


class ShamirEngine:
    """One party's end of the computation.

    ``credentials`` are None only for tests on one machine, ``listen`` is an address that is not the public
    one. ``points`` are where polynomials are evaluated for each member: its place in the plan, from 1 on,
    whoever has left.

    **Privacy.** At most ``threshold`` members collude; these may deviate as they like and are found out
    before anything is opened (:mod:`sordino.execute.parties.engine`). Only noised sums are opened.
    """

    def __init__(
        self,
        members: tuple[Member, ...],
        index: int,
        threshold: int,
        credentials: Credentials | None,
        limits: Limits | None = None,
        listen: str | None = None,
        points: tuple[int, ...] = (),
    ) -> None:
        check_threshold(len(members), threshold)
        self.points = points or tuple(range(1, len(members) + 1))
        self.members, self.index, self.threshold = tuple(members), index, threshold
        self.limits = limits or Limits()
        self._loop = asyncio.new_event_loop()
        self._mesh = Mesh(self.members, index, self._loop)
        self._loop.set_exception_handler(lambda _, context: _note(self._mesh, context))
        self._credentials, self._listen = credentials, listen
        self.field = Field()  # its machine code is loaded before anybody waits
        self._noise: Residues = np.zeros(0, Field.dtype)  # shares of coarse noise that no release has used
        self.turn = 0  # the label of the last message: everybody counts alike
        # The loop has a thread of its own: it beats while this member computes on its records.
        self._thread = threading.Thread(target=self._loop.run_forever, name="sordino links", daemon=True)
        self._thread.start()

    @property
    def bytes_sent(self) -> int:
        return sum(link.nbytes_sent for link in self._mesh.links.values())

    def connect(self) -> None:
        self._run(connect(self._mesh, self._credentials, self._listen), "Connecting")
        asyncio.run_coroutine_threadsafe(self._mesh.beat(), self._loop)

    def exchange(self, payload: bytes, what: str) -> list[bytes]:
        """Send bytes to everybody and return everybody's, by index; long ones travel in pieces."""
        return self._run(self._exchange_pieces(payload), what)

    def sum(self, values: Ints, draw: Draw) -> NDArray[Any]:
        return self.open(self.secret_sum(values, draw)).reshape(values.shape)

    def prepare(self, draw: Draw) -> None:
        """Draw coarse noise for so many coordinates as there are columns of signs; it needs no record."""
        arithmetic, size, found = Shamir(self), max(1, INSIDE // len(self.members)), [self._noise]
        for number, start in enumerate(range(0, draw.signs.shape[1], size), start=1):
            part = draw.part(number, slice(start, start + size))
            found.append(self._run(joint_noise(arithmetic, part), "Noise"))
        self._noise = np.concatenate(found)

    def secret_sum(self, values: Ints, draw: Draw) -> Residues:
        """Return this member's shares of the noised sum; nothing that depends on a record is opened."""
        numbers, flat = self.field, values.reshape(-1)
        arithmetic, size, totals = Shamir(self), max(1, PLAIN // len(self.members)), []
        for number, start in enumerate(range(0, max(1, flat.size), size)):
            part = replace(draw, signs=None).part(2**61 + number)
            totals.append(self._run(valid_total(arithmetic, flat[start : start + size], part), "Release"))
        total = np.concatenate(totals)
        if not draw.step:
            return total
        if len(self._noise) < flat.size:
            self.prepare(draw)
        coarse, self._noise = self._noise[: flat.size], self._noise[flat.size :]
        return numbers.add(total, numbers.multiply(coarse, numbers.array(draw.step)))

    def open(self, shares: Residues) -> NDArray[Any]:
        """Open shares of a noised sum, some after the others; the same shares open the same numbers again."""
        arithmetic, size = Shamir(self), PLAIN // len(self.members)
        parts = [shares[start : start + size] for start in range(0, max(1, shares.size), size)]
        opened = [self._run(arithmetic.reveal(part), "Opening") for part in parts]
        return self.field.signed(np.concatenate(opened))

    def close(self, farewell: bool = False) -> None:
        async def part() -> None:
            self._mesh.close(farewell)
            await asyncio.sleep(0.05)

        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(part(), self._loop).result(5.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        if not self._thread.is_alive():
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _run(self, work: Any, what: str) -> Any:
        guarded = self._mesh.guard(work, self.limits, what)
        try:
            return asyncio.run_coroutine_threadsafe(guarded, self._loop).result()
        except PartyError:
            raise
        except Exception as error:
            why = " Is the port of the run free here?" if isinstance(error, OSError) else ""
            raise self._mesh.failure or PartyError(f"{what} failed: {type(error).__name__}.{why}") from None

    async def _exchange_pieces(self, payload: bytes) -> list[bytes]:
        pieces = [payload[i : i + PIECE] for i in range(0, max(1, len(payload)), PIECE)]
        found, going, turn = [b""] * len(self.members), True, 0
        while going:
            mine = pieces[turn] if turn < len(pieces) else b""
            heard = await self.tell_all(bytes([turn + 1 < len(pieces)]) + mine)
            for peer, piece in enumerate(heard):
                found[peer] += piece[1:]
                if len(found[peer]) > len(payload) + SHORT or turn > len(pieces):
                    name = self.members[peer].name
                    raise PartyError(f"{name} sent a message that is longer than it can be.", name)
            going, turn = any(piece[:1] == b"\x01" for piece in heard), turn + 1
        return found

    async def tell_all(self, payload: bytes) -> list[bytes]:
        everybody = range(len(self.members))
        heard = await self.swap(dict.fromkeys(everybody, payload), everybody)
        return [heard[peer] for peer in everybody]

    async def swap(self, outgoing: dict[int, bytes], senders: Any) -> dict[int, bytes]:
        """Send each member its message, and return those of the senders; one's own comes back at once."""
        self.turn += 1
        for peer, link in self._mesh.links.items():
            if peer in outgoing:
                link.send(self.turn, outgoing[peer])
        others = [peer for peer in senders if peer != self.index]
        waiting = {peer: self._mesh.links[peer].receive(self.turn) for peer in others}
        found = {peer: await w if isinstance(w, asyncio.Future) else w for peer, w in waiting.items()}
        return found | ({self.index: outgoing[self.index]} if self.index in senders else {})

    def fail(self, message: str, peer: int) -> PartyError:
        """End the run because of what a member sent, and say so to whoever waits."""
        self._mesh.fail(f"{self._mesh.who(peer)} {message}.", peer)
        return self._mesh.failure or PartyError(message)


class Shamir:
    """Sharing, degree reduction (Gennaro, Rabin, Rabin 1998), coins and openings over an engine's links."""

    def __init__(self, engine: ShamirEngine) -> None:
        self._engine, self.field = engine, engine.field
        self._noise = NoiseSource.from_os()
        self._promised: list[bytes] = []  # seals of coins that everybody has yet to show, by index

    async def share(self, mine: Any, coins: Sequence[bytes] = ()) -> list[Residues]:
        everybody, seals = range(len(self._engine.members)), [_seal(c, self._engine.index) for c in coins]
        dealt = await self._deal(self.field.array(mine), everybody, b"".join(seals))
        return [dealt[peer] for peer in everybody]

    async def reduce(self, product: Residues) -> Residues:
        # 2t + 1 members determine a product; who deals goes round, so that the work is spread.
        count = len(self._engine.members)
        dealers = [(self._engine.turn + k) % count for k in range(2 * self._engine.threshold + 1)]
        dealt = await self._deal(product, dealers)
        return self.field.combine({self._engine.points[peer]: dealt[peer] for peer in sorted(dealt)})

    async def _deal(self, secrets: Residues, dealers: Any, seals: bytes = b"") -> dict[int, Residues]:
        """Split this member's secrets among all, and return one's own shares of every dealer's, by index."""
        engine, outgoing, begin = self._engine, {}, len(seals)
        if engine.index in dealers:
            shares = self.split(secrets.reshape(-1))
            outgoing = {peer: seals + self.dumps(part) for peer, part in enumerate(shares)}
        heard = await engine.swap(outgoing, dealers)
        if seals:
            self._promised = [heard[peer][:begin] for peer in sorted(heard)]
        found = {peer: self._read(raw[begin:], peer, secrets.size) for peer, raw in heard.items()}
        return {peer: shares.reshape(secrets.shape) for peer, shares in found.items()}

    def split(self, secrets: Residues) -> list[Residues]:
        engine = self._engine
        return self.field.split(secrets, engine.threshold, engine.points, self._noise)

    def dumps(self, shares: Residues) -> bytes:
        return self.field.dumps(shares)

    def _read(self, raw: bytes, sender: int, count: int) -> Residues:
        """Read shares: exactly so many (one alone would be spread over all), all of them residues."""
        try:
            return self.field.loads(raw, count)
        except ValueError as error:
            raise self._engine.fail(f"sent shares {error}", sender) from None

    async def coin(self, mine: bytes) -> bytes:
        engine, promised = self._engine, self._promised
        # A coin is shown only by who holds all shares and all promises: nobody can share after the toss. With
        # it goes what everybody promised: where all have heard the same, they are shown the same.
        seen, shown = hashlib.sha256(b"".join(promised)).digest(), []
        for peer, word in enumerate(await engine.tell_all(seen + mine)):
            name = engine.members[peer].name
            if _seal(word[len(seen) :], peer) != promised[peer][: len(seen)]:
                raise PartyError(f"Coin check: {name} showed another coin than it had promised.", name)
            if word[: len(seen)] != seen:
                raise PartyError(f"Coin check: {name} was promised another coin.")
            shown.append(word[len(seen) :])
        self._promised = [words[len(seen) :] for words in promised]
        return hashlib.sha256(b"".join(shown)).digest()

    def blame(self, what: str, party: int) -> PartyError:
        return self._engine.fail(what, party)

    async def reveal(self, secret: Residues) -> Residues:
        engine = self._engine
        received = await engine.tell_all(self.dumps(secret.reshape(-1)))
        shares = {engine.points[p]: self._read(raw, p, secret.size) for p, raw in enumerate(received)}
        quorum = dict(list(shares.items())[: engine.threshold + 1])
        for point in list(shares)[engine.threshold + 1 :]:  # all lie on one polynomial of that degree
            if not np.array_equal(self.field.combine(quorum, point), shares[point]):
                raise PartyError("The opened shares do not fit together: a party sent a wrong share.")
        return self.field.combine(quorum).reshape(secret.shape)


def _seal(coin: bytes, index: int) -> bytes:
    return hashlib.sha256(b"sordino coin %d " % index + coin).digest()


def check_threshold(members: int, threshold: int) -> None:
    """Refuse a number of colluders that Shamir sharing with products cannot bear."""
    if members < 3:
        raise InvalidInputError(
            f"Expected at least 3 parties, got {members}: two parties have no honest majority."
        )
    if not threshold >= 1 or 2 * threshold >= members:
        raise InvalidInputError(
            f"Expected a threshold in [1, {(members - 1) // 2}] for {members} parties, got {threshold}."
        )


def _note(mesh: Mesh, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, ssl.SSLError) and not mesh.ready.done():
        mesh.note(f"A caller failed the TLS handshake ({error.reason}).")
    elif isinstance(error, PartyError):
        mesh.fail(str(error))
    elif error is not None and not isinstance(error, (asyncio.CancelledError, ConnectionError)):
        mesh.fail(f"The computation failed: {type(error).__name__}. A message of a peer was not understood.")
