"""Private training of a PyTorch model."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import torch
from torch import nn

from sordino.checks import check_count, check_positive
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
from sordino.nn.entrance import check_records
from sordino.nn.exact import exact_block
from sordino.nn.moved import check_moved, warn_if_diverged
from sordino.nn.network import Loss, Network, copied
from sordino.nn.recipes import Facts, Settings, asked_of, settled
from sordino.nn.session import Session, Training, open_session, resume_session
from sordino.nn.solvers import NetworkSolver, NetworkTask, Recipe
from sordino.nn.together import FollowingSession, together
from sordino.nn.updates import HardThreshold
from sordino.nn.watching import Callback, Watch, check_callbacks, score_every, scoring
from sordino.runs import Ask, Price, PrivacyReport, track

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
        numbers (records, epsilon, weights), see the guide. None takes the plain values in brackets.
    optimizer : ``"sgd"`` [this], ``"adam"``, ``"ls-sgd"``, ``"ls-adam"`` (smoothed by layer) or ``"srm"``.
    optimizer_options : momentum, nesterov; beta1, beta2; gamma, difference_clip, first_batch.
    batch_size : the *expected* batch size [256]: each record (or person) enters a batch independently.
    epochs, steps : how long [10 epochs]; ``steps`` goes before ``epochs``.
    clip_norm : the gradient of each record (the summed gradient of each person) is clipped to this norm [1].
    learning_rate, schedule [cosine], weight_decay, smoothing, projection, average [0] : see
        :class:`sordino.nn.solvers.Recipe`; all of them are free.
    augment, multiplicity : random views of each record, for example :class:`sordino.nn.Shifts`, and how many
        of them in each step; the mean gradient of a record's views is clipped, so they cost time only. It
        may hold public values only: of the training records, it is refused for a whole copy alone.
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
    learned: tuple[Price, ...] = ()
    verbose: int | bool = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "ledger", hidden(self.ledger))  # a password must not be printed or pickled

    def fit(self, data: Any, targets: Any = None, *, groups: Any = None) -> Trained:
        """Train on tensors, arrays, a data set or a loader; the budget is spent here.

        ``groups`` names the owner of each record, in the order of the data; a missing one is refused.
        """
        made = self._prepared(source_of(data, targets).owned(groups))
        said = f"Trainer ({self.settings(made.task.population).optimizer})"
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

    def settings(self, population: int) -> Settings:
        """Return the settings for this many records: what was asked for, the rest by the recipe."""
        weights = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        return settled(self.recipe, asked_of(self), Facts(population, self.epsilon, weights))

    def solver(self, population: int) -> NetworkSolver:
        """Return the algorithm for this many records."""
        settings = self.settings(population)
        return settings.solver(population, self.steps, self.weight_decay, self.smoothing, self.projection)

    def _checkpoint(self) -> Checkpoint | None:
        return None if self.checkpoint is None else Checkpoint(self.checkpoint, self.checkpoint_every)

    def _prepared(self, source: Source) -> Training:
        booked = self.ledger, self.dataset_id
        budget = Ask.checked(self.epsilon, self.delta, source.population, *booked, learned=self.learned)
        self._check_kinds()
        model = copied(self.model)
        device = _device_of(model, self.device)
        source = replace(source, views=views_of(self.augment, self.multiplicity, source))
        loss = self.loss if source.views is None else MeanOfViews(self.loss, source.views.count)
        network = Network(_moved_to(device, model), loss, self.precision, source.fields)
        batch = self.settings(source.population).batch_size
        chunk = self.chunk_size or source.chunk(network.size, batch, device)
        engine, said = self._engine(network, source, chunk, batch)
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
        mark = check_records(executor, network, source.example)
        facts, notes = (
            (*public_facts(task), *self._shown(network), *self.public),
            (*engine_notes(engine), *said),
        )
        if source.views is not None:
            notes = (*notes, f"clipped is the mean gradient of {source.views.count} random views of a record")
        if processes is not None:
            notes = (
                *notes,
                f"gradients added up by {processes.count} processes, one of which adds the noise",
            )
        return Training(solver, task, executor, budget, facts, notes, mark)

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

    def _shown(self, network: Network) -> tuple[str, ...]:
        """Return what the report says about records that the training is scored on; try them once."""
        score_every(self.validate_every, 1)
        check_callbacks(self.callbacks)
        score = scoring(self.validation, network, self.loss)
        if score is None:
            return ()
        model = copy.deepcopy(self.model).eval()
        if callable(self.validation):
            float(score(model))  # what fails, fails before a budget is spent
            return ("records behind the scores of the history",)
        try:
            score(model)
        except (RuntimeError, ValueError, IndexError) as error:
            raise InvalidInputError(
                "Expected validation records of the shapes and types of the training records. The model or "
                f"the loss fails on them ({type(error).__name__})."
            ) from None
        return (f"records behind the scores of the history: {source_of(self.validation).population}",)

    def _engine(
        self, network: Network, source: Source, chunk: int, batch: int
    ) -> tuple[Engine, tuple[str, ...]]:
        engine: Engine = make_engine(network, *source.example, self.engine, chunk)
        if not self.compiled:
            return engine, ()
        mode = self.compiled if isinstance(self.compiled, str) else None
        expected = 0 if source.grouped else min(batch, source.population)
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
        warn_if_diverged(self.model, model, task.engine.network.names, watch.losses)
        return Trained(model, session.report, steps, tuple(watch.history))

    def _watch(self, network: Network, recipe: Recipe) -> Watch:
        every, score = (
            score_every(self.validate_every, recipe.steps),
            scoring(self.validation, network, self.loss),
        )
        watch = Watch(self.model, network, recipe, score, every, tuple(self.callbacks))
        if score is not None and not callable(self.validation):
            watch.start = score(copy.deepcopy(self.model).eval())
        return watch


def _device_of(model: nn.Module, wanted: str | torch.device | None) -> torch.device:
    if wanted is not None:
        try:
            return torch.device(wanted)
        except (RuntimeError, TypeError):
            raise InvalidInputError(f"Expected a device such as 'cpu' or 'cuda:0', got {wanted!r}.") from None
    return next(model.parameters(), torch.zeros(())).device


def _moved_to(device: torch.device, model: nn.Module) -> nn.Module:
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
        f"number of {task.unit if task.grouped else 'record'}s: {task.population}",
        f"architecture and initial parameters ({network.size} trained)",
    )
    plain = task.grouped or task.unit == "record"
    return said if plain else (*said, f"each {task.unit} is one record of the data")
