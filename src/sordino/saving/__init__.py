"""Models in files that load without running anything."""

from sordino.saving.files import about, load, save
from sordino.saving.onnx import to_onnx

__all__ = ["about", "load", "save", "to_onnx"]
