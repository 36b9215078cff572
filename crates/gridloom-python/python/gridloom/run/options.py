"""On what terms any function runs: what ``Grid.options`` gives. They stand apart, so that no keyword of a function is taken for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ._pickles import OfSession

if TYPE_CHECKING:
    from ._any_function import AnyFunction
    from ._retry import Retry
    from ._run_future import RunFuture

_T = TypeVar("_T")


class Options(OfSession):
    """Terms of calls: `run` makes one on them."""

    _why = "a gridloom.Options is of a session of this process"
    _remedy = "open a session by gridloom.connect() where it is used"

    def __init__(self, grid: AnyFunction, retry: Retry | None, timeout: float | None) -> None:
        self._grid = grid
        self._retry = retry
        self._timeout = timeout

    def run(self, function: Callable[..., _T], /, *args: Any, **kwargs: Any) -> RunFuture[_T]:
        """Have any Python function run on a server, as `Grid.run` does, on these terms.

        Parameters
        ----------
        function : function
            Any function.
        *args, **kwargs : object
            Its arguments.

        Returns
        -------
        RunFuture
            The call under way.

        Raises
        ------
        ArgumentError, TaskError, UnknownFunctionError, UsageError
            As `Grid.run`.
        """
        return self._grid._run(function, args, kwargs, self._retry, self._timeout)

    def __repr__(self) -> str:
        terms = [] if self._retry is None else [f"{self._retry.times} retries"]
        terms += [] if self._timeout is None else [f"{self._timeout} s"]
        return f"<gridloom.Options: {', '.join(terms) or 'none'}>"
