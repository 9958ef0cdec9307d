"""`farcall top` on a terminal of its own."""

import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios

import pytest
from servers import FARCALL, add_tokens, freeze, wait_until


class Screen:
    """A terminal of 24 lines and 80 columns with `farcall top`, and all that it has written."""

    def __init__(self, *words, token):
        self.ours, self.theirs = pty.openpty()
        self.ends = [self.ours, self.theirs]
        self.columns = 80
        self.resize()
        self.before = termios.tcgetattr(self.theirs)
        self.process = subprocess.Popen(
            [FARCALL, "top", *words],
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            env=os.environ | {"FARCALL_TOKEN": token, "TERM": "xterm-256color"},
            start_new_session=True,
        )
        os.set_blocking(self.ours, False)
        self.text = ""

    def resize(self):
        size = struct.pack("HHHH", 24, self.columns, 0, 0)
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, size)

    def shows(self, *texts):
        """Waits until the screen shows texts. Only a screen of another size is drawn as a whole,
        and keys that are read after it draw only what they change."""
        for patience in [0.1, 0.5, 2.0, 10.0, 20.0]:
            self.columns = 161 - self.columns
            self.resize()
            self.process.send_signal(signal.SIGWINCH)
            self.text = ""
            with contextlib.suppress(TimeoutError):
                wait_until(lambda: all(text in self.read() for text in texts), patience)
                return
        raise TimeoutError(f"the screen does not show {texts}")

    def read(self):
        with contextlib.suppress(BlockingIOError):
            self.text += os.read(self.ours, 1 << 16).decode(errors="replace")
        return self.text

    def unread(self):
        """The number of bytes that were typed and that the program has not read."""
        # A full terminal would stop the program.
        self.read()
        return int.from_bytes(fcntl.ioctl(self.theirs, termios.FIONREAD, bytes(4)), sys.byteorder)

    def type(self, keys):
        os.write(self.ours, keys.encode())

    def is_restored(self):
        """Whether the terminal is as before: cooked, and on its first screen."""
        after = termios.tcgetattr(self.theirs)
        return after == self.before and "\x1b[?1049l" in self.read()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.hang_up()

    def hang_up(self):
        """Closes the terminal."""
        while self.ends:
            os.close(self.ends.pop())


@pytest.fixture
def busy(start, tmp_path, nap_idl):
    """A server with a call that computes and one that waits, and the token of their user."""
    [token] = add_tokens(tmp_path / "tokens", "alice")
    words = ["--tokens", tmp_path / "tokens", "--state", tmp_path / "state", "--pes", "1"]
    server = start(nap_idl, options=words)
    nap = server.connect(token=token).function("nap")
    calls = [nap.submit(60_000), nap.submit(1)]
    wait_until(lambda: calls[0].status.state == "running")
    yield server, token
    for call in calls:
        call.cancel()


def top(*words, token):
    """The outcome of `farcall top` without a terminal."""
    environment = os.environ | {"FARCALL_TOKEN": token}
    words = [FARCALL, "top", *words]
    return subprocess.run(
        words, capture_output=True, text=True, timeout=30, check=False, env=environment
    )


@pytest.mark.parametrize("keys", ["q", "\x03"])
def test_the_terminal_is_as_before_when_it_ends(busy, keys):
    server, token = busy
    with contextlib.closing(Screen(server.address, token=token)) as screen:
        wait_until(lambda: "[calls]" in screen.read() and "running" in screen.text)
        screen.shows("running", "computed")
        screen.type("\t\t")
        screen.shows("[users]", "lately")
        screen.type("/nobody\r")
        screen.shows("nobody")
        screen.type(keys)
        assert screen.process.wait(10) == 0
        assert wait_until(screen.is_restored)


def test_a_signal_leaves_the_terminal_as_before(busy):
    server, token = busy
    with contextlib.closing(Screen(server.address, token=token)) as screen:
        wait_until(lambda: "[calls]" in screen.read())
        screen.process.terminate()
        screen.process.wait(10)
        assert wait_until(screen.is_restored)


def test_a_key_that_comes_with_another_size_is_read(busy):
    server, token = busy
    with contextlib.closing(Screen(server.address, token=token)) as screen:
        wait_until(lambda: "[calls]" in screen.read())
        for _ in range(30):
            # The program sees both at once when it goes on. It must not wait for another key.
            freeze(screen.process)
            screen.columns = 161 - screen.columns
            screen.resize()
            screen.process.send_signal(signal.SIGWINCH)
            screen.type("\t")
            screen.process.send_signal(signal.SIGCONT)
            wait_until(lambda: screen.unread() == 0)


def test_it_ends_with_its_terminal(busy):
    server, token = busy
    with contextlib.closing(Screen(server.address, token=token)) as screen:
        wait_until(lambda: "[calls]" in screen.read())
        screen.hang_up()
        assert screen.process.wait(10) == 1


def test_scripts_read_it_once(busy):
    server, token = busy
    run = top(server.address, "--once", token=token)
    lines = run.stdout.splitlines()
    assert run.returncode == 0, run.stderr
    assert lines[0].startswith("server ")
    assert [line.split()[:3] for line in lines[5:7]] == [
        ["test/nap", "alice", "running"],
        ["test/nap", "alice", "waiting"],
    ]
    assert "\x1b" not in run.stdout
    run = top(server.address, "--json", token=token)
    assert json.loads(run.stdout)["counts"] == {"waiting": 1, "running": 1, "moving": 0, "done": 0}


def test_a_wrong_token_and_a_pipe_are_clear_errors(busy):
    server, token = busy
    run = top(server.address, "--once", token="old")
    assert (run.returncode != 0, "token" in run.stderr) == (True, True), run.stderr
    run = top(server.address, token=token)
    assert (run.returncode != 0, "--once" in run.stderr) == (True, True), run.stderr
