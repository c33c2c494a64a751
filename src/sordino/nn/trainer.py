"""Private training of a PyTorch model."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import torch
from torch import nn

from sordino.errors import InvalidInputError, InvalidTypeError
from sordino.execute.processes import joined
from sordino.kernel import Relation
from sordino.ledger.address import hidden
from sordino.nn.augment import MeanOfViews, views_of
from sordino.nn.checkpoint import Checkpoint
from sordino.nn.compiled import compiled_engine
from sordino.nn.data import Source, source_of
from sordino.nn.engine_choice import engine_notes, make_engine
from sordino.nn.engines import Engine
from sordino.nn.exact import exact_block
from sordino.nn.moved import check_moved
from sordino.nn.network import Loss, Network
from sordino.nn.session import Session, Training, open_session, resume_session
from sordino.nn.solvers import Descent, NetworkSolver, NetworkTask, Recipe, Srm
from sordino.nn.together import FollowingSession, together
from sordino.nn.updates import Adam, HardThreshold, Sgd, schedule_of
from sordino.nn.watching import Callback, Watch, check_callbacks, score_every, scoring
from sordino.runs import Ask, PrivacyReport, track

# name -> (what makes the solver from a recipe and options, strength of smoothing, learning rate)
OPTIMIZERS: dict[str, tuple[Callable[..., NetworkSolver], float, float]] = {
    "sgd": (lambda recipe, **options: Descent(recipe, Sgd(**options)), 0.0, 0.5),
    "adam": (lambda recipe, **options: Descent(recipe, Adam(**options)), 0.0, 2e-3),
    "ls-sgd": (lambda recipe, **options: Descent(recipe, Sgd(**options)), 1.0, 0.5),
    "ls-adam": (lambda recipe, **options: Descent(recipe, Adam(**options)), 1.0, 2e-3),
    "srm": (Srm, 0.0, 0.5),
}


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
    optimizer : ``"sgd"``, ``"adam"``, ``"ls-sgd"``, ``"ls-adam"`` (smoothed layer by layer) or ``"srm"``.
    optimizer_options : momentum, nesterov; beta1, beta2; gamma, difference_clip, first_batch.
    batch_size : the *expected* batch size: each record (or person) enters a batch independently.
    epochs, steps : how long; ``steps`` goes before ``epochs``.
    clip_norm : the gradient of each record (the summed gradient of each person) is clipped to this norm.
    learning_rate, schedule, weight_decay, smoothing, projection, average : see
        :class:`sordino.nn.solvers.Recipe`; all of them are free.
    augment, multiplicity : random views of each record, for example :class:`sordino.nn.Shifts`, and how many
        of them in each step; the mean gradient of a record's views is clipped, so they cost time only.
    engine : ``"auto"``, ``"ghost"``, ``"lean"`` or ``"vmap"``: how clipped sums are computed. Same answer.
    chunk_size : how many records are differentiated at once. Same answer, other memory.
    device, precision : where, and in which type the forward pass runs.
    compiled : True, or a mode of ``torch.compile``. Tried on made-up records first; where it fails or is not
        faster, steps run without it, with a warning and a note in the report.
    device_noise : expand the noise on the device; None does so on a GPU.
    secure_noise : noise without floating-point artefacts: what each record adds is truncated to a lattice of
        integers, and the noise is exactly rounded to it. Gradients are formed one by one, which takes longer.
    relation, unit : which data sets are neighbours. ``unit`` is a word for what one record is, for example a
        person all of whose data it holds; it groups nothing, and the report says so. With ``groups`` it is
        a word for the owners of records, ``"person"`` where nothing else is said.
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
    optimizer: str = "sgd"
    optimizer_options: dict[str, Any] = field(default_factory=dict)
    batch_size: int = 256
    epochs: float = 10.0
    steps: int | None = None
    clip_norm: float = 1.0
    learning_rate: float | None = None
    schedule: str | Callable[[float], float] = "cosine"
    weight_decay: float = 0.0
    smoothing: float | None = None
    projection: HardThreshold | None = None
    average: float = 0.0
    augment: Any = None
    multiplicity: int = 1
    engine: str = "auto"
    chunk_size: int | None = None
    device: str | torch.device | None = None
    precision: torch.dtype = torch.float32
    compiled: bool | str = False
    device_noise: bool | None = None
    secure_noise: bool = False
    relation: str | Relation = "add-remove"
    unit: str = "record"
    ledger: Any = None
    dataset_id: str | None = None
    checkpoint: Any = None
    checkpoint_every: int = 50
    distributed: bool | None = None
    validation: Any = None
    validate_every: int | None = None
    callbacks: tuple[Callback, ...] = ()
    public: tuple[str, ...] = ()
    verbose: int | bool = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "ledger", hidden(self.ledger))  # a password must not be printed or pickled

    def fit(self, data: Any, targets: Any = None, *, groups: Any = None) -> Trained:
        """Train on tensors, arrays, a data set or a loader; the budget is spent here.

        ``groups`` names the owner of each record, in the order of the data; a missing one is refused.
        """
        made = self._prepared(source_of(data, targets).owned(groups))
        said = f"Trainer ({self.optimizer})"
        session = together(made, lambda: open_session(made, said, self._checkpoint()))
        return self._train(session, made.solver, made.task)

    def resume(self, data: Any, targets: Any = None, *, groups: Any = None) -> Trained:
        """Go on after a crash, on the same data, with the same owners and settings.

        The run keeps its plan and its reservation. Releases that were asked since the last saving are
        spent and not repeated.
        """
        checkpoint = self._checkpoint()
        if checkpoint is None:
            raise InvalidInputError("Expected a checkpoint to resume from, got None. Pass checkpoint=.")
        made = self._prepared(source_of(data, targets).owned(groups))
        session = together(made, lambda: resume_session(made, checkpoint))
        return self._train(session, made.solver, made.task)

    def solver(self, population: int) -> NetworkSolver:
        """Return the algorithm for this many records."""
        if self.optimizer not in OPTIMIZERS:
            raise InvalidInputError(f"Expected optimizer in {sorted(OPTIMIZERS)}, got {self.optimizer!r}.")
        build, smoothing, rate = OPTIMIZERS[self.optimizer]
        batch = min(self.batch_size, population)
        recipe = Recipe(
            steps=self._steps(population, batch),
            batch=batch,
            clip=self.clip_norm,
            learning_rate=rate if self.learning_rate is None else self.learning_rate,
            schedule=schedule_of(self.schedule),
            weight_decay=self.weight_decay,
            smoothing=smoothing if self.smoothing is None else self.smoothing,
            projection=self.projection,
            average=self.average,
        )
        return build(recipe, **self.optimizer_options)

    def _steps(self, population: int, batch: int) -> int:
        if self.steps is not None:
            return self.steps
        if not 0 < self.epochs < math.inf:
            raise InvalidInputError(f"Expected epochs > 0, got {self.epochs}.")
        return max(1, round(self.epochs * population / batch))

    def _checkpoint(self) -> Checkpoint | None:
        return None if self.checkpoint is None else Checkpoint(self.checkpoint, self.checkpoint_every)

    def _prepared(self, source: Source) -> Training:
        budget = Ask.checked(self.epsilon, self.delta, source.population, self.ledger, self.dataset_id)
        if not isinstance(self.precision, torch.dtype):
            raise InvalidTypeError(f"Expected precision as a torch.dtype, got {self.precision!r}.")
        device = _device_of(self.model, self.device)
        source = replace(source, views=views_of(self.augment, self.multiplicity, source.example))
        loss = self.loss if source.views is None else MeanOfViews(self.loss, source.views.count)
        network = Network(copy.deepcopy(self.model).to(device), loss, self.precision, source.fields)
        chunk = self.chunk_size or source.chunk(network.size, self.batch_size, device)
        engine, said = self._engine(network, source, chunk)
        owned = source.owners is not None
        unit = "person" if owned and self.unit == "record" else self.unit
        block = exact_block(engine, *source.example, chunk) if self.secure_noise else None
        task = NetworkTask(
            engine, source.population, Relation.parse(self.relation), unit, source.grouped, block
        )
        wanted = device.type == "cuda" if self.device_noise is None else self.device_noise
        noisy_device = wanted and not self.secure_noise
        solver, processes = self.solver(source.population), joined(self.distributed)
        executor = source.executor(device, chunk, noisy_device, processes)
        facts, notes = (
            (*public_facts(task), *self._shown(network), *self.public),
            (*engine_notes(engine), *said),
        )
        if source.views is not None:
            notes = (*notes, f"the mean gradient of {source.views.count} random views of a record is clipped")
        if processes is not None:
            notes = (
                *notes,
                f"gradients added up by {processes.count} processes, one of which adds the noise",
            )
        return Training(solver, task, executor, budget, facts, notes)

    def _shown(self, network: Network) -> tuple[str, ...]:
        """Return what the report says about records that the training is scored on; try them once."""
        score_every(self.validate_every, 1)
        check_callbacks(self.callbacks)
        score = scoring(self.validation, network, self.loss)
        if score is None:
            return ()
        float(score(copy.deepcopy(self.model).eval()))  # what fails, fails before a budget is spent
        if callable(self.validation):
            return ("records behind the scores of the history",)
        return (f"records behind the scores of the history: {source_of(self.validation).population}",)

    def _engine(self, network: Network, source: Source, chunk: int) -> tuple[Engine, tuple[str, ...]]:
        engine: Engine = make_engine(network, *source.example, self.engine, chunk)
        if not self.compiled:
            return engine, ()
        mode = self.compiled if isinstance(self.compiled, str) else None
        expected = 0 if source.grouped else min(self.batch_size, source.population)
        return compiled_engine(engine, chunk, expected, source.example, mode)

    def _train(self, session: Session | FollowingSession, solver: Any, task: NetworkTask) -> Trained:
        state, steps, recipe = session.state, 0, solver.recipe
        watch = self._watch(task.engine.network, recipe)
        with session:
            states = solver.run(session.curator, task, state)
            shown = self.verbose if isinstance(session, Session) else 0
            for state in track(states, recipe.steps, "training", shown):
                steps += 1
                if session.due():
                    session.save(state)
                if watch.after(sum(session.curator.used.values()), state):
                    break
            session.save(state)
        model = watch.loaded(state)
        if steps and recipe.learning_rate and recipe.projection is None:
            check_moved(self.model, model, task.engine.network.names)
        return Trained(model, session.report, steps, tuple(watch.history))

    def _watch(self, network: Network, recipe: Recipe) -> Watch:
        every = score_every(self.validate_every, recipe.steps)
        return Watch(
            self.model,
            network,
            recipe,
            scoring(self.validation, network, self.loss),
            every,
            tuple(self.callbacks),
        )


def _device_of(model: nn.Module, wanted: str | torch.device | None) -> torch.device:
    if wanted is not None:
        return torch.device(wanted)
    return next(model.parameters(), torch.zeros(())).device


def public_facts(task: NetworkTask) -> tuple[str, ...]:
    """Return what the report lists as assumed public."""
    network = task.engine.network
    said = (
        f"number of {task.unit if task.grouped else 'record'}s: {task.population}",
        f"architecture and initial parameters ({network.size} trained)",
    )
    plain = task.grouped or task.unit == "record"
    return said if plain else (*said, f"each {task.unit} is one record of the data")
