"""How Sphinx builds the site; `docs/build.py` lays the pages out for it."""

from importlib import metadata

project = "agenttrace"
author = copyright = "agenttrace maintainers"
release = metadata.version("agenttrace-otel")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
# Anchors of headings, as GitHub makes them: links within the pages are checked against them.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
html_theme = "furo"
html_title = "agenttrace"
# No fonts, scripts or pictures from elsewhere.
html_copy_source = False
html_show_sphinx = False
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
