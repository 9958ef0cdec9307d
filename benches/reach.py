"""Contenders of `farcall bench reach`: Python tasks over Farcall, and over what people use now.

The first argument names the contender. The second is the address of a metaserver for ours, and the
configuration of ssh for the contenders that use it. For each line of input, a contender does its
work once and prints the seconds.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

# Tasks of the sweep, and the processor time of each in seconds.
TASKS, TASK_S = 3000, 1e-3
# Fits of the search: so many sets of parameters, so many parts of the data; seconds of each fit.
SETS, PARTS, FIT_S = 10, 5, 0.1
JOBS = 4
# Bytes that travel over ssh, there and back.
ECHOED = 128 << 20


def compute(seconds: float) -> int:
    """Uses so much processor time, and returns a number that depends on it."""
    end, turns = time.thread_time() + seconds, 0
    while time.thread_time() < end:
        turns += 1
    return turns


def tasks_farcall(address: str) -> Callable[[], None]:
    """Short tasks with `farcall.Executor`."""
    import farcall

    executor = farcall.Executor(address)

    def work() -> None:
        futures = [executor.submit(compute, TASK_S) for _ in range(TASKS)]
        assert all(future.result() for future in futures)

    return work


def tasks_ray(_address: str) -> Callable[[], None]:
    """The same tasks with Ray."""
    import ray

    ray.init(num_cpus=JOBS, include_dashboard=False, log_to_driver=False)
    remote = ray.remote(compute)

    def work() -> None:
        assert all(ray.get([remote.remote(TASK_S) for _ in range(TASKS)]))

    return work


def search(backend: str, **options: Any) -> Callable[[], None]:
    """A search of scikit-learn, whose fits take a known time."""
    import joblib
    import numpy as np
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.model_selection import GridSearchCV

    class Computes(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        """A classifier that computes for a time and learns nothing."""

        def __init__(self, number: int = 0) -> None:
            self.number = number

        def fit(self, _x: Any, y: Any) -> "Computes":
            self.classes_ = np.unique(y)
            compute(FIT_S)
            return self

        def predict(self, x: Any) -> Any:
            return np.zeros(len(x), int)

    x, y = np.zeros((1000, 20)), np.arange(1000) % 2

    def work() -> None:
        grid = {"number": list(range(SETS))}
        looked = GridSearchCV(Computes(), grid, cv=PARTS, refit=False, n_jobs=JOBS)
        with joblib.parallel_config(backend=backend, n_jobs=JOBS, **options):
            looked.fit(x, y)
        assert len(looked.cv_results_["params"]) == SETS

    return work


def search_farcall(address: str) -> Callable[[], None]:
    """The search on servers."""
    import farcall.joblib  # noqa: F401

    return search("farcall", servers=address)


def echo_farcall(config: str) -> Callable[[], None]:
    """An array that a server behind `ssh://` returns."""
    import farcall
    import numpy as np

    os.environ["FARCALL_SSH"] = f"ssh -F {config}"
    command = pathlib.Path(sys.executable).with_name("farcall")
    echo = farcall.connect(f"ssh://bench?serve=bench&farcall={command}").function("echo")
    sent = np.random.default_rng(1).random(ECHOED // 8)
    received = np.empty_like(sent)

    def work() -> None:
        echo(sent.size, sent, received)

    work()
    assert (sent == received).all()
    return work


def echo_cat(config: str) -> Callable[[], None]:
    """As many bytes to `cat` behind ssh, then as many from it, without the login."""
    take = f"head -c {ECHOED} | cat > /dev/null && echo"
    give = f"head -c {ECHOED} /dev/zero | cat"
    words = ["ssh", "-F", config, "bench", f"while {take}; do {give}; done"]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    sent, received = os.urandom(ECHOED), bytearray(ECHOED + 1)

    def work() -> None:
        left = memoryview(sent)
        while left:
            left = left[process.stdin.write(left) :]  # type: ignore[union-attr]
        place = memoryview(received)
        while place:
            count = process.stdout.readinto(place)  # type: ignore[union-attr]
            if not count:
                raise EOFError("ssh has ended")
            place = place[count:]

    return work


CONTENDERS = {
    "echo-farcall": echo_farcall,
    "echo-cat": echo_cat,
    "tasks-farcall": tasks_farcall,
    "tasks-ray": tasks_ray,
    "search-farcall": search_farcall,
    "search-loky": lambda _: search("loky"),
}


def main() -> None:
    """Works once before the first line, because processes start and modules are imported then."""
    # A benchmark that is killed ends this process by the signal, and the processes of Ray and loky
    # end with it only if it ends by itself.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    name, address = sys.argv[1:3]
    work = CONTENDERS[name](address)
    work()
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        work()
        print(time.perf_counter() - start, flush=True)


main()
