"""Estimators that take tables: a declared schema says what the columns mean, and how rows are bounded."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np

from sordino.checks import LEARNED_LABELS, declared_bound, encode_labels
from sordino.errors import InvalidInputError, SchemaError, UnsupportedError
from sordino.execute import held, in_dask
from sordino.execute.persons import number_owners
from sordino.kernel.arrays import Floats
from sordino.runs import Ask, Price
from sordino.tables.basis import choose_basis
from sordino.tables.columns import Target
from sordino.tables.encoder import TableEncoder
from sordino.tables.schema import Schema
from sordino.tables.values import framed


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
    encoder_: TableEncoder
    coef_names_: np.ndarray

    def __setattr__(self, name: str, value: Any) -> None:
        # Here and not in __init__: set_params and clone assign as well. A path that is no file waits for fit.
        is_file = name == "schema" and isinstance(value, (str, os.PathLike)) and os.path.isfile(value)
        super().__setattr__(name, Schema.of(value) if is_file else value)

    def _tabled(self, X: Any, y: Any, groups: Any) -> tuple[Any, Any, Any]:
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
            return self._tabled_elsewhere(encoder, X, y, groups)
        _refuse_nameless(X, y)
        frame = self.schema.checked(X, target=y is None, person=True)
        groups = self._persons_of(frame, groups)
        y = self.schema.targets(frame) if y is None else y
        encoder = self._with_basis(
            encoder, lambda: frame.rows if groups is None else np.unique(number_owners(groups)).size
        )
        return self._keep_encoder(encoder).encoded(frame), y, groups

    def _tabled_elsewhere(self, encoder: TableEncoder, X: Any, y: Any, groups: Any) -> tuple[Any, Any, Any]:
        """Return a table that lies in Dask, encoded there."""
        target, schema = declared_target(self), self.schema
        if y is None and target is not None and target.missing == "leave out":
            raise UnsupportedError(
                f"Column {target.name!r}: records without a target are left out of tables in one place "
                'only. Leave them out before the table goes to Dask, and declare missing = "refuse".'
            )
        encoder = self._with_basis(encoder, lambda: held(X, None, _zeros)[0].shape[0])  # type: ignore[index]
        found = held(X, y, encoder.transform, partial(_targets_of, schema))
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
        ask = Ask.checked(self.epsilon, None, 1)
        basis = choose_basis(self.schema, units(), ask.epsilon, **chosen)
        return TableEncoder(self.schema, basis=basis, sparse_output=encoder.sparse_output).fit()

    def _tabled_features(self, X: Any, groups: Any) -> tuple[Any, Any]:
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
        found = held(X, None, self._keep_encoder(encoder).transform)
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

    def _declared(self, name: str) -> Any:
        """Return the parameter, or a word where the schema stands for it."""
        value = getattr(self, name)
        return "by the schema" if value is None and self.schema is not None else value

    def _schema_facts(self) -> tuple[str, ...]:
        basis = getattr(getattr(self, "encoder_", None), "basis", None)
        return () if self.schema is None else (*self.schema.facts, *(() if basis is None else (basis.fact,)))

    def _schema_prices(self) -> tuple[Price, ...]:
        return () if self.schema is None else self.schema.learned


def _refuse_nameless(X: Any, y: Any) -> None:
    if held(X, y) is not None:
        raise UnsupportedError(
            "A schema describes tables, and rows on disk or in tensors have no columns with names: it would "
            "not be applied. Encode the table first, TableEncoder(schema).fit().transform(table), and leave "
            "schema= out."
        )


def _zeros(table: Any) -> Any:
    """Return one column of zeros for the rows of a part of a table: only their number is asked."""
    return np.zeros((framed(table).rows, 1))


def _targets_of(schema: Schema, table: Any) -> Any:
    return schema.targets(schema.checked(table, target=True))


def declared_target(estimator: Any) -> Target | None:
    """Return the target that an estimator's schema declares."""
    schema = getattr(estimator, "schema", None)
    return schema.target if isinstance(schema, Schema) else None


def encoded_labels(estimator: Any, y: Any) -> tuple[Any, Any, str]:
    """Return class numbers, the classes, and where these come from: declared, learned, or seen."""
    codes, classes, said = encode_labels(y, declared_classes(estimator))
    target = declared_target(estimator)
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


def centred(target: Target | None, y: Floats, middle: bool) -> tuple[Floats, float]:
    """Return targets clipped to their declared bounds and, with ``middle``, measured from the middle."""
    if target is None or target.low is None or target.high is None:
        return y, 0.0
    offset = (target.low + target.high) / 2.0 if middle else 0.0
    return np.clip(y, target.low, target.high) - offset, offset
