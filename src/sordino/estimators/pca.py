"""Private principal components."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_array, check_is_fitted

from sordino.checks import check_data, declared_bound, literature, remember
from sordino.elsewhere import where_rows_lie
from sordino.errors import InvalidInputError
from sordino.execute import LocalExecutor, executor_of, is_sparse
from sordino.execute.persons import SharedExecutor
from sordino.kernel import public_generator
from sordino.private_estimator import PrivateEstimator, Tabular, refuse_unknown_owners
from sordino.problems.covariance import PcaProblem
from sordino.runs import Ask, Stream, Task
from sordino.runs.report import Fact, Source
from sordino.solvers import SOLVERS, Options, make_solver
from sordino.solvers.pca.methods import Pooled, StreamGauss
from sordino.solvers.pca.spectrum import Principal, automatic, choose_count
from sordino.values import among, check_count, check_flag, check_mapping, refusing

_RULES = ("gap", "broken-stick")
# A solver that never holds a d x d matrix follows at most this many axes when their number is chosen.
_FOLLOWED = 50


def axes_to_follow(wanted: Any, n: int, d: int) -> int:
    """Return how many axes to follow: those asked for, or as many as a private choice may need."""
    if isinstance(wanted, Integral) and not isinstance(wanted, bool):
        remedy = "It is the number of axes."
        return int(check_count("n_components", wanted, 1, min(n, d), remedy) or 1)
    share = isinstance(wanted, Real) and not isinstance(wanted, bool) and 0 < float(wanted) < 1
    rule = wanted is None or (isinstance(wanted, str) and wanted in _RULES)
    if not share and not rule:
        raise InvalidInputError(
            f"Expected n_components to be None, a whole number, a share in (0, 1) or one of {_RULES}, "
            f"got {wanted!r}."
        )
    return min(n, d) if automatic(d) == "gauss" else min(n, d, _FOLLOWED)


# ----------------------------------------------------- The open plan behind :meth:`sordino.PCA.partial_fit`


class PcaStream:
    """A paid-for stream and what it has released so far."""

    def __init__(self, problem: PcaProblem, parts: int, ask: Ask, public: tuple[str, ...]) -> None:
        self._problem, self._solver = problem, StreamGauss.configure(problem, parts)
        self.run = Stream(ask, self._solver.plan(problem), parts, public, "PCA (stream)")
        self._pooled = Pooled.empty(problem.features)

    def absorb(self, rows: Any) -> tuple[Principal, PcaProblem]:
        """Release the next chunk; return the axes so far and the problem they solve."""
        curator = self.run.feed(rows, self._problem.data_norm)
        self._pooled = self._solver.absorb(curator, self._problem, self._pooled, rows.shape[0])
        self.run.done()
        seen = replace(self._problem, population=self._pooled.count)
        return self._solver.principal(self._pooled, seen), seen


_NOISES = ("sound", "paper")


class PCA(Tabular, ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateEstimator):
    r"""Principal components under differential privacy.

    The axes of largest variance of ``clip_R(x) - m``, R = ``data_norm``, m the released mean. 0.11 of
    the (squared) budget buys the mean and the mean squared norm, and 0.04 those of rows in a ball about that
    mean; rows are then measured from the mean and clipped at their spread, so that the rest of the budget
    buys the second moment with less noise. A last 0.05 buys the variances along the axes, of rows that only R
    clips.

    Parameters
    ----------
    n_components : a number of axes; a share of the variance in (0, 1), ``"gap"`` or ``"broken-stick"``
        choose it from released eigenvalues; None keeps all, or 50 where no d x d matrix fits.
    epsilon : the privacy loss; ``float("inf")`` runs without noise.
    delta : the probability of a larger loss; None means ``min(1e-5, 1 / (10 n))``.
    solver : ``"auto"``, ``"gauss"`` (one noisy matrix), ``"screen"`` (the same on the columns that matter,
        for sparse rows), ``"power"`` (products, for many features), ``"spca"``, ``"vrpca"`` (mini-batches),
        ``"oja"`` (one pass over disjoint batches), ``"mod-sulq"`` (independent entries); only with
        ``noise="paper"``: ``"wishart"``, which is not private.
    data_norm : rows are clipped to this Euclidean norm, in fit and in transform; a public bound, never the
        data's own maximum. None is 1, and says so once.
    center : subtract the released mean; False gives the axes of the second moment about zero.
    whiten : scale the components to unit (private) variance.
    relation : ``"add-remove"`` (n is public) or ``"replace-one"``.
    noise : ``"sound"``, or ``"paper"`` for the published formula with the epsilon it really gives.
    secure_noise : exact noise on a lattice, which no artefact of floating point gives away.
    ledger, dataset_id : a :class:`sordino.ledger.Ledger` or its path, and the data set to charge.
    rows_per_person : the largest number of rows that one person has, where nobody knows whose a row is: then
        a person is protected, for so many times the noise; not in chunks.
    schema : a :class:`sordino.Schema`: then ``fit`` and ``transform`` take tables, encoded by
        :class:`sordino.TableEncoder`, and ``data_norm`` follows from it.
    max_iter : the number of steps of the iterative solvers; None lets a rule on public facts choose.
    solver_options : what else the solver reads: ``batch_size``, ``step_size`` (relative to one over the
        largest singular value of a released product), ``n_oversamples``, ``momentum``.
    n_chunks : how many calls of :meth:`partial_fit` one budget pays for.
    random_state : seeds public starting points and orders only, never the noise.
    verbose : progress on a terminal.

    Attributes
    ----------
    components_, explained_variance_, explained_variance_ratio_, singular_values_, noise_variance_
    mean_, n_components_, n_samples_, n_features_in_, feature_names_in_, n_iter_
    noisy_eigenvalues_ : the released eigenvalues before the known noise was taken out of them.
    eigenvalue_noise_ : for each axis the standard deviation of ``explained_variance_`` about what the axis
        really captures: noise, and what clipped rows may hide of it, whatever their law within ``data_norm``.
        Two of them hold it; for few records or a loose ``data_norm`` they are far larger than usual errors.
    noise_edge_ : the largest eigenvalue that the noise alone would show.
    total_variance_ : the released total variance.
    privacy_ : the :class:`sordino.PrivacyReport` of the fit.

    **Privacy.** All attributes together are (epsilon, delta)-DP for one record; see ``privacy_``.
    :meth:`transform` uses them on whatever it is given; what it returns for training rows is not private.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import normalize
    >>> from sordino import PCA
    >>> X = normalize(load_digits().data)
    >>> pca = PCA(n_components=10, epsilon=1.0, delta=1e-5).fit(X)
    >>> pca.transform(X).shape
    (1797, 10)
    """

    _sparse_rows = True

    components_: np.ndarray
    mean_: np.ndarray
    explained_variance_: np.ndarray
    explained_variance_ratio_: np.ndarray
    singular_values_: np.ndarray
    noisy_eigenvalues_: np.ndarray
    noise_variance_: float
    total_variance_: float
    eigenvalue_noise_: np.ndarray
    noise_edge_: float
    n_components_: int
    n_samples_: int
    n_iter_: int

    def __init__(
        self,
        n_components: int | float | str | None = None,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        solver: str = "auto",
        data_norm: float | None = None,
        center: bool = True,
        whiten: bool = False,
        relation: str = "add-remove",
        noise: str = "sound",
        secure_noise: bool = False,
        ledger: Any = None,
        dataset_id: str | None = None,
        rows_per_person: int | None = None,
        schema: Any = None,
        max_iter: int | None = None,
        solver_options: dict[str, Any] | None = None,
        n_chunks: int = 10,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        remember(self, locals())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def fit(self, X: Any, y: Any = None, *, groups: Any = None) -> PCA:
        """Fit the axes; the budget is spent here. ``y`` is ignored. With a schema, X is a table.

        With ``groups``, the owner of each row (or a person column of the schema), a person is protected and
        counts once, with the mean over all its rows; solvers that ask mini-batches cannot do this.
        """
        X, groups = self._read_features(X, groups)
        X = check_data(self, X, ensure_min_samples=2)
        self.__dict__.pop("_stream", None)
        if str(self.solver) == "oja" and groups is None:  # batches by position depend on no order then
            public = public_generator(self.random_state)
            X = X[public.permutation(X.shape[0])]
        rows = executor_of(X, None, declared_bound(self, "data_norm"))
        rows = rows if groups is None else SharedExecutor(rows, groups)
        ask = self._ask(rows.population)
        task = self._task((rows.population, X.shape[1]), ask, is_sparse(X), groups is not None)
        self.n_iter_ = self._run(task, rows, ask)
        return self._attested()

    def joint_task(self, records: int, features: int) -> Task:
        """Return what members run together who hold so many records of so many columns, all in all.

        **Privacy.** Parameters and public numbers; no record is touched.
        """
        return self._task((records, features), self._ask(records))

    def joint_rows(self, X: Any, y: Any = None) -> Any:
        """Return the rows of one member, checked as ``fit`` checks them, for sums."""
        return executor_of(check_data(self, X), None, declared_bound(self, "data_norm"))

    def _task(self, shape: tuple[int, int], ask: Ask, sparse: bool = False, grouped: bool = False) -> Task:
        """Return the task for this number of records or persons, and columns."""
        problem = self._problem(*shape, ask, sparse, grouped)
        options = Options.of(check_mapping("solver_options", self.solver_options), max_iter=self.max_iter)
        if self.noise == "paper":
            solver, paper = literature("pca", "published_solver")(self.solver, problem, options, ask)
        else:
            solver, paper = make_solver(self.solver, problem, options, "pca"), None
        name, prices = f"PCA ({type(solver).__name__})", self._schema_prices()
        order = ("which batch a record is in: by a public permutation",) if self.solver == "oja" else ()
        finish, facts = partial(self._finish, problem), self._facts(problem, grouped, *order)
        return Task(solver, problem, name, facts, learned=prices, finish=finish, paper=paper)

    @available_if(lambda self: self.solver in ("auto", "gauss") and self.noise == "sound")
    def partial_fit(self, X: Any, y: Any = None) -> PCA:
        """Add one of ``n_chunks`` chunks; the first call plans and pays for all of them.

        **Privacy.** Each record may be in one chunk only; then the whole stream costs one budget. The
        plan is made for chunks of the size of the first one.
        """
        stream = getattr(self, "_stream", None)
        self._refuse_persons()
        refuse_unknown_owners(self, "Chunks")
        rows = self._read_features(X, None)[0] if stream is None else self._rows(X)
        X = check_data(self, rows, ensure_min_samples=2, reset=stream is None)
        if stream is None:
            parts = check_count("n_chunks", self.n_chunks, 1, None, "It is the length of the stream.") or 1
            planned, features = X.shape[0] * parts, X.shape[1]
            budget = replace(self._ask(planned), learned=self._schema_prices())
            problem = self._problem(planned, features, budget)
            _, *facts = self._facts(problem, False)
            words = f"number of records: {planned} planned, and that of each chunk as it comes"
            first = Fact(words, Source.COUNTED, planned)
            self._stream = stream = PcaStream(problem, parts, budget, (first, *facts))
        found, problem = stream.absorb(X)
        run = stream.run
        self.__dict__.update(self._finish(problem, found), privacy_=run.report, n_iter_=run.chunks)
        return self._attested()  # once the last chunk has settled the run

    def __getstate__(self) -> dict[str, Any]:
        # An open stream holds its noise source, which must not be copied: a copy starts a new stream.
        state = super().__getstate__()
        return {key: value for key, value in state.items() if key != "_stream"}

    @where_rows_lie
    def transform(self, X: Any) -> np.ndarray:
        """Return the coordinates on the axes of rows clipped as in fit; sparse rows are not made dense."""
        check_is_fitted(self)
        X = check_data(self, self._rows(X), reset=False)
        rows = LocalExecutor(X, None, self.data_norm_).records(None)
        return (rows.margins(self._axes()) - self.mean_ @ self._axes().T).astype(X.dtype)

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Return the rows with these coordinates."""
        check_is_fitted(self)
        axes = self.components_
        if self.whiten:
            axes = axes * np.sqrt(self.explained_variance_)[:, None]
        rows = refusing(lambda: check_array(X, dtype=[np.float64, np.float32]), X)
        if rows.shape[1] != len(axes):
            raise InvalidInputError(f"Expected {len(axes)} coordinates per row, got {rows.shape[1]}.")
        return rows @ axes + self.mean_

    def get_covariance(self) -> np.ndarray:
        """Return the private covariance of the probabilistic model: the axes plus an even remainder."""
        check_is_fitted(self)
        extra = np.maximum(self.explained_variance_ - self.noise_variance_, 0.0)
        out = (self.components_.T * extra) @ self.components_
        out.flat[:: len(out) + 1] += self.noise_variance_
        return out

    def get_precision(self) -> np.ndarray:
        """Return the inverse of :meth:`get_covariance`."""
        return np.linalg.pinv(self.get_covariance(), hermitian=True)

    def _axes(self) -> np.ndarray:
        if not self.whiten:
            return self.components_
        return self.components_ / np.sqrt(self.explained_variance_)[:, None]

    def _problem(
        self, n: int, d: int, budget: Ask, sparse: bool = False, grouped: bool = False
    ) -> PcaProblem:
        among("noise", self.noise, _NOISES)
        among("solver", self.solver, ("wishart", *SOLVERS["pca"]))
        check_flag("whiten", self.whiten)
        if self.noise == "paper" and check_flag("center", self.center):
            raise InvalidInputError(
                "Expected center=False with noise='paper', got center=True: the papers do not pay for a mean."
            )
        if self.solver == "wishart" and self.noise != "paper":
            raise InvalidInputError(
                f"Expected noise='paper' with solver={self.solver!r}, got 'sound': it serves as a benchmark "
                "only (Wishart noise is not private). Use solver='gauss'."
            )
        return PcaProblem(
            n,
            d,
            axes_to_follow(self.n_components, n, d),
            **self._shared_facts(budget, grouped),
            data_norm=declared_bound(self, "data_norm"),
            center=check_flag("center", self.center),
            adaptive=self.noise == "sound",
            sparse=sparse,
            random_state=self.random_state,
        )

    def _finish(self, problem: PcaProblem, found: Principal) -> dict[str, Any]:
        """Return what was released, for the number of axes that was asked for or is chosen now."""
        n, d, rule = problem.population, problem.features, self.n_components
        fixed = rule is None or isinstance(rule, Integral)
        count = len(found.axes) if rule is None or fixed else choose_count(rule, found, d)
        facts = {"n_components": count, "n_samples": n, "data_norm": problem.data_norm}
        told = found.attributes(problem, count)
        if told["eigenvalue_noise"][0] > told["explained_variance"][0]:
            self._warn(
                "the noise of the first eigenvalue (eigenvalue_noise_) is larger than it, so that no "
                "variance is known, and axes may not be. Declare a tighter data_norm, or use more records or "
                "a larger epsilon."
            )
        return {f"{name}_": v for name, v in (facts | told).items()}
