"""A sum of d numbers with Gaussian noise by SPU's protocols, beside a release between three members of ours.

Command: spu/bin/pip install spu    (0.9.5 in an environment of its own: Python 3.10 or 3.11, NumPy < 2)
         spu/bin/python benchmarks/spu_peer.py cheetah 104

Members are threads of one process. Noise is Box and Muller's formula in fixed point with 18 bits after the
point, from uniform numbers that each member brings; nobody has proven how far it is from a Gaussian.
"""

import sys
import time

import numpy as np

STD = 10.0
PROTOCOLS = {"cheetah": ("CHEETAH", 2), "semi2k": ("SEMI2K", 2), "aby3": ("ABY3", 3)}


def noisy_sum(values, uniforms, angles):
    """Return the sum of all members' values with one copy of noise from all members' randomness."""
    import jax.numpy as jnp

    u, v = sum(uniforms) % 1.0, sum(angles) % 1.0
    return sum(values) + STD * jnp.sqrt(-2 * jnp.log(u)) * jnp.cos(2 * jnp.pi * v)


def main() -> None:
    """Print wall and processor seconds of two runs; the first one compiles."""
    import spu
    import spu.utils.simulation as simulation

    name, size = sys.argv[1], int(sys.argv[2])
    kind, members = PROTOCOLS[name]
    engine = simulation.Simulator.simple(members, getattr(spu.ProtocolKind, kind), spu.FieldType.FM64)
    public = np.random.default_rng(0)
    given = [
        [part(size) for _ in range(members)]
        for part in (public.standard_normal, public.random, public.random)
    ]
    inside = simulation.sim_jax(engine, noisy_sum)
    for _ in range(2):
        wall, processor = time.perf_counter(), time.process_time()
        found = inside(*given)
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        error = np.abs(found - noisy_sum(*given)).max()
        print(f"{name} d = {size}: {wall:.2f} s, {processor:.2f} CPU s of all, error {error:.4f}", flush=True)


if __name__ == "__main__":
    main()
