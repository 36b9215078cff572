"""The patterns of sharing with Gridloom: reads requests from its input, and prints seconds. See run.py.

Methods: with `planned`, calls read the values in a mapped group; with `named`, plain calls get them by their names;
`placed` copies them by `Grid.place`; `master` fetches the values to the client, which passes them to plain calls as arguments.
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import gridloom as gl  # noqa: E402
import patterns  # noqa: E402


def by_calls(function, readers, values):
    """Plain calls on each reader for each value."""
    found = [function.on(reader).submit(value) for reader in readers for value in values]
    return [one.get() for one in found]


def run(grid, number, pattern, method, mib):
    """Seconds, and those that the plan predicted."""
    servers = sorted(server.name for server in grid.servers())
    _, makers, readers, _, _ = next(one for one in patterns.patterns(servers) if one[0] == pattern)
    name = f"{pattern}/{method}/{mib}/{number}"
    patterns.share(grid, makers, mib << 20, name)
    names = [f"{name}/{maker}" for maker in range(len(makers))]
    holders = [holder for one in names for holder in grid.names(one)[0].servers]
    assert holders == makers, f"made on {makers}, kept on {holders}"
    predicted = None
    try:
        if method == "planned":
            return patterns.read(grid, readers, names)
        begun = grid.now()
        if method == "placed":
            for one in names:
                grid.place(one, readers)
        elif method == "named":
            values = by_calls(grid.function("patterns_functions/last_of"), readers, names)
        else:
            values = by_calls(grid.function("patterns_functions/last"), readers, [grid.get(one) for one in names])
        seconds = grid.now() - begun
        assert method == "placed" or values == [float(maker) for _ in readers for maker in range(len(makers))], values
        return seconds, predicted
    finally:
        for one in names:
            grid.delete(one)


def main():
    with gl.connect() as grid:
        print(json.dumps({"ready": len(grid.servers())}), flush=True)
        for number, line in enumerate(sys.stdin):
            request = json.loads(line)
            seconds, predicted = run(grid, number, request["pattern"], request["method"], request["mib"])
            answer = {"seconds": seconds} | ({"predicted": predicted} if predicted else {})
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
