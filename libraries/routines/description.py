"""One routine in one precision, and the parts of descriptions.

A description is text with these stand-ins:

    {T}  element type of the precision       {R}  its real type
    {p}  prefix of the name                  {sy} `sy` or `he`, {or} `or` or `un`
                                             {h}  `s` or `h`, {o} `o` or `u`

Costs are operations of real arithmetic as LAPACK Working Note 41 counts them; a complex
multiplication and addition count four times a real pair.
"""

import dataclasses
import textwrap

PRECISIONS = {
    "s": ("float", "float"),
    "d": ("double", "double"),
    "c": ("scomplex", "float"),
    "z": ("dcomplex", "double"),
}

# With this many rows another processor element pays: OpenBLAS's LU of 1400 rows is 1.5 times
# as fast on two as on one, of 600 rows 1.1 times.
ROWS_PER_ELEMENT = 1200


@dataclasses.dataclass
class Routine:
    """The text of a routine in the interface file."""

    name: str
    params: list
    description: str
    cost: str
    cases: list
    value: str = None
    convention: str = "FORTRAN"
    size: str = None
    elements: str = None
    # GPUs of a call.
    gpus: int = 0
    # The function of the library, if it has another name.
    function: str = None
    # Constant arguments by the parameter that they precede.
    constants: dict = dataclasses.field(default_factory=dict)

    def passed(self):
        """The arguments of the library's function: names of parameters, and constants."""
        names = [param_name(param) for param in self.params]
        for name in names:
            yield from self.constants.get(name, [])
            if name != self.value:
                yield name

    def idl(self):
        value = f"{self.value} = " if self.value else ""
        function = self.function or self.name
        call = f'Calls "{self.convention}" {value}{function}({", ".join(self.passed())});'
        lines = [f"Define {self.name}("]
        lines += packed([param + "," for param in self.params[:-1]] + [self.params[-1] + ")"])
        lines += [f'    "{text}"' for text in sentence(self.description)]
        lines += textwrap.wrap(
            f"CalcOrder {self.cost}", 96, initial_indent="    ", subsequent_indent="        "
        )
        elements = self.elements
        if self.size:
            elements = f"1 + {self.size} / {ROWS_PER_ELEMENT}"
        if elements:
            lines += [f"    ProcessorElements 1, {elements}"]
        if self.gpus:
            lines += [f"    Gpus {self.gpus}"]
        lines += ['    Repeatable "yes"']
        lines += textwrap.wrap(call, 96, initial_indent="    ", subsequent_indent="        ")
        return "\n".join(lines)


def packed(parts):
    """As many parts to a line as fit."""
    lines = [""]
    for part in parts:
        if lines[-1] and len(lines[-1]) + len(part) > 90:
            lines.append("")
        lines[-1] += " " * bool(lines[-1]) + part
    return ["    " + line for line in lines]


def sentence(text):
    """Strings that together make the text."""
    lines = textwrap.wrap(text, 88)
    return [line + " " for line in lines[:-1]] + lines[-1:]

def param_name(param):
    """`INOUT double a[n][lda:n]` is `a`."""
    head = param.partition("[")[0].split()[-1]
    return head.lstrip("*")


def split_params(text):
    """Parameters at the commas outside brackets."""
    parts, depth, part = [], 0, ""
    for character in " ".join(text.split()):
        depth += character in "[("
        depth -= character in ")]"
        if character == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += character
    return parts + [part.strip()]


def routine(name, params, description, cost, cases, precisions="sdcz", value=None, size=None,
            constants=None):
    """The routine in several precisions; the name has `{p}` or other stand-ins.

    `size` is the number of rows that threads share; none where the routine gains nothing by them,
    or nothing that another call would not gain more by: the operator decides then.
    """
    for p in precisions:
        element, real = PRECISIONS[p]
        is_complex = p in "cz"
        words = {
            "p": p,
            "T": element,
            "R": real,
            "sy": "he" if is_complex else "sy",
            "or": "un" if is_complex else "or",
            "h": "h" if is_complex else "s",
            "o": "u" if is_complex else "o",
        }

        def fill(text):
            for word, replacement in words.items():
                text = text.replace("{" + word + "}", replacement)
            return text

        yield Routine(
            name=fill(name),
            params=split_params(fill(params)),
            description=fill(description),
            cost=f"4 * ({cost})" if is_complex else cost,
            cases=[fill_case(case, is_complex) for case in cases],
            value=value,
            size=size,
            constants=constants or {},
        )


def fill_case(case, is_complex):
    """Scalars of a case; a pair is a complex number, or its real part in a real precision."""
    def scalar(value):
        if isinstance(value, tuple):
            return list(value) if is_complex else value[0]
        return value

    return {name: scalar(value) for name, value in case.items()}


def is_one(name, *letters):
    """The character argument is one of the letters, in either case."""
    tests = [f"{name} == '{letter}'" for pair in letters for letter in (pair, pair.lower())]
    return "(" + " || ".join(tests) + ")"


def vector(mode, name, length, step, element="{T}"):
    """A BLAS vector: `length` elements `step` apart, which may be negative."""
    size = f"max(0, 1 + ({length} - 1) * max({step}, -{step}))"
    return f"{mode} {element} {name}[{size}], IN int {step}"


def matrix(mode, name, rows, columns, leading, element="{T}"):
    """A column-major matrix and its leading dimension: only the rows in use travel."""
    return f"{mode} {element} {name}[{columns}][{leading}:{rows}], IN int {leading}"
