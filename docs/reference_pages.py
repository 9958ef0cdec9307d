"""What the reference pages are made of: a C header, and Python docstrings, which are Markdown."""

import inspect
import pathlib
import re

import farcall
from docutils.utils import new_document
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.util.docutils import SphinxDirective

ROOT = pathlib.Path(__file__).resolve().parent.parent
DECLARATION = re.compile(
    r"^((?://[^\n]*\n)+|/\*(?:[^*]|\*(?!/))*\*/\n)?"  # its comment
    r"(typedef [^{;]*\{.*?^\} *\w+;|typedef [^{;]*;|#define \w+ [^\n]+|\w[^;{}#]*\);)",
    re.MULTILINE | re.DOTALL,
)


def name_of(text):
    """The name that a declaration declares."""
    if text.startswith("#define"):
        return text.split()[1]
    pointer = re.search(r"\(\*(\w+)\)", text) if text.startswith("typedef") else None
    if pointer:
        return pointer[1]
    if text.startswith("typedef"):
        return re.findall(r"\w+", text)[-1]
    return re.search(r"(\w+)\(", text)[1]


class CHeader(SphinxDirective):
    """Shows declarations of a header with their comments.

    The arguments are the header and a pattern. The directive shows the declarations whose names
    match and which no earlier directive of the page has shown; without a pattern, all of these.
    """

    required_arguments = 1
    optional_arguments = 1

    def run(self):
        """Parses the comments as Markdown."""
        path, *pattern = self.arguments
        self.env.note_dependency(ROOT / path)
        shown = self.env.temp_data.setdefault("c_header", set())
        lines = []
        for comment, text in DECLARATION.findall((ROOT / path).read_text()):
            name = name_of(text)
            if name in shown or not re.fullmatch(pattern[0] if pattern else ".*", name):
                continue
            shown.add(name)
            words = re.sub(r"^(//|/\*| \*(?!/)) ?|\s*\*/$", "", comment, flags=re.MULTILINE)
            if "(" in text and not text.startswith("typedef"):
                signature = " ".join(text.rstrip(";").split())
                lines += [f":::{{c:function}} {signature}", *words.splitlines(), ":::", ""]
            else:
                lines += [f"**{name}**", "", *words.splitlines(), "", "```c", text, "```", ""]
        if pattern and not lines:
            raise self.error(f"nothing in {path} matches {' '.join(pattern)}")
        return self.parse_text_to_nodes("\n".join(lines))


class PythonNames(SphinxDirective):
    """Shows names of the Python package with their docstrings, as `c-header` does for C."""

    optional_arguments = 1

    def run(self):
        """Has autodoc document each name."""
        shown = self.env.temp_data.setdefault("python_names", set())
        lines = []
        for name in farcall.__all__:
            if name in shown or not re.fullmatch(*(self.arguments or [r"[^_].*"]), name):
                continue
            shown.add(name)
            value = getattr(farcall, name)
            if inspect.isroutine(value):
                lines.append(f".. autofunction:: farcall.{name}")
            elif not inspect.isclass(value):
                lines.append(f".. autodata:: farcall.{name}")
            elif issubclass(value, Exception):
                lines.append(f".. autoexception:: farcall.{name}")
            else:
                # Without a signature: classes are made by functions.
                lines.append(f".. autoclass:: farcall.{name}()")
        if self.arguments and not lines:
            raise self.error(f"no name of farcall matches {self.arguments[0]}")
        return self.parse_text_to_nodes("\n".join(["```{eval-rst}", *lines, "```"]))


class Docstring(SphinxDirective):
    """Parses a docstring as Markdown."""

    has_content = True

    def run(self):
        """Parses it as a page of its own."""
        page = new_document("docstring", self.state.document.settings)
        MystParser().parse("\n".join(self.content), page)
        return page.children


def as_markdown(app, what, name, obj, options, lines):  # noqa: ARG001
    """Wraps a docstring in the directive."""
    if any(lines):
        lines[:] = [".. docstring::", "", *(f"   {line}" for line in lines), ""]


def setup(app):
    """Called by Sphinx."""
    app.add_directive("c-header", CHeader)
    app.add_directive("docstring", Docstring)
    app.add_directive("python-names", PythonNames)
    app.connect("autodoc-process-docstring", as_markdown)
    return {"parallel_read_safe": True}
