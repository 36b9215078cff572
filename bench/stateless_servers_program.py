"""A chain of products and an image in strips on six servers, and a toy protein on two, for bench/stateless_servers.py: prints bytes moved and seconds."""

import collections
import json
import pathlib
import sys

import gridloom as gl
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples" / "demo"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples" / "protein"))
from demo import enhance_with  # noqa: E402
from protein import chains, fibonacci, record  # noqa: E402

SERVERS = 6
MATRICES, ORDER = 12, 512
ROWS, COLUMNS = 1200, 1200
#: A smaller datum is a number, not an array.
ARRAY_BYTES_MIN = 10_000


def chain(grid):
    """The product of twelve matrices by binary tree; each runs where its left factor was made."""
    product = grid.function("stateless_servers_functions/product")
    random = np.random.default_rng(8)
    level = [(random.standard_normal((ORDER, ORDER)) / ORDER**0.5, number // 2) for number in range(MATRICES)]
    expected = None if grid.simulated else np.linalg.multi_dot([matrix for matrix, _ in level])

    def products():
        left = level
        while len(left) > 1:
            pairs = zip(left[0::2], left[1::2])
            left = [(product.on(f"s{at}")(a, b), at) for (a, at), (b, _) in pairs] + left[len(left) // 2 * 2 :]
        return [left[0][0]]

    return products, lambda results: expected is None or np.allclose(results[0], expected)


def image(grid):
    """The enhancement of examples/demo in six strips, one per server."""
    picture = np.random.default_rng(2).uniform(0, 255, (ROWS, COLUMNS))

    def call(name, calls):
        function = grid.function(f"enhance/{name}")
        return [function.on(f"s{number}")(*arguments) for number, arguments in enumerate(calls)]

    return lambda: enhance_with(call, picture, SERVERS), lambda results: sum(len(part) for part in results) == ROWS


def protein(grid):
    """Four rounds of examples/protein on two servers; halves of 1 MB."""
    kinds, halves = fibonacci(13), chains(10_000, 13, seed=1)
    record_rounds = lambda: record(grid, kinds, list(halves), 1, 4, 1, lambda function, half: function.on(f"s{half}"))  # noqa: E731
    return (
        lambda: [handle for pair in record_rounds() for handle in pair],
        lambda results: [len(result) for result in results] == [5000] * 4,
    )


def run(grid, program):
    recorded, is_right = program(grid)
    before = grid.traffic()
    with grid.group() as group:
        handles = recorded()
        predicted = group.plan().makespan_seconds
    results = [handle.get() for handle in handles]
    assert is_right(results), f"{program.__name__} is wrong"
    # Reads of the last call are reported when it ends.
    group.wait()
    report, after = group.report(), grid.traffic()
    functions = collections.Counter()
    for task in report.to_dict()["tasks"]:
        functions[task["function"]] += task["end_seconds"] - task["start_seconds"]
    of_client = [moved for moved in report.transfers if "client" in (moved.source, moved.target)]
    return {
        "predicted": predicted,
        "measured": report.measured_seconds,
        "functions": functions,
        "arrays": sum(moved.size_bytes >= ARRAY_BYTES_MIN for moved in of_client),
        "client_bytes": after.client_bytes - before.client_bytes,
        "server_bytes": after.server_bytes - before.server_bytes,
    }


def main():
    with gl.connect() as grid:
        figures = {}
        for program in (chain, image, protein):
            # The first round starts workers and measures links.
            rounds = [run(grid, program) for _ in range(1 + int(sys.argv[1]))]
            figures[program.__name__] = rounds[1:]
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
