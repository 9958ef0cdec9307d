"""How `scripts/docs` builds the site: Sphinx reads the Markdown files of the whole repository."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

project = "Farcall"
extensions = ["myst_parser", "sphinx.ext.autodoc", "reference_pages"]
html_theme = "furo"
html_title = "Farcall"
html_extra_path = ["site"]
html_copy_source = False
html_show_copyright = False

root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "benches/METHOD.md", "bindings/python/README.md"]
include_patterns += ["examples/*/README.md"]
exclude_patterns = ["target", "out", "fuzz", "crates", "testing", "**/.*", ".*"]
source_suffix = {".md": "markdown"}

# Links between pages name a heading as GitHub does: `calls.md#errors`.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

nitpicky = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "undoc-members": False}
# What docstrings and bases of classes name, and no page describes.
nitpick_ignore_regex = [("py:.*", r".*"), ("c:identifier", r".*")]
