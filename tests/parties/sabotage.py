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


def huge_value():
    """Contribute 2^55 more than the records give, in one coordinate, and tell the truth about its bits."""
    share = shamir.Shamir.share

    async def lying(self, mine):
        if np.ndim(mine) == 1 and np.size(mine) > 1 and np.asarray(mine).dtype == np.int64:
            mine = mine.copy()
            mine[1] += 2**55
        return await share(self, mine)

    shamir.Shamir.share = lying


def half_the_field():
    """Contribute (p + 1) / 2 twice: with coefficients 1 and -1 alone every combination would look small."""
    share = shamir.Shamir.share

    async def lying(self, mine):
        if np.ndim(mine) == 1 and np.size(mine) > 1 and np.asarray(mine).dtype == np.int64:
            mine = mine.astype(object)
            mine[:2] += (self.field.modulus + 1) // 2
        return await share(self, mine)

    shamir.Shamir.share = lying


def bits_that_are_none():
    """Contribute 2^55 more in one coordinate, and share "bits" that are none but add up to it."""
    share, coefficients, column = shamir.Shamir.share, engine._coefficients, []

    def seen(coin, size):
        rows = coefficients(coin, size)
        column[:] = [int(x) for x in rows[:, 1]]
        return rows

    async def lying(self, mine):
        if np.ndim(mine) == 1 and np.size(mine) > 1 and np.asarray(mine).dtype == np.int64:
            mine = mine.copy()
            mine[1] += 2**55
        elif column and np.shape(mine)[1:] == (engine.PROJECTIONS,):
            mine = np.asarray(mine, dtype=object)
            mine[0] -= [2 * x * 2**55 for x in column]
        return await share(self, mine)

    shamir.Shamir.share, engine._coefficients = lying, seen


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
    faces, coin, send = {}, shamir.Shamir.coin, links.Link.send

    async def prepared(self, mine):
        seal = shamir._seal
        faces.update({mine: bytes(32), seal(mine, 2): seal(bytes(32), 2)})
        return await coin(self, mine)

    def lying(self, label, payload):
        send(self, label, faces.get(bytes(payload), payload) if self.peer_pid == 1 else payload)

    shamir.Shamir.coin, links.Link.send = prepared, lying


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
