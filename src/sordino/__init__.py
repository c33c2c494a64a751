"""Learning from sensitive, high-dimensional data with differential privacy that is true."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sordino.late import import_late

if TYPE_CHECKING:
    from sordino.accounting.trade_off import Risk as Risk
    from sordino.auditing import audit as audit
    from sordino.estimators.evaluation import private_score as private_score
    from sordino.estimators.evaluation import private_scores_by as private_scores_by
    from sordino.estimators.group_statistics import count as count
    from sordino.estimators.group_statistics import crosstab as crosstab
    from sordino.estimators.group_statistics import group_by as group_by
    from sordino.estimators.group_statistics import histogram as histogram
    from sordino.estimators.heavy import HeavyTailedClassifier as HeavyTailedClassifier
    from sordino.estimators.heavy import HeavyTailedRegressor as HeavyTailedRegressor
    from sordino.estimators.intervals import intervals as intervals
    from sordino.estimators.intervals import prediction_intervals as prediction_intervals
    from sordino.estimators.linear import LinearClassifier as LinearClassifier
    from sordino.estimators.linear import LinearRegression as LinearRegression
    from sordino.estimators.linear import LogisticRegression as LogisticRegression
    from sordino.estimators.linear import OrderedLogisticRegression as OrderedLogisticRegression
    from sordino.estimators.linear import SparseLinearRegression as SparseLinearRegression
    from sordino.estimators.linear import SparseLogisticRegression as SparseLogisticRegression
    from sordino.estimators.pca import PCA as PCA
    from sordino.estimators.pipeline import pipeline_privacy as pipeline_privacy
    from sordino.estimators.preprocessing import PrivateColumnWeights as PrivateColumnWeights
    from sordino.estimators.preprocessing import PrivateStandardScaler as PrivateStandardScaler
    from sordino.estimators.preprocessing import RowClipper as RowClipper
    from sordino.estimators.preprocessing import ScatteringTransformer as ScatteringTransformer
    from sordino.estimators.search import PrivateSearchCV as PrivateSearchCV
    from sordino.estimators.statistics import MedianOfMeans as MedianOfMeans
    from sordino.estimators.statistics import TruncatedMean as TruncatedMean
    from sordino.estimators.statistics import covariance as covariance
    from sordino.estimators.statistics import mean as mean
    from sordino.estimators.statistics import quantiles as quantiles
    from sordino.estimators.statistics import variance as variance
    from sordino.execute.cluster import on_cluster as on_cluster
    from sordino.execute.disk import on_disk as on_disk
    from sordino.execute.disk_files import to_disk as to_disk
    from sordino.kernel import Relation as Relation
    from sordino.ledger import BudgetPolicy as BudgetPolicy
    from sordino.ledger import Ledger as Ledger
    from sordino.runs import PrivacyReport as PrivacyReport
    from sordino.runs.task import progress as progress
    from sordino.saving import load as load
    from sordino.saving import save as save
    from sordino.saving import to_onnx as to_onnx
    from sordino.tables import Schema as Schema
    from sordino.tables import TableEncoder as TableEncoder

__version__ = "0.2.0.dev0"
_LOADED = time.time_ns()  # source that changes later is not what this process runs

# names by module and task; loaded when first used, so that `import sordino` stays fast
_MODULES = {
    "estimators.linear": "LogisticRegression LinearRegression LinearClassifier SparseLogisticRegression "
    "SparseLinearRegression OrderedLogisticRegression",
    # data without bounds
    "estimators.heavy": "HeavyTailedClassifier HeavyTailedRegressor",
    "estimators.statistics": "TruncatedMean MedianOfMeans mean variance covariance quantiles",
    "estimators.group_statistics": "count histogram crosstab group_by",
    "estimators.pca": "PCA",
    "tables": "Schema TableEncoder",
    # preparing, choosing, combining
    "estimators.preprocessing": "PrivateStandardScaler PrivateColumnWeights RowClipper ScatteringTransformer",
    "estimators.search": "PrivateSearchCV",
    "estimators.evaluation": "private_score private_scores_by",
    "estimators.intervals": "intervals prediction_intervals",
    "estimators.pipeline": "pipeline_privacy",
    "saving": "save load to_onnx",
    "runs.task": "progress",
    # where the rows lie
    "execute.cluster": "on_cluster",
    "execute.disk": "on_disk",
    "execute.disk_files": "to_disk",
    # guarantees and budgets
    "runs": "PrivacyReport",
    "auditing": "audit",
    "kernel": "Relation",
    "accounting.trade_off": "Risk",
    "ledger": "Ledger BudgetPolicy",
}
_EXPORTS = {name: f"sordino.{module}" for module, names in _MODULES.items() for name in names.split()}

__all__ = ["__version__", *_EXPORTS]


if not TYPE_CHECKING:  # a checker that saw it would take every misspelt name for something
    __getattr__, __dir__ = import_late(__name__, _EXPORTS, ("nn",))
