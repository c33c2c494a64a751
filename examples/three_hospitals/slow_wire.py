"""Connect network namespaces by a wire that is slow and loses packets, where the kernel has no `tc netem`.

    python slow_wire.py 0.02 0.005 sordino-north sordino-south sordino-west

Makes `eth0` in each namespace (10.77.0.1, .2, ...), and carries packets between them, each after 0.02
seconds, but for one in 200. Needs root and /dev/net/tun; runs until it is stopped.
"""

import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import time
from pathlib import Path

TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x0001, 0x1000, 0x40000000


def plug(namespace: str, number: int) -> int:
    """Return the end of a wire into a namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/run/netns/{namespace}").open() as there, Path("/proc/self/ns/net").open() as here:
        if libc.setns(there.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        wire = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(wire, TUNSETIFF, struct.pack("16sH", b"eth0", IFF_TUN | IFF_NO_PI))
        libc.setns(here.fileno(), CLONE_NEWNET)
    for words in (f"addr add 10.77.0.{number}/24 dev eth0", "link set eth0 up", "link set lo up"):
        subprocess.run(["ip", "-n", namespace, *words.split()], check=True)
    return wire


def main() -> None:
    """Carry packets."""
    delay, loss, *namespaces = float(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:]
    wires = {number: plug(name, number) for number, name in enumerate(namespaces, start=1)}
    print("ready", flush=True)
    chance, waiting = random.Random(1), []
    while True:
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for wire in select.select(list(wires.values()), [], [], pause)[0]:
            packet = os.read(wire, 65536)
            if packet[0] >> 4 == 4 and packet[19] in wires and chance.random() >= loss:
                heapq.heappush(waiting, (time.monotonic() + delay, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            packet = heapq.heappop(waiting)[1]
            os.write(wires[packet[19]], packet)


if __name__ == "__main__":
    main()
