"""The architecture's rules: which crate may import which, and what the core must not touch."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]
CORE = ROOT / "crates" / "gridloom-core" / "src"
GRPC = ROOT / "crates" / "gridloom-capi" / "src" / "grpc"
#: In order: a folder imports only those before it. Those in one tuple do not import one another.
LAYERS = [
    ("graph",),
    ("member", "call", "data", "exec"),
    ("node",),
]
CORE_AND_BELOW = {
    f"gridloom-{name}"
    for name in ("base", "flow", "idl", "platform", "channel", "process", "layout", "perf", "map", "core")
}
#: The crates that hold the core's rule: they decide or compute, and touch nothing outside.
PURE = sorted(CORE_AND_BELOW)
#: What no file of them may name: the outside, and orders that differ from run to run.
FORBIDDEN = re.compile(
    r"std::(net|fs|thread|env|process)\b|std::time::(Instant|SystemTime)|\bInstant::now|\bSystemTime\b|\bHashMap\b|\bHashSet\b"
    r"|\btokio\b|\basync fn\b|\bMutex\b|\bunsafe\b"
)
#: Macros that panic if the output's reader is gone.
PANICS = re.compile(r"\be?print(ln)?!")
COMMENT = re.compile(r"//.*")


def sources(folder):
    for path in sorted(folder.rglob("*.rs")):
        text = path.read_text()
        yield path, COMMENT.sub("", text.split("#[cfg(test)]")[0])


def test_folders_import_only_upwards():
    level = {name: i for i, names in enumerate(LAYERS) for name in names}
    assert sorted(level) == sorted(path.name for path in CORE.iterdir() if path.is_dir())
    wrong = []
    for folder, own in level.items():
        for path, text in sources(CORE / folder):
            for other in re.findall(r"\bcrate::(\w+)", text):
                if other in level and other != folder and level[other] >= own:
                    wrong.append(f"{path.relative_to(ROOT)} imports {other}")
    assert not wrong, wrong


def grpc_layers():
    """The rows of the table at the head of the GridRPC binding, the lowest first: each a set of files and folders."""
    head = (GRPC / "mod.rs").read_text().split("| layer |")[1].split("//!\n")[0]
    rows = re.findall(r"^//! \| (`[^|]*) \|", head, re.MULTILINE)
    return [set(re.findall(r"`(\w+)`", row)) for row in reversed(rows)]


def test_the_grpc_binding_stands_in_layers():
    level = {name: i for i, names in enumerate(grpc_layers()) for name in names}
    own = {path.stem for path in GRPC.iterdir() if path.suffix == ".rs" or path.is_dir()} - {"mod"}
    assert set(level) == own
    wrong = []
    for path, text in sources(GRPC):
        where = path.relative_to(GRPC).parts
        if where == ("mod.rs",):
            continue
        name, above = where[0].removesuffix(".rs"), "super::" * len(where)
        if where[-1] == "mod.rs":
            above = "super::" * (len(where) - 1)
        # `use super::x`, `use super::{x, y::Z}` and plain paths.
        lists = re.findall(rf"(?<!super::){above}\{{([^}}]*)\}}", text)
        used = re.findall(rf"(?<!super::){above}(\w+)", text) + [n for names in lists for n in re.findall(r"\b(\w+)", names)]
        wrong += [f"{path.relative_to(GRPC)} imports {n}" for n in used if n in level and n != name and level[n] >= level[name]]
    assert not wrong, wrong


def test_the_core_touches_nothing_outside():
    wrong = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for crate in PURE
        for path, text in sources(ROOT / "crates" / crate / "src")
        for match in FORBIDDEN.finditer(text.replace("forbid(unsafe_code)", ""))
    ]
    assert not wrong, wrong


def test_lines_for_people_go_where_a_closed_stream_does_no_harm():
    wrong = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for crate in sorted((ROOT / "crates").iterdir())
        for path, text in sources(crate / "src")
        for match in PANICS.finditer(text)
    ]
    assert not wrong, f"{wrong}: write with say! (standard error), or with what gives an error"


def test_crates_depend_only_downwards():
    allowed = {
        "gridloom-base": set(),
        "gridloom-flow": set(),
        "gridloom-idl": {"gridloom-base"},
        "gridloom-platform": {"gridloom-base"},
        "gridloom-channel": {"gridloom-base"},
        "gridloom-process": {"gridloom-base", "gridloom-channel"},
        "gridloom-stacks": set(),
        "gridloom-layout": {"gridloom-base", "gridloom-idl"},
        "gridloom-perf": {"gridloom-base"},
        "gridloom-map": {"gridloom-base", "gridloom-perf"},
        "gridloom-core": {"gridloom-base", "gridloom-idl", "gridloom-perf", "gridloom-map"},
        "gridloom-conformance": {"gridloom-base", "gridloom-channel", "gridloom-idl", "gridloom-core", "gridloom-process"},
        "gridloom-derive": set(),
        "gridloom-sim": CORE_AND_BELOW | {"gridloom-stacks"},
        "gridloom-net": CORE_AND_BELOW,
        "gridloom-testbed": {"gridloom-base", "gridloom-flow", "gridloom-platform"},
        "gridloom": CORE_AND_BELOW | {"gridloom-derive", "gridloom-sim", "gridloom-net"},
        "gridloom-capi": CORE_AND_BELOW | {"gridloom", "gridloom-net"},
    }
    assert {crate for crates in allowed.values() for crate in crates} <= {path.name for path in (ROOT / "crates").iterdir()}
    for crate, may in allowed.items():
        manifest = (ROOT / "crates" / crate / "Cargo.toml").read_text()
        normal = manifest.split("[dependencies]")[1].split("\n[")[0]
        used = set(re.findall(r"^(gridloom[\w-]*)\b", normal, re.MULTILINE))
        assert used <= may, f"{crate} depends on {used - may}"
        assert "gridloom-conformance" not in used, f"{crate}: only tests have the conformance suites"


def test_the_testbeds_model_is_pure_and_its_unsafe_code_in_one_file():
    testbed = ROOT / "crates" / "gridloom-testbed" / "src"
    wrong = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path, text in sources(testbed / "model")
        for match in FORBIDDEN.finditer(text)
    ]
    assert not wrong, wrong
    unsafe = [path.relative_to(testbed).as_posix() for path, text in sources(testbed) if re.search(r"\bunsafe\b", text)]
    assert unsafe == ["kernel/sys.rs"]


def test_the_simulation_has_no_unsafe_code_and_stacks_have_it_in_one_file():
    crates = ROOT / "crates"
    assert "#![forbid(unsafe_code)]" in (crates / "gridloom-sim" / "src" / "lib.rs").read_text()
    stacks = crates / "gridloom-stacks" / "src"
    unsafe = [path.name for path, text in sources(stacks) if re.search(r"\bunsafe\b", text)]
    assert unsafe == ["stack.rs"]


def test_a_library_that_is_compiled_once_has_no_tests_of_its_own():
    wrong = [
        f"{path.relative_to(ROOT)}: cargo does not run it"
        for manifest in sorted((ROOT / "crates").glob("*/Cargo.toml"))
        if "\n[lib]\ntest = false\n" in manifest.read_text()
        for path in sorted((manifest.parent / "src").rglob("*.rs"))
        if "#[test]" in path.read_text()
    ]
    assert not wrong, wrong


def test_the_core_has_fewer_than_ten_dependencies():
    manifest = (ROOT / "crates" / "gridloom-core" / "Cargo.toml").read_text()
    normal = manifest.split("[dependencies]")[1].split("\n[")[0]
    assert len(re.findall(r"^\w[\w-]* =", normal, re.MULTILINE)) < 10


def test_the_check_can_fail():
    assert FORBIDDEN.search("let now = Instant::now();")
    assert FORBIDDEN.search("use std::collections::HashMap;")
    assert PANICS.search("eprintln!(") and PANICS.search(" print!(") and not PANICS.search("say!(")
