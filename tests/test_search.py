"""The protein search of examples/search: compared with an exact one, and the same however it runs."""

import importlib.util
import subprocess
import sys

import gridloom as gl
import numpy as np
import pytest
from c_library import PROGRAM, ROOT, compile_c, needs_cc, the_library  # noqa: F401 (a fixture)

pytestmark = needs_cc
SEARCH = ROOT / "examples" / "search"
DRIVER = [sys.executable, SEARCH / "search.py"]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    library = tmp_path_factory.mktemp("search") / "libsearch.so"
    flags = ["-O2", "-std=c11", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, SEARCH / "search.c", "-o", library, "-lm"], check=True)
    return library


@pytest.fixture(scope="module")
def search():
    sys.path.insert(0, str(SEARCH))
    import search

    yield search
    sys.path.remove(str(SEARCH))


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """A file with proteins of ten families: members differ by replaced, removed and added residues."""
    random, lines = np.random.default_rng(5), []
    letters = np.array(list("ARNDCQEGHILKMFPSTWYV"))
    for family in range(10):
        first = random.choice(letters, random.integers(120, 300))
        for member in range(6):
            one = np.where(random.random(len(first)) < 0.1 * member, random.choice(letters, len(first)), first)
            at = random.integers(30, 90)
            one = np.concatenate([one[:at], random.choice(letters, 2 * member), one[at + member :]])
            lines += [f">f{family}-{member} a protein", "".join(one[:70]), "".join(one[70:]) + "*"]
    file = tmp_path_factory.mktemp("database") / "proteins.faa"
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture(scope="module")
def grid(library):
    with gl.local(functions=[SEARCH / "search.idl"], libraries=[library], servers=2) as grid:
        yield grid


def found_in(search, grid, proteins, queries, count, evalue=10.0):
    parts = search.cut(proteins, count)
    names = search.publish(grid, parts)
    with grid.group():
        handles = search.search(grid, proteins, names, parts, queries, evalue, 100)
    results = [[one.get() for one in part] for part in handles]
    return search.merged(parts, results, 100), search.exact(grid, proteins, names, parts, queries)


def best_score(scores, one, other):
    """The score of the best local alignment by the recurrence in its textbook form, with any length of gaps: a gap of k costs 11 + k."""
    best = np.zeros((len(one) + 1, len(other) + 1), int)
    for i in range(1, len(one) + 1):
        for j in range(1, len(other) + 1):
            above = (best[:i, j] - 11 - np.arange(i, 0, -1)).max()
            left = (best[i, :j] - 11 - np.arange(j, 0, -1)).max()
            best[i, j] = max(0, best[i - 1, j - 1] + scores[one[i - 1], other[j - 1]], above, left)
    return best.max()


def test_the_exact_search_is_that_of_smith_and_waterman(search, grid, database):
    proteins = search.read(database)
    queries = proteins.take([0, 13])
    _, (scores, _) = found_in(search, grid, proteins, queries, 3)
    text = (SEARCH / "search.c").read_text()
    table = text[text.index("SCORES[LETTERS][LETTERS] = {") :].partition("};")[0].partition("= {")[2]
    blosum = np.array(
        [
            [int(x) for x in row.split(",") if x.strip()]
            for row in table.replace("{", "").split("}")
            if row.strip(" ,\n")
        ]
    )
    assert np.array_equal(blosum, blosum.T) and list(np.diag(blosum)) == [
        *(4, 5, 6, 6, 9, 5, 5, 6, 8, 4, 4, 5, 5, 6, 7, 4, 5, 11, 7, 4, 4, 4, -1, 1)
    ]
    for query in range(2):
        one = queries.residues[queries.starts[query] : queries.starts[query + 1]]
        for sequence in (0, 3, 5, 13, 15, 40):
            other = proteins.residues[proteins.starts[sequence] : proteins.starts[sequence + 1]]
            assert scores[query, sequence] == best_score(blosum, one, other), (query, sequence)


def test_members_of_a_family_are_found(search, grid, database):
    proteins = search.read(database)
    queries = proteins.take(range(0, 60, 6))
    best, (scores, evalues) = found_in(search, grid, proteins, queries, 4)
    for family, rows in enumerate(best):
        assert rows[0][1] == 6 * family and rows[0][3:] == (0, len(queries.take([family]).residues)) * 2
        assert {one[1] // 6 for one in rows if one[0] < 1e-3} == {family}
        assert {6 * family + member for member in range(4)} <= {one[1] for one in rows}
    every, found, equal = search.compare(best, scores, evalues, 1e-6)
    assert every >= 40 and found >= 0.9 * every and equal >= 0.9 * found
    assert all(one[2] <= scores[query, one[1]] for query, rows in enumerate(best) for one in rows)


def test_the_hits_do_not_depend_on_the_parts(search, grid, database):
    proteins = search.read(database)
    queries = proteins.take([2, 31])
    assert found_in(search, grid, proteins, queries, 1)[0] == found_in(search, grid, proteins, queries, 7)[0]


def test_a_second_search_sends_only_its_queries(search, grid, database):
    proteins = search.read(database)
    parts = search.cut(proteins, 5)
    first = grid.traffic()
    names = search.publish(grid, parts)
    second = grid.traffic()
    assert search.publish(grid, parts) == names
    third = grid.traffic()
    assert second.client_bytes - first.client_bytes >= len(proteins.residues)
    assert third.client_bytes - second.client_bytes < 1000


def output(*command, folder=None):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_programs_in_c_and_python_and_a_simulation_print_the_same_hits(library, database, tmp_path):
    (tmp_path / "grid.toml").write_text(
        f'[local]\nservers = 2\nfunctions = ["{SEARCH}/search.idl"]\nlibraries = ["{library}"]\n'
    )
    client = compile_c([SEARCH / "client.c"], tmp_path / "client", "-std=c11")
    (tmp_path / "queries.faa").write_text("".join(database.read_text().splitlines(keepends=True)[:12]))
    options = ["--library", library, "--database", database, "--queries", tmp_path / "queries.faa"]
    hits = output(*DRIVER, *options)
    assert hits.endswith(" hits of 4 queries in 60 proteins\n") and hits.startswith("f0-0 f0-0 ")
    assert output(client, "grid.toml", database, "queries.faa", "5", folder=tmp_path) == hits
    simulate = [
        PROGRAM,
        "simulate",
        "-p",
        ROOT / "examples" / "two-sites.toml",
        "--execute",
        "--library",
        library,
        "--",
    ]
    assert output(*simulate, *DRIVER, *options).startswith(hits)


def test_blanks_in_a_file_are_read_alike(library, search, tmp_path):
    (tmp_path / "grid.toml").write_text(
        f'[local]\nservers = 1\nfunctions = ["{SEARCH}/search.idl"]\nlibraries = ["{library}"]\n'
    )
    client = compile_c([SEARCH / "client.c"], tmp_path / "client", "-std=c11")
    sequence = "MKVLAWQRDNEGHIKFPSTYVCMWQRHKLD"
    (tmp_path / "plain.faa").write_text(f">a\n{sequence}\n")
    (tmp_path / "blank.faa").write_text(f"\n \t\r\n>a b\n{sequence[:9]} {sequence[9:14]}\t{sequence[14:]} \n\n")
    assert np.array_equal(search.read(tmp_path / "blank.faa").residues, search.read(tmp_path / "plain.faa").residues)
    hits = [output(client, "grid.toml", name, "-", folder=tmp_path) for name in ("plain.faa", "blank.faa")]
    assert hits[0] == hits[1] and hits[0].startswith("a a "), hits


def test_wrong_arguments_are_refused(search, database, library):
    proteins = search.read(database)
    with gl.local(functions=[SEARCH / "search.idl"], libraries=[library], servers=1) as grid:
        index, count = grid.function("search/index"), len(proteins.names)
        with pytest.raises(gl.errors.GridloomError, match="residues.*expected 0 to 23"):
            index(np.where(proteins.residues == 3, 24, proteins.residues).astype(np.int8), count, proteins.starts)
        with pytest.raises(gl.errors.TaskError):
            index(proteins.residues, count, proteins.starts[::-1].copy())


def test_real_proteins_are_found(library, search, grid):
    """All proteins of a bacterium: of the alignments that are significant, all but a few are found."""
    if importlib.util.find_spec("pyhmmer") is None:
        pytest.skip("the package pyhmmer, which ships proteins, is not installed")
    proteins = search.read(search.shipped("938293.PRJEB85.HG003687.faa"))
    assert len(proteins.names) == 2100
    queries = proteins.take(range(30, 2100, 300))
    best, (scores, evalues) = found_in(search, grid, proteins, queries, 4, evalue=1e-3)
    every, found, equal = search.compare(best, scores, evalues, 1e-3)
    assert every >= 7 and found >= 0.9 * every and equal >= 0.9 * found, (every, found, equal)
    assert all(one[2] <= scores[query, one[1]] for query, rows in enumerate(best) for one in rows)
