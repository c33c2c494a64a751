"""Estimators that take tables: a declared schema says what the columns mean, and how rows are bounded."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from sordino.errors import InvalidInputError, SchemaError, UnsupportedError
from sordino.execute import held
from sordino.kernel.arrays import Floats
from sordino.tables import Schema, TableEncoder, Target


class Tabular:
    """Tables in where the estimator has a schema; without one everything is as it was.

    **Privacy.** The encoder changes each row by itself, with declared constants. Bounds, classes and persons
    come from the schema, and the report says so.
    """

    schema: Any
    encoder_: TableEncoder
    coef_names_: np.ndarray

    def _tabled(self, X: Any, y: Any, groups: Any) -> tuple[Any, Any, Any]:
        """Return the rows, targets and persons of a table, or what was passed."""
        for name in ("encoder_", "coef_names_"):
            self.__dict__.pop(name, None)
        if self.schema is None:
            return X, y, groups
        encoder = TableEncoder(self.schema).fit()
        self._check_target()
        elsewhere = held(X, y, encoder.transform, partial(_targets_of, self.schema))
        if elsewhere is not None:
            return self._tabled_elsewhere(encoder, *elsewhere, groups)
        frame = self.schema.checked(X, target=y is None, person=True)
        if self.schema.person is not None:
            if groups is not None:
                raise InvalidInputError("Expected groups=None: the schema declares a person column.")
            groups = self.schema.persons(frame)
        y = self.schema.targets(frame) if y is None else y
        self.encoder_, self.coef_names_ = encoder, encoder.get_feature_names_out()
        return encoder.encoded(frame), y, groups

    def _tabled_elsewhere(
        self, encoder: TableEncoder, rows: Any, y: Any, groups: Any
    ) -> tuple[Any, Any, Any]:
        if self.schema.person is not None or groups is not None:
            raise UnsupportedError(
                "Persons need all rows in one place: the records of one may lie in several parts. Bring the "
                "table into one place (X.compute())."
            )
        self.encoder_, self.coef_names_ = encoder, encoder.get_feature_names_out()
        return rows, y, None

    def _rows(self, X: Any) -> Any:
        """Return the rows to predict for, through the same map as in fit."""
        encoder = getattr(self, "encoder_", None)
        return X if encoder is None else encoder.transform(X)

    def _check_target(self) -> None:
        target = declared_target(self)
        wanted = "category" if hasattr(self, "classes") else "number"
        if target is not None and target.kind != wanted:
            raise SchemaError(
                f"Column {target.name!r}: {type(self).__name__} predicts a {wanted}, the schema declares a "
                f"{target.kind}. Use a {'regressor' if wanted == 'category' else 'classifier'} instead."
            )

    def _declared(self, name: str) -> Any:
        """Return the parameter, or a word where the schema stands for it."""
        value = getattr(self, name)
        return "by the schema" if value is None and self.schema is not None else value

    def _schema_facts(self) -> tuple[str, ...]:
        return () if self.schema is None else self.schema.facts


def _targets_of(schema: Schema, table: Any) -> Any:
    return schema.targets(schema.checked(table, target=True))


def declared_target(estimator: Any) -> Target | None:
    """Return the target that an estimator's schema declares."""
    schema = getattr(estimator, "schema", None)
    return schema.target if isinstance(schema, Schema) else None


def declared_classes(estimator: Any) -> Any:
    """Return the class labels of an estimator: its parameter, or the levels of its schema's target."""
    target = declared_target(estimator)
    if target is None:
        return estimator.classes
    if estimator.classes is not None:
        raise InvalidInputError("Expected classes=None: the schema declares the levels of the target.")
    return target.levels


def centred(target: Target | None, y: Floats, middle: bool) -> tuple[Floats, float]:
    """Return targets clipped to their declared bounds and, with ``middle``, measured from the middle."""
    if target is None or target.low is None or target.high is None:
        return y, 0.0
    offset = (target.low + target.high) / 2.0 if middle else 0.0
    return np.clip(y, target.low, target.high) - offset, offset
