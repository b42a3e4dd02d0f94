"""How Sphinx shows the pages of this folder. `scripts/build_site.py` lays them out first and calls Sphinx."""

import rooflens

project = "rooflens"
release = rooflens.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

# Docstrings are for people first: one that is no reStructuredText is shown as it stands, and so is code of no language.
suppress_warnings = ["docutils", "ref.python", "misc.highlighting_failure"]

myst_heading_anchors = 4  # the anchors that GitHub makes, so that one link works in both places

autodoc_typehints = "none"  # the signature has them already
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"  # light and dark; the fonts of the system
html_title = f"rooflens {release}"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
pygments_style = "default"
pygments_dark_style = "github-dark"
