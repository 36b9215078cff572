"""Runs a program for a call: in a working folder of its own, with the files that it reads and writes."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from .program_files import InMemory, KeptFiles

# An error has the end of a program's output.
_TAIL_BYTES = 4096
_LISTED_MAX = 10
_scratch: Path | None = None
_cached_files: KeptFiles | None = None


class ProgramFailed(Exception):
    """A program that `gridloom.program` runs is missing, has failed, or made no file where it should.

    Calls on a grid raise a `RemoteError` of the kind ``"ProgramFailed"``; in a plain call of the function it is raised as it is.

    Attributes
    ----------
    status : int or None
        Its exit status; negative, the number of the signal that ended it; None if it did not start.
    printed : str
        The end of what it printed on its standard error, at most 4,096 bytes.
    """

    # The traceback has no information about the program, so errors leave it out.
    has_traceback = False

    def __init__(self, message: str, status: int | None = None, printed: str = "") -> None:
        super().__init__(message, status, printed)
        self.status = status
        self.printed = printed

    def __str__(self) -> str:
        return str(self.args[0])


def keep_folders_in(folder: str | os.PathLike[str]) -> None:
    """Make working folders there: a folder that the worker's server removes when the worker has ended, however it ends."""
    global _scratch, _cached_files
    _scratch = Path(folder)
    _cached_files = KeptFiles(_scratch / "kept")


def scratch_folder() -> Path | None:
    """The folder that `keep_folders_in` has set; ``None`` outside workers."""
    return _scratch


@dataclasses.dataclass(frozen=True)
class Spec:
    """A program, as it is run. Paths are relative to the working folder."""

    words: tuple[str, ...]
    inputs: dict[str, str]
    outputs: dict[str, str]
    # Inputs of a call.
    names: tuple[str, ...]
    stdin: str | None
    stdout: str | None
    stderr: str | None
    environment: dict[str, str]
    timeout_s: float | None
    memory_bytes: int | None
    statuses: frozenset[int]

    @property
    def shown(self) -> str:
        """The command line, as it was given."""
        return " ".join(word if word and not set(word) & set(" \t\n'\"") else shlex.quote(word) for word in self.words)

    @property
    def signature(self) -> inspect.Signature:
        """Signature of the function."""
        return inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in self.names])

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the program, and return the content of its outputs."""
        values = self.signature.bind(*args, **kwargs).arguments
        if _scratch is not None:
            _scratch.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="gridloom-program-", dir=_scratch, ignore_cleanup_errors=True) as folder:
            self._write(Path(folder), values)
            try:
                return self._run(Path(folder), values)
            finally:
                if _cached_files is not None:
                    _cached_files.end()

    def _write(self, folder: Path, values: dict[str, Any]) -> None:
        """Make the input files. Files that the program changes, and the program itself, are not shared with other calls."""
        own = {*self.outputs.values(), self.words[0].format(**{**values, **self.inputs, **self.outputs})}
        shared = {name: values[name] for name, path in self.inputs.items() if path not in own and isinstance(values[name], InMemory)}
        if _cached_files is not None:
            _cached_files.begin(shared.values())
        for name, path in self.inputs.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            if _cached_files is not None and name in shared:
                _cached_files.put(shared[name], folder / path)
            else:
                (folder / path).write_bytes(_content(name, values[name]))

    def _run(self, folder: Path, values: dict[str, Any]) -> Any:
        for path in self.outputs.values():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
        paths = {**self.inputs, **self.outputs}
        words = [word.format(**{**values, **paths}) for word in self.words]
        environment = {**os.environ, **self.environment}
        words[0] = self._executable(folder, words[0], environment)
        with contextlib.ExitStack() as opened:

            def kept(name: str | None) -> IO[bytes]:
                if name is None:
                    return opened.enter_context(tempfile.TemporaryFile(dir=folder.parent))
                return opened.enter_context(open(folder / self.outputs[name], "w+b"))

            error_output = kept(self.stderr)
            # Output that is no result is shown in errors: programs print errors to both streams.
            out = kept(self.stdout) if self.stdout is not None else error_output
            given = open(os.devnull if self.stdin is None else folder / self.inputs[self.stdin], "rb")
            opened.enter_context(given)
            self._ran(words, folder, environment, given, out, error_output)
        return self._results(folder)

    def _executable(self, folder: Path, word: str, environment: Mapping[str, str]) -> str:
        """The path of the program."""
        own = folder / word
        if word in self.inputs.values():
            own.chmod(0o700)
            return os.fspath(own)
        path = environment.get("PATH", os.defpath)
        found = shutil.which(word, path=path)
        if found is None:
            where = (
                f"there is no such file on {os.uname().nodename}" if "/" in word else f"it is not in PATH={path} of {os.uname().nodename}"
            )
            raise ProgramFailed(
                f"the program '{word}' is missing: {where}; install it there, or run the call on a server that has it: function.on(server)"
            )
        return found

    def _ran(
        self, words: list[str], folder: Path, environment: Mapping[str, str], given: IO[bytes], out: IO[bytes], error_output: IO[bytes]
    ) -> None:
        command = words
        if self.memory_bytes is not None:
            # The shell limits itself, and then becomes the program.
            command = ["/bin/sh", "-c", 'ulimit -v "$1" && shift && exec "$@"', "sh", str(-(-self.memory_bytes // 1024)), *words]
        try:
            started = subprocess.Popen(command, cwd=folder, env=environment, stdin=given, stdout=out, stderr=error_output)
        except (OSError, ValueError) as error:  # an argument may have a NUL character
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise ProgramFailed(f"the program '{words[0]}' cannot be started: {why}") from None
        try:
            status = started.wait(self.timeout_s)
        except subprocess.TimeoutExpired:
            _end_tree(started)
            raise self._failed(
                f"took longer than its limit of {self.timeout_s:g} s (timeout=) and was ended", started.returncode, error_output
            ) from None
        except BaseException:
            _end_tree(started)
            raise
        if status in self.statuses:
            return
        how = f"exited with status {status}"
        if status < 0:
            how = f"was ended by signal {-status} ({_signal_name(-status)})"
        if self.memory_bytes is not None:
            how += f", with a limit of {self.memory_bytes} bytes on its memory (memory=)"
        raise self._failed(how, status, error_output)

    def _failed(self, how: str, status: int | None, error_output: IO[bytes]) -> ProgramFailed:
        printed = _tail(error_output)
        rest = f"; its standard error ends with:\n{printed}" if printed else "; it printed nothing on its standard error"
        return ProgramFailed(f"'{self.shown}' {how}{rest}", status, printed)

    def _results(self, folder: Path) -> Any:
        results = []
        for name, path in self.outputs.items():
            try:
                results.append((folder / path).read_bytes())
            except OSError as error:
                there = sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())
                listed = ", ".join(there[:_LISTED_MAX]) + (f", and {len(there) - _LISTED_MAX} more" if len(there) > _LISTED_MAX else "")
                raise ProgramFailed(
                    f"'{self.shown}' made no file '{path}' for its output '{name}' ({error.strerror}); in its folder are: {listed or 'none'}",
                    0,
                ) from None
        return results[0] if len(results) == 1 else tuple(results) if results else None


def _content(name: str, value: Any) -> Any:
    if isinstance(value, InMemory):
        return value.content
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (str, os.PathLike)) and value != "":
        return Path(value).read_bytes()
    raise ProgramFailed(f"input '{name}' is no file: expected a path or bytes, got {type(value).__name__} {value!r}")


def _tail(error_output: IO[bytes]) -> str:
    size = error_output.seek(0, os.SEEK_END)
    error_output.seek(max(0, size - _TAIL_BYTES))
    text = error_output.read().decode(errors="replace").rstrip()
    return text if size <= _TAIL_BYTES else f"...{text}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _end_tree(started: subprocess.Popen[bytes]) -> None:
    """End it and its descendants, and wait for it. It stays in the process group of its worker, which ends with the worker."""
    # Each is stopped before its children are listed, so that none is missed.
    found, left = [], [started.pid]
    while left:
        process = left.pop()
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGSTOP)
            found.append(process)
            left += _children(process)
    for process in reversed(found):
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)
    started.wait()


def _children(process: int) -> list[int]:
    children: list[int] = []
    for listed in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children += map(int, listed.read_text().split())
    return children
