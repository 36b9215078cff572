"""A search for similar proteins in the manner of BLAST, in a database whose parts are stored on servers.

    cc -O2 -ffp-contract=off -shared -fPIC -o libsearch.so examples/search/search.c -lm
    python examples/search/search.py --library ./libsearch.so [--database FILE] [--queries FILE] [--parts 8] [--check]

The database is cut into parts. Each part is put under a name, and a call makes its index, which is stored under a name, too. Both stay on
servers: a later program on the same grid finds them and sends only its queries. All calls of a search are one group. The hits of a query
do not depend on the number of parts.

By default the database is a real one, the proteins of the bacterium Anaerococcus provencensis: the package pyhmmer ships them
(pip install --no-deps pyhmmer). Without --queries, every 60th protein of the database is a query. --check compares the hits with those of
the algorithm of Smith and Waterman on all sequences, which takes about ten times as long. The program runs unchanged on an embedded local grid,
under ``gridloom simulate`` and under ``gridloom testbed run``.
"""

import argparse
import dataclasses
import hashlib
import importlib.util
import pathlib

import gridloom as gl
import numpy as np

FUNCTIONS = pathlib.Path(__file__).resolve().parent / "search.idl"
#: Residues by number: see search.h.
LETTERS = "ARNDCQEGHILKMFPSTWYVBZX*"
ANY = LETTERS.index("X")
#: Columns of a hit.
SEQUENCE, SCORE, QUERY_BEGIN, QUERY_END, BEGIN, END = range(6)


@dataclasses.dataclass
class Proteins:
    """Sequences of proteins, one after the other."""

    names: list
    #: int8[residues]: numbers of residues.
    residues: np.ndarray
    #: int32[len(names) + 1]: sequence s has the residues starts[s] to starts[s + 1] - 1.
    starts: np.ndarray

    def take(self, numbers):
        """Some of the sequences, by number."""
        parts = [self.residues[self.starts[s] : self.starts[s + 1]] for s in numbers]
        starts = np.cumsum([0, *map(len, parts)]).astype(np.int32)
        return Proteins([self.names[s] for s in numbers], np.concatenate(parts), starts)


def read(path):
    """Read the proteins of a file in FASTA format. Letters other than those of `LETTERS` are any residue; a stop at the end is left out."""
    code = np.full(256, ANY, np.int8)
    for number, letter in enumerate(LETTERS):
        code[[ord(letter), ord(letter.lower())]] = number
    names, sequences = [], []
    for line in pathlib.Path(path).read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(">"):
            names.append((line[1:].split() or ["?"])[0])
            sequences.append([])
        elif line.strip() and not sequences:
            raise SystemExit(f"{path} is not a file in FASTA format: its first line does not begin with '>'")
        elif sequences:
            sequences[-1].append("".join(line.split()))
    coded = [
        code[np.frombuffer("".join(lines).rstrip("*").encode("ascii", "replace"), np.uint8)] for lines in sequences
    ]
    if not any(map(len, coded)):
        raise SystemExit(f"{path} has no sequences")
    if sum(map(len, coded)) > np.iinfo(np.int32).max:
        raise SystemExit(f"{path} has more than {np.iinfo(np.int32).max} residues; cut it into several files")
    return Proteins(names, np.concatenate(coded), np.cumsum([0, *map(len, coded)]).astype(np.int32))


def shipped(name):
    """The path of a file of sequences that pyhmmer ships."""
    spec = importlib.util.find_spec("pyhmmer")
    if spec is None:
        raise SystemExit(
            "the proteins are part of the package pyhmmer: pip install --no-deps pyhmmer, or name a file with --database"
        )
    return pathlib.Path(spec.submodule_search_locations[0]) / "tests" / "data" / "seqs" / name


def cut(database, parts):
    """Cut a database into parts of about equal numbers of residues: a list of the first sequence of each and its proteins."""
    count = len(database.names)
    wanted = np.arange(1, parts) * database.starts[-1] / parts
    bounds = [0, *np.searchsorted(database.starts, wanted), count]
    return [(int(a), database.take(range(a, b))) for a, b in zip(bounds, bounds[1:]) if a < b]


def publish(grid, parts):
    """Put the parts and their indexes under names, unless an earlier program did. Returns the common beginning of the names of each."""
    digest = hashlib.sha256(b"".join(part.residues.tobytes() + part.starts.tobytes() for _, part in parts)).hexdigest()[
        :12
    ]
    names = [f"proteins/{digest}/{len(parts)}/{number}/" for number in range(len(parts))]
    missing = [(name, part) for name, (_, part) in zip(names, parts) if not grid.exists(name + "at")]
    for name, part in missing:
        # A program that ended too early may have put these.
        grid.put(name + "residues", part.residues, replace=True)
        grid.put(name + "starts", part.starts, replace=True)
    if missing:
        index = grid.function("search/index")
        with grid.group():
            made = [
                index(grid.find(name + "residues"), len(part.names), grid.find(name + "starts"))
                for name, part in missing
            ]
        for (name, _), (first, at) in zip(missing, made):
            grid.put(name + "first", first, replace=True)
            grid.put(name + "at", at, replace=True)
    return names


def search(grid, database, names, parts, queries, evalue_max, limit):
    """Record the calls: returns handles of (found, hits, evalues) for each part."""
    function = grid.function("search/search")
    handles = []
    for name, (_, part) in zip(names, parts):
        residues, starts, first, at = (grid.find(name + array) for array in ("residues", "starts", "first", "at"))
        stored = (residues, len(part.names), starts, first, at)
        size = (len(database.residues), len(database.names))
        handles.append(
            function(*stored, queries.residues, len(queries.names), queries.starts, *size, evalue_max, limit)
        )
    return handles


def merged(parts, results, limit):
    """The best hits of each query in all parts: for each query a list of (E-value, sequence, the other columns of the hit)."""
    best = [[] for _ in results[0][0]]
    for (first, _), (found, hits, evalues) in zip(parts, results):
        for query, count in enumerate(found):
            rows = zip(evalues[query, :count], hits[query, :count])
            best[query] += [(float(evalue), first + int(hit[SEQUENCE]), *map(int, hit[SCORE:])) for evalue, hit in rows]
    return [sorted(one)[:limit] for one in best]


def exact(grid, database, names, parts, queries):
    """The exact search on all parts: scores int32[queries, sequences] and E-values float64[queries, sequences]."""
    function, size = grid.function("search/exact"), (len(database.residues), len(database.names))
    with grid.group():
        made = []
        for name, (_, part) in zip(names, parts):
            stored = (grid.find(name + "residues"), len(part.names), grid.find(name + "starts"))
            made.append(function(*stored, queries.residues, len(queries.names), queries.starts, *size))
    return tuple(np.concatenate([one[number].get() for one in made], axis=1) for number in (0, 1))


def compare(best, scores, evalues, evalue_max):
    """Compare hits with those of the exact search: returns how many of them have at most this E-value, how many of these were found, and
    how many of these have the exact score."""
    pairs = list(zip(*np.nonzero(evalues <= evalue_max)))
    hits = {(query, one[1]): one[2] for query, rows in enumerate(best) for one in rows}
    found = [pair for pair in pairs if pair in hits]
    return len(pairs), len(found), sum(hits[pair] == scores[pair] for pair in found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, help="the compiled search.c, for an embedded grid")
    parser.add_argument("--database", type=pathlib.Path, help="proteins in FASTA format")
    parser.add_argument("--queries", type=pathlib.Path, help="proteins to search for, in FASTA format")
    parser.add_argument("--every", type=int, default=60, help="without --queries, every Nth protein is a query [60]")
    parser.add_argument("--parts", type=int, default=8, help="parts of the database [8]")
    parser.add_argument("--servers", type=int, default=2, help="number of servers of an embedded grid [2]")
    parser.add_argument("--evalue", type=float, default=1e-3, help="largest E-value of a hit [0.001]")
    parser.add_argument("--limit", type=int, default=250, help="hits of each query [250]")
    parser.add_argument("--shown", type=int, default=3, help="hits to print for each query [3]")
    parser.add_argument("--check", action="store_true", help="compare the hits with the exact search")
    options = parser.parse_args()
    database = read(options.database or shipped("938293.PRJEB85.HG003687.faa"))
    queries = read(options.queries) if options.queries else database.take(range(0, len(database.names), options.every))
    parts = cut(database, options.parts)
    libraries = [options.library] if options.library else []
    with gl.local(functions=[FUNCTIONS], libraries=libraries, servers=options.servers) as grid:
        names = publish(grid, parts)
        with grid.group():
            handles = search(grid, database, names, parts, queries, options.evalue, options.limit)
        results = [[one.get() for one in part] for part in handles]
        if grid.simulated and not any(found.any() for found, _, _ in results):
            print("simulated: no hits, since functions were not run ('--execute' runs them)")
            return
        best = merged(parts, results, options.limit)
        for query, rows in zip(queries.names, best):
            for evalue, sequence, score, *place in rows[: options.shown]:
                print(
                    f"{query} {database.names[sequence]} {score} {evalue:.2g} {place[0]}-{place[1]} {place[2]}-{place[3]}"
                )
        print(f"{sum(map(len, best))} hits of {len(queries.names)} queries in {len(database.names)} proteins")
        if options.check:
            scores, evalues = exact(grid, database, names, parts, queries)
            every, found, equal = compare(best, scores, evalues, options.evalue)
            print(f"exact search: {every} hits; {found} of them were found, {equal} with the same score")
            if any(one[2] > scores[query, one[1]] for query, rows in enumerate(best) for one in rows):
                raise SystemExit("a hit has a higher score than the exact search")


if __name__ == "__main__":
    main()
