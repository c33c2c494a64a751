"""Tables of mixed types: a declared schema, the encoder that follows it, what can be learned for a price."""

from sordino.tables.columns import (
    Blank,
    Category,
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
from sordino.tables.encoder import Basis, TableEncoder
from sordino.tables.learning import learn_schema, value_shares
from sordino.tables.schema import Schema, draft_schema
from sordino.tables.shapes import Shape

__all__ = [
    "Basis", "Blank", "Category", "Date", "Exposure", "Flag", "Ignored", "Number", "Ordinal", "Origin",
    "Person", "Schema", "Shape", "TableEncoder", "Target", "Text", "Weight", "draft_schema",
    "learn_schema", "value_shares",
]  # fmt: skip
