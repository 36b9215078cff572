"""An executor for Parsl: its apps run on the servers of a grid. It needs Parsl: ``pip install parsl``.

>>> import parsl                                                       # doctest: +SKIP
>>> from gridloom.adapters.parsl import GridloomExecutor                        # doctest: +SKIP
>>> parsl.load(parsl.Config(executors=[GridloomExecutor()]))           # doctest: +SKIP
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any

from ..errors import UsageError
from ..session.grid import Grid
from .executor import Executor

try:
    from parsl.executors.base import ParslExecutor  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from parsl.executors.errors import InvalidResourceSpecification  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from parsl.utils import RepresentationMixin  # type: ignore[import-not-found, import-untyped, unused-ignore]
except ImportError as missing:
    raise ImportError(
        f"gridloom.adapters.parsl needs Parsl, which cannot be imported here ({missing}): install it by 'pip install parsl', also where servers run "
        "functions of programs"
    ) from missing

__all__ = ["GridloomExecutor"]


class GridloomExecutor(ParslExecutor, RepresentationMixin):  # type: ignore[misc, unused-ignore]
    """Runs the apps of a Parsl program on the servers of a grid.

    Parameters
    ----------
    label : str, optional
        Its name among the executors of the program.
    max_workers : int, optional
        Servers of a grid of its own on this machine, by default one for each processor that the program may use.
    grid : Grid, optional
        The grid instead of one of its own. It stays open after `shutdown`.
    working_dir : str, optional
        Where Parsl stages files: a folder that program and servers share.
    storage_access : list of parsl.data_provider.staging.Staging, optional
        How files are staged, by default as Parsl does.
    remote_monitoring_radio : parsl.monitoring.radios.base.RadioConfig, optional
        How apps report to Parsl's monitoring, if that is on (``resource_monitoring_enabled``).

    Notes
    -----
    Parsl waits for the inputs of an app in the program, so results are transferred there and sent again with the apps that need them. Parsl tries failed
    apps again by itself (``Config(retries=2)``); an app whose server is lost runs on another one before that.
    """

    def __init__(
        self,
        label: str = "gridloom",
        max_workers: int | None = None,
        grid: Grid | None = None,
        working_dir: str | None = None,
        storage_access: list[Any] | None = None,
        remote_monitoring_radio: Any = None,
    ) -> None:
        super().__init__()
        self.label = label
        self.max_workers = max_workers
        self.grid = grid
        self.working_dir = working_dir
        self.storage_access = storage_access
        self.remote_monitoring_radio = remote_monitoring_radio
        self._executor: Executor | None = None

    def start(self) -> None:
        """Begin: open a grid, unless there is one.

        Raises
        ------
        UsageError
            If `max_workers` and `grid` are given, or the grid is simulated or closed.
        UnknownName
            If no server of the grid runs functions that programs send.
        """
        self._executor = Executor(self.max_workers, grid=self.grid)

    def submit(
        self, func: Callable[..., Any], resource_specification: dict[str, Any], *args: Any, **kwargs: Any
    ) -> concurrent.futures.Future[Any]:
        """Run an app on a server.

        Parameters
        ----------
        func : function
            The app's function.
        resource_specification : dict
            Must be empty: servers have slots, not cores or memory for each app.
        *args, **kwargs : object
            Its arguments: whatever can be pickled.

        Returns
        -------
        concurrent.futures.Future
            The call. An exception of the function is raised as it is.

        Raises
        ------
        InvalidResourceSpecification
            If the app asks for resources.
        UsageError
            Before `start`.
        """
        if resource_specification:
            raise InvalidResourceSpecification(
                set(resource_specification), "servers of Gridloom have slots, and apps cannot ask for cores or memory"
            )
        if self._executor is None:
            raise UsageError(f"the executor '{self.label}' was not started: parsl.load(parsl.Config(executors=[...])) starts it")
        return self._executor.submit(func, *args, **kwargs)

    def shutdown(self) -> None:
        """Wait for its apps, and close the grid unless it was given."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()
        super().shutdown()

    def monitor_resources(self) -> bool:
        """Parsl measures no resources of its apps: it would fork processes in the servers' workers."""
        return False
