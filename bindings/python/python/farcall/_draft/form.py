"""Functions as readers of sources find them, and their text in the interface language."""

import dataclasses
import re
from collections.abc import Container, Sequence

# Words that the interface language has for itself.
_TAKEN = {
    "IN", "OUT", "INOUT", "WORK", "mode_in", "mode_out", "mode_inout", "mode_work", "char", "short",
    "int", "long", "longlong", "unsigned", "signed", "float", "double", "string", "scomplex",
    "dcomplex", "filename", "filepointer", "void", "const", "allocate", "broadcast", "bool",
    "size_t", "logical", "LOGICAL", "NULL",
}  # fmt: skip


class RefusedError(Exception):
    """A function or procedure that no interface describes, and why."""


def name_of(name: str, index: int = 0) -> str:
    """A name of a parameter: the source's own, unless it has none or the language takes it."""
    if not name:
        return f"argument{index + 1}"
    return f"{name}_" if name in _TAKEN else name


def free_name(wanted: str, taken: Container[str]) -> str:
    """The name for what the source does not name, with `_` behind it if the source has this one."""
    while wanted in taken:
        wanted += "_"
    return wanted


@dataclasses.dataclass
class Parameter:
    """A parameter of a function or of a callback."""

    name: str
    type: str
    mode: str = "IN"
    # Sizes in the order of C: the last one varies fastest. Empty for a scalar.
    sizes: list[str] = dataclasses.field(default_factory=list)
    question: str = ""

    def text(self) -> str:
        sizes = "".join(f"[{size}]" for size in self.sizes)
        question = f" /* ? {self.question} */" if self.question else ""
        return f"{self.mode} {self.type} {self.name}{sizes}{question}"


@dataclasses.dataclass
class Callback:
    """A function that the caller passes. `None` among its parameters is `void *user`."""

    name: str
    value: str
    parameters: list[Parameter | None]

    def text(self) -> str:
        given = [one.text() if one else "void *user" for one in self.parameters]
        value = f"{self.value} " if self.value else ""
        return f"{value}{self.name}({', '.join(given) or 'void'})"


@dataclasses.dataclass
class Function:
    """A function of a library."""

    name: str
    # The function in the library, with its arguments: names of parameters, or constants.
    symbol: str
    arguments: list[str]
    parameters: list[Parameter]
    callbacks: list[Callback] = dataclasses.field(default_factory=list)
    # The parameter that receives the value of the function.
    value: str = ""
    convention: str = "C"
    description: str = ""
    # The module of Fortran that has the procedure.
    module: str = ""
    questions: list[str] = dataclasses.field(default_factory=list)

    def text(self) -> str:
        """The function in the interface language."""
        given = [one.text() for one in self.parameters] + [one.text() for one in self.callbacks]
        lines = [f"/* ? {question} */" for question in self.questions]
        lines.append(f"Define {self.name}({_wrapped(given)})")
        if self.description:
            text = self.description.replace("\\", "\\\\").replace('"', '\\"')
            lines.append(f'    "{text}"')
        value = f"{self.value} = " if self.value else ""
        called = f"{value}{self.symbol}({', '.join(self.arguments)});"
        lines.append(f'    Calls "{self.convention}" {called}')
        return "\n".join(lines)


def _wrapped(given: Sequence[str]) -> str:
    text = ", ".join(given)
    return text if len(text) <= 60 else "\n    " + ",\n    ".join(given)


@dataclasses.dataclass
class Draft:
    """What a source has: functions, and what no interface can say."""

    functions: list[Function] = dataclasses.field(default_factory=list)
    left_out: list[str] = dataclasses.field(default_factory=list)
    # Fortran text that makes procedures of modules callable, by the names of their functions.
    shims: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    def add(self, other: "Draft") -> None:
        """Adds what another source has."""
        known = {function.name for function in self.functions}
        self.functions += other.functions
        self.left_out += other.left_out
        # A function whose name is known is left out, and so is its shim.
        self.shims |= {name: shim for name, shim in other.shims.items() if name not in known}

    def text(self, module: str, library: str) -> str:
        """The interface file."""
        module = re.sub(r"\W", "_", module)
        lines = [
            f"Module {module};",
            f'Library "{library}"; /* ? is this the library with these functions? */',
        ]
        texts: dict[str, tuple[str, str]] = {}
        left_out = list(self.left_out)
        for function in self.functions:
            made = function.module, function.text()
            if texts.setdefault(function.name, made) != made:
                left_out.append(f"{function.name}: another one has this name")
        lines += [f"/* ? left out: {reason} */" for reason in left_out]
        for _, text in texts.values():
            lines += ["", text]
        return "\n".join(lines) + "\n"


# Names of sizes that are common in numerical libraries, the most likely one first.
_SIZES = ("n", "size", "len", "length", "count", "num", "m", "nrow", "nrows", "ncol", "ncols")


def likely_size(array: str, scalars: Sequence[str]) -> str | None:
    """The scalar that is probably the length of an array: `n` for `x`, or `nx`, `x_len`."""
    lower = {name.lower(): name for name in scalars}
    own = array.lower().rstrip("_")
    forms = ("n{}", "n_{}", "{}_n", "{}_len", "{}_size", "{}_count", "{}len", "{}size", "num_{}")
    for candidate in [form.format(own) for form in forms] + list(_SIZES):
        if candidate in lower:
            return lower[candidate]
    return None
