"""``python -m gridloom.connector``: writes a module with the models of a model server, for ``gridloom connector`` alone."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..errors import InputError
from .model import ConnectorError, Model, ModelNotOffered
from .model_functions import PROTOCOLS, Connector, Shapes, signature_of, write


def main(arguments: list[str]) -> int:
    """Ask the endpoint for its models, and write the module.

    Parameters
    ----------
    arguments : list of str
        Options of ``gridloom connector``, and the folder for the module.

    Returns
    -------
    int
        Exit status: 0, or 1 after lines on the standard error that say what is wrong. Lines on models that are left out come with 0, too.
    """
    parser = argparse.ArgumentParser(prog="gridloom.connector")
    parser.add_argument("--protocol", required=True, choices=sorted(PROTOCOLS))
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--module", required=True)
    parser.add_argument("--answer-within", type=float, required=True)
    parser.add_argument("--answer-limit", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--shape", action="append", default=[])
    options = parser.parse_args(arguments)
    try:
        shapes = _shapes(options.shape)
        connector = PROTOCOLS[options.protocol](options.endpoint, options.answer_within, options.answer_limit)
        if options.model:
            found: list[tuple[Model, Shapes]] = [(connector.signature(name), shapes.get(name, {})) for name in dict.fromkeys(options.model)]
            for model, given in found:
                _checked(model, options.module, given)
        else:
            found = _offered(connector, options.module, shapes)
        known = {model.name for model, _ in found}
        if unknown := sorted(set(shapes) - known):
            raise InputError(f"--shape: there is no model '{unknown[0]}' among those offered: {', '.join(sorted(known))}")
        write(options.folder, options.protocol, options.endpoint, (options.answer_within, options.answer_limit), found, options.module)
    except (ConnectorError, InputError) as error:
        print(f"gridloom: {error}", file=sys.stderr)
        return 1
    return 0


def _offered(connector: Connector, module: str, shapes: dict[str, dict[str, list[str]]]) -> list[tuple[Model, Shapes]]:
    """All models that can be offered as functions. The others are listed on the standard error."""
    found: list[tuple[Model, Shapes]] = []
    for name, why in connector.models():
        given = shapes.get(name, {})
        if why is None:
            try:
                model = connector.signature(name)
                _checked(model, module, given)
                found.append((model, given))
                continue
            except ModelNotOffered as error:
                why = str(error).removeprefix(f"model '{name}': ")
        print(f"gridloom: model '{name}' is left out: {why}", file=sys.stderr)
    if not found:
        raise ModelNotOffered("the endpoint has no model that can be offered")
    return found


def _checked(model: Model, module: str, shapes: Shapes) -> None:
    try:
        signature_of(model, module, shapes)
    except ModelNotOffered as error:
        raise ModelNotOffered(f"model '{model.name}': {error}") from None
    except InputError as error:
        if shapes:
            raise
        raise ModelNotOffered(f"model '{model.name}': {error}") from None


def _shapes(given: list[str]) -> dict[str, dict[str, list[str]]]:
    """By model and tensor; both names may have any character but the ones that separate them."""
    found: dict[str, dict[str, list[str]]] = {}
    for one in given:
        names, _, sizes = one.partition("=")
        model, _, tensor = names.partition("/")
        if not (model and tensor and sizes):
            raise InputError(f"--shape {one}: expected MODEL/TENSOR=SIZE,..., such as encode/codes=batch,k")
        found.setdefault(model, {})[tensor] = [size.strip() for size in sizes.split(",")]
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
