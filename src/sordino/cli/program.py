"""The `sordino` command: how it ends, what it imports late, and its subcommands."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import re
import shlex
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

import click

from sordino import __version__, errors
from sordino.cli.account import account
from sordino.cli.answers import evaluate, intervals, predict, split
from sordino.cli.fit import audit, fit, pca, tune
from sordino.cli.ledger import ledger
from sordino.cli.look import inspect, report
from sordino.cli.migrate import migrate
from sordino.cli.parties import consortium, party
from sordino.cli.published import datasets, reproduce
from sordino.cli.schema import schema
from sordino.cli.shared import JOINT, JSON, OWN_OPTIONS, RUNNING, guard, result
from sordino.cli.start import completion, doctor, init
from sordino.cli.stats import stats

OK = 0
FAILED = 1
USAGE = 2  # given by click
BAD_INPUT = 3
BUDGET = 4
LEDGER = 5
MODEL_FILE = 6
EXTRA = 7
INTERNAL = 70
STOPPED = 130

WORDS = {
    OK: "done",
    FAILED: "anything else that Sordino refuses: no proof, no plan; and every failure of a joint run",
    USAGE: "the command line is wrong: an unknown option, a missing value, a wrong key in a configuration",
    BAD_INPUT: "a data file, a schema or a parameter is wrong; nothing was spent",
    BUDGET: "the budget of the data set does not cover it; nothing was released",
    LEDGER: "the ledger cannot be read or written, or has no such data set",
    MODEL_FILE: "the model file is not there, damaged, of a newer version, or holds foreign types",
    EXTRA: "an optional dependency is not installed; the message names it",
    INTERNAL: "a mistake in Sordino; the message says where, SORDINO_DEBUG=1 shows the rest",
    STOPPED: "stopped by Ctrl-C; what was reserved stays booked",
}
"""What each status means."""

_CODES: tuple[tuple[type[errors.SordinoError], int], ...] = (
    (errors.BudgetExceededError, BUDGET),
    (errors.LedgerError, LEDGER),
    (errors.ModelFileError, MODEL_FILE),
    (errors.MissingExtraError, EXTRA),
    (errors.InvalidInputError, BAD_INPUT),
    (errors.DataNotFoundError, BAD_INPUT),
)


_WORDS = {"None": "none", "True": "true", "False": "false"}
_NOT_SET = ("max_advantage", "max_posterior", "prior")  # parts of --epsilon
# The command to type next, where an error does not name one by itself.
_NEXT: tuple[tuple[type[BaseException], str], ...] = (
    (errors.BudgetExceededError, "ledger show {ledger} {dataset}"),
    (errors.PolicyMismatchError, "ledger show {ledger} {dataset}"),
    (errors.DatasetExistsError, "ledger show {ledger} {dataset}"),
    (errors.UnknownDatasetError, "ledger list {ledger}"),
    (errors.RoleError, "ledger terms {ledger} {dataset}"),
    (errors.LedgerError, "doctor --ledger {ledger}"),
    (errors.ModelFileError, "fit DATA --schema SCHEMA --epsilon 1 --output MODEL"),
    (errors.SchemaError, "schema check {schema} {data}"),
    (errors.SchemaError, "schema check {schema}"),
    (KeyboardInterrupt, "ledger show {ledger} {dataset}"),
    (click.ClickException, "{command} --help"),
    (KeyboardInterrupt, "{command} --help"),
    (errors.SordinoError, "{command} --help"),
    (Exception, "doctor"),
)


def next_command(error: BaseException, context: click.Context | None) -> str:
    """Return the line that says what to type next; "" if the error ends with it, or nothing ran."""
    if context is None or re.search(r"(: sordino|pip install|export SORDINO_\w+=) ?\S[^\n]*$", str(error)):
        return ""
    words = {name: str(value) for name, value in context.params.items() if value is not None}
    if words.get("data", "-") != "-" and not os.path.exists(words["data"]):
        del words["data"]
    words["command"] = context.command_path.partition(" ")[2] or "--help"
    if "ledger" in words:
        from sordino.ledger.address import hide

        words["ledger"] = hide(words["ledger"])
    words = {name: value if name == "command" else shlex.quote(value) for name, value in words.items()}
    hints = (text for kind, text in _NEXT if isinstance(error, kind))
    known = (text for text in hints if set(re.findall(r"{(\w+)}", text)) <= set(words))
    return f"\nNext: sordino {next(known).format(**words).replace('--help --help', '--help')}"


def words_of_stop(before: int) -> str:
    """Return what a command that was stopped has reserved since there were so many reservations."""
    made = getattr(sys.modules.get("sordino.ledger.ledger"), "BOOKED", [])[before:]
    if not made:
        return "Stopped. Nothing was reserved on a ledger."
    names = [
        f"{e.sequence or 'a last one, perhaps,'} of {e.dataset_id} (epsilon {e.epsilon:.4g})" for e in made
    ]
    return f"Stopped. What was reserved stays booked: {', '.join(names)}."


def in_flags(text: str, context: click.Context | None) -> str:
    """Return a text with flags in place of parameters of Python: ``delta=None`` becomes "no --delta"."""
    params = {} if context is None else {p.name: p.opts[0] for p in context.command.params}
    flags = {name: flag for name, flag in {**params, **OWN_OPTIONS}.items() if flag in params.values()}

    def typed(found: re.Match[str]) -> str:
        name, value = found[1], found[2].strip("'")
        if name not in flags:
            settable = "given" in params and name not in _NOT_SET
            return f"--set {name}={_WORDS.get(value, value)}" if settable else found[0]
        if value in _WORDS:
            return flags[name] if value == "True" else f"no {flags[name]}"
        return f"{flags[name]} {value}"

    return re.sub(r"(?<![\w?&/-])(\w+)=('[^']*'|[\w.+-]*\w)", typed, text)


class Refused(click.ClickException):
    """An error for a person: one text, one status."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.__dict__["exit_code"] = code  # click says that it belongs to the class, and reads it from here


def status_of(error: errors.SordinoError) -> int:
    """Return the status of a command that ends with this error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)


class Program(click.Group):
    """The group of all commands: errors end in words and a status, warnings are notes, Ctrl-C is said."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run as a program, which a test or another program does not."""
        defer()
        return super().__call__(*args, **kwargs)

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command, which will write onto nothing that it reads."""
        guard(cmd)
        super().add_command(cmd, name)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was typed."""
        with in_words(ctx), notes(ctx), patient():
            return super().invoke(ctx)


@contextmanager
def patient() -> Iterator[None]:
    """Hear Ctrl-C between two steps of a run: inside of compiled code it can crash the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt(number: int, frame: Any) -> None:
    """Ask the runs to stop. No run is going on as long as their module is not loaded."""
    patience = getattr(sys.modules.get("sordino.runs.task"), "patience", None)
    if patience is None:
        raise KeyboardInterrupt
    patience.ask()


@contextmanager
def in_words(ctx: click.Context) -> Iterator[None]:
    """Turn errors into a text and a status; what is not ours is named by its class, for it may quote data."""
    before = len(getattr(sys.modules.get("sordino.ledger.ledger"), "BOOKED", []))
    try:
        yield
    except errors.SordinoError as error:
        running = ctx.meta.get(RUNNING)
        text = f"{in_flags(str(error), running)}{next_command(error, running)}"
        raise Refused(text, FAILED if ctx.meta.get(JOINT) else status_of(error)) from error
    except KeyboardInterrupt as stop:
        text = f"{words_of_stop(before)}{next_command(stop, ctx.meta.get(RUNNING))}"
        raise Refused(text, STOPPED) from None
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.ClickException as error:
        following = next_command(error, getattr(error, "ctx", None) or ctx)
        error.__dict__["message"] = f"{error.message}{following}"  # click calls it final, and reads it here
        raise
    except (click.exceptions.Exit, click.exceptions.Abort):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            raise
        if os.environ.get("SORDINO_DEBUG"):
            traceback.print_exc()
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(last.filename)}:{last.lineno}"
        words = (
            f"{type(error).__name__} at {where}: this is a mistake in Sordino. Its text may quote data, so "
            "it is shown only with SORDINO_DEBUG=1 in the environment."
        )
        raise Refused(f"{words}{next_command(error, ctx)}", INTERNAL) from None


@contextmanager
def notes(ctx: click.Context) -> Iterator[None]:
    """Show our warnings as notes. Warnings of other libraries may quote data, and are not shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("NotPrivate", "Privacy", "Ledger", "UndeclaredBound", "SlowEngine", "Fit", "Divergence"):
            warnings.simplefilter("always", getattr(errors, f"{name}Warning"))
        warnings.showwarning = lambda message, *_, **__: click.echo(
            f"Note: {in_flags(str(message), ctx.meta.get(RUNNING))}", err=True
        )
        yield


# ----------------------------------------- Modules of other packages that a command imports and may never use
# scikit-learn imports SciPy's statistics and pandas, dp-accounting its accountants, SciPy the Fortran of
# NumPy, Numba readers of YAML and of C, whether or not anything calls them: half of the imports of a small
# fit. Each runs when a name of it is used. Only the program defers them; a process that imports the library
# is its user's own.


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
    gc.set_threshold(300_000)  # 700 by default: a tenth of a small fit, which leaves next to none
    atexit.register(gc.freeze)  # the process gives back its memory at once: a last search takes .2 s


# ----------------------------------------------------------------------------------------------- The commands


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(version)s")
def main() -> None:
    """Learn from sensitive data with privacy guarantees that are true."""


@main.command()
@JSON
def version() -> None:
    """Print the installed version."""
    result({"version": __version__}, __version__)


@main.command()
@click.option(
    "--report",
    default="demo-report.html",
    show_default=True,
    type=click.Path(dir_okay=False, writable=True),
    help="Where to write the HTML report.",
)
@JSON
def demo(report: str) -> None:
    """Compare private with non-private learning on data made on the spot."""
    from sordino.cli.demo import run

    run(report)


for command in (
    init, doctor, completion, schema, split, fit, predict, inspect, evaluate, intervals, report, stats, pca,
    tune, account, audit, ledger, migrate, party, consortium, datasets, reproduce,
):  # fmt: skip
    main.add_command(command)
