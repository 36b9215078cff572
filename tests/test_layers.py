"""The architecture's rules: which crate may import which, and what the core must not touch."""

import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]
CORE = ROOT / "crates" / "gridloom-core" / "src"
GRPC = ROOT / "crates" / "gridloom-grpc" / "src"
#: In order: a folder imports only those before it. Folders in one tuple do not import each other.
LAYERS = [
    ("graph",),
    ("member", "call", "data", "exec"),
    ("node",),
]
RUST_API = ROOT / "crates" / "gridloom" / "src"
#: The modules of the Rust API, in order as above.
RUST_API_LAYERS = [
    ("difference", "log", "chart", "program_name"),
    ("error",),
    ("text_file", "value"),
    ("plan", "offer", "trace"),
    ("report", "local"),
    ("simulate", "testbed_grid"),
    ("backend", "process"),
    ("session",),
    ("launch",),
    ("call",),
    ("calibrate", "declared", "object", "shared_data"),
    ("group", "modules"),
    ("grid",),
    ("data", "chares"),
]
#: The parts of a session. They know neither each other nor what is above them.
SESSION_PARTS = ("session", "parts")
CORE_AND_BELOW = {
    f"gridloom-{name}"
    for name in ("base", "flow", "idl", "platform", "channel", "process", "layout", "chare", "perf", "map", "core")
}
#: The crates to which the core's rule applies: they decide or compute, and access nothing outside.
PURE = sorted(CORE_AND_BELOW | {"gridloom-workflows"})
#: Names that none of their files may contain: the outside world, and orders that differ from run to run.
FORBIDDEN = re.compile(
    r"std::(net|fs|thread|env|process)\b|std::time::(Instant|SystemTime)|\bInstant::now|\bSystemTime\b|\bHashMap\b|\bHashSet\b"
    r"|\btokio\b|\basync fn\b|\bMutex\b|\bunsafe\b"
)
#: Macros that panic if the output's reader is gone.
PANICS = re.compile(r"\be?print(ln)?!")
#: Literals and comments, of which only the ends of a string are kept.
NO_CODE = re.compile(
    r"""r(#+)".*?"\1|b?"(?:\\.|[^"\\])*"|b?'(?:\\.[^']*|[^'\\\n])'|//[^\n]*""",
    re.DOTALL,
)


#: The declaration of a file of tests, or the start of the tests at the end of a file.
TEST_FILE = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+;")
TESTS = re.compile(r"#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+\s*\{")


def code_of(text):
    """Returns the text of a source file without literals, comments and tests."""
    code = NO_CODE.sub(lambda match: "" if match.group().startswith("/") else '""', text)
    return TESTS.split(TEST_FILE.sub("", code))[0]


def sources(folder):
    for path in sorted(folder.rglob("*.rs")):
        yield path, code_of(path.read_text())


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
    """Returns the rows of the table at the top of the GridRPC binding, the lowest first: each a set of files and
    folders."""
    head = (GRPC / "lib.rs").read_text().split("| layer |")[1].split("//!\n")[0]
    rows = re.findall(r"^//! \| (`[^|]*) \|", head, re.MULTILINE)
    return [set(re.findall(r"`(\w+)`", row)) for row in reversed(rows)]


def test_the_grpc_binding_is_layered():
    level = {name: i for i, names in enumerate(grpc_layers()) for name in names}
    own = {path.stem for path in GRPC.iterdir() if path.suffix == ".rs" or path.is_dir()} - {"lib"}
    assert set(level) == own
    wrong = []
    for path, text in sources(GRPC):
        where = path.relative_to(GRPC).parts
        if where == ("lib.rs",):
            continue
        name, above = where[0].removesuffix(".rs"), "super::" * len(where)
        if where[-1] == "mod.rs":
            above = "super::" * (len(where) - 1)
        # `use super::x`, `use super::{x, y::Z}` and plain paths.
        lists = re.findall(rf"(?<!super::){above}\{{([^}}]*)\}}", text)
        used = re.findall(rf"(?<!super::){above}(\w+)", text) + [n for names in lists for n in re.findall(r"\b(\w+)", names)]
        wrong += [f"{path.relative_to(GRPC)} imports {n}" for n in used if n in level and n != name and level[n] >= level[name]]
    assert not wrong, wrong


def module_of(source, path):
    """`a/b.rs` is module `("a", "b")`; the crate's root is `()`."""
    parts = path.relative_to(source).with_suffix("").parts
    return parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts


def paths_of(tree, before=()):
    """Returns the paths of a use tree, each with the name that it imports."""
    tree = tree.strip()
    if not tree.endswith("}"):
        path, _, alias = tree.partition(" as ")
        path = (*before, *re.findall(r"\w+", path))
        path = path[:-1] if path[-1:] == ("self",) else path
        if path:
            yield path, alias.strip() or path[-1]
        return
    head, _, inner = tree[:-1].partition("{")
    depth, part = 0, ""
    for character in inner + ",":
        if character == "," and depth == 0:
            yield from paths_of(part, (*before, *re.findall(r"\w+", head)))
            part = ""
        else:
            depth += (character == "{") - (character == "}")
            part += character


USE = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", re.MULTILINE)
NAMED = re.compile(r"(?<![\w:.])(?:\w+::)*\w+")


def ties_of(crate_source):
    """Returns for each module of a crate the modules whose items it names. A re-exported item counts where it is
    defined. Names of parent modules do not count: a module is a part of them."""
    texts = {
        module_of(crate_source, path): code_of(path.read_text())
        for path in sorted(crate_source.rglob("*.rs"))
        if "tests" not in path.relative_to(crate_source).with_suffix("").parts
    }
    brought = {module: {} for module in texts}

    def absolute(module, path):
        above = path[:1] == ("super",)
        while path[:1] == ("super",):
            module, path = module[:-1], path[1:]
        if above or path[:1] == ("self",):
            return module + path[not above :]
        if path[:1] == ("crate",):
            return path[1:]
        return module + path if module + path[:1] in texts else None

    def home(path, seen=()):
        for length in range(len(path), -1, -1):
            module, rest = path[:length], path[length:]
            if module in texts:
                handed_on = brought[module].get(rest[0]) if rest and (module, rest[0]) not in seen else None
                return home(handed_on + rest[1:], (*seen, (module, rest[0]))) if handed_on else (module, rest)

    for module, text in texts.items():
        for tree in USE.findall(text):
            for path, name in paths_of(tree):
                full = absolute(module, path)
                if full is not None:
                    brought[module][name] = full
    ties = {module: set() for module in texts}
    for module, text in texts.items():
        for named in set(NAMED.findall(USE.sub("", text))):
            first, *rest = named.split("::")
            full = brought[module].get(first)
            full = absolute(module, (first, *rest)) if full is None and rest else full and full + tuple(rest)
            found, item = (home(full) if full else None) or (module, ())
            if item and module[: len(found)] != found:
                ties[module].add(found)
    return ties


def upward(ties, layers):
    """Returns the imports from a module of one layer into the same layer or a higher one."""
    level = {name: i for i, names in enumerate(layers) for name in names}
    return [
        f"{'::'.join(module)} imports {'::'.join(other)}"
        for module, others in ties.items()
        for other in others
        if module and other and module[0] != other[0] and level[other[0]] >= level[module[0]]
    ]


def test_modules_of_the_rust_api_import_only_downwards():
    own = {path.stem for path in RUST_API.iterdir()} - {"lib"}
    assert sorted(own) == sorted(name for names in RUST_API_LAYERS for name in names)
    ties = ties_of(RUST_API)
    assert not upward(ties, RUST_API_LAYERS), upward(ties, RUST_API_LAYERS)
    assert not circle_in(ties), circle_in(ties)


def test_parts_of_a_session_know_neither_each_other_nor_the_session():
    parts = {module: others for module, others in ties_of(RUST_API).items() if module[:2] == SESSION_PARTS}
    wrong = [f"{module} imports {other}" for module, others in parts.items() for other in others if other[0] == "session"]
    above = RUST_API / "session" / "parts"
    wrong += [f"{path} imports its session" for path in above.iterdir() if re.search(r"\bSession\b", code_of(path.read_text()))]
    assert len(parts) > 10 and not wrong, wrong


#: Files of the agent that coordinate its parts.
AGENT_COORDINATION = {"mod.rs", "mapping.rs", "registration.rs"}


def test_parts_of_the_agent_do_not_know_it():
    agent = CORE / "node" / "agent"
    parts = [path for path in agent.rglob("*.rs") if path.name not in AGENT_COORDINATION]
    wrong = [path.name for path in parts if re.search(r"(?<!Category::)\bAgent\b", code_of(path.read_text()))]
    assert len(parts) > 10 and not wrong, f"{wrong} name the agent: return values or effects, and let the agent decide"


def test_the_check_of_layers_can_fail(tmp_path):
    (tmp_path / "lib.rs").write_text("mod high;\nmod low;\n")
    (tmp_path / "high.rs").write_text("use crate::low::Low;\npub struct High(Low);\n")
    (tmp_path / "low.rs").write_text("const END: char = '\"';\npub struct Low;\n// crate::high::High\n")
    layers = [("low",), ("high",)]
    assert upward(ties_of(tmp_path), layers) == []
    (tmp_path / "low.rs").write_text("const END: char = '\"';\npub struct Low(crate::high::High);\n")
    assert upward(ties_of(tmp_path), layers) == ["low imports high"]


def circle_in(ties):
    """Returns the modules of all cycles, and those between two of them."""
    left = dict(ties)
    while True:
        used = set().union(*left.values())
        free = [module for module, others in left.items() if module not in used or not others & left.keys()]
        if not free:
            break
        for module in free:
            del left[module]
    return sorted("::".join(module) for module in left)


def folders_of(ties):
    """Returns for each folder of a crate the imports between its parts. A part is a file, or a folder with all its
    files."""
    folders = {}
    for module, others in ties.items():
        for depth in range(len(module)):
            folder, part = module[:depth], module[: depth + 1]
            parts = {other[: depth + 1] for other in others if other[:depth] == folder and len(other) > depth}
            folders.setdefault(folder, {}).setdefault(part, set()).update(parts - {part})
    return folders


#: Crates with cyclic folders.
WITH_FOLDER_CIRCLES = {"gridloom-sim"}


def test_modules_import_in_no_circle():
    for crate in sorted((ROOT / "crates").iterdir()):
        ties = ties_of(crate / "src")
        assert not circle_in(ties), f"{crate.name}: these import one another: {circle_in(ties)}"
        if crate.name not in WITH_FOLDER_CIRCLES:
            wrong = [circle for parts in folders_of(ties).values() if (circle := circle_in(parts))]
            assert not wrong, f"{crate.name}: these import one another: {wrong}"


def test_the_check_of_circles_can_fail(tmp_path):
    (tmp_path / "lib.rs").write_text("mod a;\nmod b;\npub use b::Beta;\n")
    (tmp_path / "a.rs").write_text("use crate::Beta;\npub struct Alpha(Beta);\n")
    (tmp_path / "b.rs").write_text("pub struct Beta;\n")
    assert circle_in(ties_of(tmp_path)) == []
    (tmp_path / "b.rs").write_text("pub struct Beta;\nimpl Beta { fn of(_: &super::a::Alpha) {} }\n")
    assert circle_in(ties_of(tmp_path)) == ["a", "b"]
    (tmp_path / "b.rs").write_text("#[cfg(test)]\nmod tests;\nconst PATH: &str = \"//\";\nfn of(_: &super::a::Alpha) {}\n")
    assert ties_of(tmp_path)[("b",)] == {("a",)}
    (tmp_path / "b.rs").write_text("#[cfg(test)]\nmod tests {\n    use crate::a::Alpha;\n    fn of(_: &Alpha) {}\n}\n")
    assert ties_of(tmp_path)[("b",)] == set()


def test_the_check_of_circles_between_folders_can_fail(tmp_path):
    (tmp_path / "lib.rs").write_text("mod a;\nmod b;\n")
    (tmp_path / "b.rs").write_text("pub struct Beta(crate::a::one::One);\n")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "mod.rs").write_text("pub mod one;\npub mod two;\n")
    (tmp_path / "a" / "one.rs").write_text("pub struct One;\n")
    (tmp_path / "a" / "two.rs").write_text("pub struct Two(super::one::One);\n")
    assert not any(map(circle_in, folders_of(ties_of(tmp_path)).values()))
    (tmp_path / "a" / "two.rs").write_text("pub struct Two(crate::b::Beta);\n")
    assert circle_in(ties_of(tmp_path)) == [] and circle_in(folders_of(ties_of(tmp_path))[()]) == ["a", "b"]


PYTHON = ROOT / "crates" / "gridloom-python" / "python" / "gridloom"
#: Modules and subpackages of the Python package, the lowest layer first: one imports only those of the layers before it.
PYTHON_LAYERS = [
    ("errors", "ctypes"),
    ("common",),
    ("display", "pickling"),
    ("functions", "calls", "plans", "models"),
    ("groups", "run", "messages", "connector"),
    ("engines", "processes", "chares"),
    ("session", "mpi", "worker"),
    ("adapters", "describe", "run_code"),
    ("__main__", ""),
]


def python_imports(package):
    """For each module of a Python package: the modules of the package that it imports, also within functions and for type checkers. The
    package itself is the module ``""``. What a subpackage hands on by ``__init__`` counts as that subpackage."""
    files = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        if "standin" not in parts:  # it takes the place of another package
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    imports = {}
    for module, path in files.items():
        base = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
        base = [part for part in base if part]
        imports[module] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                if node.level:
                    above = base[: len(base) - (node.level - 1)]
                    source = ".".join([*above, *([node.module] if node.module else [])])
                elif node.module and node.module.split(".")[0] == package.name:
                    source = node.module.partition(".")[2]
                else:
                    continue
                found = {f"{source}.{alias.name}".strip(".") for alias in node.names}
                # The extension module is below all.
                found = {name if name in files else source for name in found if name.split(".")[0] != "_gridloom"}
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names if alias.name.split(".")[0] == package.name]
                found = {name.partition(".")[2] for name in names}
            else:
                continue
            imports[module] |= found - {module}
    return imports


def upward_imports(imports, layers):
    """Imports of the same or a higher layer, but for those within a subpackage."""
    level = {name: i for i, names in enumerate(layers) for name in names}
    wrong = []
    for module, others in imports.items():
        own = module.split(".")[0]
        for other in others:
            top = other.split(".")[0]
            if top != own and level[top] >= level[own]:
                wrong.append(f"{module or 'the package'} imports {other or 'the package'}")
    return sorted(wrong)


def circle_of(imports):
    """The modules of all circles, and those between two of them."""
    return [name.replace("::", ".") for name in circle_in({tuple([m]): {tuple([o]) for o in others} for m, others in imports.items()})]


def test_python_modules_import_only_downwards():
    imports = python_imports(PYTHON)
    assert {name for names in PYTHON_LAYERS for name in names} == {module.split(".")[0] for module in imports}
    assert not upward_imports(imports, PYTHON_LAYERS)


def test_python_modules_import_in_no_circle():
    assert not circle_of(python_imports(PYTHON))


def test_the_check_of_python_imports_can_fail(tmp_path):
    (tmp_path / "low").mkdir()
    (tmp_path / "high").mkdir()
    (tmp_path / "__init__.py").write_text("from .high import one\n")
    (tmp_path / "low" / "__init__.py").write_text("")
    (tmp_path / "high" / "__init__.py").write_text("from .one import one\n")
    (tmp_path / "high" / "one.py").write_text("from ..low.two import two\n")
    (tmp_path / "low" / "two.py").write_text("from . import three\n")
    (tmp_path / "low" / "three.py").write_text("")
    layers = [("low",), ("high",), ("",)]
    assert upward_imports(python_imports(tmp_path), layers) == [] and circle_of(python_imports(tmp_path)) == []
    (tmp_path / "low" / "three.py").write_text("def f():\n    from ..high.one import one\n")
    assert upward_imports(python_imports(tmp_path), layers) == ["low.three imports high.one"]
    assert circle_of(python_imports(tmp_path)) == ["high.one", "low.three", "low.two"]
    (tmp_path / "low" / "three.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .two import two\n")
    assert upward_imports(python_imports(tmp_path), layers) == [] and circle_of(python_imports(tmp_path)) == ["low.three", "low.two"]


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
        "gridloom-resources": set(),
        "gridloom-keys": {"gridloom-base", "gridloom-resources"},
        "gridloom-flow": set(),
        "gridloom-idl": {"gridloom-base"},
        "gridloom-platform": {"gridloom-base"},
        "gridloom-channel": {"gridloom-base"},
        "gridloom-process": {"gridloom-base", "gridloom-channel", "gridloom-platform"},
        "gridloom-stacks": set(),
        "gridloom-layout": {"gridloom-base", "gridloom-idl"},
        "gridloom-chare": {"gridloom-base", "gridloom-layout"},
        "gridloom-perf": {"gridloom-base"},
        "gridloom-map": {"gridloom-base", "gridloom-perf"},
        "gridloom-workflows": {"gridloom-base", "gridloom-perf", "gridloom-map"},
        "gridloom-core": {"gridloom-base", "gridloom-idl", "gridloom-perf", "gridloom-map"},
        "gridloom-conformance": {"gridloom-base", "gridloom-channel", "gridloom-idl", "gridloom-core", "gridloom-process"},
        "gridloom-derive": set(),
        "gridloom-sim": CORE_AND_BELOW | {"gridloom-stacks"},
        "gridloom-soak": CORE_AND_BELOW | {"gridloom-resources", "gridloom-sim"},
        "gridloom-libffi": set(),
        "gridloom-net": CORE_AND_BELOW | {"gridloom-keys", "gridloom-libffi", "gridloom-resources"},
        "gridloom-testbed": {"gridloom-base", "gridloom-resources", "gridloom-flow", "gridloom-platform"},
        "gridloom": CORE_AND_BELOW | {"gridloom-resources", "gridloom-keys", "gridloom-derive", "gridloom-sim", "gridloom-net"},
        "gridloom-grpc": CORE_AND_BELOW | {"gridloom", "gridloom-libffi", "gridloom-net"},
        "gridloom-ninfg": {"gridloom", "gridloom-grpc"},
        "gridloom-omnirpc": {"gridloom-base", "gridloom-grpc"},
        "gridloom-capi": CORE_AND_BELOW | {"gridloom", "gridloom-grpc", "gridloom-ninfg", "gridloom-omnirpc"},
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
