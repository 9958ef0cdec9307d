"""Reads C headers and sources with libclang."""

import pathlib
import subprocess
from collections.abc import Iterator, Sequence
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

# Types of C, by the spelling of their canonical form, in the interface language.
_NUMBERS = {
    "char": "char",
    "signed char": "int8_t",
    "unsigned char": "uint8_t",
    "_Bool": "bool",
    "short": "short",
    "unsigned short": "unsigned short",
    "int": "int",
    "unsigned int": "unsigned int",
    "long": "long",
    "unsigned long": "unsigned long",
    "long long": "longlong",
    "unsigned long long": "unsigned longlong",
    "float": "float",
    "double": "double",
    "_Complex float": "scomplex",
    "_Complex double": "dcomplex",
}


def read(path: pathlib.Path, options: Sequence[str]) -> Draft:
    """The functions that a header or a source declares itself."""
    cindex = _clang()
    try:
        unit = cindex.Index.create().parse(str(path), args=["-x", "c", *_system(), *options])
    except cindex.TranslationUnitLoadError as error:
        raise ValueError(f"{path}: libclang cannot read it: {error}") from None
    errors = [found for found in unit.diagnostics if found.severity >= 3]
    if errors:
        place = errors[0].location
        raise ValueError(f"{path}:{place.line}: {errors[0].spelling}")
    draft = Draft()
    for cursor in _functions(unit.cursor, cindex, path):
        try:
            draft.functions.append(_function(cursor, cindex))
        except RefusedError as reason:
            draft.left_out.append(f"{cursor.spelling}: {reason}")
        except ValueError:
            # The Python package has no names for some types of the library.
            draft.left_out.append(f"{cursor.spelling}: libclang does not tell one of its types")
    return draft


def _clang() -> Any:
    try:
        from clang import cindex
    except ImportError:
        raise ValueError(
            "C headers need libclang: `pip install libclang`, or python3-clang of Debian"
        ) from None
    return cindex


def _system() -> list[str]:
    """The folder of the compiler's own headers, which a libclang from PyPI does not have."""
    try:
        words = ["cc", "-print-file-name=include"]
        said = subprocess.run(words, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return ["-isystem", said.stdout.strip()]


def _functions(root: Any, cindex: Any, path: pathlib.Path) -> Iterator[Any]:
    seen = set()
    for cursor in root.get_children():
        here = cursor.location.file and pathlib.Path(cursor.location.file.name) == path
        is_function = cursor.kind == cindex.CursorKind.FUNCTION_DECL
        is_static = cursor.storage_class == cindex.StorageClass.STATIC
        if here and is_function and not is_static and cursor.spelling not in seen:
            seen.add(cursor.spelling)
            yield cursor


def _number(ctype: Any, cindex: Any) -> str | None:
    """The type of a number, by its meaning here: `size_t` and `int32_t` keep their width."""
    canonical = ctype.get_canonical()
    if canonical.kind == cindex.TypeKind.ENUM:
        if canonical.get_size() == 4:
            return "int"
        canonical = canonical.get_declaration().enum_type.get_canonical()
    spelling = canonical.spelling.replace("const ", "").replace("volatile ", "")
    return _NUMBERS.get(spelling)


def _function(cursor: Any, cindex: Any) -> Function:
    # A typedef can have the type.
    own = cursor.type.get_canonical()
    if own.kind == cindex.TypeKind.FUNCTIONNOPROTO:
        if not cursor.is_definition():
            raise RefusedError("`()` does not say its arguments; `(void)` says that it has none")
    elif own.is_function_variadic():
        raise RefusedError("it takes a list of arguments of any length")
    if "(ms_abi)" in own.spelling:
        raise RefusedError("no interface has the calling convention `ms_abi`")
    arguments = list(cursor.get_arguments())
    names = [name_of(one.spelling, index) for index, one in enumerate(arguments)]
    integers = [
        name
        for one, name in zip(arguments, names, strict=True)
        if (number := _number(one.type, cindex)) and number not in ("float", "double", "char")
        and "complex" not in number
    ]  # fmt: skip
    function = Function(cursor.spelling, cursor.spelling, [], [])
    function.description = (cursor.brief_comment or "")[:120]
    # Pointers that callbacks get and the function passes on, and those that it has taken.
    wanted = taken = 0
    types = list(own.argument_types()) if arguments else []
    for one, name, passed in zip(arguments, names, types, strict=True):
        pointee = _function_type(one.type, cindex)
        if pointee is not None:
            function.callbacks.append(_callback(name, one, pointee, cindex))
            function.arguments.append(name)
            wanted += function.callbacks[-1].parameters.count(None)
            continue
        if taken < wanted and _is_void_pointer(one.type, cindex):
            # The user's pointer of the callback before it, which stays at the server.
            function.arguments.append("NULL")
            spellings = [one.type.get_canonical().spelling for one in arguments]
            if any("(*)(" in one and "const void *" in one for one in spellings):
                function.questions.append(f"does only the callback get {name}, so that it is NULL?")
            taken += 1
            continue
        # Without a prototype, C passes a `float` as `double`.
        ctype = passed if _number(one.type, cindex) == "float" else one.type
        function.parameters.append(_parameter(name, ctype, integers, cindex))
        function.arguments.append(name)
    if wanted and not taken:
        raise RefusedError("its callback takes a `void *`, and it takes none after it to pass on")
    _value(function, cursor.result_type, cindex)
    return function


def _function_type(ctype: Any, cindex: Any) -> Any:
    """The type of the function that a parameter points to."""
    canonical = ctype.get_canonical()
    if canonical.kind != cindex.TypeKind.POINTER:
        return None
    pointee = canonical.get_pointee()
    return pointee if pointee.kind == cindex.TypeKind.FUNCTIONPROTO else None


def _is_void_pointer(ctype: Any, cindex: Any) -> bool:
    canonical = ctype.get_canonical()
    is_pointer = canonical.kind == cindex.TypeKind.POINTER
    return bool(is_pointer and canonical.get_pointee().get_canonical().kind == cindex.TypeKind.VOID)


def _callback(name: str, cursor: Any, ctype: Any, cindex: Any) -> Callback:
    given: list[Parameter | None] = []
    types = list(ctype.argument_types())
    own = _names_in(cursor, cindex)
    own = own if len(own) == len(types) else [""] * len(types)
    names = [
        name_of(one) if one else free_name(f"a{index + 1}", own) for index, one in enumerate(own)
    ]
    pairs = list(zip(names, types, strict=True))
    numbers = [named for named, one in pairs if _number(one, cindex) == "int"]
    for named, one in pairs:
        if _is_void_pointer(one, cindex):
            given.append(None)
        else:
            given.append(_parameter(named, one, numbers, cindex))
    if given.count(None) > 1:
        raise RefusedError(f"its callback `{name}` takes several `void *`")
    result = ctype.get_result()
    is_void = result.get_canonical().kind == cindex.TypeKind.VOID
    value = "" if is_void else _number(result, cindex)
    if value is None:
        raise RefusedError(f"its callback `{name}` returns `{result.spelling}`")
    return Callback(name, value, given)


def _names_in(cursor: Any, cindex: Any) -> list[str]:
    """The names of the parameters in the declaration of a function pointer, or in its typedef."""
    kinds = cindex.CursorKind
    children = list(cursor.get_children())
    found = [one.spelling for one in children if one.kind == kinds.PARM_DECL]
    types = [one.referenced for one in children if one.kind == kinds.TYPE_REF]
    typedefs = [one for one in types if one.kind == kinds.TYPEDEF_DECL]
    return _names_in(typedefs[0], cindex) if typedefs and not found else found


def _parameter(name: str, ctype: Any, integers: Sequence[str], cindex: Any) -> Parameter:
    number = _number(ctype, cindex)
    if number is not None:
        return Parameter(name, number)
    sizes, canonical, is_read = _dimensions(name, ctype, cindex)
    question = ""
    element = _number(canonical, cindex)
    if element is None and canonical.spelling in ("FILE", "struct _IO_FILE"):
        return Parameter(name, "filepointer", question="is the file read (IN) or written (OUT)?")
    if element is None:
        return _texts(name, ctype, integers, cindex)
    if element == "char" and sizes == [""]:
        if is_read:
            return Parameter(name, "string")
        return Parameter(
            name, "string[256]", "OUT", ["1"], "how long can the text be, and is it also read?"
        )
    mode = "IN" if is_read else "INOUT"
    if not is_read:
        question = "is it only written (OUT)?"
    if sizes[0] == "":
        size = likely_size(name, integers)
        sizes[0] = size or "1"
        question = f"{'is its size' if size else 'what is its size, if not'} {sizes[0]}?" + (
            f" {question}" if question else ""
        )
    if "" in sizes:
        sizes = [size or "1" for size in sizes]
        question = f"what are its other sizes, if not 1? {question}".rstrip()
    return Parameter(name, element, mode, sizes, question)


def _dimensions(name: str, ctype: Any, cindex: Any) -> tuple[list[str], Any, bool]:
    """The sizes of an array, empty if the type does not state one, the type of its elements, and
    whether they are `const`."""
    sizes: list[str] = []
    is_read = False
    kinds = cindex.TypeKind
    canonical = ctype.get_canonical()
    while canonical.kind in (kinds.CONSTANTARRAY, kinds.INCOMPLETEARRAY, kinds.VARIABLEARRAY):
        # Of an array, libclang has `const` in its type, and not in that of the elements.
        is_read = is_read or canonical.is_const_qualified()
        is_constant = canonical.kind == kinds.CONSTANTARRAY
        sizes.append(str(canonical.element_count) if is_constant else "")
        canonical = canonical.element_type.get_canonical()
    if sizes:
        return sizes, canonical, is_read or canonical.is_const_qualified()
    if canonical.kind != kinds.POINTER:
        raise RefusedError(f"`{name}` is `{ctype.spelling}`, which no interface has")
    element = canonical.get_pointee().get_canonical()
    return [""], element, element.is_const_qualified()


def _texts(name: str, ctype: Any, integers: Sequence[str], cindex: Any) -> Parameter:
    """An array of texts; nothing else behind two pointers has an interface."""
    sizes, pointee, is_read = _dimensions(name, ctype, cindex)
    is_pointer = pointee.kind == cindex.TypeKind.POINTER
    inner = pointee.get_pointee().get_canonical() if is_pointer else pointee
    if not is_pointer or _number(inner, cindex) != "char" or not inner.is_const_qualified():
        raise RefusedError(f"`{name}` is `{ctype.spelling}`, which no interface has")
    question = "" if is_read else "is it only read?"
    if sizes[0] == "":
        sizes[0] = likely_size(name, integers) or "1"
        question = f"is its size {sizes[0]}? {question}".rstrip()
    return Parameter(name, "string", "IN", [size or "1" for size in sizes], question)


def _value(function: Function, ctype: Any, cindex: Any) -> None:
    canonical = ctype.get_canonical()
    if canonical.kind == cindex.TypeKind.VOID:
        return
    name = free_name("value", function.arguments)
    number = _number(ctype, cindex)
    if number is not None:
        parameter = Parameter(name, number, "OUT", ["1"])
    elif canonical.kind == cindex.TypeKind.POINTER and (
        _number(canonical.get_pointee(), cindex) == "char"
    ):
        question = "how long can the text be, and must it be released?"
        parameter = Parameter(name, "string[256]", "OUT", ["1"], question)
    else:
        raise RefusedError(f"it returns `{ctype.spelling}`, which no interface has")
    function.parameters.append(parameter)
    function.value = name
