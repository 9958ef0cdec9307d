"""The example of the tutorial, as docs/tutorial.md shows it."""

import re
import shutil
import subprocess

import numpy as np
import pytest
from programs import command, run
from servers import FARCALL, ROOT

EXAMPLE = ROOT / "examples" / "tutorial"
PAGE = (ROOT / "docs" / "tutorial.md").read_text()


@pytest.fixture
def plate(start, tmp_path):
    """A server of the example, compiled anew."""
    folder = shutil.copytree(EXAMPLE, tmp_path / "tutorial")
    subprocess.run(["make", "-s", "-B", "-C", folder], check=True, timeout=60)
    return start(folder / "plate.idl")


@pytest.mark.parametrize("client", ["plate.py", "client.c"])
def test_the_clients_print_what_the_page_shows(plate, tmp_path, client):
    ran = run(*command(EXAMPLE / client, tmp_path), plate.address)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("sweep 100: ")
    assert ran.stdout in PAGE


def test_the_shell_prints_what_the_page_shows(plate, tmp_path):
    np.save(tmp_path / "plate.npy", [[100.0] * 4] + [[0.0] * 4] * 3)
    arguments = ["n=4", "tolerance=1", "u=@plate.npy", "-o", "u=warm.npy"]
    ran = run(FARCALL, "call", "relax", *arguments, cwd=tmp_path, FARCALL_SERVER=plate.address)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr + ran.stdout in PAGE


@pytest.mark.parametrize("name", ["plate.c", "plate.idl", "plate.py", "client.c", "Makefile"])
def test_the_page_shows_the_files_of_the_example(name):
    text = (EXAMPLE / name).read_text()
    without_its_first_comment = re.sub(
        r'\A(/\*.*?\*/|""".*?"""|#[^\n]*)\n', "", text, flags=re.DOTALL
    )
    assert without_its_first_comment.strip().split("\n.PHONY")[0] in PAGE
