"""Sphinx configuration; the build needs no network."""

import re

import sordino

project = "Sordino"
author = "the Sordino contributors"
copyright = "the Sordino contributors, Apache-2.0"
release = version = sordino.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery/*.ipynb", "gallery/*.py"]
sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",  # written by the build
    "filename_pattern": r"plot_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "remove_config_comments": True,
    "min_reported_time": 60,
}
suppress_warnings = ["config.cache"]  # the sorting key of the gallery cannot be pickled
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3

autosummary_generate = True
autosummary_imported_members = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_default_options = {"members": True, "show-inheritance": True, "ignore-module-all": True}
autodoc_mock_imports = ["triton"]  # there is none for machines without a GPU
templates_path = ["_templates"]
default_role = "code"  # `x` in a docstring is code

napoleon_google_docstring = False
napoleon_numpy_docstring = True
napoleon_use_rtype = False
napoleon_custom_sections = ["Privacy"]

html_theme = "furo"
html_title = f"Sordino {release}"
html_show_sphinx = False

# Docstrings write "name : what it is" and leave types to the annotations; numpydoc would take what
# follows the colon for a type and look for links in every word of it. A paragraph after the parameters
# ("**Privacy.** ...") would be taken for one more parameter, so it becomes a section.
_SECTION = re.compile(r"^(Parameters|Attributes|Returns|Raises|Examples|Notes|References|Privacy)$")
_ENTRY = re.compile(r"^(\*{0,2}\w[\w*]*(?:, *\*{0,2}\w+)*) : (.+)$")
_PRIVACY = "**Privacy.**"


def house_style(app, what, name, obj, options, lines):
    """Turn the house's way of writing docstrings into numpydoc's."""
    section, done = None, []
    for number, line in enumerate(lines):
        if _SECTION.match(line):
            section = line
        entry = _ENTRY.match(line) if section in ("Parameters", "Attributes") else None
        if line.startswith(_PRIVACY):
            section, line = "Privacy", line.removeprefix(_PRIVACY).strip()
            done += ["Privacy", "-------", line]
        elif entry:
            done += [entry[1], "    " + entry[2]]
        elif section in ("Parameters", "Attributes") and _starts_paragraph(lines, number):
            section = "Notes"
            done += ["Notes", "-----", line]
        else:
            done.append(line)
    lines[:] = done


def _starts_paragraph(lines, number):
    line, before = lines[number], lines[number - 1] if number else ""
    return not before.strip() and line[:1].strip() and not _SECTION.match(line)


def leave_out(app, what, name, obj, skip, options):
    """Leave out what scikit-learn writes into every estimator, for its own glossary."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def setup(app):
    """Hook both into the build; before napoleon, which has the default priority."""
    app.connect("autodoc-process-docstring", house_style, priority=400)
    app.connect("autodoc-skip-member", leave_out)
