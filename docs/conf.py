"""How the site is built: `make docs` (furo, MyST; warnings are errors, nothing is fetched)."""

import logging
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "src")]

import qunlearn  # noqa: E402

logging.getLogger("onnx_ir").setLevel(logging.WARNING)  # it reports what it optimises

project = "qunlearn"
author = "the authors of qunlearn"
project_copyright = "the authors of qunlearn, Apache-2.0"
release = version = qunlearn.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
    "generated",
    "repository_links",
    "finish",
]
exclude_patterns = ["_build", "_ext"]
default_role = "code"  # `x` in docstrings, as in Markdown
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]
"""Types in signatures: torch, numpy and this library's inner rooms have no page to link to."""

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"qunlearn {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_theme_options = {"navigation_with_keys": False}

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"memorised\.py$",
    "within_subsection_order": "ExampleTitleSortKey",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "write_computation_times": False,
    "abort_on_example_error": True,
    "reset_modules_order": "both",
}
suppress_warnings = ["config.cache"]
"""sphinx-gallery's settings cannot be pickled; the site is then read anew, which takes seconds."""
