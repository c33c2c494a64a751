"""Tables of mixed types: a declared schema, the encoder that follows it, what can be learned for a price."""

from sordino.tables.basis import Basis
from sordino.tables.columns import (
    Blank,
    Category,
    Column,
    Date,
    Exposure,
    Flag,
    Ignored,
    Number,
    Ordinal,
    Origin,
    Person,
    Target,
    Text,
    Weight,
)
from sordino.tables.encoder import TableEncoder
from sordino.tables.learning import Learned, Shares, learn_schema, value_shares
from sordino.tables.schema import Schema, draft_schema
from sordino.tables.shapes import Shape

__all__ = [
    "Basis",
    "Blank",
    "Category",
    "Column",
    "Date",
    "Exposure",
    "Flag",
    "Ignored",
    "Learned",
    "Number",
    "Ordinal",
    "Origin",
    "Person",
    "Schema",
    "Shape",
    "Shares",
    "TableEncoder",
    "Target",
    "Text",
    "Weight",
    "draft_schema",
    "learn_schema",
    "value_shares",
]
