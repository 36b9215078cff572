"""Type aliases, as ``type Doubles = NDArray[float64]`` declares them.

NumPy 2.5 declares ``numpy.typing.NDArray`` so. Python keeps such a name in annotations and does not look behind it.
"""

from __future__ import annotations

import typing
from typing import Any


def resolved(annotation: Any) -> Any:
    """Resolve an annotation that is a type alias, with or without parameters; others are returned as they are."""
    while True:
        alias, arguments = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
        if not _is_alias(alias):
            return annotation
        annotation = alias.__value__
        # The value may name the parameters in another order than the alias.
        given = dict(zip(alias.__type_params__, arguments))
        if used := [given[parameter] for parameter in getattr(annotation, "__parameters__", ()) if parameter in given]:
            annotation = annotation[tuple(used)]


def _is_alias(annotation: Any) -> bool:
    """Whether it is a ``TypeAliasType``: of Python 3.12, or of typing_extensions."""
    return type(annotation).__name__ == "TypeAliasType"
