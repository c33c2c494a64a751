"""Private training of a PyTorch model."""

from __future__ import annotations

import copy
import math
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from sordino.errors import (
    DivergenceWarning,
    InvalidInputError,
    InvalidTypeError,
    PlanSpentError,
    PrivacyWarning,
    UnsupportedError,
)
from sordino.execute.processes import join_processes
from sordino.kernel import Relation
from sordino.ledger.address import hide
from sordino.nn.compiled import compiled_engine
from sordino.nn.data import MeanOfViews, Source, holds_records, source_of, views_of
from sordino.nn.engine_choice import engine_notes, sized_engine
from sordino.nn.entrance import check_records
from sordino.nn.network import Loss, Network, copy_module, is_sharded, make_up_records
from sordino.nn.queries import exact_block
from sordino.nn.session import Checkpoint, Session, Training, open_session, resume_session, together
from sordino.nn.solvers import (
    Descent,
    NetworkSolver,
    NetworkTask,
    Recipe,
    TrainingState,
    choose_settings,
    solver_of,
)
from sordino.private_estimator import declared_rows, owner_facts
from sordino.runs import Ask, Price, PrivacyReport, track
from sordino.runs.report import Fact
from sordino.runs.training import Choice
from sordino.runs.training import Training as Priced
from sordino.solvers.updates import HardThreshold
from sordino.values import check_count, check_positive

_RISEN = 10.0  # times the loss of the initial model
_GROWN = 100.0  # parameters start at about 1 or below; a training multiplies them by less than ten


def check_moved(before: nn.Module, after: nn.Module, trained: tuple[str, ...]) -> None:
    """Warn of trained parameters that are where they were, refuse frozen ones that are not (all released)."""
    old = {**dict(before.named_parameters()), **dict(before.named_buffers())}
    new = {**dict(after.named_parameters()), **dict(after.named_buffers())}
    same = {name: torch.equal(old[name].cpu(), value.cpu()) for name, value in new.items()}
    strayed = [name for name, stayed in same.items() if not stayed and name not in trained]
    if strayed:
        raise UnsupportedError(
            f"Expected {strayed[0]!r} to stay where it was: it is not trained. It has moved."
        )
    still = [name for name in trained if same[name]]
    if still:
        warnings.warn(
            f"{len(still)} of {len(trained)} trained parameters have not moved, among them {still[0]!r}. Is "
            "the learning rate too small for their type, or were others meant to be trained (requires_grad)?",
            UserWarning,
            stacklevel=4,
        )


def warn_if_diverged(before: Tensor, after: Tensor, scores: tuple[float, ...] = ()) -> None:
    """Say that a training blew up, by the vectors before and after and ``scores`` on public records.

    **Privacy.** Only released parameters and scores on public records are looked at.
    """
    old, new = (
        float(v.abs().nan_to_num(math.inf, math.inf).max()) if len(v) else 0.0 for v in (before, after)
    )
    reason = ""
    if not new < math.inf:
        reason = "The trained parameters are not finite, so predictions mean nothing."
    elif new > _GROWN * max(1.0, old):
        reason = f"The largest trained parameter is {new:.2g}, it was {old:.2g}: the steps were too long."
    elif scores and not scores[-1] <= _RISEN * scores[0]:  # nan is not
        reason = (
            f"The loss on the public records is {scores[-1]:.3g}, before the training it was "
            f"{scores[0]:.3g}: the steps were too long, or the noise too strong."
        )
    if reason:
        warnings.warn(
            f"{reason} Lower learning_rate, or raise batch_size or epsilon. The budget is spent.",
            DivergenceWarning,
            stacklevel=4,
        )


_BLOCK = 1024
NOT_PUBLIC = (
    "Expected public records as {name}, got records that are trained on: their loss would be told without "
    "noise, and the report would still say private. Hold public records back, or pass none."
)


@dataclass(frozen=True, eq=False)
class Step:
    """Where a training stands after a release; made of released values and public records only.

    ``score`` is None where none was due; :meth:`model` is a copy (of the average, if kept), ready to predict.
    """

    number: int
    steps: int
    learning_rate: float
    score: float | None
    _made: Callable[[], nn.Module] = field(repr=False)

    def model(self) -> nn.Module:
        """Return the model as it is now."""
        return self._made()


Callback = Callable[[Step], object]


@dataclass(eq=False)
class Watch:
    """Scores and callbacks of one training.

    **Privacy.** The parameters are released, so every function of them and of *public* records is free. A
    score on records that are to be protected is a release that nobody pays for.
    """

    model: nn.Module
    network: Network
    recipe: Recipe
    score: Callable[[nn.Module], float] | None = None
    every: int = 1
    callbacks: tuple[Callback, ...] = ()
    history: list[tuple[int, float]] = field(default_factory=list)
    start: float | None = None  # the loss of the initial model on public records

    def after(self, number: int, state: TrainingState) -> bool:
        """Note a step, and tell whether a callback wants to stop: what is left of the budget stays spent."""
        due = self.score is not None and (number % self.every == 0 or number == self.recipe.steps)
        if not due and not self.callbacks:
            return False

        def made() -> nn.Module:
            return self.load_state(state).eval()

        score = None
        if due and self.score is not None:
            score = float(self.score(made()))
            self.history.append((number, score))
        rate = self.recipe.learning_rate * self.recipe.schedule((number - 1) / self.recipe.steps)
        step = Step(number, self.recipe.steps, rate, score, made)
        wishes = [callback(step) for callback in self.callbacks]
        return any(wish is True for wish in wishes)

    def load_state(self, state: TrainingState) -> nn.Module:
        """Return a copy of the model with the parameters of a state."""
        model = self.model if self.network.sharded else copy.deepcopy(self.model)
        self.network.load(self.recipe.finished(state).result.to(_device_of(model)), model)
        return model


def _mean_loss(model: nn.Module, network: Network, loss: Loss, source: Source) -> float:
    records = source.executor(_device_of(model), _BLOCK, False).records(None)
    scored = Network(model, loss, network.precision, network.fields)
    with torch.no_grad():
        losses = [scored.losses(scored.outputs(None, x), y).double().cpu() for x, y in records.chunks()]
    return float(torch.cat(losses).mean())


def _device_of(model: nn.Module) -> torch.device:
    return next(model.parameters(), torch.zeros(())).device


_PRECISIONS = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model and what it cost; ``history`` holds (step, score) on the public validation records."""

    model: nn.Module
    privacy: PrivacyReport
    steps: int
    history: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, eq=False)
class Trainer:
    """Trains a copy of a model under differential privacy.

    Parameters
    ----------
    model, loss : the module and its criterion, ``loss(outputs, targets)``.
    epsilon, delta : the budget; delta None means ``min(1e-5, 1 / (10 n))``, epsilon inf means no noise.
    recipe : ``"image"``, ``"text"`` or ``"tabular"``: what is not asked for below is set by rules on public
        numbers (records, epsilon, weights), see the guide. ``"auto"`` takes the one for the shape and type of
        the records, with normalised gradients. None takes the plain values in brackets.
    optimizer : ``"sgd"`` [this], ``"adam"``, ``"ls-sgd"``, ``"ls-adam"`` (smoothed by layer) or ``"srm"``.
    optimizer_options : momentum, nesterov; beta1, beta2; gamma, difference_clip, first_batch.
    batch_size : the *expected* batch size [that of a loader, else 256]: each record (or person) enters a
        batch independently.
    epochs, steps : how long [10 epochs]; ``steps`` goes before ``epochs``.
    clip_norm : the gradient of each record (the summed gradient of each person) is clipped to this norm [1].
    learning_rate, schedule [cosine], weight_decay, smoothing, projection, average [0] : see
        :class:`sordino.nn.solvers.Recipe`; all of them are free.
    augment, multiplicity : random views of each record, for example :class:`sordino.nn.Shifts`, and how many
        of them in each step; the mean gradient of a record's views is clipped, so they cost time only. It
        may hold public values only: of the training records, it is refused for a whole copy alone.
    engine : ``"auto"``, ``"ghost"`` or ``"vmap"``: how clipped sums are computed. Same answer.
    chunk_size : how many records are differentiated at once; None measures what made-up records take and
        takes as many as memory bears. Same answer, other memory.
    device, precision : where, and in which type the forward pass runs.
    compiled : True, or a mode of ``torch.compile``. Tried on made-up records first; where it fails or is not
        faster, steps run without it, with a warning and a note in the report. None tries it on a GPU, without
        a warning, where the steps would take minutes otherwise. False never does.
    device_noise : expand the noise on the device; None does so on a GPU.
    secure_noise : noise without floating-point artefacts: what each record adds is truncated to a lattice of
        integers, and the noise is exactly rounded to it. Gradients are formed one by one, which takes longer.
    noise : ``"independent"`` in each step, or correlated over the steps, so that later noise takes a part of
        earlier noise back: ``"banded"`` (as many bands as are best), ``"blt"`` (three buffers) or
        ``"regenerated"`` (no memory: past noise is made again from its key). Parts of the records are then
        looked at in turn, see the guide.
    relation, unit : which data sets are neighbours. ``unit`` is a word for what one record is, for example a
        person all of whose data it holds; it groups nothing, and the report says so. With ``groups`` it is
        a word for the owners of records, ``"person"`` where nothing else is said.
    rows_per_person : the largest number of records that one person has, where nobody knows whose a record is:
        then a person is protected, whatever number of these records enters a batch.
    ledger, dataset_id : where the budget is booked.
    checkpoint, checkpoint_every : a path, and how many steps between two savings.
    distributed : whether the processes of ``torch.distributed`` train together, see the guide; None lets them
        if there are several.
    validation : *public* records, as ``fit`` takes them, whose mean loss is noted in ``history``; or a
        function of the model that returns a score. The report lists them as assumed public; they are tried
        once before anything is booked.
    validate_every : how many steps between two scores; None makes about ten of them.
    callbacks : functions of a :class:`sordino.nn.Step`, called after each step; True stops the training.
    public : further facts that the report lists as assumed public.
    learned : what was paid for a schema that the records were encoded by; the report adds it up.
    verbose : progress on a terminal; never a loss, which would leak.

    With ``groups``, the owner of each record, the unit of privacy is a person: the gradients of all records
    of a person are added up, the sum is clipped, and persons enter a batch; ``batch_size`` and ``epochs``
    then count persons.

    **Privacy.** The trained parameters, all iterates included, are (epsilon, delta)-DP for one record, or
    one person. The architecture, the initial parameters and all numbers above are assumed public.
    """

    model: nn.Module
    loss: Loss
    epsilon: float = 1.0
    delta: float | None = None
    _: KW_ONLY
    recipe: str | None = None
    optimizer: str | None = None
    optimizer_options: dict[str, Any] = field(default_factory=dict)
    batch_size: int | None = None
    epochs: float | None = None
    steps: int | None = None
    clip_norm: float | None = None
    learning_rate: float | None = None
    schedule: str | Callable[[float], float] | None = None
    weight_decay: float = 0.0
    smoothing: float | None = None
    projection: HardThreshold | None = None
    average: float | None = None
    augment: Any = None
    multiplicity: int = 1
    engine: str = "auto"
    chunk_size: int | None = None
    device: str | torch.device | None = None
    precision: torch.dtype = torch.float32
    compiled: bool | str | None = None
    device_noise: bool | None = None
    secure_noise: bool = False
    noise: str = "independent"
    relation: str | Relation = "add-remove"
    unit: str = "record"
    rows_per_person: int | None = None
    ledger: Any = None
    dataset_id: str | None = None
    checkpoint: Any = None
    checkpoint_every: int = 50
    distributed: bool | None = None
    validation: Any = None
    validate_every: int | None = None
    callbacks: tuple[Callback, ...] = ()
    public: tuple[str, ...] = ()
    learned: tuple[Price, ...] = ()
    verbose: int | bool = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "ledger", hide(self.ledger))  # a password must not be printed or pickled

    def fit(self, data: Any, targets: Any = None, *, groups: Any = None) -> Trained:
        """Train on tensors, arrays, a data set or a loader; the budget is spent here.

        ``groups`` names the owner of each record, in the order of the data; a missing one is refused.
        """
        source = source_of(data, targets).with_owners(groups)
        made = self._prepare(source)
        said = f"Trainer ({self.settings(source.population, source.kind).optimizer})"
        return self._train(together(made, lambda: open_session(made, said, self._checkpoint())))

    def resume(self, data: Any, targets: Any = None, *, groups: Any = None) -> Trained:
        """Go on after a crash, on the same data, with the same owners and settings.

        The run keeps its plan and its reservation. Releases that were asked since the last saving are
        spent and not repeated.
        """
        checkpoint = self._checkpoint()
        if checkpoint is None:
            raise InvalidInputError("Expected a checkpoint to resume from, got None. Pass checkpoint=.")
        made = self._prepare(source_of(data, targets).with_owners(groups))
        return self._train(together(made, lambda: resume_session(made, checkpoint)))

    def settings(self, population: int, kind: str = "tabular") -> Trainer:
        """Return this trainer as it is for so many records: what was asked for, the rest by the recipe.

        ``kind`` of records (``"image"``, ``"text"`` or ``"tabular"``) is what ``recipe="auto"`` looks at.
        """
        weights = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        made: Trainer = choose_settings(self, population, weights, kind)
        return made

    def solver(self, population: int) -> NetworkSolver:
        """Return the algorithm for this many records."""
        return solver_of(self.settings(population), population)

    def _checkpoint(self) -> Checkpoint | None:
        return None if self.checkpoint is None else Checkpoint(self.checkpoint, self.checkpoint_every)

    def _prepare(self, source: Source) -> Training:
        if (source.batch or 1) > 1 and self.batch_size is None and self.recipe is None:
            return replace(self, batch_size=source.batch)._prepare(source)
        booked = self.ledger, self.dataset_id
        budget = Ask.checked(self.epsilon, self.delta, source.population, *booked, learned=self.learned)
        self._check_kinds()
        rows = declared_rows(self, source.owners is not None)
        source = replace(source, views=views_of(self.augment, self.multiplicity, source))
        loss = self.loss if source.views is None else MeanOfViews(self.loss, source.views.count)
        # torch's module of sharded models is slow to import, and few need it
        sharded: Any = import_module("sordino.nn.sharded") if is_sharded(self.model) else None
        model = self.model if sharded else _place(copy_module(self.model), self.device)
        kind = sharded.ShardedNetwork if sharded else Network
        network: Network = kind(model, loss, self.precision, source.fields)
        solver = solver_of(self.settings(source.population, source.kind), source.population)
        batch = solver.recipe.batch
        device = network.device
        if network.sharded:
            self._check_sharded(source, solver)
        processes = join_processes(self.distributed)
        most, expected = source.most(batch, device), 0 if source.grouped else min(batch, source.population)
        engine, chunk = sized_engine(network, *source.example, self.engine, most, self.chunk_size)
        said: tuple[str, ...] = ()
        if not network.sharded:
            asked = self.compiled, solver.recipe.steps
            engine, said = compiled_engine(engine, chunk, expected, source.example, *asked)
        owned = source.owners is not None or self.rows_per_person is not None
        unit = "person" if owned and self.unit == "record" else self.unit
        block = exact_block(engine, *source.example, chunk) if self.secure_noise else None
        relation = Relation.parse(self.relation)
        choice = self._correlation(solver, source.population, budget)
        task = NetworkTask(engine, source.population, relation, unit, source.grouped, block, choice, rows)
        wanted = device.type == "cuda" if self.device_noise is None else self.device_noise
        noisy_device = wanted and not self.secure_noise
        made_up = make_up_records(network, *source.example, 2, 1.0)
        executor = source.executor(device, chunk, noisy_device, processes, made_up)
        if network.sharded:
            executor = sharded.sharded_executor(executor, engine, source.example, expected)
        mark = check_records(executor, network, source.example)
        watch, shown = self._watch(network, solver.recipe, source)
        facts = (*public_facts(task), *owner_facts(self), *shown, *self.public)
        notes = (*engine_notes(engine), *said)
        if (source.batch or 1) > 1 and min(source.batch or 1, source.population) != batch:
            notes += (f"the loader's batch size of {source.batch} was not used",)
        if source.views is not None:
            notes += (f"clipped is the mean gradient of {source.views.count} random views of a record",)
        if processes is not None:
            who = "each of which adds the noise of its shard" if sharded else "one of which adds the noise"
            notes += (f"gradients added up by {processes.count} processes, {who}",)
        return Training(solver, task, executor, budget, facts, notes, mark, watch)

    def _check_sharded(self, source: Source, solver: NetworkSolver) -> None:
        """Refuse what needs whole vectors of a model whose processes hold shards."""
        recipe = solver.recipe
        wrong = {
            "groups= and augment=": source.grouped,
            "secure_noise=True": self.secure_noise,
            f"noise={self.noise!r}": self.noise != "independent",
            "optimizer='srm'": not isinstance(solver, Descent),
            "smoothing and projection": bool(recipe.smoothing) or recipe.projection is not None,
            "checkpoint=": self.checkpoint is not None,
            "validation= and callbacks=": self.validation is not None or bool(self.callbacks),
            "engine='vmap'": self.engine == "vmap",
            "compiled=": bool(self.compiled),
            "distributed=False": self.distributed is False,
            "device=": self.device is not None,
        }
        if found := [name for name, is_set in wrong.items() if is_set]:
            raise UnsupportedError(
                f"A model that fully_shard has sharded is trained without {found[0]}: no process holds all "
                "parameters. Leave it out, or train whole copies (distributed=True without fully_shard)."
            )
        join_processes(True)  # says how to start several processes

    def _correlation(self, solver: NetworkSolver, population: int, budget: Ask) -> Choice | None:
        """Return the correlated noise of the least error, if one was asked for; it is public."""
        if self.noise == "independent":
            return None
        if self.secure_noise or not isinstance(solver, Descent):
            raise UnsupportedError(
                f"noise={self.noise!r} is proven for gradients of sgd and adam, in floating point. Set "
                "secure_noise=False and another optimizer than srm, or noise='independent'."
            )
        steps, batch = solver.recipe.steps, solver.recipe.batch
        relation = Relation.parse(self.relation).value
        priced = Priced(population, batch, steps, budget.delta, relation, self.noise)
        return priced.chosen(budget.epsilon)

    def _check_kinds(self) -> None:
        """Refuse settings of a wrong kind: those that only a step would notice, after the booking."""
        if self.precision not in _PRECISIONS:
            raise InvalidTypeError(f"Expected precision in {_PRECISIONS}, got {self.precision!r}.")
        for name in ("batch_size", "steps"):
            check_count(name, getattr(self, name), 1, None, "It is a number of records, or of steps.")
        if self.chunk_size:
            check_count("chunk_size", self.chunk_size, 1, None, "It is a number of records.")
        if self.clip_norm is not None:
            check_positive("clip_norm", self.clip_norm, "It bounds a record's gradient.")
        if self.projection is not None and not callable(getattr(self.projection, "project", None)):
            raise InvalidTypeError(
                f"Expected projection such as HardThreshold(800), got {type(self.projection).__name__}."
            )
        if isinstance(self.public, str) or not all(isinstance(fact, str) for fact in self.public):
            raise InvalidTypeError("Expected public as a tuple of texts, got something else. Pass (text,).")

    def _watch(self, network: Network, recipe: Recipe, trained: Source) -> tuple[Watch, tuple[str, ...]]:
        """Return scores and callbacks, and what the report says of scored records; they are tried once."""
        every = max(1, math.ceil(recipe.steps / 10)) if self.validate_every is None else self.validate_every
        if every < 1:
            raise InvalidInputError(f"Expected validate_every >= 1, got {every}.")
        if not isinstance(self.callbacks, (tuple, list)) or not all(map(callable, self.callbacks)):
            raise InvalidTypeError(
                "Expected callbacks as a tuple of functions of a step, got something else. Pass (function,)."
            )
        functions = (*self.callbacks, *((self.validation,) if callable(self.validation) else ()))
        if functions and holds_records(functions, trained):
            warnings.warn(
                "A callback or validation holds the training records: what it tells of them has no noise, "
                "and the report does not cover it. Let it look at public records only.",
                PrivacyWarning,
                stacklevel=4,
            )
        watch = Watch(self.model, network, recipe, None, every, tuple(self.callbacks))
        if self.validation is None:
            return watch, ()
        first, said = copy.deepcopy(self.model).eval(), "records behind the scores of the history"
        if callable(self.validation):
            watch.score = self.validation
            float(self.validation(first))  # what fails, fails before a budget is spent
            return watch, (said,)
        source = source_of(self.validation)
        if source.shares(trained):
            raise UnsupportedError(NOT_PUBLIC.format(name="validation"))
        watch.score = lambda model: _mean_loss(model, network, self.loss, source)
        try:
            watch.start = watch.score(first)
        except (RuntimeError, ValueError, IndexError) as error:
            raise InvalidInputError(
                "Expected validation records of the shapes and types of the training records. The model or "
                f"the loss fails on them ({type(error).__name__})."
            ) from None
        return watch, (f"{said}: {source.population}",)

    def _train(self, session: Session) -> Trained:
        made, state, steps = session.made, session.state, 0
        recipe, watch = made.solver.recipe, made.watch
        assert watch is not None
        with session:
            states = made.solver.run(session.curator, made.task, state)
            shown = self.verbose if session.run is not None else 0
            for state in track(states, recipe.steps, "training", shown):
                steps += 1
                if session.due():
                    session.save(state)
                if watch.after(sum(session.curator.used.values()), state):
                    break
            session.save(state)
        model, names = watch.load_state(state), watch.network.names
        if steps and recipe.learning_rate and recipe.projection is None and not watch.network.sharded:
            check_moved(self.model, model, names)
        scores = () if watch.start is None else (watch.start, *(score for _, score in watch.history))
        warn_if_diverged(session.state.vector, watch.network.flat(model), scores)
        return Trained(model, session.report, steps, tuple(watch.history))


_OTHER_WORDS = {
    "max_grad_norm": "clip_norm", "l2_norm_clip": "clip_norm", "target_epsilon": "epsilon",
    "noise_multiplier": "epsilon", "target_delta": "delta", "sample_rate": "batch_size", "max_steps": "steps",
}  # fmt: skip


def trainer_of(model: nn.Module, loss: Loss, settings: dict[str, Any]) -> Trainer:
    """Return the trainer of some settings; a word that is none of them is refused with the one that is."""
    known = [one.name for one in fields(Trainer)]
    for name in settings.keys() - known:
        close = [_OTHER_WORDS[name]] if name in _OTHER_WORDS else get_close_matches(name, known, 1)
        meant = f" Pass {close[0]}=." if close else ""
        noise = " Noise follows from epsilon." if name == "noise_multiplier" else ""
        raise InvalidInputError(f"Expected settings of sordino.nn.Trainer, got {name!r}.{meant}{noise}")
    return Trainer(model, loss, **settings)


def _place(model: nn.Module, wanted: str | torch.device | None) -> nn.Module:
    """Return the model on a device; None leaves it where it is."""
    try:
        device = _device_of(model) if wanted is None else torch.device(wanted)
    except (RuntimeError, TypeError):
        raise InvalidInputError(f"Expected a device such as 'cpu' or 'cuda:0', got {wanted!r}.") from None
    try:
        return model.to(device)
    except (AssertionError, RuntimeError) as error:  # torch asserts that it was built for the device
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise InvalidInputError(
            f"Expected a device that torch can use, got {str(device)!r}; torch says: {str(error)[:100]}."
        ) from None


def public_facts(task: NetworkTask) -> tuple[str, ...]:
    """Return what the report lists as assumed public."""
    network = task.engine.network
    said = (
        Fact.number_of(task.unit if task.grouped else "record", task.population),
        f"architecture and initial parameters ({network.size} trained)",
    )
    plain = task.grouped or task.unit == "record" or task.rows > 1
    return said if plain else (*said, f"each {task.unit} is one record of the data")


# ------------------------------------------ A private training loop of one's own, with any optimiser of torch

# what concerns the steps of a trainer, and a loop of one's own does by itself
_OF_TRAINERS = {
    "optimizer", "optimizer_options", "learning_rate", "schedule", "weight_decay", "smoothing", "projection",
    "average", "validation", "validate_every", "callbacks", "verbose",
}  # fmt: skip


class PrivateSteps:
    """The steps of a loop of one's own: each sets ``.grad`` of the model to a released gradient.

    ``privacy`` is the report. A backward pass of the caller's own that reaches the model before the loop has
    ended is noted there, and then nothing is guaranteed.
    """

    quiet = False  # whether the loop is known to use what a step sets: its first learning rate may be zero

    def __init__(self, session: Session, model: nn.Module) -> None:
        self._session, self._model, network = session, model, session.made.task.engine.network
        self._steps = session.curator.plan.releases["gradient"].times
        self._begun = self._ended = False
        self.privacy = session.report
        whom, own = weakref.ref(self), list(network.own(model).values())

        def note(gradient: Tensor) -> None:
            if (found := whom()) is not None:
                found.note_gradient()

        handles = [p.register_hook(note) for p in own]
        handles += [p.register_post_accumulate_grad_hook(note) for p in own]  # which FSDP calls for shards
        self._stop_watching = weakref.finalize(self, lambda: [handle.remove() for handle in handles])

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[int]:
        """Return the steps; loops that only ask for an iterator, as Lightning does twice, begin nothing."""
        if self._begun:
            raise self._spent_error()
        return self._release_steps()

    def end(self, steps: Iterator[int]) -> None:
        """End a loop that was begun, as a trainer does: what is left of it stays spent."""
        self._ended = True
        if self._begun:
            next(steps, None)

    def _spent_error(self) -> PlanSpentError:
        return PlanSpentError(
            "This loop was begun before, and what was left of it is spent: the ledger has closed it. "
            "Call make_private again, with a budget of its own."
        )

    def _release_steps(self) -> Iterator[int]:
        if self._begun:
            raise self._spent_error()
        self._begun = True
        network, before, released = self._session.made.task.engine.network, torch.empty(0), torch.empty(0)
        try:
            with self._session as session:
                for step in range(self._steps):
                    point = network.flat(self._model)
                    if not self.quiet and torch.equal(point, before) and released.any():
                        self.quiet = True
                        warnings.warn(_THROWN_AWAY.format(step=step - 1), UserWarning, stacklevel=2)
                    before = point
                    released = session.curator.release("gradient", point)
                    network.set_gradients(self._model, released)
                    yield step
                    if self._ended:
                        break
        finally:
            self._stop_watching()

    def note_gradient(self) -> None:
        """Note, once, that a backward pass has reached the model."""
        if not self.privacy.unpaid:
            self.privacy = self.privacy.with_unpaid("a backward pass of the caller's own")
            warnings.warn(
                "A backward pass has reached the model inside a private loop, or before it began. If its "
                "loss reads the data, this gradient has neither clip nor noise: the report now guarantees "
                "nothing. Use the .grad that each step sets; an optimiser with a closure (LBFGS) cannot be "
                "used. Differentiate public records on a copy of the model.",
                PrivacyWarning,
                stacklevel=3,
            )


_THROWN_AWAY = (
    "The gradient of step {step} was paid for and thrown away: no parameter has moved since. Each step sets "
    ".grad anew, so call optimizer.step() after every one, and zero_grad() never or after it; an optimiser "
    "of other parameters moves none of these. To accumulate gradients raise batch_size: one step then "
    "releases a larger batch, in blocks of chunk_size records. (steps.quiet = True if the loop reads .grad.)"
)


def make_private(
    model: nn.Module, loss: Loss, data: Any, *, groups: Any = None, **settings: Any
) -> PrivateSteps:
    """Return the steps of a private training loop with any ``torch.optim`` optimiser.

    Each step draws a Poisson batch, sets ``p.grad`` of the model's own parameters to the noisy mean of
    clipped gradients, and yields its number. What the loop does with ``.grad`` is free.

    Parameters
    ----------
    model, loss : the module, which is trained in place, and its criterion.
    data : (inputs, targets), a data set or a loader.
    groups : the owner of each record; then persons are sampled and clipped, see :class:`Trainer`.
    settings : those of :class:`Trainer` that concern the releases: epsilon, delta, batch_size, epochs or
        steps, clip_norm, engine, chunk_size, relation, unit, ledger, dataset_id and so on.

    **Privacy.** Holds for the whole transcript as long as the loop looks at the data only through ``.grad``.
    A backward pass of the caller's own that reaches the parameters before the loop has ended (also in a
    closure) is warned about, and the report then guarantees nothing.
    """
    trainer = trainer_of(model, loss, settings)
    if trainer.optimizer == "srm" or trainer.checkpoint is not None:
        raise InvalidInputError("Expected settings of a plain loop. Use Trainer for srm and checkpoints.")
    unused = sorted(_OF_TRAINERS & settings.keys())
    if unused:
        raise InvalidInputError(
            f"Expected settings of the releases, got {', '.join(unused)}: the loop and its optimiser are "
            "yours, so nobody would look at them. Set them there, or use Trainer."
        )
    made = trainer._prepare(source_of(data).with_owners(groups))
    made = replace(made, notes=(*made.notes, "the update rule is the caller's"))
    return PrivateSteps(together(made, lambda: open_session(made, "make_private")), model)
