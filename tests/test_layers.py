"""The architecture's rules: who may import whom, and what the core must not touch."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]
CORE = ROOT / "crates" / "gridloom-core" / "src"
#: In order: a folder imports only those before it. Those in one tuple do not import one another.
LAYERS = [
    ("base",),
    ("process",),
    ("idl",),
    ("graph",),
    ("platform",),
    ("flow",),
    ("wire",),
    ("perf",),
    ("map",),
    ("member", "call", "data", "exec"),
    ("node",),
]
#: What no file of the core may name: the outside, and orders that differ from run to run.
FORBIDDEN = re.compile(
    r"std::(net|fs|thread|env|process)\b|std::time::(Instant|SystemTime)|\bInstant::now|\bSystemTime\b|\bHashMap\b|\bHashSet\b"
    r"|\btokio\b|\basync fn\b|\bMutex\b|\bunsafe\b"
)
#: What panics if nobody reads the output any more.
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


def test_the_core_touches_nothing_outside():
    wrong = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path, text in sources(CORE)
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
        "gridloom-core": set(),
        "gridloom-derive": set(),
        "gridloom-sim": {"gridloom-core"},
        "gridloom-net": {"gridloom-core"},
        "gridloom-testbed": {"gridloom-core"},
        "gridloom": {"gridloom-core", "gridloom-derive", "gridloom-sim", "gridloom-net"},
        "gridloom-capi": {"gridloom", "gridloom-core", "gridloom-net"},
    }
    for crate, may in allowed.items():
        manifest = (ROOT / "crates" / crate / "Cargo.toml").read_text()
        normal = manifest.split("[dependencies]")[1].split("\n[")[0]
        used = set(re.findall(r"^(gridloom[\w-]*)\b", normal, re.MULTILINE))
        assert used <= may, f"{crate} depends on {used - may}"


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


def test_the_core_has_fewer_than_ten_dependencies():
    manifest = (ROOT / "crates" / "gridloom-core" / "Cargo.toml").read_text()
    normal = manifest.split("[dependencies]")[1].split("\n[")[0]
    assert len(re.findall(r"^\w[\w-]* =", normal, re.MULTILINE)) < 10


def test_the_check_can_fail():
    assert FORBIDDEN.search("let now = Instant::now();")
    assert FORBIDDEN.search("use std::collections::HashMap;")
    assert PANICS.search("eprintln!(") and PANICS.search(" print!(") and not PANICS.search("say!(")
