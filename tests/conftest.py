"""What every test shares: Hypothesis profiles, known noise, folders in memory, none of the user's."""

import contextlib
import fcntl
import gc
import hashlib
import itertools
import os
import shutil
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

from sordino.kernel.noise import NoiseSource

_COMMON = {"deadline": None, "database": None, "suppress_health_check": [HealthCheck.too_slow]}

# Derandomised: a red test is red again, and a green one says the same thing everywhere.
settings.register_profile("default", derandomize=True, max_examples=100, **_COMMON)
settings.register_profile("long", derandomize=True, max_examples=2000, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


# Noise from the operating system has a key of its own in each test and each fixture, the same in every run:
# a test that asks noise to be small is green everywhere or nowhere. SORDINO_TEST_NOISE=2 is another set of
# keys, which finds tests that owe their colour to luck; SORDINO_TEST_NOISE=fresh leaves the system's own.
# Processes that a test starts always have fresh noise.
_NOISE = os.environ.get("SORDINO_TEST_NOISE", "1")
_PROCESS, _fresh_key = os.getpid(), NoiseSource._rekey
_place = (None, itertools.count())


def _known_key(self, key):
    if key is None and _place[0] is not None and os.getpid() == _PROCESS:
        words = f"{_NOISE} {_place[0]} {next(_place[1])}"
        key = int.from_bytes(hashlib.sha256(words.encode()).digest()[:16], "little")
    _fresh_key(self, key)


def pytest_configure():
    """Give noise its known keys; it still says that it is private, as it would be for a user.

    A ledger waits for the disk at each line it writes: folders of tests lie in memory where there is room.
    """
    NoiseSource._rekey = _known_key
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 4 << 30:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


_compile, _at_work = Dispatcher.compile, set()


def _compile_once(self, sig):
    """Compile a function when no other process of this run does; what another has compiled is found."""
    name = hashlib.sha256(f"{self.__module__} {self.__qualname__}".encode()).hexdigest()[:16]
    with global_compiler_lock:  # first, so that no thread waits for it with the file in its hand
        if name in _at_work:
            return _compile(self, sig)
        _at_work.add(name)
        try:
            with (_locks / name).open("w") as file:  # which is locked until it is closed
                for _ in range(400):  # 20 s: a process that was forked meanwhile may hold it for ever
                    with contextlib.suppress(BlockingIOError):
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    time.sleep(0.05)
                return _compile(self, sig)
        finally:
            _at_work.discard(name)


@pytest.fixture(autouse=True, scope="session")
def _machine_code_once(tmp_path_factory):
    """In a fresh clone three processes would compile each function at about the same time."""
    global _locks
    with pytest.MonkeyPatch.context() as patch:
        if "PYTEST_XDIST_WORKER" in os.environ:
            _locks = tmp_path_factory.getbasetemp().parent / "compiling"
            _locks.mkdir(exist_ok=True)
            patch.setattr(Dispatcher, "compile", _compile_once)
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_collection():
    """Leave the million objects that are imported and collected here out of all searches for garbage."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """Start the keys of a test, whatever ran before it."""
    global _place
    _place = (None if _NOISE == "fresh" else item.nodeid, itertools.count())
    yield


@pytest.hookimpl(hookwrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """Give what several tests share keys of its own, whichever test asks for it first."""
    global _place
    before = _place
    if fixturedef.scope != "function" and _NOISE != "fresh":
        _place = (f"{fixturedef.baseid}::{fixturedef.argname}", itertools.count())
    yield
    _place = before


@pytest.fixture
def keys_of_the_system():
    """Leave the operating system's own keys to a test about them."""
    global _place
    before, _place = _place, (None, itertools.count())
    yield
    _place = before


@pytest.fixture(autouse=True, scope="session")
def _own_user_directories(tmp_path_factory):
    """Keep the tests away from the caches, ledgers and settings of the user who runs them.

    The processes of one run share a cache: a plan that one has calibrated is certified by the others, once.
    """
    home = tmp_path_factory.mktemp("user")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
            patch.setenv(name, str(home / name.lower()))
        if "PYTEST_XDIST_WORKER" in os.environ:  # its folder lies in that of the run
            patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp().parent / "cache"))
        yield
