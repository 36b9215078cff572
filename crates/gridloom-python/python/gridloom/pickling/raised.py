"""Sends exceptions of functions from a worker to the program. The pickle is a list of records, one for each exception; the first is raised.

The exceptions of a group, and the cause and context of an exception, have their own records. If one of them cannot be rebuilt in the
program, only that one is replaced by a `RemoteError`, which is also an instance of the nearest built-in base class of the original exception.
"""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import functools
import io
import pickle
from collections.abc import Callable
from typing import Any

from ..errors import RemoteError, text_of, with_fields
from .by_value import Pickler
from .protocol import class_names
from .rebuild import attributes_of, built_in_attributes, built_in_class, make_exception, make_group

# Python 3.10 does not have it.
_GROUP: Any = getattr(builtins, "BaseExceptionGroup", ())
# Built-in classes from which no `RemoteError` inherits.
_NOT_CAUGHT: Any = (StopIteration, StopAsyncIteration, *(() if _GROUP == () else (_GROUP,)))

# Maximum length of the texts of the raised exception, and of each other one. The middle of a longer text is cut out.
_TEXT_CHARACTERS_MAX = 65_536
_OTHER_TEXT_CHARACTERS_MAX = 4_096
# Maximum number of causes and contexts. A loop of retries makes a long chain.
_FOLLOWED_MAX = 64
# Maximum number of groups that are nested in each other. The traceback of each includes all groups in it.
_NESTED_MAX = 100


class RemoteTraceback(Exception):
    """Cause of an exception that a function raised on a server: the text of its traceback there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}\n"""'


@dataclasses.dataclass
class _Record:
    """One exception.

    Attributes
    ----------
    pickled : bytes
        The exception, or the class, message and attributes of a group; empty if it cannot be pickled.
    kind, message, text : str
        Its class, text and traceback.
    classes : tuple of str
        Names of its class and base classes.
    why : str
        Reason why it could not be pickled; empty otherwise.
    built_in : str
        Name of its class if that is built-in, otherwise of the nearest built-in base class.
    fields : dict of str to int, str or bytes
        Attributes of that class, such as ``errno``.
    parts : list of int or None
        Records of the exceptions of a group.
    cause, context : int or None
        Records of its cause and context.
    suppresses : bool
        Whether a traceback omits its context.
    """

    pickled: bytes
    kind: str
    message: str
    text: str
    classes: tuple[str, ...]
    why: str
    built_in: str
    fields: dict[str, Any]
    parts: list[int] | None = None
    cause: int | None = None
    context: int | None = None
    suppresses: bool = False


def pack_raised(error: BaseException, show: Callable[[BaseException], str]) -> bytes:
    """Pickle an exception; `show` returns its traceback."""
    packer = _Packer(show)
    is_too_deep = _is_nested_deeply(error)
    if not is_too_deep:
        try:
            packer.add(error)
        except RecursionError:  # groups that are nested in causes and contexts of each other
            is_too_deep = True
    if is_too_deep:
        record = packer.record_of(error, _TEXT_CHARACTERS_MAX)
        record.pickled, record.why = b"", "groups are nested in it too deeply"
        packer.records = [record]
    return pickle.dumps([tuple(vars(one).values()) for one in packer.records])


def _is_nested_deeply(error: BaseException) -> bool:
    """True if an exception contains more groups in each other than `_NESTED_MAX`."""
    level = {id(error): error}
    for _ in range(_NESTED_MAX):
        level = {id(part): part for one in level.values() if isinstance(one, _GROUP) for part in getattr(one, "exceptions")}
        if not level:
            return False
    return True


class _Packer:
    def __init__(self, show: Callable[[BaseException], str]) -> None:
        self._show = show
        self._numbers: dict[int, int] = {}
        self._followed = 0
        self.records: list[_Record] = []

    def add(self, error: BaseException) -> int:
        """Add the records of an exception; return the number of the first one."""
        if (known := self._numbers.get(id(error))) is not None:
            return known
        number = self._numbers[id(error)] = len(self.records)
        record = self.record_of(error, _OTHER_TEXT_CHARACTERS_MAX if number else _TEXT_CHARACTERS_MAX)
        self.records.append(record)
        if _has_parts(error):
            record.parts = [self.add(one) for one in getattr(error, "exceptions")]
        record.cause, record.context = self._follow(error.__cause__), self._follow(error.__context__)
        record.suppresses = error.__suppress_context__
        return number

    def record_of(self, error: BaseException, limit: int) -> _Record:
        """Return the record of an exception, without those that it refers to; `limit` is the maximum number of characters of its texts."""
        pickled, why = _pickled(error, _has_parts(error))
        text, message = _cut(self._show(error), limit), _cut(text_of(error), limit)
        kind = type(error)
        built_in = built_in_class(kind).__name__
        fields = {name: value for name, value in built_in_attributes(error).items() if _is_plain(value, limit)}
        return _Record(pickled, kind.__qualname__, message, text, class_names(*kind.__mro__), _cut(why, limit), built_in, fields)

    def _follow(self, error: BaseException | None) -> int | None:
        if error is None or self._followed >= _FOLLOWED_MAX:
            return None
        self._followed += id(error) not in self._numbers
        return self.add(error)


def _has_parts(error: BaseException) -> bool:
    """True for a group whose exceptions have records of their own."""
    return isinstance(error, _GROUP) and not _says_how(error)


def _says_how(error: BaseException) -> bool:
    """Whether the class of a group defines how it is pickled."""
    return type(error).__reduce__ is not BaseException.__reduce__


def _pickled(error: BaseException, is_group: bool) -> tuple[bytes, str]:
    """The pickled exception and an empty text, or empty bytes and the reason why it cannot be pickled and unpickled."""
    try:
        form: Any = error
        if is_group:
            form = type(error), getattr(error, "message"), attributes_of(error)
        made = io.BytesIO()
        Pickler(made, shares=False).dump(form)
        found = pickle.loads(made.getvalue())
        copy = make_group(found, getattr(error, "exceptions")) if is_group else found
        if type(copy) is not type(error) or text_of(copy) != text_of(error):
            raise TypeError("its copy is a different exception")
        return made.getvalue(), ""
    except RecursionError:
        raise
    except BaseException as failed:  # unpickling an exception may call exit()
        return b"", f"{type(failed).__name__}: {text_of(failed)}"


def unpack_raised(given: Any, name: str, server: str) -> BaseException:
    """Unpickle the exception of the function `name`. Exceptions that cannot be rebuilt are replaced by `RemoteError`."""
    records = [_Record(*one) for one in pickle.loads(given)]
    rebuilder = _Rebuilder(records, name, server)
    errors = [rebuilder.error(number) for number in range(len(records))]
    for number in rebuilder.whole:
        record, error = records[number], errors[number]
        _set(error, "__context__", None if record.context is None else errors[record.context])
        _set(error, "__cause__", None if record.cause is None else errors[record.cause])
        _set(error, "__suppress_context__", record.suppresses)
    raised = errors[0]
    # Its cause becomes the traceback from the server. Its original cause or context becomes its context.
    _set(raised, "__context__", raised.__cause__ or raised.__context__)
    _set(raised, "__cause__", RemoteTraceback(records[0].text))
    return raised


def _set(error: BaseException, name: str, value: Any) -> None:
    """Set an attribute, even of an immutable exception such as a frozen data class."""
    BaseException.__setattr__(error, name, value)


class _Rebuilder:
    """Rebuilds exceptions from their records.

    Attributes
    ----------
    whole : set of int
        Numbers of the records whose exceptions were rebuilt with their own class.
    """

    def __init__(self, records: list[_Record], name: str, server: str) -> None:
        self._records, self._name, self._server = records, name, server
        self._errors: dict[int, BaseException] = {}
        self.whole: set[int] = set()

    def error(self, number: int) -> BaseException:
        """The exception of a record."""
        if number not in self._errors:
            self._errors[number] = self._rebuilt(number)
        return self._errors[number]

    def _rebuilt(self, number: int) -> BaseException:
        record = self._records[number]
        parts = None if record.parts is None else [self.error(one) for one in record.parts]
        why = record.why
        try:
            found = pickle.loads(record.pickled) if record.pickled else None
            error = make_group(found, parts) if found is not None and parts is not None else found
            if isinstance(error, BaseException):
                self.whole.add(number)
                return error
        except BaseException as failed:
            why = f"{type(failed).__name__}: {text_of(failed)}"
        # Without a pickle, the exception could not be pickled on the server.
        how = f"because the exception cannot be {'unpickled' if record.pickled else 'pickled'}: {why}"
        if parts is not None:
            group: BaseException = _GROUP(record.message.rpartition(" (")[0] or record.message, parts)
            getattr(group, "add_note")(f"(raised as {type(group).__name__} instead of {record.kind}, {how})")
            return group
        text = f"{self._name} raised {record.kind}: {record.message}\n{record.text}\n(raised as a gridloom.RemoteError, {how})"
        fields = {"function": self._name, "server": self._server, "kind": record.kind, "message": record.message, "traceback": record.text}
        remote = with_fields(_remote_error(record.built_in, text, record.fields), **fields, _classes=record.classes)
        remote.__cause__ = RemoteTraceback(record.text)
        return remote


def _remote_error(built_in: str, text: str, fields: dict[str, Any]) -> RemoteError:
    """Create a `RemoteError` that is also an instance of the built-in class with that name, with these attributes."""
    made = make_exception(_remote_class(built_in), (text,), is_constructed=False)
    assert isinstance(made, RemoteError)
    for name, value in fields.items():
        with contextlib.suppress(AttributeError, TypeError, ValueError):  # not an attribute in this version of Python
            setattr(made, name, value)
    return made


@functools.cache
def _remote_class(built_in: str) -> type[RemoteError]:
    """Return a class of `RemoteError` that ``except`` with the built-in class catches, too."""
    kind = getattr(builtins, built_in, Exception)
    # A failed call must not end the program or a generator, as `SystemExit` and `StopIteration` do.
    if not (isinstance(kind, type) and issubclass(kind, Exception)) or issubclass(kind, _NOT_CAUGHT) or kind is Exception:
        return RemoteError
    # Some built-in classes build their text from their attributes.
    attributes = {
        "__module__": RemoteError.__module__,
        "__doc__": f"A `RemoteError` for an exception whose class is based on `{built_in}`.",
        "__str__": BaseException.__str__,
        "__reduce__": lambda error: (_remote_error, (built_in, *error.args, built_in_attributes(error)), vars(error)),
    }
    return type(RemoteError.__name__, (RemoteError, kind), attributes)


def _is_plain(value: Any, limit: int) -> bool:
    return type(value) is int or type(value) in (str, bytes) and len(value) <= limit


def _cut(text: str, limit: int) -> str:
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]} ... {text[-half:]}"
