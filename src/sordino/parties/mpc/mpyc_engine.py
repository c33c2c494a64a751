"""MPyC as the engine: Shamir sharing among three or more parties, secure against a curious minority.

MPyC keeps one runtime per process in module globals and unpickles what peers send. Here a runtime is
made for given members over our own links, and shares travel as fixed-width integers that are checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import ssl
import sys
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sordino.errors import InvalidInputError, PartyError, require_extra
from sordino.execute.parties.engine import Draw, centred, noised_sum, plain_sum
from sordino.kernel.arrays import Ints
from sordino.parties.mpc.links import Credentials, Limits, Member, Mesh, Tagged, connect

PIECE = 1 << 22  # bytes of a long message that travel at once
SHORT = 1 << 16  # bytes that another member's message may be longer than ours
# Coordinates of a release that are computed at once, in all members' shares together: a release of any length
# is a row of messages of a few megabytes, each after a second or so of work.
INSIDE, PLAIN = 4096, 1 << 17


class MpycEngine:
    """One party's end of the computation.

    Parameters
    ----------
    members : all parties, in the order of their indices.
    index : which of them this is.
    threshold : how many may put their shares together without learning anything; a minority.
    credentials : for mutual TLS; None only for tests on one machine.
    limits : time-outs.
    listen : the address to listen on, where it is not the public one.

    **Privacy.** At most ``threshold`` members collude; these may deviate as they like and are found out
    before anything is opened (:mod:`sordino.execute.parties.law`). Only noised sums are opened.
    """

    def __init__(
        self,
        members: tuple[Member, ...],
        index: int,
        threshold: int,
        credentials: Credentials | None,
        limits: Limits | None = None,
        listen: str | None = None,
    ) -> None:
        check_threshold(len(members), threshold)
        self.members, self.index, self.threshold = tuple(members), index, threshold
        self.limits = limits or Limits()
        self._loop = asyncio.new_event_loop()
        self._mesh = Mesh(self.members, index, self._loop)
        self._runtime, self._wire = _runtime(self._mesh, threshold)
        self._credentials, self._listen = credentials, listen
        # The loop has a thread of its own: it beats while this member computes on its records.
        self._thread = threading.Thread(target=self._turn, name="sordino links", daemon=True)
        self._thread.start()

    @property
    def bytes_sent(self) -> int:
        """Bytes of messages sent so far, without the frames of TLS."""
        return sum(link.nbytes_sent for link in self._mesh.links.values())

    def connect(self) -> None:
        self._run(connect(self._mesh, self._credentials, self._listen), "Connecting")
        asyncio.run_coroutine_threadsafe(self._mesh.beat(), self._loop)
        for peer, link in self._mesh.links.items():
            self._runtime.parties[peer].protocol = link

    def exchange(self, payload: bytes, what: str) -> list[bytes]:
        """Send bytes to everybody and return everybody's, by index; long ones travel in pieces."""
        return self._run(self._exchange_pieces(payload), what)

    def sum(self, values: Ints, draw: Draw) -> NDArray[Any]:
        """Open the noised sum of everybody's values, some coordinates after the others."""
        self._wire.bits = draw.field_bits
        flat = values.reshape(-1).astype(object)
        arithmetic = _Shamir(self, draw.field_bits)
        size = max(1, (INSIDE if draw.step else PLAIN) // len(self.members))
        opened = []
        for number, start in enumerate(range(0, max(1, flat.size), size)):
            columns = slice(start, start + size)
            part = draw.part(number, columns)
            mine = flat[columns]
            work = noised_sum(arithmetic, mine, part) if draw.step else plain_sum(arithmetic, mine)
            opened.append(self._run(work, "Release"))
        return centred(np.concatenate(opened), arithmetic.modulus).reshape(values.shape)

    def close(self) -> None:
        async def part() -> None:
            self._mesh.close()
            await asyncio.sleep(0.05)

        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(part(), self._loop).result(5.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        if not self._thread.is_alive():
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _turn(self) -> None:
        """Keep the loop running: MPyC stops it when one of its tasks fails."""
        asyncio.set_event_loop(self._loop)
        while not self._mesh.closing:
            self._loop.run_forever()
            self._mesh.fail("The computation failed: a message of a peer was not understood.")

    def _run(self, work: Any, what: str) -> Any:
        guarded = self._mesh.guard(work, self.limits, what)
        try:
            return asyncio.run_coroutine_threadsafe(guarded, self._loop).result()
        except PartyError:
            raise
        except Exception as error:
            raise self._mesh.failure or PartyError(f"{what} failed: {type(error).__name__}.") from None

    async def _exchange_pieces(self, payload: bytes) -> list[bytes]:
        pieces = [payload[i : i + PIECE] for i in range(0, max(1, len(payload)), PIECE)]
        found, going, turn = [b""] * len(self.members), True, 0
        while going:
            mine = pieces[turn] if turn < len(pieces) else b""
            heard = await self._exchange(bytes([turn + 1 < len(pieces)]) + mine)
            for peer, piece in enumerate(heard):
                found[peer] += piece[1:]
                if len(found[peer]) > len(payload) + SHORT or turn > len(pieces):
                    name = self.members[peer].name
                    raise PartyError(f"{name} sent a message that is longer than it can be.", name)
            going, turn = any(piece[:1] == b"\x01" for piece in heard), turn + 1
        return found

    async def _exchange(self, payload: bytes) -> list[bytes]:
        runtime = self._runtime
        runtime._program_counter[0] += 1
        for peer in self._mesh.links:
            runtime._send_message(peer, payload)
        waiting = {peer: runtime._receive_message(peer) for peer in self._mesh.links}
        received = {peer: await w if isinstance(w, asyncio.Future) else w for peer, w in waiting.items()}
        return [bytes(received.get(peer, payload)) for peer in range(len(self.members))]


class _Shamir:
    """The arithmetic of the circuit on MPyC's runtime."""

    def __init__(self, engine: MpycEngine, bits: int) -> None:
        from mpyc.finfields import GF

        self._engine, self._runtime = engine, engine._runtime
        self._field = GF(2**bits - 1)
        self.modulus = 2**bits - 1

    async def share(self, mine: Any) -> list[Any]:
        plain = np.asarray(mine, dtype=object)
        self._engine._wire.count = plain.size
        return [array.value for (array,) in await self._runtime.input(self._field.array(plain))]

    async def reduce(self, product: Any) -> Any:
        self._engine._wire.count = product.size
        return (await self._runtime._reshare(self._field.array(product, check=False))).value

    async def coin(self, mine: bytes) -> bytes:
        engine = self._engine
        # A coin is shown only by who holds all shares and all commitments: nobody can share after the toss.
        promised = await engine._exchange(_sealed(mine, engine.index))
        shown = await engine._exchange(mine)
        for peer, (promise, coin) in enumerate(zip(promised, shown)):
            if promise != _sealed(coin, peer):
                name = engine.members[peer].name
                raise PartyError(f"Coin check: {name} showed another coin than it had promised.", name)
        joint = hashlib.sha256(b"".join(promised + shown)).digest()
        for peer, echo in enumerate(await engine._exchange(joint)):
            if echo != joint:
                raise PartyError(f"Coin check: {engine.members[peer].name} was shown another coin.")
        return joint

    async def reveal(self, secret: Any) -> Any:
        from mpyc.thresha import np_recombine

        wire, engine = self._engine._wire, self._engine
        wire.count = secret.size
        received = await engine._exchange(wire.dumps(secret.reshape(-1)))
        shares = [wire.loads(Tagged.by(peer, raw)) for peer, raw in enumerate(received)]
        points = list(enumerate(shares, start=1))
        quorum = engine.threshold + 1
        opened = np_recombine(self._field, points[:quorum])
        for extra in points[quorum:]:  # all shares must lie on one polynomial of that degree
            predicted = np_recombine(self._field, points[:quorum], [extra[0]])[0]
            if not np.array_equal(predicted.value, extra[1]):
                raise PartyError("The opened shares do not fit together: a party sent a wrong share.")
        return opened.value.reshape(secret.shape)


class _Wire:
    """Shares on the wire: fixed-width integers below the modulus. It stands in for pickle in MPyC.

    ``count`` is how many are expected: a shorter vector would be spread over a longer one.
    """

    def __init__(self, mesh: Mesh) -> None:
        self.mesh, self.bits, self.count = mesh, 61, 0

    @property
    def _width(self) -> int:
        return (self.bits + 7) // 8

    def dumps(self, values: Any) -> bytes:
        if self._width == 8:
            return values.astype(np.uint64).tobytes()
        return b"".join(int(v).to_bytes(self._width, "little") for v in values)

    def loads(self, payload: bytes) -> Any:
        width, modulus = self._width, 2**self.bits - 1
        if len(payload) != width * self.count:
            raise self._wrong(payload, "of a broken length")
        if width == 8:
            words = np.frombuffer(payload, dtype=np.uint64)
            if words.size and int(words.max()) >= modulus:
                raise self._wrong(payload, "out of range")
            return words.astype(object)
        values = [int.from_bytes(payload[i : i + width], "little") for i in range(0, len(payload), width)]
        if any(v >= modulus for v in values):
            raise self._wrong(payload, "out of range")
        return np.array(values, dtype=object)

    def _wrong(self, payload: bytes, what: str) -> PartyError:
        sender = getattr(payload, "sender", None)
        self.mesh.fail(f"{self.mesh.who(sender)} sent shares {what}.", sender)
        return self.mesh.failure or PartyError(f"Shares {what}.")


def _sealed(coin: bytes, index: int) -> bytes:
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


def _runtime(mesh: Mesh, threshold: int) -> tuple[Any, _Wire]:
    """Return an MPyC runtime for these members; it becomes the runtime of this process."""
    kept, sys.argv = sys.argv, ["sordino", "--no-log"]  # MPyC would read our command line
    try:
        importlib.import_module("mpyc.runtime")
    except ImportError:
        raise require_extra("mpyc", "mpc") from None
    finally:
        sys.argv = kept
    modules: dict[str, Any] = {
        name: module for name, module in sys.modules.items() if name.split(".")[0] == "mpyc"
    }
    main = modules["mpyc.runtime"]
    asyncio.set_event_loop(mesh.loop)
    options = modules["mpyc"]._get_arg_parser().parse_args(["--no-prss", "--no-log"])
    options.threshold = threshold
    parties = [main.Party(i, m.host, m.port) for i, m in enumerate(mesh.members)]
    runtime = main.Runtime(mesh.index, parties, options)
    mesh.loop.set_exception_handler(lambda _, context: _note(mesh, context))
    for name in ("sectypes", "asyncoro", "mpctools", "seclists", "secgroups", "random", "statistics"):
        modules[f"mpyc.{name}"].runtime = runtime
    main.pickle = wire = _Wire(mesh)
    return runtime, wire


def _note(mesh: Mesh, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, ssl.SSLError) and not mesh.ready.done():
        mesh.note(f"A caller failed the TLS handshake ({error.reason}).")
    elif isinstance(error, PartyError):
        mesh.fail(str(error))
    elif error is not None and not isinstance(error, (asyncio.CancelledError, ConnectionError)):
        mesh.fail(f"The computation failed: {type(error).__name__}. A message of a peer was not understood.")
