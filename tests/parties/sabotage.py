"""What can go wrong at a member: each function breaks the process it is called in, at a chosen moment."""

import os
import signal

import numpy as np

from sordino.execute.parties import NoiseShare, engine
from sordino.parties.mpc import links, shamir, transcript

BOOKING = ("plan", "session", "reserving", "reserved", "asking")
STAGES = (*BOOKING, "kept", "ready", "opening", "release", "finished")


def at(stage, action, count=1):
    """Do ``action`` when the transcript gets its ``count``-th line of this kind, before it is written."""

    def install():
        write, seen = transcript.Transcript.write, []

        def spying(self, kind, durable=False, **facts):
            seen.append(kind)
            if kind == stage and seen.count(kind) == count:
                action()
            write(self, kind, durable, **facts)

        transcript.Transcript.write = spying

    return install


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def stall():
    os.kill(os.getpid(), signal.SIGSTOP)


def hurry(seconds, then=None):
    """Wait so long for others to appear once all have met; do something else as well from the start."""

    def shorten():
        import gc

        for limits in [x for x in gc.get_objects() if type(x) is links.Limits]:
            object.__setattr__(limits, "connect", seconds)

    def install():
        if then is not None:
            then()
        at("session", shorten)()

    return install


def _links():
    import gc

    return [x for x in gc.get_objects() if type(x) is links.Link and x.transport is not None]


def reset():
    """Cut all connections."""
    for link in _links():
        link.transport.abort()


def garbage():
    """Send bytes that are no message."""
    for link in _links():
        link.transport.write(b"\xff" * 64)


def replay():
    """Send a message twice from now on."""
    send = links.Link.send

    def twice(self, label, payload):
        send(self, label, payload)
        send(self, label, payload)

    links.Link.send = twice


def out_of_range():
    """Send shares that are no elements of the field."""
    shamir.Shamir.dumps = lambda self, values: b"\xff" * (8 * len(values))


def truncated():
    """Send shares of a broken length."""
    dumps = shamir.Shamir.dumps
    shamir.Shamir.dumps = lambda self, values: dumps(self, values)[:-3]


def wrong_share():
    """Open another share than the one that was computed."""
    reveal = shamir.Shamir.reveal

    async def lying(self, secret):
        return await reveal(self, self.field.add(secret, self.field.array(1)))

    shamir.Shamir.reveal = lying


def no_signs():
    """Share zeros as the row of signs: the product of everybody's is zero, and so is the coarse noise."""
    draw = NoiseShare.draw

    def lying(self, *args):
        values, drawn = draw(self, *args)
        drawn.signs[-1] = 0
        return values, drawn

    NoiseShare.draw = lying


def _share_other(values=lambda mine, field: mine, bits=None):
    """Share other values than one's own (and a mask behind them), or other bits."""
    share, proof = shamir.Shamir.share, engine.with_proof

    async def lying(self, mine, coins=()):
        if len(coins) == 2:
            mine = np.append(
                values(np.asarray(mine[:-1], object), self.field) % self.field.modulus, mine[-1:]
            )
        return await share(self, mine, coins)

    shamir.Shamir.share = lying
    if bits is not None:
        engine.with_proof = lambda signs, secret, field: proof(bits(signs), secret, field)


def _add_to_second(mine, field):
    mine[1] += 2**55
    return mine


def huge_value():
    """Contribute 2^55 more than the records give, in one coordinate, and tell the truth about its bits."""
    _share_other(_add_to_second)


def half_the_field():
    """Contribute (p + 1) / 2 twice: with coefficients 1 and -1 alone every combination would look small."""
    _share_other(lambda mine, field: np.append(mine[:2] + (field.modulus + 1) // 2, mine[2:]))


def bits_that_are_none():
    """Contribute 2^55 more in one coordinate, and share "bits" that are none but add up to it."""
    coefficients, column = engine._coefficients, []

    def seen(coin, size):
        rows = coefficients(coin, size)
        column[:] = [int(x) for x in rows[:, 1]]
        return rows

    def other(signs):
        signs = np.asarray(signs, dtype=object)
        signs[0] -= [2 * x * 2**55 for x in column]
        return signs

    _share_other(_add_to_second, other)
    engine._coefficients = seen


def bent_products():
    """Add 1 to what is reshared: a sign becomes 0 or 2, and half of the coordinates have no coarse noise."""
    reduce = shamir.Shamir.reduce

    async def lying(self, product):
        return await reduce(self, self.field.add(product, self.field.array(1)))

    shamir.Shamir.reduce = lying


def late_coin():
    """Promise one coin and show another."""
    shamir._seal = lambda coin, index: bytes(32)


def two_faced():
    """Promise and show one coin to the first party and another one to the second."""
    faces, seal, send = {}, shamir._seal, links.Link.send

    def prepared(coin, index):
        faces.update({coin: bytes(32), seal(coin, index): seal(bytes(32), index)} if index == 2 else {})
        return seal(coin, index)

    def lying(self, label, payload):
        for honest, other in faces.items() if self.peer_pid == 1 else ():
            payload = payload.replace(honest, other)
        send(self, label, payload)

    shamir._seal, links.Link.send = prepared, lying


def crooked_sharing():
    """Deal shares that lie on no polynomial of the right degree."""
    split = shamir.Shamir.split

    def crooked(self, secrets):
        first, *others = split(self, secrets)
        return [self.field.add(first, self.field.array(1)), *others]

    shamir.Shamir.split = crooked


def short_shares():
    """Send one share where there should be many: it would be spread over all of them."""
    dumps = shamir.Shamir.dumps
    shamir.Shamir.dumps = lambda self, values: dumps(self, values[:1])
