"""joblib, and so the `n_jobs` of scikit-learn, on servers.

import farcall.joblib
import joblib

with joblib.parallel_config(backend="farcall", servers="meta://cluster:3718"):
    search = GridSearchCV(model, grid, n_jobs=-1).fit(x, y)
"""

import concurrent.futures
import inspect
from collections.abc import Callable
from typing import Any

import joblib
from joblib.parallel import ParallelBackendBase

from ._executor import Executor

# What joblib itself passes to every backend.
_JOBLIBS = {*inspect.signature(joblib.Parallel).parameters, "context"}


class Backend(ParallelBackendBase):  # type: ignore[misc]
    """Runs the batches of joblib with an [`Executor`][farcall.Executor]."""

    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(
        self,
        servers: Any = None,
        retries: int = 2,
        *,
        nesting_level: int | None = None,
        inner_max_num_threads: int | None = None,
    ) -> None:
        """`servers` and `retries` are as for an executor, which this connects at the first use.

        joblib itself gives the others.
        """
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        self._settings = self._wanted = (servers, retries)
        self._executor: Executor | None = None

    def configure(
        self,
        n_jobs: int = 1,
        parallel: Any = None,
        servers: Any = None,
        retries: int | None = None,
        **options: Any,
    ) -> int:
        """Prepares a `joblib.Parallel`, whose own `servers` and `retries` go first."""
        for name in options.keys() - _JOBLIBS:
            raise TypeError(
                f"the backend farcall has no option {name!r}: it has servers and retries"
            )
        known = self._settings
        wanted = (
            known[0] if servers is None else servers,
            known[1] if retries is None else retries,
        )
        if wanted != self._wanted:
            self.terminate()
            self._wanted = wanted
        jobs: int = super().configure(n_jobs, parallel, **options)
        return jobs

    def _connected(self) -> Executor:
        if self._executor is None:
            servers, retries = self._wanted
            self._executor = Executor(servers, retries=retries)
        return self._executor

    def effective_n_jobs(self, n_jobs: int) -> int:
        """The batches that run at once: the processor elements of the servers, or fewer."""
        if n_jobs == 0:
            raise ValueError("n_jobs=0 has no meaning: use -1 for all processor elements")
        most = self._connected()._max_workers
        if n_jobs is None or n_jobs == 1:
            return 1
        return min(n_jobs, most) if n_jobs > 0 else max(1, most + 1 + n_jobs)

    def submit(
        self,
        func: Callable[[], Any],
        callback: Callable[[concurrent.futures.Future[Any]], None] | None = None,
    ) -> concurrent.futures.Future[Any]:
        """Starts a batch."""
        future = self._connected().submit(func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: concurrent.futures.Future[Any]) -> Any:
        """The results of a batch that has ended."""
        return out.result()

    def abort_everything(self, **_options: Any) -> None:
        """Drops the batches that have not begun."""
        self.terminate(wait=False)

    def terminate(self, wait: bool = True) -> None:
        """Ends the executor; the next use connects again."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=wait, cancel_futures=True)


joblib.register_parallel_backend("farcall", Backend)
