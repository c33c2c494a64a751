"""Sphinx configuration; the build needs no network."""

from importlib import metadata

project = "Sordino"
author = "the Sordino contributors"
copyright = "the Sordino contributors, Apache-2.0"
release = version = metadata.version("sordino")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3

autosummary_generate = True
autosummary_imported_members = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_mock_imports = []
templates_path = ["_templates"]
default_role = "code"  # `x` in a docstring is code

napoleon_google_docstring = False
napoleon_numpy_docstring = True
napoleon_use_rtype = False
napoleon_custom_sections = ["Privacy"]

html_theme = "furo"
html_title = f"Sordino {release}"
html_show_sphinx = False
