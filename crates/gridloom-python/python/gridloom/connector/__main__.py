"""``python -m gridloom.connector``: writes a module with the models or methods of a server, for ``gridloom connector`` alone."""

from __future__ import annotations

import argparse
import re
import ssl
import sys
from pathlib import Path

from ..errors import InputError
from .model import ConnectorError, Model, ModelNotOffered
from .model_functions import PROTOCOLS, Access, Connector, Shapes, name_of, signature_of, write
from .protocol_xml_rpc import parse_signature


def main(arguments: list[str]) -> int:
    """Ask the endpoint for its models, and write the module.

    Parameters
    ----------
    arguments : list of str
        Options of ``gridloom connector``, and the folder for the module.

    Returns
    -------
    int
        Exit status: 0, or 1 after the reasons were written to standard error. Models that are left out are reported there in both cases.
    """
    parser = argparse.ArgumentParser(prog="gridloom.connector")
    parser.add_argument("--protocol", required=True, choices=sorted(PROTOCOLS))
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--module")
    parser.add_argument("--answer-within", type=float, required=True)
    parser.add_argument("--answer-limit", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--ca-file", type=Path)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--signature", action="append", default=[])
    options = parser.parse_args(arguments)
    try:
        access = Access(options.endpoint, options.answer_within, options.answer_limit, _authorities(options.ca_file))
        connector = PROTOCOLS[options.protocol](access.endpoint, access.seconds, access.size, access.authorities)
        if options.signature and not connector.takes_signatures:
            raise InputError(f"--signature: a server of the protocol {options.protocol} describes its {connector.noun}s itself; omit the option")
        described = {one.name: one for one in map(parse_signature, options.signature)}
        shapes = _Shapes(options.shape)
        found = _found(connector, options.module, shapes, described, options.model)
        if unknown := shapes.unused():
            known = ", ".join(sorted(model.name for model, _, _ in found))
            raise InputError(f"--shape: there is no {connector.noun} '{unknown}' among those offered: {known}")
        write(options.folder, options.protocol, access, found)
    except (ConnectorError, InputError) as error:
        print(f"gridloom: {error}", file=sys.stderr)
        return 1
    return 0


_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def _authorities(file: Path | None) -> str | None:
    """The certificates of a file, without the text between them, which may have any encoding."""
    if file is None:
        return None
    try:
        found = _CERTIFICATE.findall(file.read_bytes())
    except OSError as error:
        raise InputError(f"--ca-file {file}: {error}") from None
    if not found:
        raise InputError(
            f"--ca-file {file}: expected certificates in PEM, which begin with -----BEGIN CERTIFICATE----- and end with -----END CERTIFICATE-----"
        )
    try:
        text: str = b"\n".join([*found, b""]).decode("ascii")
        # The library of gRPC would report a wrong certificate only by calls that fail.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (UnicodeDecodeError, ssl.SSLError) as error:
        raise InputError(f"--ca-file {file}: a certificate cannot be read: {error}") from None
    return text


def _found(
    connector: Connector, module: str | None, shapes: _Shapes, described: dict[str, Model], wanted: list[str]
) -> list[tuple[Model, str, Shapes]]:
    """Return the models to offer, with the names of their functions and the shapes that the user has given.

    Without `wanted`, these are all that can be offered; the others are listed on the standard error.
    """
    found: dict[str, tuple[Model, str, Shapes]] = {}
    by_function: dict[str, str] = {}

    def add(name: str) -> None:
        model = described[name] if name in described else connector.signature(name)
        if model.name in found:
            return
        function = _function(connector, module, model.name)
        given = shapes.of(model.name, function)
        if function in by_function:
            raise ModelNotOffered(f"{connector.noun} '{model.name}': '{by_function[function]}' has the same function {function}")
        _checked(connector, model, function, given)
        by_function[function] = model.name
        found[model.name] = (model, function, given)

    if wanted:
        for name in [*wanted, *described]:
            add(name)
        return list(found.values())
    try:
        listed = connector.models()
    except ModelNotOffered:
        if not described:
            raise
        listed = []
    for name in described:
        add(name)
    for name, why in listed:
        if name in described:
            continue
        if why is None:
            try:
                add(name)
                continue
            except ModelNotOffered as error:
                why = str(error).removeprefix(f"{connector.noun} '{name}': ")
        print(f"gridloom: {connector.noun} '{name}' is left out: {why}", file=sys.stderr)
    if not found:
        raise ModelNotOffered(f"the endpoint has no {connector.noun} that can be offered")
    return list(found.values())


def _function(connector: Connector, module: str | None, model: str) -> str:
    own, name = connector.function(model)
    return f"{module or name_of(own)}/{name_of(name)}"


def _checked(connector: Connector, model: Model, function: str, shapes: Shapes) -> None:
    try:
        signature_of(model, function, shapes)
    except ModelNotOffered as error:
        raise ModelNotOffered(f"{connector.noun} '{model.name}': {error}") from None
    except InputError as error:
        if shapes:
            raise
        raise ModelNotOffered(f"{connector.noun} '{model.name}': {error}") from None


class _Shapes:
    """The values of ``--shape``. A model is named as on the server or as on the grid; both names, and those of tensors, may contain slashes."""

    def __init__(self, given: list[str]) -> None:
        self._given: dict[str, list[str]] = {}
        self._used: set[str] = set()
        for one in given:
            names, _, sizes = one.partition("=")
            model, _, tensor = names.partition("/")
            if not (model and tensor and sizes):
                raise InputError(f"--shape {one}: expected MODEL/TENSOR=SIZE,..., such as encode/codes=batch,k")
            self._given[names] = [size.strip() for size in sizes.split(",")]

    def of(self, model: str, function: str) -> dict[str, list[str]]:
        """Shapes of a model's tensors, by name."""
        found = {}
        for names, sizes in self._given.items():
            for prefix in (f"{model}/", f"{function}/"):
                if names.startswith(prefix):
                    found[names.removeprefix(prefix)] = sizes
                    self._used.add(names)
                    break
        return found

    def unused(self) -> str | None:
        """The first model of a shape that no model has used."""
        return next((names.rpartition("/")[0] for names in self._given if names not in self._used), None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
