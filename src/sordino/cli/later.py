"""Modules of other packages that a command imports and may never use: each runs when a name of it is used.

scikit-learn imports SciPy's statistics and pandas, dp-accounting its accountants, SciPy the Fortran of NumPy,
Numba readers of YAML and of C, whether or not anything calls them: half of the imports of a small fit.
Only the program defers them; a process that imports the library is its user's own.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

MODULES = frozenset(
    {"asyncio", "dp_accounting", "dp_accounting.rdp", "numpy.f2py", "numpy.testing", "pandas", "pycparser"}
    | {"randomgen", "scipy.fft", "scipy.optimize", "scipy.signal", "scipy.stats", "yaml"}
)
UNLISTED = "pandas"
"""narwhals, which scikit-learn asks what a table is, looks for it among the modules that are loaded."""


class Deferred(ModuleType):
    """A module that runs when a name is asked for that it lacks and that none of its submodules has."""

    def __getattr__(self, name: str) -> Any:
        return vars(self)["__loader__"].find(self, name)


class DeferringLoader(Loader):
    """Makes a module and runs it later, in the thread that asks for a name first; other threads wait."""

    def __init__(self, loader: Loader) -> None:
        self._loader, self._lock, self.running = loader, threading.RLock(), False

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing yet."""
        module.__class__ = Deferred

    def find(self, module: ModuleType, name: str) -> Any:
        """Return an attribute: a submodule by itself, anything else after the module has run."""
        if not self.running and sys.modules.get(module.__name__) is not module:  # off the list since
            return getattr(import_module(module.__name__), name)
        with self._lock:
            if name in vars(module):
                return vars(module)[name]
            if self.running:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            if PathFinder.find_spec(whole := f"{module.__name__}.{name}", module.__path__) is not None:
                return import_module(whole)
            self.running = True
            self._loader.exec_module(module)
            module.__class__ = ModuleType
            return getattr(module, name)


class Finder(MetaPathFinder):
    """Finds the modules that are deferred, and leaves all others to Python."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to make a module without running it."""
        idle = sys.modules.get(UNLISTED)
        if isinstance(idle, Deferred) and not (name.startswith(UNLISTED) or vars(idle)["__loader__"].running):
            del sys.modules[UNLISTED]
        spec = PathFinder.find_spec(name, path, target) if name in MODULES else None
        if spec is not None and spec.loader is not None:
            spec.loader = DeferringLoader(spec.loader)
        return spec


def defer() -> None:
    """Defer the modules that are not loaded yet; look for cycles of dead objects less often meanwhile."""
    sys.meta_path.insert(0, Finder())
    gc.set_threshold(100_000)  # 700 by default: a tenth of a small fit, which leaves next to none
