#!/usr/bin/env python3
"""Write blas.idl, lapack.idl, fft.idl, linalg.idl and cuda.idl, and the cases their tests run.

Each routine is described once, in `routines/*.py`, for all precisions. Usage:

    libraries/generate.py            write the files
    libraries/generate.py --check    exit 1 where a file is stale
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from routines import blas, cuda, fft, lapack, linalg  # noqa: E402

CASES = HERE.parent / "testing" / "conformance" / "cases.json"


def files():
    """Path and text of every generated file."""
    cases = {}
    for module in (blas, lapack, fft, linalg, cuda):
        name = module.__name__.rpartition(".")[2]
        routines = list(module.routines())
        blocks = [module.HEADER.strip()] + [routine.idl() for routine in routines]
        blocks += [module.FOOTER.strip()] if hasattr(module, "FOOTER") else []
        yield HERE / f"{name}.idl", "\n\n".join(blocks) + "\n"
        # The tests of stacks compare them with NumPy: bindings/python/tests/test_linalg.py. Those
        # of CUDA need a GPU: testing/e2e/test_cuda.py.
        if module not in (linalg, cuda):
            cases[name] = {routine.name: routine.cases for routine in routines}
    yield CASES, cases_text(cases)


def cases_text(cases):
    """One case to a line, so that a change shows."""
    libraries = []
    for library, routines in cases.items():
        lines = [
            f'  "{name}": [\n' + ",\n".join(f"   {json.dumps(case)}" for case in listed) + "\n  ]"
            for name, listed in routines.items()
        ]
        libraries.append(f' "{library}": {{\n' + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(libraries) + "\n}\n"


def main():
    stale = 0
    for path, text in files():
        if path.exists() and path.read_text() == text:
            continue
        stale += 1
        if "--check" in sys.argv[1:]:
            print(f"{path.relative_to(HERE.parent)} is stale: run libraries/generate.py")
        else:
            path.write_text(text)
            print(f"wrote {path.relative_to(HERE.parent)}")
    return 1 if stale and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
