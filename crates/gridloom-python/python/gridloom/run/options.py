"""Options of calls of any function: `Grid.options` returns them. They are an object, so that they cannot clash with a function's keywords."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..calls.future import Future
from ..common.session_objects import OfSession
from .any_function import AnyFunction
from .retry import Retry

_T = TypeVar("_T")


class Options(OfSession):
    """Options of calls: `run` makes a call with them."""

    _why = "a gridloom.Options is of a session of this process"
    _remedy = "open a session by gridloom.connect() where it is used"

    def __init__(
        self, any_function: AnyFunction, retry: Retry | None, timeout: float | None, priority: int | None
    ) -> None:
        self._any_function = any_function
        self._retry = retry
        self._timeout = timeout
        self._priority = priority

    def run(self, function: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Run any Python function on a server, as `Grid.run` does, with these options.

        Parameters
        ----------
        function : function
            Any function.
        *args, **kwargs : object
            Its arguments.

        Returns
        -------
        Future
            The running call.

        Raises
        ------
        ArgumentError, TaskError, UnknownName, UsageError
            As `Grid.run`.
        """
        return self._any_function.run(function, args, kwargs, self._retry, self._timeout, self._priority)

    def __repr__(self) -> str:
        options = [] if self._retry is None else [f"{self._retry.times} retries"]
        options += [] if self._timeout is None else [f"{self._timeout} s"]
        options += [] if self._priority is None else [f"priority {self._priority}"]
        return f"<gridloom.Options: {', '.join(options) or 'none'}>"
