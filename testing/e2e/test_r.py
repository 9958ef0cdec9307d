"""The package of R: R's own checks, and what users of R expect."""

import re

import pytest
from programs import library_environment, r_library, run
from servers import LIBRARIES, NAP, ROOT

PACKAGE = ROOT / "bindings" / "r" / "farcall"


@pytest.fixture(scope="module")
def library():
    """The folder with the installed package."""
    return r_library()


def rscript(library, text, *arguments, timeout=60):
    return run("Rscript", "--vanilla", "-e", text, *arguments, timeout=timeout, R_LIBS=str(library))


@pytest.mark.usefixtures("library")
def test_r_finds_nothing_wrong(tmp_path):
    built = run("R", "CMD", "build", PACKAGE, cwd=tmp_path, timeout=120, **library_environment())
    assert built.returncode == 0, built.stderr
    [archive] = tmp_path.glob("farcall_*.tar.gz")
    words = ["R", "CMD", "check", "--no-manual", "--no-build-vignettes", archive.name]
    offline = {"_R_CHECK_CRAN_INCOMING_": "false", "_R_CHECK_SYSTEM_CLOCK_": "0"}
    checked = run(*words, cwd=tmp_path, timeout=300, **library_environment(), **offline)
    assert checked.returncode == 0, checked.stdout
    status = re.search(r"^Status: (.*)$", checked.stdout, re.MULTILINE)
    assert status and status[1] == "OK", checked.stdout


def test_lapack_solves_and_arguments_stay(start, library):
    server = start(LIBRARIES / "lapack.idl")
    text = """
    library(farcall)
    server <- farcall_connect(commandArgs(TRUE)[1])
    set.seed(1)
    n <- 200
    a <- matrix(rnorm(n * n), n)
    b <- matrix(rnorm(2 * n), n)
    kept <- a + 0
    solved <- server$dgesv(n = n, nrhs = 2, a = a, lda = n, b = b, ldb = n)
    stopifnot(max(abs(solved$b - solve(a, b))) < 1e-10, identical(a, kept), solved$info == 0)
    stopifnot(is.matrix(solved$a), length(solved$ipiv) == n)
    print(server$dgesv)
    """
    ran = rscript(library, text, server.address)
    assert ran.returncode == 0, ran.stderr
    assert "dgesv(" in ran.stdout


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("s$dgesv(n = 2)", "takes 6 arguments"),
        ("s$dgesv(2, 1, diag(3), 2, c(1, 1), 2)", "argument `a` must be 2 x 2, not 3 x 3"),
        ("s$dgesv(2, 1, data.frame(diag(2)), 2, c(1, 1), 2)", "argument `a` is a data frame; pass"),
        ("s$dgesv(2.5, 1, diag(2), 2, c(1, 1), 2)", "argument `n`: 2.5 is not a whole number"),
        ("s$dgesv(2, 1, diag(2), 2, c('x', 'y'), 2)", "argument `b` must be numeric"),
        ("s$dgesv(2, 1, diag(2), 2, b = c(1, 1), x = 2)", "no argument `x`"),
        ("s$dgesvv(2)", "did you mean"),
        ("farcall_connect('farcall://localhost:1')", "cannot connect"),
    ],
)
def test_errors_name_the_argument(library_server, library, call, error):
    text = f"library(farcall); s <- farcall_connect(commandArgs(TRUE)[1]); invisible({call})"
    ran = rscript(library, text, library_server.address)
    assert ran.returncode == 1
    assert error in ran.stderr.replace("\n", " "), ran.stderr


def test_an_interrupt_ends_the_wait_and_the_call(start, library, tmp_path):
    idl = tmp_path / "nap.idl"
    idl.write_text(NAP)
    server = start(idl, options=["--pes", "1"])
    text = """
    library(farcall)
    server <- farcall_connect(commandArgs(TRUE)[1])
    pid <- Sys.getpid()
    began <- proc.time()[["elapsed"]]
    system(paste("sh -c 'sleep 2; kill -INT", pid, "' &"))
    tryCatch(server$nap(60000), interrupt = function(condition) NULL)
    # The only processor element is free again.
    stopifnot(server$nap(1)$slept == 1)
    stopifnot(proc.time()[["elapsed"]] - began < 30)
    """
    ran = rscript(library, text, server.address)
    assert ran.returncode == 0, ran.stderr


def test_an_interrupt_ends_the_next_short_wait(start, library, tmp_path):
    idl = tmp_path / "nap.idl"
    idl.write_text(NAP)
    server = start(idl)
    text = """
    library(farcall)
    session <- farcall_start(farcall_connect(commandArgs(TRUE)[1])$nap, 60000)
    ended <- tryCatch({
        tools::pskill(Sys.getpid(), tools::SIGINT)
        .Call(farcall:::fc_wait, session$pointer, 0)
        "the wait"
    }, interrupt = function(condition) "an interrupt")
    stopifnot(ended == "an interrupt")
    """
    ran = rscript(library, text, server.address)
    assert ran.returncode == 0, ran.stderr


def test_fewer_texts_than_the_call_wants_are_an_error(start, library):
    server = start(LIBRARIES.parent / "testing" / "conformance" / "languages.idl")
    text = """
    library(farcall)
    server <- farcall_connect(commandArgs(TRUE)[1])
    tryCatch(server$join(n = 1000, words = c("one", "two"), between = "+"),
        farcall_argument = function(error) cat(conditionMessage(error)))
    """
    ran = rscript(library, text, server.address)
    assert ran.returncode == 0, ran.stderr
    assert "argument `words`: " in ran.stdout, ran.stdout
    assert "the call needs 1000" in ran.stdout, ran.stdout


def test_errors_before_a_call_have_a_class_too(library):
    text = """
    library(farcall)
    class_of <- function(made) tryCatch(made, error = function(error) class(error)[1])
    stopifnot(
        class_of(farcall_connect(7)) == "farcall_argument",
        class_of(farcall_connect(NA_character_)) == "farcall_argument",
        class_of(farcall_function(1, "f")) == "farcall_argument",
        class_of(farcall_method(1, "f")) == "farcall_argument",
        class_of(farcall_start(sum, 1)) == "farcall_argument",
        class_of(farcall_result(1)) == "farcall_argument")
    """
    ran = rscript(library, text)
    assert ran.returncode == 0, ran.stderr


def test_arguments_may_have_any_name(start, library, tmp_path):
    idl = tmp_path / "names.idl"
    idl.write_text(
        "Module names;\n"
        "Define f(IN int n, IN int s, IN double f, OUT double *sum) { *sum = n + s + f; }\n"
    )
    server = start(idl, options=["--allow-code"])
    text = """
    library(farcall)
    server <- farcall_connect(commandArgs(TRUE)[1])
    stopifnot(farcall_call(server, "names/f", n = 1, s = 2, f = 3)$sum == 6)
    stopifnot(farcall_result(farcall_start(server$f, n = 1, s = 2, f = 3))$sum == 6)
    for (name in list(character(0), NA_character_, 1, NULL)) {
        said <- tryCatch(farcall_function(server, name), farcall_argument = conditionMessage)
        stopifnot(grepl("must be one text", said))
    }
    """
    ran = rscript(library, text, server.address)
    assert ran.returncode == 0, ran.stderr


def test_matrices_of_c_functions_are_as_r_has_them(start, library, tmp_path):
    idl = tmp_path / "rows.idl"
    idl.write_text(
        "Module rows;\n"
        "Define first(IN int n, IN int m, IN double a[n][m], OUT double row[m])\n"
        "{ memcpy(row, a, m * sizeof *row); }\n"
    )
    server = start(idl, options=["--allow-code"])
    text = """
    library(farcall)
    server <- farcall_connect(commandArgs(TRUE)[1])
    a <- matrix(1:6, 2)
    stopifnot(server$first(2, 3, a)$row == a[1, ], server$first(2, 3, as.vector(a))$row == a[1, ])
    stopifnot(server$first(1, 3, 1:3)$row == 1:3, server$first(1, 3, matrix(1:3, 3))$row == 1:3)
    said <- tryCatch(server$first(2, 3, structure(a + 0, class = "integer64")),
        farcall_argument = conditionMessage)
    stopifnot(grepl("is an integer64", said))
    """
    ran = rscript(library, text, server.address)
    assert ran.returncode == 0, ran.stderr


def test_matrices_of_texts_are_as_r_has_them(start, library, tmp_path):
    idl = tmp_path / "texts.idl"
    idl.write_text(
        "Module texts;\n"
        "Define join(IN int n, IN int m, IN string words[n][m], OUT string[20] *all)\n"
        "{ all[0][0] = 0; for (int k = 0; k < n * m; k++) strcat(all[0], words[k]); }\n"
        "Define copy(IN int n, IN int m, IN string[8] words[n][m], OUT string[8] copied[n][m])\n"
        "{ for (int k = 0; k < n * m; k++) strcpy(copied[k], words[k]); }\n"
    )
    server = start(idl, options=["--allow-code"])
    text = """
    library(farcall)
    server <- farcall_connect(commandArgs(TRUE)[1])
    words <- matrix(c("a", "b", "c", "d", "e", "f"), 2, byrow = TRUE)
    stopifnot(server$join(2, 3, words)$all == "abcdef")
    stopifnot(server$join(2, 3, as.vector(words))$all == "abcdef")
    stopifnot(server$join(1, 3, words[1, ])$all == "abc")
    stopifnot(identical(server$copy(2, 3, words)$copied, words))
    said <- tryCatch(server$join(2, 3, t(words)), farcall_argument = conditionMessage)
    stopifnot(grepl("`words` must be 2 x 3, not 3 x 2", said))
    """
    ran = rscript(library, text, server.address)
    assert ran.returncode == 0, ran.stderr


def test_an_error_keeps_its_class_when_r_collects_garbage(start, library, tmp_path):
    """The collector ends the call that could not start, and no call of that number is known."""
    idl = tmp_path / "file.idl"
    idl.write_text("Module file;\nDefine f(IN filename text) { (void)text; }\n")
    server = start(idl, options=["--allow-code"])
    text = """
    library(farcall)
    guarded <- farcall:::.guarded
    handler <- as.list(body(guarded)[[2]]$simpleError[[3]])
    collects <- as.call(append(handler, quote(gc(full = TRUE)), 1))
    body(guarded)[[2]]$simpleError[[3]] <- collects
    assignInNamespace(".guarded", guarded, "farcall")
    server <- farcall_connect(commandArgs(TRUE)[1])
    said <- tryCatch(server$f("/no/such/file"), farcall_error = class)
    stopifnot(said[1] == "farcall_argument")
    """
    ran = rscript(library, text, server.address)
    assert ran.returncode == 0, ran.stderr
