"""Reads sources of Fortran 77 and 90, modules, and `.pyf` files, with the parser of f2py."""

import contextlib
import functools
import io
import pathlib
import re
import string
import textwrap
import types
import unittest.mock
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .form import (
    Callback,
    Draft,
    Function,
    Parameter,
    RefusedError,
    free_name,
    likely_size,
    name_of,
)

# Kinds, and their bytes.
_KINDS = {
    "4": 4, "real32": 4, "c_float": 4,
    "8": 8, "real64": 8, "c_double": 8,
    "int32": 4, "c_int": 4, "int64": 8, "c_long": 8, "c_size_t": 8, "int16": 2, "int8": 1,
    "1": 1, "2": 2, "16": 16, "c_bool": 1,
}  # fmt: skip
# Names of kinds as programs choose them, and the bytes that they usually have.
_USUAL = {"sp": 4, "dp": 8, "wp": 8, "rk": 8, "double": 8}
_INTEGERS = {1: "int8_t", 2: "short", 4: "int", 8: "long"}
_REALS = {4: "float", 8: "double"}
_COMPLEX = {4: "scomplex", 8: "dcomplex"}
_LOGICALS = {1: "bool", 4: "LOGICAL"}
# Files whose statements begin in column 7, unless they are free.
_FIXED = {".f", ".for", ".f77"}


def read(path: pathlib.Path, include: Sequence[str]) -> Draft:
    """The procedures of a file, which may include files of its folder and of others."""
    from numpy.f2py import auxfuncs, crackfortran

    crackfortran.verbose, crackfortran.quiet = 0, 1
    source = path.read_text(errors="replace")
    if "\0" in source:
        raise ValueError(f"{path}: this is not a text of Fortran")
    crackfortran.include_paths = list(include)
    questions = _not_read(source, [str(path.parent), *include])
    errors: list[str] = []
    say = auxfuncs.errmess

    def keep(error: str) -> None:
        errors.append(error)
        say(error)

    try:
        rules = unittest.mock.patch.multiple(
            crackfortran,
            buildimplicitrules=_implicit_rules,
            get_parameters=functools.partial(_parameters, crackfortran.get_parameters),
            _selected_real_kind_func=_real_kind,
            symbolic=_SYMBOLIC,
            errmess=keep,
        )
        # It prints what it does not understand.
        with rules, contextlib.redirect_stdout(io.StringIO()):
            blocks = crackfortran.crackfortran([str(path)])
    except Exception as error:  # The parser raises this class itself.
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: the parser of f2py fails: {reason}") from None
    draft = Draft()
    is_fixed = path.suffix.lower() in _FIXED and not crackfortran.is_free_format(str(path))
    statements = _statements(source, is_fixed)
    for block, module in _procedures(blocks, None):
        reader = _Reader(block, module, statements, is_signature=path.suffix == ".pyf")
        try:
            function = reader.function()
            function.questions += questions + _stated_twice(block, errors)
            if reader.shim and all(one.name != function.name for one in draft.functions):
                draft.shims[function.name] = reader.shim
            draft.functions.append(function)
        except RefusedError as reason:
            draft.left_out.append(f"{block['name']}: {reason}")
    return draft


def _not_read(source: str, folders: Sequence[str]) -> list[str]:
    """Questions about files that the source includes and the parser does not read."""
    line = re.compile(r"^\s*(#?)\s*include\s*['\"<]([^'\">]+)", re.I | re.M)
    found = {
        name: not hashed and any(pathlib.Path(folder, name).is_file() for folder in folders)
        for hashed, name in line.findall(source)
    }
    return [
        f"{name}, which the source includes, was not read: are the types right?"
        for name, is_read in found.items()
        if not is_read
    ]


def _stated_twice(block: Mapping[str, Any], errors: Sequence[str]) -> list[str]:
    """Questions about arguments such as `dimension(3) :: x(4)`. f2py takes the first size."""
    return [
        f"the source states two sizes of {name}: is the one behind its name here?"
        for name in block.get("args", [])
        if any(one.startswith(f"updatevars:{name}: attempt to change 'dim") for one in errors)
    ]


def _implicit_rules(
    block: Mapping[str, Any],
) -> tuple[dict[str, Mapping[str, Any]] | None, dict[str, Any]]:
    """The types of names that a procedure does not declare. Those of f2py forget the rules of the
    host, and keep the rules of one procedure for all that follow."""
    usual: dict[str, Mapping[str, Any]] = {
        letter: {"typespec": "integer" if letter in "ijklmn" else "real"}
        for letter in string.ascii_lowercase + "$_"
    }
    own = block.get("implicit", {})
    if own is None:
        return None, {}
    host = block.get("parent_block")
    rules: dict[str, Mapping[str, Any]] | None = usual
    if host is not None and host["block"] != "interface":
        rules = _implicit_rules(host)[0]
    return {**(rules or usual), **own} if own else rules, {}


# The kind of a number.
_KIND = re.compile(r"kind\([\d.]+(?:([de])[+-]?\d+)?(?:_(\w+))?\)")


def _parameters(
    read: Any, names: Mapping[str, Any], known: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The constants that f2py finds. For it, a number such as `1.0_dp` always has 4 bytes, `5 / 2`
    is 2.5, and `n_max + 1` is `n`."""
    found: dict[str, Any] = read(names, known or {})
    texts = {
        name: str(names[name]["="]).lower().replace(" ", "")
        for name in found
        if "=" in names.get(name, {})
    }
    for name, text in texts.items():
        number = _KIND.fullmatch(text)
        if number and number[2] in found:
            found[name] = found[number[2]]
        elif number and number[2]:
            del found[name]
    wholes = {
        name: text
        for name, text in texts.items()
        if names[name].get("typespec", "integer") == "integer"
        and "kind(" not in text
        and not isinstance(found.get(name), dict)
    }
    for name in wholes:
        found.pop(name, None)
    return found | _wholes(wholes, found)


def _wholes(texts: Mapping[str, str], constants: Mapping[str, Any]) -> dict[str, Any]:
    """The constants among whole numbers whose values are certain, as f2py puts them into sizes."""
    found: dict[str, Any] = {name: text for name, text in texts.items() if text in _KINDS}
    for _ in texts:
        for name in texts.keys() - found.keys():
            value = _whole(texts[name], {**constants, **found})
            if texts[name] in found:
                found[name] = found[texts[name]]
            elif value is not None:
                found[name] = f"({value})" if value < 0 else value
    return found


def _whole(text: str, constants: Mapping[str, Any]) -> int | None:
    """The value of an expression of whole numbers and constants, if it is a simple one."""

    def value(word: re.Match[str]) -> str:
        return str(constants.get(word[0], word[0]))

    text = re.sub(r"[a-z_]\w*", value, re.sub(r"\b(\d+)_\w+", r"\1", text))
    # Python rounds quotients of negative numbers in another way, and powers can be long.
    if not re.fullmatch(r"[\d+*/()-]+", text) or "**" in text or ("/" in text and "-" in text):
        return None
    try:
        return int(eval(text.replace("/", "//"), {"__builtins__": {}}))
    except (ArithmeticError, SyntaxError, TypeError, ValueError):
        return None


class _Extent:
    """A size of an array for f2py, whose own arithmetic has `(n + 1) / 2 * 2` as `n + 1`."""

    def __init__(self, text: str, low: str = "1") -> None:
        self.text, self.low = text.strip(), low

    def __sub__(self, low: "_Extent") -> "_Extent":
        return _Extent(self.text, low.text)

    def __add__(self, one: int) -> "_Extent":
        """The number of elements from the lower bound to the upper one."""
        if not self.text:
            return _Extent(":")
        if not re.fullmatch(r"\(?-?\d+\)?", self.low):
            return _Extent(f"{self.text} - ({self.low}) + {one}")
        more = one - int(self.low.strip("()"))
        if self.text.isdigit():
            return _Extent(str(int(self.text) + more))
        return _Extent(f"{self.text} {'-' if more < 0 else '+'} {abs(more)}" if more else self.text)

    def tostring(self, **_language: object) -> str:
        return self.text

    def contains(self, _name: str) -> bool:
        """No name: f2py would solve the size for it, and show what it finds as its default."""
        return False


# The names of `numpy.f2py.symbolic` that the parser uses.
_SYMBOLIC = types.SimpleNamespace(
    Expr=types.SimpleNamespace(parse=_Extent),
    Language=types.SimpleNamespace(C=None),
    as_symbol=str,
)


def _real_kind(p: int = 0, r: int = 0, radix: int = 0) -> int:
    """The bytes of `selected_real_kind`, by its names in Fortran: f2py forgets the range `r`. -1 if
    no interface has such a number."""
    if p > 15 or r > 307 or radix not in (0, 2):
        return -1
    return 4 if p <= 6 and r <= 37 else 8


def _statements(source: str, is_fixed: bool) -> str:
    """The statements of a source, each in a line of its own without label, texts and comments."""
    lines: list[str] = []
    goes_on = False
    for whole in source.splitlines():
        is_comment = is_fixed and whole[:1] in "cC*dD"
        line = re.sub(r"'[^']*'|\"[^\"]*\"|!.*", "", whole)
        if is_comment or not line.strip() or line.startswith("#"):
            continue
        continued = re.match(r" {5}[^ 0]|\t[1-9]", line) if is_fixed else None
        text = line[continued.end() :] if continued else line.strip().removeprefix("&")
        if (continued or goes_on) and lines:
            lines[-1] += text
        else:
            lines.append(re.sub(r"^\s*\d+\s+", "", text))
        goes_on = lines[-1].rstrip().endswith("&")
        lines[-1] = lines[-1].rstrip().removesuffix("&")
    return "\n".join(lines).replace(";", "\n")


def _procedures(
    blocks: Sequence[Mapping[str, Any]], module: Mapping[str, Any] | None
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
    """The procedures, each with the module that has it."""
    for block in blocks:
        kind = block["block"]
        if kind in ("subroutine", "function"):
            yield block, module
        elif kind == "module":
            yield from _procedures(block.get("body", []), block)
        elif kind in ("python module", "interface") and "__user__" not in str(block.get("name")):
            yield from _procedures(block.get("body", []), module)


class _Reader:
    """One procedure."""

    def __init__(
        self,
        block: Mapping[str, Any],
        module: Mapping[str, Any] | None,
        statements: str,
        is_signature: bool,
    ) -> None:
        self.block, self.module, self.statements = block, module, statements
        self.variables: Mapping[str, Any] = block.get("vars", {})
        self.is_signature = is_signature
        self.shim: list[str] = []
        # Sizes of arrays of assumed shape, as parameters.
        self.added: list[Parameter] = []
        # Their names, by the array and the number of the dimension.
        self.lengths: dict[tuple[str, int], str] = {}
        # Questions about the types of arguments.
        self.asked: dict[str, str] = {}

    def function(self) -> Function:
        """The procedure as a function, and its shim if it needs one."""
        block = self.block
        names = list(block.get("args", []))
        self.taken = [name_of(name, index) for index, name in enumerate(names)]
        function = Function(block["name"], self._symbol(), [], [], convention="FORTRAN")
        if "callstatement" in block.get("f2pyenhancements", {}):
            raise RefusedError("f2py calls it by the C of `callstatement`, which is not read")
        if "c" in block.get("f2pyintent", block.get("intent", [])):
            function.convention = "C"
        self.scalars = [
            one
            for one in names
            if not self._dimension(one) and self._is_integer(one) and not self._is_result(one)
        ]
        dims = " ".join(dim for one in names for dim in self._dimension(one))
        self.sizes = set(re.findall(r"[a-z_]\w*", dims.lower()))
        for index, name in enumerate(names):
            self._argument(function, name, index)
        if block["block"] == "function":
            function.value = free_name("value", self.taken)
            function.parameters.append(self._value(function.value))
        if self.module is not None and not self.is_signature:
            self._make_shim(function)
        elif self.added:
            raise RefusedError(
                "it has arrays of assumed shape, and no module that a shim could use"
            )
        return function

    def _argument(self, function: Function, name: str, index: int) -> None:
        """Adds an argument to the function."""
        if name == "e__e":
            raise RefusedError("it has an alternate return, `*`")
        is_value = "value" in self._variable(name).get("attrspec", [])
        if is_value and self.module is None:
            raise RefusedError(f'it takes `{name}` by value, which is `Calls "C"`')
        constant = self._hidden(name)
        if constant is not None:
            function.arguments.append(constant)
            return
        callback = self._callback(name)
        if callback is not None:
            function.callbacks.append(callback)
        else:
            parameter = self._parameter(name, index)
            is_reference = "c" not in self._variable(name).get("intent", [])
            if function.convention == "C" and is_reference and not parameter.sizes:
                raise RefusedError(f"it is a function of C that takes `{name}` by reference")
            function.parameters.append(parameter)
        function.arguments.append(name_of(name, index))

    def _symbol(self) -> str:
        enhanced = self.block.get("f2pyenhancements", {})
        return str(enhanced.get("fortranname") or self.block["name"]).strip()

    def _hidden(self, name: str) -> str | None:
        """The constant that a signature passes for an argument that Python does not see."""
        variable = self._variable(name)
        default = str(variable.get("=", ""))
        is_hidden = "hide" in variable.get("intent", []) and not self._dimension(name)
        number = re.fullmatch(r"-?\d+(\.\d*)?", default) if is_hidden else None
        kind = self._type(name) if number else ""
        # A constant is an `int` or a `double`.
        if number and kind == "int" and not number[1]:
            return default
        return str(float(default)) if kind == "double" else None

    def _variable(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.variables.get(name, {})
        return found

    def _dimension(self, name: str) -> list[str]:
        return [str(one) for one in self._variable(name).get("dimension", [])]

    def _typespec(self, name: str) -> str:
        spec = self._variable(name).get("typespec")
        if spec:
            return str(spec)
        return "integer" if name[:1] in "ijklmn" else "real"

    def _is_integer(self, name: str) -> bool:
        return self._typespec(name) == "integer"

    def _is_result(self, name: str) -> bool:
        intent = self._variable(name).get("intent", [])
        return "out" in intent and "in" not in intent

    def _bytes(self, name: str, default: int) -> int:
        selector = self._variable(name).get("kindselector", {})
        kind = str(selector.get("*") or selector.get("kind") or "").lower().replace(" ", "")
        if not kind:
            return default
        for _ in range(8):
            kind = self._renamed(kind)
            if kind in _KINDS:
                return _KINDS[kind]
            number = _KIND.fullmatch(kind)
            if number and number[2]:
                kind = number[2]
                continue
            if number:
                return 8 if number[1] == "d" else 4
            digits = re.fullmatch(r"selected_real_kind\((?:p=)?(\d+)(?:,(?:r=)?(\d+))?\)", kind)
            if digits:
                kind = str(_real_kind(int(digits[1]), int(digits[2] or 0)))
                continue
            known = self.variables.get(kind) or (self.module or {}).get("vars", {}).get(kind, {})
            if "=" not in known and kind in _USUAL:
                self.asked[name] = f"has the kind {kind} {_USUAL[kind]} bytes?"
                return _USUAL[kind]
            kind = str(known.get("=", "")).lower().replace(" ", "")
        raise RefusedError(f"the kind of `{name}` is not known: {selector}")

    def _renamed(self, kind: str) -> str:
        """The name that a kind has in the module from which `use` takes it under this name."""
        for block in (self.block, self.module or {}):
            for used in block.get("use", {}).values():
                kind = str((used or {}).get("map", {}).get(kind, kind)).lower()
        return kind

    def _type(self, name: str) -> str:
        if "typespec" not in self._variable(name) and _implicit_rules(self.block)[0] is None:
            raise RefusedError(f"the parser of f2py does not read the declaration of `{name}`")
        spec = self._typespec(name)
        plain = {"double precision": "double", "double complex": "dcomplex", "character": "char"}
        sized = {"integer": _INTEGERS, "real": _REALS, "complex": _COMPLEX, "logical": _LOGICALS}
        found = plain.get(spec)
        if found is None and spec in sized:
            size = self._bytes(name, 4)
            is_whole = spec == "complex" and "*" in self._variable(name).get("kindselector", {})
            found = sized[spec].get(size // 2 if is_whole else size)
            spec = f"{spec}({size})"
        if found is None:
            raise RefusedError(f"`{name}` is of type {spec}, which no interface has")
        return found

    def _value_type(self, result: str) -> str:
        """The type of the value, which may stand in front of `function`."""
        prefix = re.search(
            r"\b(?:real|complex|integer|logical)\s*"
            r"(?:\*\s*(\d+)|\(\s*(?:kind\s*=)?((?:[^()]|\([^()]*\))+)\))",
            str(self.block.get("prefix", "")),
            re.I,
        )
        variable = dict(self._variable(result))
        if prefix and "kindselector" not in variable:
            variable["kindselector"] = {"*": prefix[1]} if prefix[1] else {"kind": prefix[2]}
            self.variables = {**self.variables, result: variable}
        return self._type(result)

    def _value(self, name: str) -> Parameter:
        """The parameter for the value of a function. A shim can store an array."""
        result = self.block.get("result", self.block["name"])
        number, dims = self._value_type(result), self._dimension(result)
        if number == "char":
            raise RefusedError("its value is a text, which no interface has")
        has_shim = self.module is not None and not self.is_signature
        if dims and (not has_shim or ":" in dims):
            raise RefusedError("its value is an array, which only Fortran can receive")
        sizes, asked = [], self.asked.get(result, "")
        for position, dim in enumerate(dims):
            size, question = self._size(result, dim, position)
            sizes.append(size)
            asked = " ".join(filter(None, [question, asked]))
        return Parameter(name, number, "OUT", sizes[::-1] or ["1"], asked)

    def _callback(self, name: str) -> Callback | None:
        """The argument as a callback, if it is a procedure."""
        for inner in self.block.get("body", []):
            for block in inner.get("body", []) if inner["block"] == "interface" else []:
                if block.get("name") == name:
                    reader = _Reader(block, None, self.statements, is_signature=False)
                    function = reader.function()
                    value = ""
                    if function.value:
                        value = function.parameters.pop().type
                    given: list[Parameter | None] = list(function.parameters)
                    return Callback(name_of(name), value, given)
        # f2py does not read the statement `procedure (interface) :: f`.
        declared = rf"^\s*procedure\s*\(.*::.*\b{re.escape(name)}\b"
        is_procedure = re.search(declared, self.statements, re.I | re.M) is not None
        if is_procedure or "external" in self._variable(name).get("attrspec", []):
            raise RefusedError(f"the source does not say which arguments its callback `{name}` has")
        return None

    def _parameter(self, name: str, index: int) -> Parameter:
        for attribute in ("allocatable", "pointer"):
            if attribute in self._variable(name).get("attrspec", []):
                raise RefusedError(f"`{name}` is {attribute}, which only Fortran can pass")
        number, dims = self._type(name), self._dimension(name)
        intent = [str(one) for one in self._variable(name).get("intent", [])]
        mode, question = self._mode(name, intent, bool(dims))
        if name in self.sizes and not dims and mode != "IN":
            mode, question = "IN", "a size is IN: must its caller get a changed value?"
        question = " ".join(filter(None, [self.asked.get(name), question]))
        shown = name_of(name, index)
        if number == "char":
            number, asked = self._text(name, mode if not dims else "")
            question = " ".join(filter(None, [asked, question]))
        if not dims:
            # A text with a length is one that the server pads.
            is_plain = mode == "IN" and not number.startswith("string[")
            return Parameter(shown, number, mode, [] if is_plain else ["1"], question)
        sizes = []
        for position, dim in enumerate(dims):
            size, asked = self._size(name, dim, position)
            sizes.append(size)
            question = " ".join(filter(None, [asked, question]))
        # What has `intent(c)` lies by rows, as its dimensions say.
        return Parameter(shown, number, mode, sizes if "c" in intent else sizes[::-1], question)

    def _text(self, name: str, mode: str) -> tuple[str, str]:
        """The type of a character, a text or an array of them, and a question about its length.
        A scalar has a mode."""
        selector = self._variable(name).get("charselector", {})
        length = str(selector.get("*") or selector.get("len") or "1").strip("() ").lower()
        if length == "1":
            return "char", ""
        if mode == "IN" and length == "*":
            return "string", ""
        if length.isdigit() or length in self.scalars:
            return f"string[{length}]", ""
        return "string[256]", "how long can the text be?"

    def _mode(self, name: str, intent: Sequence[str], is_array: bool) -> tuple[str, str]:
        """The mode, and what is not known about it."""
        if "hide" in intent and is_array and "out" not in intent:
            return "WORK", ""
        goes = "inout" in intent or "in" in intent or "copy" in intent
        if {"inout", "inplace"} & set(intent) or (goes and "out" in intent):
            return "INOUT", ""
        if "out" in intent:
            return "OUT", ""
        if goes or "hide" in intent or self.is_signature:
            default = self._variable(name).get("=")
            is_asked = self.is_signature and default and not is_array
            return "IN", f"f2py takes {default} if it is left out" if is_asked else ""
        return self._used(name, is_array)

    def _used(self, name: str, is_array: bool) -> tuple[str, str]:
        """The mode of an argument without an intent, from what the source does with it."""
        is_text = self._typespec(name) == "character"
        # f2py renames what is a word of C, such as `long`.
        name = re.escape(name.removesuffix("_bn")) + "(_bn)?"
        before = r"^\s*((if|where|forall|else\s*where)\s*\(.*\)\s*|do\s+(\d+\s*,?\s*)?)?"
        assigned = rf"{before}{name}\s*(\(.*\))?\s*=[^=]"
        assigned += rf"|\b(iostat|stat|iomsg|errmsg|newunit)\s*=\s*{name}\b"
        if is_text:
            assigned += rf"|{before}write\s*\(\s*(unit\s*=\s*)?{name}\b"
        if re.search(assigned, self.statements, re.I | re.M):
            return "INOUT", "is it only written (OUT)?"
        passed = rf"{before}(call|read|inquire)\b.*\b{name}\b"
        if re.search(passed, self.statements, re.I | re.M):
            return ("INOUT", "is it changed?") if is_array else ("IN", "is it changed (INOUT)?")
        return "IN", ""

    def _size(self, name: str, dim: str, position: int) -> tuple[str, str]:
        """The size of a dimension, and a question if the source does not say it."""
        if dim == "..":
            raise RefusedError(f"`{name}` has any number of dimensions, which no interface has")
        if dim == ":":
            added = free_name(f"{name}_n{position + 1}", self.taken)
            self.lengths[name, position + 1] = added
            self.added.append(Parameter(added, "int"))
            return added, ""
        if ":" in dim and dim != "*":
            low, _, high = dim.partition(":")
            if high != "*":
                dim = f"{high} - ({low}) + 1"
        if "*" in (dim, dim[-1:]) and not re.search(r"\w", dim.replace("*", "")):
            size = likely_size(name, self.scalars)
            return size or "1", f"is its size {size}?" if size else "what is its size, if not 1?"
        asked = r"size\(\s*(\w+)\s*(?:,\s*(?:dim\s*=\s*)?(\d)\s*)?\)"
        dim = re.sub(asked, self._assumed, dim.lower())
        known = {*self.scalars, *(one.name for one in self.added), "max", "min"}
        words = re.findall(r"[A-Za-z_]\w*", dim)
        if any(word.lower() not in known for word in words):
            size = likely_size(name, self.scalars) or "1"
            return size, f"is its size {dim}?"
        return _of_two(re.sub(r"\*\s*\*", "^", dim.lower())), ""

    def _assumed(self, size: re.Match[str]) -> str:
        """The parameters for a size of an array of assumed shape."""
        if size[2]:
            return self.lengths.get((size[1], int(size[2])), size[0])
        every = [added for (array, _), added in self.lengths.items() if array == size[1]]
        return f"({' * '.join(every)})" if len(every) > 1 else "".join(every) or size[0]

    def _make_shim(self, function: Function) -> None:
        """A procedure outside of the module, which passes its arguments on."""
        assert self.module is not None
        names = [one.name for one in self.added] + function.arguments
        shim = f"draft_{self.block['name']}"
        given = names + ([function.value] if function.value else [])
        lines = [f"subroutine {shim}({', '.join(given)})"]
        lines += [f"  use {self.module['name']}, only: {self.block['name']}", "  implicit none"]
        lines += [f"  integer(4), intent(in) :: {one.name}" for one in self.added]
        for callback in function.callbacks:
            value = f"{_FORTRAN[callback.value]}, " if callback.value else ""
            lines.append(f"  {value}external :: {callback.name}")
        arrays = {name_of(one) for one in self.variables if self._dimension(one)}
        for parameter in function.parameters:
            lines.append(f"  {_declared(parameter, parameter.name in arrays)}")
        called = f"{self.block['name']}({', '.join(function.arguments)})"
        lines.append(f"  {function.value} = {called}" if function.value else f"  call {called}")
        lines.append(f"end subroutine {shim}\n")
        self.shim = [_continued(line) for line in lines]
        function.parameters = self.added + function.parameters
        function.symbol, function.arguments, function.value = shim, given, ""
        function.module = self.module["name"]


def _of_two(size: str) -> str:
    """The size with two values in each `max` and `min`, as the interface language has them."""
    made: list[str] = []
    # The place of each open parenthesis, and the commas in it so far.
    opened: list[list[int]] = []
    for part in re.findall(r"\w*\s*\(|\w+|[^\w(),]+|[),]", size):
        if part.endswith("("):
            opened.append([len(made), 0])
        elif part == ")" and opened:
            opened.pop()
        elif part == "," and opened:
            begin, commas = opened[-1]
            opened[-1][1] += 1
            if commas > 0:
                made.insert(begin, made[begin])
                made.append(")")
        made.append(part)
    return "".join(made)


_FORTRAN = {
    "int8_t": "integer(1)", "short": "integer(2)", "int": "integer(4)", "long": "integer(8)",
    "float": "real(4)", "double": "real(8)", "scomplex": "complex(4)", "dcomplex": "complex(8)",
    "LOGICAL": "logical(4)", "bool": "logical(1)", "char": "character(1)",
    "string": "character(*)",
}  # fmt: skip


def _continued(line: str) -> str:
    """A statement in lines of at most 132 columns, more than which compilers do not read."""
    if len(line) <= 100:
        return line
    parts = textwrap.wrap(line, 100, break_long_words=False, break_on_hyphens=False)
    return " &\n    ".join(parts)


def _declared(parameter: Parameter, is_array: bool) -> str:
    """The parameter in Fortran. An array of one element is one whose size the draft asks for."""
    intents = {"IN": "in", "OUT": "out", "INOUT": "inout", "WORK": "inout"}
    # The length of a text comes with it.
    element = parameter.type.partition("[")[0]
    kind = f"{_FORTRAN[element]}, intent({intents[parameter.mode]})"
    sizes = ", ".join(reversed(parameter.sizes)).replace("^", "**")
    if parameter.sizes == ["1"]:
        sizes = "*" if is_array else ""
    return f"{kind} :: {parameter.name}" + (f"({sizes})" if sizes else "")
