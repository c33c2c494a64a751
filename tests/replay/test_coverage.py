"""Everything that asks a curator has a row: whoever registers something new is told what is missing."""

import importlib
import inspect
import pkgutil

import pytest
from tests.replay.cases import Case, cases_of
from tests.replay.networks import network_rows
from tests.replay.subjects import all_rows

import sordino
from sordino import nn
from sordino.estimators.metrics import METRICS
from sordino.kernel import Relation
from sordino.nn.solvers import OPTIMIZERS
from sordino.solvers import SOLVERS

ROWS = [*all_rows(), *network_rows()]
# Public names that ask no curator, and why.
SILENT = {
    "PrivacyReport Relation Risk Ledger BudgetPolicy Schema __version__": "facts and budgets",
    "audit": "listens itself",
    "save load to_onnx progress": "work with what was released",
    "on_cluster on_disk to_disk": "say where rows lie; the places of the rows",
    "RowClipper ScatteringTransformer TableEncoder": "look at one row at a time, by public rules",
    "Adam Sgd HardThreshold Descent Srm Recipe warm_up": "parts of the trainer's rows",
    "Step Checkpoint Trained": "what the trainer's rows leave behind",
    "GhostEngine VmapEngine Network TorchGradient TorchDifference": "parts of the trainer's rows",
    "Shifts Scattering replace_batch_norm": "public functions of one record, or of a model",
    "PrivateTraining": "the base of PrivateTrainer, which has a row",
    "TorchModel": "a client of a federation, which runs the trainer",
}
# Executors and the row and place that reach them.
REACHED = {
    "LocalExecutor": ("SparseLinearRegression/ight/squared", "memory"),
    "GroupedExecutor": ("SparseLinearRegression/ight/squared", "persons"),
    "DiskExecutor": ("SparseLinearRegression/ight/squared", "disk"),
    "TensorExecutor": ("SparseLinearRegression/ight/squared", "tensors"),
    "DaskExecutor": ("SparseLinearRegression/ight/squared", "dask"),
    "ValueExecutor": ("learn_schema", "memory"),
    "SharedExecutor": ("PCA/gauss/center=True", "persons"),
    "StreamExecutor": ("PCA/chunks", "memory"),
    "TorchExecutor": ("Trainer/ghost", "memory"),
    "SimulatedParties": ("joint run/auto/secure-aggregation", "memory"),
}
# Executors without a row here, and why.
APART = {
    "MarkedPart": "a part of an executor on a cluster",
    "PartiesExecutor": "the integers and the noise of SimulatedParties; tests/parties compares the two",
    "ShardedExecutor": "a part of a training in several processes, which tests/nn/test_shards.py starts",
    "SharingClient": "its record is one client's update, which tests/parties/test_shared_noise.py judges",
    "FederationExecutor": "its records are replies of clients, which tests/parties makes",
}


def short_cases(name: str) -> set[tuple[str, str]]:
    """Return the relations and places of a row that every run replays."""
    return {(case.relation, case.place) for case in cases_of(ROWS, long=False) if case.subject.name == name}


def test_every_public_name_has_a_row_or_a_reason():
    silent = {name for names in SILENT for name in names.split()}
    covered = {row.covers for row in ROWS}
    public = set(sordino.__all__) | set(nn.__all__)
    assert public - silent - covered == set(), "give them a row in tests/replay/subjects.py, or say why not"
    assert silent <= public
    assert not silent & covered


@pytest.mark.parametrize("solver", SOLVERS["linear"])
def test_every_linear_solver_is_replayed(solver):
    found = short_cases(f"SparseLinearRegression/{solver}/squared")
    places = {place for _, place in found}
    assert {(relation.value, "memory") for relation in Relation} <= found
    assert places >= {"memory", "csr", "disk", "tensors"}
    assert ("persons" in places) == SOLVERS["linear"][solver].capabilities.persons


def test_every_other_registry_is_replayed():
    both = {(relation.value, "memory") for relation in Relation}
    for solver in SOLVERS["pca"]:
        assert both <= short_cases(f"PCA/{solver}/center=True")
    for metric in METRICS:
        assert both <= short_cases(f"private_score/{metric}")
    for optimizer in OPTIMIZERS:
        assert ("add-remove", "memory") in short_cases(f"NeuralClassifier/{optimizer}")


def executors() -> set[str]:
    """Return the names of the classes of the library that answer releases."""
    found = set()
    for module in pkgutil.walk_packages(sordino.__path__, "sordino."):
        room, kernels_of_gpus = module.name.split(".")[1], module.name.endswith("_gpu")
        if room in ("execute", "parties", "nn") and not kernels_of_gpus:
            members = vars(importlib.import_module(module.name)).values()
            found |= {m.__name__ for m in members if isinstance(m, type) and _answers(m)}
    return found


def _answers(kind: type) -> bool:
    own = kind.__module__.startswith("sordino.") and not getattr(kind, "_is_protocol", False)
    ways = [getattr(kind, name, None) for name in ("total", "noisy_total")]
    return own and any(
        inspect.isfunction(way) and "batch" in inspect.signature(way).parameters for way in ways
    )


def test_every_executor_has_a_row_or_a_reason():
    assert executors() == set(REACHED) | set(APART)


WAYS = [(executor, *way) for executor, way in REACHED.items() if executor != "DaskExecutor"]
WAYS += [("TorchExecutor", "Trainer/ghost", "persons"), ("TorchExecutor", "Trainer/views", "memory")]


@pytest.mark.parametrize(("executor", "name", "place"), WAYS)
def test_a_row_reaches_the_executor_it_is_for(executor, name, place, tmp_path):
    subject = next(row for row in ROWS if row.name == name)
    case = Case(subject, subject.relations[-1], place, False)
    asked = case.recorded(tmp_path).questions
    assert {question.executor for question in asked} == {executor}
