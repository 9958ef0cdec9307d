"""Bars for calls that take long."""

import builtins
import io
import threading

import farcall
import numpy as np
import pytest
import tqdm.auto


class Bar(tqdm.auto.tqdm):
    """A bar that remembers what it showed."""

    seen = ()

    def __init__(self, **options):
        self.told = []
        super().__init__(**options, disable=False, file=io.StringIO())
        Bar.seen.append(self)

    def refresh(self, *_arguments, **_options):
        self.told.append((self.desc, self.n))


@pytest.fixture
def bars(monkeypatch):
    monkeypatch.setattr(tqdm.auto, "tqdm", Bar)
    Bar.seen = []
    return Bar.seen


@pytest.fixture
def nap(start, nap_idl):
    return start(nap_idl).connect().function("nap")


def test_a_long_call_has_a_bar_and_a_short_one_none(nap, bars):
    nap(1)
    with farcall.progress(least=1):
        assert nap(1).slept == 1
        assert bars == []
        assert nap(4000).slept == 4000
    (bar,) = bars
    start = "test/nap: has computed on 1 processor element"
    assert any(text.startswith(start) for text, _ in bar.told)
    assert bar.n == bar.total == 4
    assert nap.times.exec > 3.9
    nap(1300)
    assert len(bars) == 1


def test_a_transfer_is_shown_as_it_goes(start, bars, tmp_path):
    path = tmp_path / "slow.py"
    path.write_text(
        "import farcall\n@farcall.library('double(IN int n, INOUT double x[n])')\n"
        "def double(x):\n    x *= 2\n"
    )
    function = start(path).connect(same_host=False).function("double")
    x = np.ones(16 << 20)
    with farcall.progress(least=0.01):
        function(len(x), x)
    assert x[0] == x[-1] == 2
    (bar,) = bars
    assert bar.n == bar.total == 2 * x.nbytes
    amounts = [amount for _, amount in bar.told]
    assert amounts == sorted(amounts)


def test_errors_and_time_outs_pass_through(start, nap_idl, bars):
    server = start(nap_idl)
    with farcall.progress(least=0.05):
        with pytest.raises(farcall.LibraryError, match="SIGSEGV"):
            server.connect().call("segfault", 1)
        with pytest.raises(farcall.TimeoutError, match=r"0\.4"):
            server.connect(timeout=0.4).call("nap", 30_000)
    assert len(bars) <= 2


def test_threads_have_bars_of_their_own(nap, bars):
    with farcall.progress(least=0.1):
        threads = [threading.Thread(target=nap, args=(2000,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(bars) == 2


def test_without_tqdm_the_remedy_is_told(monkeypatch):
    real = builtins.__import__

    def refuse(name, *arguments):
        if name.startswith("tqdm"):
            raise ImportError(name)
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"pip install farcall\[progress\]"), farcall.progress():
        pass
