"""Programs as functions: a command line whose files are data of the grid.

The function is an ordinary function of its module, marked as by `gridloom.function`, so it can be used wherever declared functions
can. No shell is involved: each word of the command is one argument of the program, whatever a value contains.
"""

from __future__ import annotations

import shlex
import string
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from .. import _gridloom
from ..common.checks import checked_environment, checked_path, seconds, size, surrogate
from ..common.encodable import encodable
from ..errors import InputError
from ..pickling.protocol import SIGNATURE_ATTRIBUTE
from .declare import sizes_of
from .program_run import Spec

# A worker passes files as `InMemory` to a function that has this attribute.
_IS_PROGRAM = "_gridloom_program"

Files: TypeAlias = Iterable[str] | Mapping[str, str]

# Name, type, extents of an array, its order.
_Declared: TypeAlias = tuple[str, str, list[str] | None, str]

_PARAMETERS: dict[Any, str] = {str: "str", int: "int64", float: "float64"}
_SHELL_WORDS = frozenset({"|", "||", "&&", "&", ";", "<", ">", ">>", "2>", "2>&1", "&>", "<<"})


def program(
    command: str | Iterable[str],
    /,
    *,
    inputs: Files = (),
    outputs: Files = (),
    parameters: Mapping[str, type] | None = None,
    stdin: str | None = None,
    stdout: str | None = None,
    stderr: str | None = None,
    name: str | None = None,
    module: str | None = None,
    work: str | None = None,
    sizes: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float | None = None,
    memory: int | str | None = None,
    statuses: Iterable[int] = (0,),
) -> Callable[..., Any]:
    """Make a function that runs a program: its input and output files are data of the grid.

    Parameters
    ----------
    command : str or iterable of str
        The command line with names in braces, as in ``"blastn -query {query} -evalue {evalue} -out {out}"``. It is split into words as a
        shell does, but no shell runs it. A file's name is replaced by its path, another name by a value; ``{value:.3f}`` formats it.
        ``{{`` and ``}}`` are braces.
    inputs, outputs : iterable of str, or mapping of str to str, optional
        Names of the files that the program reads and writes. A mapping has the path of each in the working folder of the
        call, such as ``{"query": "query.fasta"}``; without it the path is the name. A file need not be in `command`.
    parameters : mapping of str to type, optional
        Types of other names in `command`: ``str``, ``int`` or ``float``. Names without a type are ``str``.
    stdin : str, optional
        The input that the program reads as its standard input, which is empty by default.
    stdout, stderr : str, optional
        Names of the outputs with the text that the program prints. A name that `outputs` does not contain follows these outputs.
    name, module : str, optional
        The function's name on the grid, by default that of the program, and its module, by default as for `function`.
    work : str, optional
        Work of one call in floating-point operations: an expression as for `function`, in which a file's name stands for its size in
        bytes, such as ``"50*query"``.
    sizes : mapping of str to str, optional
        Expected size of each output in bytes, as a similar expression. Without it, plans assume 0 bytes, and in simulation the output
        is empty.
    environment : mapping of str to str, optional
        Environment variables of the program, in addition to those of the worker.
    timeout : float, optional
        Time limit of the program, seconds.
    memory : int or str, optional
        Limit on the address space of each of its processes: a size such as ``"2GiB"``, or a number of bytes.
    statuses : iterable of int, optional
        Exit statuses that mean success.

    Returns
    -------
    callable
        A function of the grid, as `function` marks one. It takes the names in `command` in their order, then the inputs that `command` does
        not contain. A file is a path, which is read when the call is made, or its content as ``bytes``. It returns the content of the outputs.

    Raises
    ------
    InputError
        If `command` and the names do not fit together, a path leaves the folder, or a text is not a valid expression.

    Notes
    -----
    Each call has a working folder of its own, under the worker's ``TMPDIR``, which is removed with its content. A program
    that is the path of an input is made executable, so that one call may compile what another one runs.

    Examples
    --------
    >>> sort = program("sort -n {numbers} -o {ordered}", inputs=["numbers"], outputs=["ordered"], module="demo")
    >>> sort(b"3\\n1\\n2\\n")
    b'1\\n2\\n3\\n'
    """
    caller = sys._getframe(1)
    place = f"{caller.f_code.co_filename}:{caller.f_lineno}: program"
    words = _words(place, command)
    read, made = _files(place, "inputs", inputs), _files(place, "outputs", outputs)
    for what, printed in (("stdout", stdout), ("stderr", stderr)):
        if printed is not None and printed not in made:
            made.update(_files(place, what, [printed]))
    if stdin is not None and stdin not in read:
        raise InputError(f"{place}: stdin={stdin!r} is no input; there are {_listed(read)}: add it to inputs=")
    if stdout is not None and stdout == stderr:
        raise InputError(f"{place}: stdout and stderr are both {stdout!r}: give each a name")
    for printed in (stdout, stderr):
        if printed in _names(place, words):
            raise InputError(f"{place}: '{printed}' is what the program prints, so it has no path that could stand in the command")
    if both := sorted(read.keys() & made.keys()):
        raise InputError(f"{place}: '{both[0]}' is an input and an output; give what the program writes another name, with the same path")
    types = _types(place, words, parameters, read, made)
    spec = Spec(
        words=words,
        inputs=read,
        outputs=made,
        names=tuple(types),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        environment=checked_environment(f"{place}: environment", environment, InputError),
        timeout_s=seconds("timeout", timeout),
        memory_bytes=size("memory", memory),
        statuses=frozenset(statuses),
    )
    name = name or _own_name(place, words)
    stem = Path(caller.f_globals.get("__file__") or "programs").stem
    full = f"{module or caller.f_globals.get('gl_module') or stem}/{name}"
    declared: list[_Declared] = [(one, base, None, "any") for one, base in types.items()]
    results: list[_Declared] = [(one, "file", None, "any") for one in made]
    about = encodable(f"runs the program: {spec.shown}", None)
    try:
        signature = _gridloom.build_signature(full, declared, results, work, [], sizes_of(place, sizes), about)
    except UnicodeEncodeError as wrong:
        raise InputError(f"{place}: {surrogate(wrong)}") from None
    except InputError as error:
        raise InputError(f"{place}: {error}") from None

    def call(*args: Any, **kwargs: Any) -> Any:
        return spec(args, kwargs)

    call.__name__ = call.__qualname__ = name
    call.__module__ = caller.f_globals.get("__name__", "__main__")
    call.__doc__ = f"Run the program: {spec.shown}"
    setattr(call, "__signature__", spec.signature)
    setattr(call, SIGNATURE_ATTRIBUTE, signature)
    # The attribute is the function itself: a function that wraps it copies its attributes, but is not a program.
    setattr(call, _IS_PROGRAM, call)
    return call


def _words(place: str, command: Any) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(command) if isinstance(command, str) else command)
    except (ValueError, TypeError) as error:
        raise InputError(f"{place}: {command!r} is no command: {error}") from None
    if not words or not all(isinstance(word, str) for word in words) or not words[0]:
        raise InputError(f"{place}: expected a command line, as 'sort {{text}} -o {{out}}', got {command!r}")
    if isinstance(command, str) and (found := [word for word in words if word in _SHELL_WORDS]):
        raise InputError(
            f"{place}: '{found[0]}' is for a shell, and none runs the command: name what the program reads and prints by stdin=, stdout= and "
            "stderr=, or run a shell yourself: 'sh -c \"sort $1 | uniq > $2\" sh {text} {out}', quoted so that Python and the shell agree"
        )
    for word in words:
        checked_path(f"{place}: a word of the command", word, InputError)
    return words


def _names(place: str, words: Iterable[str]) -> list[str]:
    """Names in braces, in order."""
    found: list[str] = []
    for word in words:
        try:
            parts = [part for _, part, _, _ in string.Formatter().parse(word) if part is not None]
        except ValueError as error:
            raise InputError(
                f"{place}: the word {word!r}: {error}; braces of the program itself are written twice: {{{{ and }}}}"
            ) from None
        for part in parts:
            if not part.isidentifier():
                raise InputError(f"{place}: the word {word!r}: expected a name in braces, got '{{{part}}}'; write {{{{ and }}}} for braces")
            if part not in found:
                found.append(part)
    return found


def _files(place: str, what: str, given: Any) -> dict[str, str]:
    """Paths by name."""
    if isinstance(given, str):
        raise InputError(f"{place}: {what}: expected names, got {given!r}; write [...] around it")
    files = dict(given) if isinstance(given, Mapping) else {name: name for name in given}
    for name, within in files.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise InputError(f"{place}: {what}: {name!r} is not a name of a file: use letters, digits and _, and give its path in a mapping")
        parts = PurePosixPath(within).parts if isinstance(within, str) else ()
        if not parts or ".." in parts or within.startswith(("/", "-")) or within.endswith("/"):
            raise InputError(f"{place}: {what}: '{name}' has the path {within!r}; expected one within the working folder, as 'out/table.csv'")
        checked_path(f"{place}: {what}: '{name}'", within, InputError)
    paths = list(files.values())
    if twice := [one for one in paths if paths.count(one) > 1]:
        raise InputError(f"{place}: {what}: two files have the path '{twice[0]}'")
    return files


def _types(
    place: str, words: tuple[str, ...], parameters: Mapping[str, type] | None, read: dict[str, str], made: dict[str, str]
) -> dict[str, str]:
    """Types of a call's arguments, in order."""
    given = dict(parameters or {})
    in_command = _names(place, words)
    for name, kind in given.items():
        if name in read or name in made:
            raise InputError(f"{place}: '{name}' is a parameter and a file")
        if name not in in_command:
            raise InputError(f"{place}: parameter '{name}' does not stand in the command; it has {_listed(in_command)}")
        if kind not in _PARAMETERS:
            raise InputError(f"{place}: parameter '{name}' is {kind!r}; expected str, int or float")
    types = {name: "file" if name in read else _PARAMETERS[given.get(name, str)] for name in in_command if name not in made}
    return {**types, **{name: "file" for name in read if name not in types}}


def _is_word(name: str) -> bool:
    """Whether a text is a word of a name: letters, digits, ``_``, ``.`` and ``-``."""
    return name not in ("", ".", "-") and all(c in ".-" or c.isalnum() or f"_{c}".isidentifier() for c in name)


def _own_name(place: str, words: tuple[str, ...]) -> str:
    name = PurePosixPath(words[0]).name
    if _names(place, words[:1]) or not _is_word(name):
        raise InputError(f"{place}: '{words[0]}' gives the function no name; set it with name=")
    return name


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
