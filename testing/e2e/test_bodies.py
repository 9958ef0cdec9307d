"""Bodies in C beside a library of one's own."""

import subprocess

import pytest

BODY = """
Module own;
Library "{name}";
Globals {{ int twice(int); }}
Define both(IN int n, OUT int *y) {{ int unused; *y = twice(n) + 1; }}
Define plain(IN int n, OUT int *y) Calls "C" y = twice(n);
CompileOptions "-Wall";
"""


@pytest.mark.parametrize("name", ["./libown.so", "libown.so", "sub/libown.so", "../own/libown.so"])
@pytest.mark.parametrize("soname", [[], ["-Wl,-soname,libown.so"]], ids=["plain", "soname"])
def test_a_library_in_the_folder_of_the_file_and_a_body(start, tmp_path, name, soname):
    folder = tmp_path / "own"
    library = folder / name
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "own.c").write_text("int twice(int n) { return 2 * n; }")
    command = ["cc", "-shared", "-fPIC", *soname, "-o", library, tmp_path / "own.c"]
    subprocess.run(command, check=True)
    file = folder / "own.idl"
    file.write_text(BODY.format(name=name))
    process = start(file, options=["--allow-code"])
    server = process.connect()
    assert server.call("own/both", n=4).y == 9
    assert server.call("own/plain", n=4).y == 8
    assert "unused variable" in process.log()
