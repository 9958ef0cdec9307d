"""One call script in every language, and one output for all."""

import pathlib

import pytest
from programs import command, run
from servers import ServerProcess

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="module")
def languages():
    server = ServerProcess(HERE / "languages.idl", options=["--workers", "4"])
    yield server
    assert server.process.poll() is None, server.log()
    server.stop()


@pytest.mark.parametrize(
    "source",
    ["script.c", "script.cpp", "script.f90", "Script.java", "script.py", "script.R", "script.m"],
)
def test_every_language_says_the_same(languages, tmp_path, source):
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "text").write_text("hello, files\n")
    (folder / "tally").write_text("100\n")
    ran = run(*command(HERE / source, tmp_path), languages.address, cwd=folder)
    assert ran.stdout == (HERE / "script.txt").read_text(), ran.stderr
    assert ran.returncode == 0, ran.stderr
    written = {path.name: path.read_text() for path in folder.iterdir()}
    expected = {"text": "hello, files\n", "capitals": "HELLO, FILES\n", "tally": "113\n"}
    assert written == expected
