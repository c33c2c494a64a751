"""What all estimators share: runs that keep attributes, texts without secrets or data, tables by a schema."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from sordino.checks import LEARNED_LABELS, bound_fact, declared_bound, encode_labels
from sordino.errors import (
    FitWarning,
    InvalidInputError,
    SchemaError,
    UnsupportedError,
    levels_to_the_caller,
)
from sordino.execute import hold, in_dask, strip_tensor
from sordino.execute.persons import number_owners
from sordino.kernel import Relation
from sordino.kernel.arrays import Floats
from sordino.ledger.address import hide
from sordino.runs import Ask, Price, PrivacyReport, Task, run
from sordino.runs.report import Fact, Source
from sordino.tables.columns import Target
from sordino.tables.encoder import TableEncoder, choose_basis
from sordino.tables.schema import Schema
from sordino.tables.values import frame_of, number_of
from sordino.values import check_count, check_flag, refusing


class PrivateEstimator(BaseEstimator):
    """A scikit-learn estimator that keeps secrets out of its texts."""

    epsilon: float
    delta: float | None
    relation: str
    ledger: Any
    dataset_id: str | None
    privacy_: PrivacyReport
    n_features_in_: int
    _sparse_rows: ClassVar[bool] = False  # whether it takes sparse matrices
    feature_names_in_: NDArray[np.object_]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic, tags.input_tags.sparse = True, self._sparse_rows
        return tags

    def __setattr__(self, name: str, value: Any) -> None:
        # Here and not in __init__: set_params and clone assign as well.
        super().__setattr__(name, hide(value) if name == "ledger" and isinstance(value, str) else value)

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``solver_options__name`` sets one of the solver's options and leaves the others.

        Examples
        --------
        >>> from sordino import LogisticRegression
        >>> LogisticRegression(solver="gd").set_params(solver_options__step_size=0.1).solver_options
        {'step_size': 0.1}
        """
        known = getattr(self, "solver_options", None)
        own = {name: value for name, value in params.items() if name.startswith("solver_options__")}
        if own:
            params = {name: value for name, value in params.items() if name not in own}
            named = {name.removeprefix("solver_options__"): value for name, value in own.items()}
            params["solver_options"] = {**(params.get("solver_options", known) or {}), **named}
        super().set_params(**params)
        return self

    def save(self, path: Any, *, about: Mapping[str, Any] | None = None) -> Path:
        """Write the fitted model to a file; :func:`sordino.load` reads it without running anything.

        See :func:`sordino.save`.
        """
        from sordino.saving import save

        return save(self, path, about=about)

    def _attested(self) -> Self:
        """Tell the ledger which numbers a fit released, before anybody can change them; return the model."""
        from sordino.saving.files import attest

        if self.ledger is not None:
            attest(self)
        return self

    def _ask(self, population: int) -> Ask:
        """Return the budget that the parameters ask for, checked, for so many units."""
        return Ask.checked(self.epsilon, self.delta, population, self.ledger, self.dataset_id)

    def _run(self, task: Task, rows: Any, ask: Ask) -> int:
        """Run a task and keep the attributes that it is finished to; return how many steps it took."""
        told = self.__dict__["_told"] = []
        try:
            fitted = run(task, rows, ask, verbose=getattr(self, "verbose", 0))
        finally:
            del self.__dict__["_told"]
        self.__dict__.update(fitted.result, privacy_=fitted.report)
        self._note(*told)
        return fitted.steps

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return scikit-learn's text, in which epsilon always stands, also where it is the default."""
        text = str(super().__repr__(N_CHAR_MAX))
        head, mark, rest = text.partition("(")
        known = signature(type(self)).parameters.get("epsilon")
        if known is None or repr(self.epsilon) != repr(known.default):  # then it stands there
            return text
        return f"{head}{mark}epsilon={self.epsilon}{'' if rest.startswith(')') else ', '}{rest}"

    def _html_repr(self) -> str:
        """Return scikit-learn's diagram and, of a fitted model, its guarantee; notebooks show it."""
        diagram = str(super()._html_repr())
        report = getattr(self, "privacy_", None)
        return f"{diagram}{report._repr_html_()}" if isinstance(report, PrivacyReport) else diagram

    def _warn(self, text: str, kind: type[Warning] = FitWarning) -> None:
        """Say what released numbers tell of the model, now and in the notes of its report."""
        warnings.warn(f"{type(self).__name__}: {text}", kind, stacklevel=levels_to_the_caller())
        if "_told" in self.__dict__:  # it runs, and has no report yet
            self.__dict__["_told"].append(text)
        elif hasattr(self, "privacy_"):
            self._note(text)

    def _note(self, *words: str) -> None:
        if words:
            self.privacy_ = replace(self.privacy_, notes=(*self.privacy_.notes, *words))


class Scored:
    """Score as scikit-learn does, without a value of the data in any message."""

    def __sklearn_tags__(self) -> Any:
        inherited: Any = super()
        tags = inherited.__sklearn_tags__()
        for kind in filter(None, (tags.classifier_tags, tags.regressor_tags)):
            kind.poor_score = True  # a few dozen rows cannot be learnt from privately
        return tags

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the score of scikit-learn on these rows: an exact number, which is not private."""
        inherited: Any = super()
        schema = getattr(self, "schema", None)
        if y is None and schema is not None:
            schema.checked(X, target=True)
            X, y, _ = schema.split(X, bounded=False)
        known = strip_tensor(y)
        return float(refusing(lambda: inherited.score(X, known, sample_weight), X, known, self))


@dataclass(eq=False, repr=False)
class Budget:
    """What stands first in the signature of a model."""

    epsilon: float = 1.0
    delta: float | None = None


class Tabular:
    """Tables in where the estimator has a schema; without one everything is as it was.

    **Privacy.** The encoder changes each row by itself, with declared constants. Bounds, classes and persons
    come from the schema, and the report says so.
    """

    # Whether the model takes dense rows only, and whether its default has curves and pairs by rule.
    _dense_tables: ClassVar[bool] = False
    _curved_tables: ClassVar[bool] = False
    # Whether it knows weights and exposures of records.
    _weighs_tables: ClassVar[bool] = False

    schema: Any
    epsilon: float
    relation: str
    rows_per_person: int | None
    secure_noise: bool
    encoder_: TableEncoder
    coef_names_: np.ndarray

    def __setattr__(self, name: str, value: Any) -> None:
        # Here and not in __init__: set_params and clone assign as well. A path that is no file waits for fit.
        is_file = name == "schema" and isinstance(value, (str, os.PathLike)) and os.path.isfile(value)
        super().__setattr__(name, Schema.of(value) if is_file else value)

    def _read_table(self, X: Any, y: Any, groups: Any) -> tuple[Any, Any, Any]:
        """Return the rows, targets and persons of a table, or what was passed."""
        encoder = self._fresh_encoder()
        if encoder is None:
            return X, y, groups
        target = declared_target(self)
        wanted = "category" if hasattr(self, "classes") else "number"
        if target is not None and target.kind != wanted:
            raise SchemaError(
                f"Column {target.name!r}: {type(self).__name__} predicts a {wanted}, the schema declares a "
                f"{target.kind}. Use a {'regressor' if wanted == 'category' else 'classifier'} instead."
            )
        if in_dask(X):
            return self._encode_elsewhere(encoder, X, y, groups)
        _refuse_nameless(X, y)
        frame = self.schema.checked(X, target=y is None, person=True)
        groups = self._persons_of(frame, groups)
        y = self.schema.targets(frame) if y is None else y
        encoder = self._with_basis(
            encoder, lambda: frame.rows if groups is None else np.unique(number_owners(groups)).size
        )
        return self._keep_encoder(encoder).encoded(frame), y, groups

    def _encode_elsewhere(self, encoder: TableEncoder, X: Any, y: Any, groups: Any) -> tuple[Any, Any, Any]:
        """Return a table that lies in Dask, encoded there."""
        target, schema = declared_target(self), self.schema
        if y is None and target is not None and target.missing == "leave out":
            raise UnsupportedError(
                f"Column {target.name!r}: records without a target are left out of tables in one place "
                'only. Leave them out before the table goes to Dask, and declare missing = "refuse".'
            )
        encoder = self._with_basis(encoder, lambda: hold(X, None, _zeros)[0].shape[0])  # type: ignore[index]
        found = hold(X, y, encoder.transform, partial(_targets_of, schema))
        if found is None or schema.person is not None or groups is not None:
            raise UnsupportedError(
                "Persons need all rows in one place: the records of one may lie in several parts. Bring the "
                "table into one place (X.compute())."
            )
        self._keep_encoder(encoder)
        return *found, None

    def _table_weights(self, X: Any, y: Any, declared: Any) -> Floats | None:
        """Return how much each row of a table counts, where the schema says so; None elsewhere."""
        if not isinstance(self.schema, Schema) or not self.schema.weighing:
            return None
        if declared is not None or y is not None or in_dask(X):
            raise InvalidInputError(
                "Expected a table in one place with its own target and weights: the schema says by column "
                f"{self.schema.weighing[0].name!r} how much a record counts. Leave out y and sample_weight."
            )
        found: Floats | None = self.schema.weights(self.schema.checked(X, target=True, person=True))
        return found

    def _with_basis(self, encoder: TableEncoder, units: Callable[[], int]) -> TableEncoder:
        """Return the encoder with the curves and pairs that the user or the rule chose.

        **Privacy.** The rule reads the schema, the number of records or persons, and epsilon.
        """
        chosen = {name: getattr(self, name, None) for name in ("knots", "pairs")}
        if not self._curved_tables and set(chosen.values()) == {None}:
            return encoder
        epsilon = Ask.checked(self.epsilon, None, 1).epsilon / declared_rows(self)
        basis = choose_basis(self.schema, units(), epsilon, **chosen)
        return TableEncoder(self.schema, basis=basis, sparse_output=encoder.sparse_output).fit()

    def _read_features(self, X: Any, groups: Any) -> tuple[Any, Any]:
        """Return the rows and persons of a table, or what was passed, for a model without targets."""
        encoder = self._fresh_encoder()
        if encoder is None:
            return X, groups
        if not in_dask(X):
            _refuse_nameless(X, None)
            frame = self.schema.checked(X, person=self.schema.person is not None)
            groups = self._persons_of(frame, groups)
            return self._keep_encoder(encoder).encoded(frame), groups
        self._refuse_persons()
        found = hold(X, None, self._keep_encoder(encoder).transform)
        return None if found is None else found[0], groups

    def _persons_of(self, frame: Any, groups: Any) -> Any:
        """Return the owner of each record of a table, by its schema or as it was passed."""
        if self.schema.person is not None and groups is not None:
            raise InvalidInputError("Expected groups=None: the schema declares a person column.")
        return groups if self.schema.person is None else self.schema.persons(frame)

    def _fresh_encoder(self) -> TableEncoder | None:
        """Forget the encoder of an earlier fit; return that of the schema, if there is one."""
        for name in ("encoder_", "coef_names_", "shapes_"):
            self.__dict__.pop(name, None)
        if self.schema is None:
            for name in ("knots", "pairs"):
                if getattr(self, name, None) is not None:
                    raise InvalidInputError(
                        f"Expected {name}=None without a schema: it is about the columns of a table."
                    )
            return None
        self.schema = Schema.of(self.schema)
        encoder = TableEncoder(self.schema, sparse_output=False if self._dense_tables else "auto").fit()
        if self.schema.weighing and not self._weighs_tables:
            raise SchemaError(
                f"Column {self.schema.weighing[0].name!r}: {type(self).__name__} knows no weights of "
                'records. Choose a linear or logistic model, or declare the column as kind = "ignored".'
            )
        return encoder

    def _keep_encoder(self, encoder: TableEncoder) -> TableEncoder:
        self.encoder_, self.coef_names_ = encoder, encoder.get_feature_names_out()
        return encoder

    def _refuse_persons(self) -> None:
        person = self.schema.person if isinstance(self.schema, Schema) else None
        if person is not None:
            raise SchemaError(
                f"Column {person.name!r}: it says whose record each one is, and {type(self).__name__} "
                "protects records here. Bring the rows into one place and call fit, or, where a "
                'record is all of a person, declare the column as kind = "ignored".'
            )

    def _rows(self, X: Any) -> Any:
        """Return the rows to predict for, through the same map as in fit."""
        encoder = getattr(self, "encoder_", None)
        return X if encoder is None else encoder.transform(X)

    @property
    def _exact_noise(self) -> bool:
        return check_flag("secure_noise", self.secure_noise)

    def _shared_facts(self, ask: Ask, grouped: bool, questions: int = 1) -> dict[str, Any]:
        """Return what a setting holds of whom it protects, where each record is asked as so many rows."""
        rows = declared_rows(self, grouped) * questions
        return {
            "relation": Relation.parse(self.relation),
            "epsilon": ask.epsilon / rows,  # rules of solvers: what a record is worth
            "delta": ask.delta,
            "unit": "person" if grouped or self.rows_per_person is not None else "record",
            "secure_noise": self._exact_noise,
            "rows": rows,
        }

    def _facts(self, problem: Any, grouped: bool, *public: str) -> tuple[str, ...]:
        """Return the public facts of a report: sizes, the norm of rows, owners, what else is, the schema."""
        unit, facts = "person" if grouped else "record", [*owner_facts(self), *public]
        if hasattr(self, "data_norm"):
            bound = declared_bound(self, "data_norm")
            origin = Source.given(self.data_norm, self.schema is not None)
            facts = [bound_fact("data_norm", bound, origin, "rows are clipped to it"), *facts]
        origin = Source.SHAPE if self.schema is None else Source.COLUMNS
        columns = Fact(f"number of features: {problem.features}", origin)
        return (Fact.number_of(unit, problem.population), columns, *facts, *self._schema_facts())

    def _schema_facts(self) -> tuple[str, ...]:
        basis = getattr(getattr(self, "encoder_", None), "basis", None)
        facts = () if self.schema is None else self.schema.facts
        return (*facts, *(() if basis is None else (basis.fact,)))

    def _schema_prices(self) -> tuple[Price, ...]:
        return () if self.schema is None else self.schema.learned


def _refuse_nameless(X: Any, y: Any) -> None:
    if hold(X, y) is not None:
        raise UnsupportedError(
            "A schema describes tables, and rows on disk or in tensors have no columns with names: it would "
            "not be applied. Encode the table first, TableEncoder(schema).fit().transform(table), and leave "
            "schema= out."
        )


def _zeros(table: Any) -> Any:
    """Return one column of zeros for the rows of a part of a table: only their number is asked."""
    return np.zeros((frame_of(table).rows, 1))


def _targets_of(schema: Schema, table: Any) -> Any:
    return schema.targets(schema.checked(table, target=True))


def declared_rows(estimator: Any, grouped: bool = False) -> int:
    """Return how many rows one person has at most, where no column says whose they are; else one."""
    given = getattr(estimator, "rows_per_person", None)
    if given is not None and (grouped or str(getattr(estimator, "noise", "")).startswith("paper")):
        raise InvalidInputError(
            "Expected rows_per_person=None where groups or a person column say whose each row is, and "
            "for published noise: it is for rows whose owners nobody knows."
        )
    remedy = "It is the largest number of rows that one person has."
    return check_count("rows_per_person", given, 1, 10**6, remedy) or 1


def owner_facts(estimator: Any) -> tuple[str, ...]:
    """Return the line of a report about persons whose rows nobody tells apart."""
    if estimator.rows_per_person is None:
        return ()
    most = declared_rows(estimator)
    return (Fact(f"rows_per_person = {most} (nobody has more; declared)", most=most),)


def refuse_unknown_owners(estimator: Any, where: str) -> None:
    """Refuse a number of rows per person where one plan does not see all rows of a person."""
    if estimator.rows_per_person is not None:
        raise UnsupportedError(f"{where} protect records. Set rows_per_person=None.")


def declared_target(estimator: Any) -> Target | None:
    """Return the target that an estimator's schema declares."""
    schema = getattr(estimator, "schema", None)
    return schema.target if isinstance(schema, Schema) else None


def encoded_labels(estimator: Any, y: Any) -> tuple[Any, Any, str]:
    """Return class numbers, the classes, and where these come from: declared, learned, or seen."""
    codes, classes, said = encode_labels(y, declared_classes(estimator))
    target = declared_target(estimator)
    levels: Any = () if target is None else target.levels or ()
    if levels and all(isinstance(level, str) and np.isfinite(number_of(level)) for level in levels):
        estimator._warn(
            "the levels of the target are texts, so predict returns texts, which equal no numbers. Declare "
            f"levels = [{', '.join(levels[:2])}, ...] without quotes to get numbers."
        )
    return codes, classes, LEARNED_LABELS if target is not None and target.learned else said


def declared_classes(estimator: Any) -> Any:
    """Return the class labels of an estimator: its parameter, or the levels of its schema's target."""
    target = declared_target(estimator)
    if target is None:
        return estimator.classes
    if estimator.classes is not None:
        raise InvalidInputError("Expected classes=None: the schema declares the levels of the target.")
    return target.levels


def target_bound(estimator: Any, target: Target | None, middle: bool) -> float:
    """Return the bound of an estimator's targets: its parameter, or what the schema declares.

    With ``middle`` targets are measured from the middle of their declared bounds.
    """
    if target is None or target.low is None or target.high is None:
        return declared_bound(estimator, "target_bound")
    if estimator.target_bound is not None:
        raise InvalidInputError("Expected target_bound=None: the schema declares low and high.")
    return (target.high - target.low) / 2 if middle else max(abs(target.low), abs(target.high))


def target_fact(estimator: Any, bound: float, middle: bool) -> str:
    """Return the line of a report about the bound of targets; with ``middle`` half of a declared range."""
    target = declared_target(estimator)
    ranged = target is not None and target.low is not None
    half = "half of the range that " if middle and ranged else ""
    origin = Source.given(estimator.target_bound, ranged)
    return bound_fact("target_bound", bound, origin, f"{half}targets are clipped to{'' if half else ' it'}")


def center_targets(target: Target | None, y: Floats, middle: bool) -> tuple[Floats, float]:
    """Return targets clipped to their declared bounds and, with ``middle``, measured from the middle."""
    if target is None or target.low is None or target.high is None:
        return y, 0.0
    offset = (target.low + target.high) / 2.0 if middle else 0.0
    return np.clip(y, target.low, target.high) - offset, offset
