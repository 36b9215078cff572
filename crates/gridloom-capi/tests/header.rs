//! `gridloom.h`, `grpc.h` and the library agree. Each exported function is declared again after the header, with the
//! types of its Rust signature, so that the C compiler rejects any difference; and neither side has additional
//! functions.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gridloom_capi::{
    CData, CDeclaration, CFunctionHandle, CHandleAttr, CMeasure, CMessage, CNinfgInfo, CObjectHandle, CProblem,
    CProblemCall, CProblemDatum, CProblemServer, CSessionAttr, CSessionInfo, OpenCall, Slot,
};

fn own(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns the functions that a folder's files export, as C declarations by name, except those that are variadic in C.
fn exported(folder: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let files = std::fs::read_dir(own(folder)).unwrap().map(|file| file.unwrap().path());
    for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "rs")) {
        let text = std::fs::read_to_string(file).unwrap();
        for part in text.split("#[unsafe(no_mangle)]").skip(1).filter(|part| !part.trim_start().starts_with(NAKED)) {
            let (_, signature) = part.split_once("extern \"C-unwind\" fn ").unwrap();
            let (signature, _) = signature.split_once('{').unwrap();
            let (name, rest) = signature.split_once('(').unwrap();
            let (parameters, result) = rest.rsplit_once(')').unwrap();
            let types: Vec<String> = parameters
                .split(',')
                .filter(|parameter| !parameter.trim().is_empty())
                .map(|parameter| c_type(parameter.split_once(':').unwrap().1))
                .collect();
            let result = result.trim().strip_prefix("->").map_or("void".into(), c_type);
            let types = if types.is_empty() { "void".into() } else { types.join(", ") };
            found.insert(name.to_string(), format!("{result} {name}({types});"));
        }
    }
    found
}

/// A jump to a function of `calls.c`.
const NAKED: &str = "#[unsafe(naked)]";

/// Returns a Rust type in C.
fn c_type(rust: &str) -> String {
    let rust = rust.trim();
    if let Some(target) = rust.strip_prefix("*mut ") {
        return format!("{} *", c_type(target));
    }
    if let Some(target) = rust.strip_prefix("*const *const ") {
        return format!("const {} *const *", c_type(target));
    }
    if let Some(target) = rust.strip_prefix("*const ") {
        return format!("const {} *", c_type(target));
    }
    let name = match rust {
        "c_int" => "int",
        "c_char" => "char",
        "c_void" => "void",
        "f64" => "double",
        "i64" => "int64_t",
        "usize" => "size_t",
        "CFunctionHandle" => "grpc_function_handle_t",
        "CSessionInfo" => "grpc_session_details_np",
        "CHandleAttr" => "grpc_handle_attr_t_np",
        "CHandleAttrName" => "grpc_handle_attr_name_t_np",
        "CSessionAttr" => "grpc_session_attr_t_np",
        "CSessionAttrName" => "grpc_session_attr_name_t_np",
        "CNinfgInfo" => "grpc_session_info_t_np",
        "SignalHandler" => "void (*)(int)",
        "CObjectHandle" => "grpc_object_handle_t_np",
        "CRemote" => "struct grpc_remote_np",
        "CData" => "grpc_data_t",
        "CDataType" => "grpc_data_type_t",
        "CDataMode" => "grpc_data_mode_t",
        "CCompletionMode" => "grpc_completion_mode_t",
        "CDataInfo" => "grpc_data_info_type_t",
        "ArgStack" => "grpc_arg_stack_t",
        "u64" => "uint64_t",
        "CHeuristic" => "grpc_heuristic_np",
        "CProblem" => "grpc_problem_np",
        "CMapped" => "grpc_mapped_np",
        "OpenCall" => "gridloom_open_call",
        "Slot" => "gridloom_slot",
        "CMessage" => "gridloom_message",
        "CMeasure" => "gridloom_measure",
        "CDeclaration" => "gridloom_declaration",
        "Dictionary" => "gridloom_dictionary",
        "ProcessFunction" => "gridloom_process_function",
        "Callback" => "gridloom_callback",
        "TimerCallback" => "gridloom_timer_callback",
        other => panic!("the Rust type '{other}' has no counterpart in this test"),
    };
    name.to_string()
}

/// Returns the functions that the header declares and does not define.
fn declared(header: &str) -> BTreeSet<String> {
    let mut code = String::new();
    for (number, part) in header.split("/*").enumerate() {
        code += if number == 0 { part } else { part.split_once("*/").unwrap().1 };
    }
    // A macro is one line.
    let code = code.replace("\\\n", "");
    // Skips macros and the inside of blocks; lines with more indentation continue a declaration.
    let is_inside = |line: &str| line.starts_with(' ') && !line.starts_with("         ");
    let lines: Vec<&str> = code.lines().filter(|line| !line.starts_with('#') && !is_inside(line)).collect();
    let mut names = BTreeSet::new();
    let is_own = |statement: &&str| {
        !["static inline", "static __inline__", " static void", "template"].iter().any(|w| statement.contains(w))
    };
    for statement in lines.join("\n").split(';').map(str::trim).filter(is_own) {
        let Some((before, _)) = statement.split_once('(') else { continue };
        let name = before.split([' ', '*']).next_back().unwrap();
        if !statement.starts_with("typedef") && !name.is_empty() {
            names.insert(name.to_string());
        }
    }
    names
}

/// Returns the headers of programs that call functions, by name. `grpc_executable.h` is for the functions.
fn grpc_headers() -> BTreeMap<String, String> {
    let folders = ["include", "../gridloom-idl/include"];
    let files =
        folders.iter().flat_map(|folder| std::fs::read_dir(own(folder)).unwrap()).map(|file| file.unwrap().path());
    files
        .filter(|file| file.extension().is_some_and(|extension| extension == "h"))
        .map(|file| (file.file_name().unwrap().to_str().unwrap().to_string(), std::fs::read_to_string(file).unwrap()))
        .filter(|(name, _)| name != "gridloom.h" && name != "grpc_executable.h")
        .collect()
}

/// Returns the C compiler's errors for a text; `None` if there are none.
fn complaints(text: &str) -> Option<String> {
    let mut compiler = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-x", "c", "-"])
        .arg("-I")
        .arg(own("include"))
        .arg("-I")
        .arg(own("../gridloom-grpc/src"))
        .arg("-I")
        .arg(own("../gridloom-ninfg/src"))
        .arg("-I")
        .arg(own("../gridloom-omnirpc/src"))
        .arg("-I")
        .arg(own("../gridloom-layout/include"))
        .arg("-I")
        .arg(own("../gridloom-idl/include"))
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    compiler.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    Some(String::from_utf8(compiler.wait_with_output().unwrap().stderr).unwrap())
}

#[test]
fn the_header_declares_what_the_library_has() {
    let header = std::fs::read_to_string(own("include/gridloom.h")).unwrap();
    let exported = exported("src");
    assert_eq!(declared(&header), exported.keys().cloned().collect());
    assert!(exported.len() > 30);

    let mut text = String::from("#include <gridloom.h>\n");
    text.extend(exported.values().map(|declaration| format!("{declaration}\n")));
    let static_size = |name: &str, size: usize| format!("_Static_assert(sizeof({name}) == {size}, \"{name}\");\n");
    text += &static_size("gridloom_message", size_of::<CMessage>());
    text += &static_size("gridloom_measure", size_of::<CMeasure>());
    text += &static_size("gridloom_declaration", size_of::<CDeclaration>());
    let offset = |name: &str, field: &str, offset: usize| {
        format!("_Static_assert(offsetof({name}, {field}) == {offset}, \"{field}\");\n")
    };
    text += &offset("gridloom_message", "from", std::mem::offset_of!(CMessage, from));
    text += &offset("gridloom_message", "data", std::mem::offset_of!(CMessage, data));
    text += &offset("gridloom_message", "size", std::mem::offset_of!(CMessage, size));
    text += &offset("gridloom_measure", "runs", std::mem::offset_of!(CMeasure, runs));
    text += &offset("gridloom_declaration", "line", std::mem::offset_of!(CDeclaration, line));
    text += &offset("gridloom_declaration", "align", std::mem::offset_of!(CDeclaration, align));
    text += &offset("gridloom_declaration", "value", std::mem::offset_of!(CDeclaration, value));
    let codes = std::fs::read_to_string(own("src/code.rs")).unwrap();
    let codes: Vec<(&str, &str)> = codes
        .lines()
        .filter_map(|line| line.strip_prefix("pub const ")?.strip_suffix(';')?.split_once(": c_int = "))
        .collect();
    let (_, listed) = header.split_once("typedef enum gridloom_code {").unwrap();
    assert_eq!(codes.len(), listed.split('}').next().unwrap().matches("GRIDLOOM_").count());
    for (name, value) in codes {
        text += &format!("_Static_assert({name} == {value}, \"{name}\");\n");
    }

    let Some(found) = complaints(&text) else {
        eprintln!("skipped in part: there is no C compiler 'cc' here");
        return;
    };
    assert_eq!(found, "");
    // The check can fail: because of a type, a size, or a code.
    for wrong in [
        "int gridloom_sleep(float);",
        "void *gridloom_handle(double);",
        "_Static_assert(sizeof(gridloom_message) == 8, \"\");",
        "_Static_assert(GRIDLOOM_ENDED == -7, \"\");",
    ] {
        assert_ne!(complaints(&format!("{text}{wrong}\n")).unwrap(), "", "{wrong}");
    }
}

#[test]
fn the_grpc_headers_declare_what_the_library_has() {
    let headers = grpc_headers();
    let folders = ["../gridloom-grpc/src/api", "../gridloom-ninfg/src", "../gridloom-omnirpc/src"];
    let exported: BTreeMap<String, String> = folders.into_iter().flat_map(exported).collect();
    let (internal, public): (Vec<_>, Vec<_>) = exported.iter().partition(|(name, _)| name.starts_with("gridloom_"));
    let mut known: BTreeSet<String> = public.iter().map(|(name, _)| (*name).clone()).collect();
    known.extend(
        [
            "grpc_map_next_np",
            "grpc_call",
            "grpc_call_async",
            "mynetsl",
            "mynetslnb",
            "netsl",
            "netslnb",
            "OmniRpcModuleInit",
            "OmniRpcCall",
            "OmniRpcCallAsync",
            "grpc_invoke_np",
            "grpc_invoke_async_np",
            "grpc_call_with_attr_np",
            "grpc_call_async_with_attr_np",
            "grpc_invoke_with_attr_np",
            "grpc_invoke_async_with_attr_np",
        ]
        .map(String::from),
    );
    assert_eq!(headers.values().flat_map(|header| declared(header)).collect::<BTreeSet<String>>(), known);
    assert!(known.len() > 50 && internal.len() == 11);

    let mut text = String::from(
        "#include <grpc.h>\n#include <omst.h>\n#include <OmniRpc.h>\n#include <ninfg_calls.h>\n#include <omnirpc_calls.h>\n",
    );
    text.extend(exported.values().map(|declaration| format!("{declaration}\n")));
    for (name, size, align) in [
        ("grpc_function_handle_t", size_of::<CFunctionHandle>(), align_of::<CFunctionHandle>()),
        ("grpc_object_handle_t_np", size_of::<CObjectHandle>(), align_of::<CObjectHandle>()),
        ("grpc_session_details_np", size_of::<CSessionInfo>(), align_of::<CSessionInfo>()),
        ("grpc_session_info_t_np", size_of::<CNinfgInfo>(), align_of::<CNinfgInfo>()),
        ("grpc_handle_attr_t_np", size_of::<CHandleAttr>(), align_of::<CHandleAttr>()),
        ("grpc_session_attr_t_np", size_of::<CSessionAttr>(), align_of::<CSessionAttr>()),
        ("grpc_problem_np", size_of::<CProblem>(), align_of::<CProblem>()),
        ("grpc_problem_call_np", size_of::<CProblemCall>(), align_of::<CProblemCall>()),
        ("grpc_problem_server_np", size_of::<CProblemServer>(), align_of::<CProblemServer>()),
        ("grpc_problem_datum_np", size_of::<CProblemDatum>(), align_of::<CProblemDatum>()),
        ("grpc_data_t", size_of::<CData>(), align_of::<CData>()),
        ("gridloom_open_call", size_of::<OpenCall>(), align_of::<OpenCall>()),
        ("gridloom_slot", size_of::<Slot>(), align_of::<Slot>()),
    ] {
        text += &format!("_Static_assert(sizeof({name}) == {size} && _Alignof({name}) == {align}, \"{name}\");\n");
    }
    let codes = std::fs::read_to_string(own("../gridloom-grpc/src/code.rs")).unwrap();
    let codes: Vec<(&str, &str)> =
        codes.lines().filter_map(|line| line.strip_prefix("    GRPC_")?.strip_suffix(';')?.split_once(" = ")).collect();
    let defined =
        headers["grpc.h"].lines().filter_map(|line| line.strip_prefix("#define GRPC_")?.split_whitespace().nth(1));
    assert_eq!(codes.len(), defined.filter(|value| value.parse::<u32>().is_ok()).count());
    for (name, value) in codes {
        text += &format!("_Static_assert(GRPC_{name} == {value}, \"{name}\");\n");
    }

    let Some(found) = complaints(&text) else {
        eprintln!("skipped in part: there is no C compiler 'cc' here");
        return;
    };
    assert_eq!(found, "");
    assert_ne!(complaints(&format!("{text}int grpc_wait(float);\n")).unwrap(), "");
}
