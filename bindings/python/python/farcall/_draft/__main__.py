"""`python -m farcall._draft [-I FOLDER] [-D NAME] [-o FILE] FILE...`, for `farcall idl draft`."""

import argparse
import pathlib
import sys

from . import c, fortran, python
from .form import Draft

_FORTRAN = {".f", ".for", ".f77", ".f90", ".f95", ".f03", ".f08", ".pyf"}
_C = {".c", ".h"}
_MOST_BYTES = 16 << 20


def main() -> None:
    """Writes the draft; an error is one line on standard error."""
    parser = argparse.ArgumentParser(prog="farcall idl draft")
    parser.add_argument("-I", action="append", default=[], dest="include")
    parser.add_argument("-D", action="append", default=[], dest="define")
    parser.add_argument("-o", dest="output", type=pathlib.Path)
    parser.add_argument("--library")
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    try:
        text, shim = draft(arguments)
        write(arguments.files, arguments.output, text, shim)
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")


def write(
    files: list[pathlib.Path], output: pathlib.Path | None, text: str, shim: list[str]
) -> None:
    """Writes the draft, and the shim beside it. Neither replaces a file."""
    beside = output or pathlib.Path(files[0].name)
    file = beside.with_name(f"{beside.stem}_shim.f90")
    made = [] if output is None else [output]
    made += [file] if shim else []
    for one in made:
        if one.exists() and any(one.samefile(source) for source in files):
            raise ValueError(f"{one}: the draft would replace this source; name another file")
        if one.is_file():
            raise ValueError(
                f"{one}: there is such a file, which may have your answers; remove it or name "
                "another one"
            )
    if shim:
        file.write_text("\n".join(shim), encoding="utf-8")
        print(f"wrote {file}: compile it into the library", file=sys.stderr)
    if output is None:
        print(text, end="")
    else:
        output.write_text(text, encoding="utf-8")
        count = text.count("/* ? ") + text.count("# ? ")
        places = "1 place" if count == 1 else f"{count} places"
        print(f"wrote {output}; it has questions in {places}, after a `?`", file=sys.stderr)


def draft(arguments: argparse.Namespace) -> tuple[str, list[str]]:
    """The text of the draft, and of a shim in Fortran."""
    files: list[pathlib.Path] = arguments.files
    kinds = {_kind(file) for file in files}
    for file in files:
        _check(file)
    if "Python" in kinds:
        if len(files) > 1:
            raise ValueError("draft one Python module at a time")
        return python.read(files[0]), []
    options = [f"-I{one}" for one in arguments.include] + [f"-D{one}" for one in arguments.define]
    whole = Draft()
    for file in files:
        is_c = _kind(file) == "C"
        whole.add(c.read(file, options) if is_c else fortran.read(file, arguments.include))
    if not whole.functions:
        reasons = "; ".join(whole.left_out) or "it declares none"
        raise ValueError(f"no function has an interface: {reasons}")
    stem = files[0].stem
    shim = [line for lines in whole.shims.values() for line in lines]
    return whole.text(stem, arguments.library or f"./lib{stem}.so"), shim


def _check(file: pathlib.Path) -> None:
    """Refuses what no parser should read; some of them fail without a reason."""
    if not file.exists():
        raise ValueError(f"{file}: there is no such file")
    if not file.is_file():
        raise ValueError(f"{file}: this is not a file of text")
    if file.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{file}: longer than {_MOST_BYTES} bytes")


def _kind(file: pathlib.Path) -> str:
    suffix = file.suffix.lower()
    if suffix == ".py":
        return "Python"
    if suffix in _C:
        return "C"
    if suffix in _FORTRAN:
        return "Fortran"
    raise ValueError(
        f"{file}: this is neither C (.h, .c), Fortran (.f, .f90), an f2py signature (.pyf) nor "
        "Python (.py)"
    )


if __name__ == "__main__":
    main()
