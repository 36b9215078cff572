//! Descriptions with inline bodies, and in GridSolve's style: compiled, linked and served as users do it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Grid, Running, folder, gridloom, serve_command, skipped, status_and_stderr, succeeds};
use serde_json::json;

/// Returns a folder of one test with these files, and a folder for compiled files in it.
fn files(name: &str, contents: &[(&str, &str)]) -> PathBuf {
    let folder = folder(&format!("compiled-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    contents.iter().for_each(|(name, content)| std::fs::write(folder.join(name), content).unwrap());
    folder
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Returns the command of a server of that file, which compiles in its folder.
fn serve_command_of(grid: &Grid, file: &Path, arguments: &[&str]) -> Command {
    let mut command = serve_command(&grid.address, "one", &[text(file)], arguments);
    command.env("GRIDLOOM_CACHE", file.parent().unwrap().join("cache"));
    command
}

fn libraries_in(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder.join("cache/idl")).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|entry| std::fs::read_dir(entry).unwrap());
    files.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|name| name == "so")).count()
}

const BODIES: &str = r#"Module bodies;
#define LARGEST 10
CompileOptions "-DTHREE=3 -Wall -Werror";
Globals {
#include <math.h>
#include "own.h"
int optind = 0; /* and not that of the C library, which begins with 1 */
static double times(double x) { return FACTOR * x + optind; }
}
Define scale(IN int n, IN double x[n], OUT double y[n]) CalcOrder n
{
    for (int i = 0; i < n; i++) {
        if (i == LARGEST) goto ng_stub_end;
        y[i] = times(x[i]);
    }
}
Define kinds(IN char c, IN long l, IN float f, IN string s, INOUT short *state, OUT unsigned char *first,
             OUT double *root, WORK double w[2][LARGEST])
{
    w[2 * LARGEST - 1] = sqrt(f * THREE);
    *root = w[2 * LARGEST - 1] + l;
    *state += 1;
    *first = s[0] == c ? s[1] : 0;
}
"#;

#[test]
fn inline_bodies_are_compiled_and_served() {
    let folder = files("bodies", &[("bodies.idl", BODIES), ("own.h", "#define FACTOR 2\n")]);
    let file = folder.join("bodies.idl");
    let grid = Grid::start();
    let served = || Running::start(serve_command_of(&grid, &file, &[]));
    let server = served();
    assert!(server.line.ends_with(" offers 2 functions"), "{}", server.line);
    let scaled = |array: &str| grid.json(&["call", "bodies/scale", array])["results"]["y"].clone();
    assert_eq!(scaled("[1, 2, 3]"), json!([2.0, 4.0, 6.0]));
    assert_eq!(scaled("[1,1,1,1,1,1,1,1,1,1,1]").as_array().unwrap()[9..], [json!(2.0), json!(0.0)]);
    let kinds = grid.json(&["call", "bodies/kinds", "97", "5", "12", "abc", "-2"]);
    assert_eq!(kinds["results"], json!({ "state": -1, "first": 98, "root": 11.0 }));
    assert!(server.close_input().success());
    assert!(served().close_input().success());
    assert_eq!(libraries_in(&folder), 1, "it was compiled once");
    std::fs::write(folder.join("own.h"), "#define FACTOR 10 /* now */\n").unwrap();
    let _server = served();
    assert_eq!(scaled("[1]"), json!([10.0]), "and again when its header has changed");
}

/// A library with functions, and with error handlers that end the process like those of reference BLAS.
const INVALID: &str = r#"#include <stdlib.h>
void xerbla_(const char *routine, const int *number, int length) { exit(255); }
void cblas_xerbla(int number, const char *routine, const char *form, ...) { exit(255); }
void invalid_fortran(int number, int *end) { xerbla_("DGESV ", &number, 6); *end = 1; }
void invalid_c(int number, int *end) { cblas_xerbla(number, "cblas_dgemm", ""); *end = 1; }
void valid(int number, int *end) { *end = number; }
"#;
const INVALID_IDL: &str = r#"Module invalid;
Define fortran(IN int number, OUT int *end) Calls "C" invalid_fortran(number, end);
Define c(IN int number, OUT int *end) Calls "C" invalid_c(number, end);
Define valid(IN int number, OUT int *end) Calls "C" valid(number, end);
"#;

#[test]
fn an_invalid_argument_of_blas_fails_only_its_call() {
    let folder = files("invalid", &[("invalid.c", INVALID), ("invalid.idl", INVALID_IDL)]);
    let made =
        Command::new("cc").args(["-shared", "-fPIC", "-o", "libinvalid.so", "invalid.c"]).current_dir(&folder).status();
    assert!(made.unwrap().success());
    let library = folder.join("libinvalid.so");
    let grid = Grid::start();
    let _server = Running::start(serve_command_of(&grid, &folder.join("invalid.idl"), &["--library", text(&library)]));
    for (function, routine) in [("invalid/fortran", "DGESV"), ("invalid/c", "cblas_dgemm")] {
        let (_, error) = status_and_stderr(grid.command(&["call", function, "4"]));
        assert!(error.contains(&format!("{routine} of BLAS or LAPACK")), "{error}");
        assert!(error.contains("parameter number 4"), "{error}");
        assert_eq!(grid.json(&["call", "invalid/valid", "3"])["results"]["end"], json!(3));
    }
}

const RANKS: &str = r#"Module ranks;
Globals {
static int twice(int n, double *x) {
    for (int i = 0; x != NULL && i < n; i++) x[i] *= 2;
    return ng_stub_rank == 0 ? n : -1;
}
}
Define total(IN int n, IN broadcast double x[n], OUT double *sum, OUT int *ranks, IN string word, INOUT int *count,
             OUT int allocated[4], OUT allocate int at[n], WORK double w[n][2]) Backend "MPI"
{
    double own = 0, all = 0;
    int size, i;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (i = ng_stub_rank; i < n; i += size) {
        own += x[i];
        at[i] = w[2 * n - 1] == 0 ? ng_stub_rank : -1;
    }
    if (ng_stub_rank != 0 && allocated != NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    if (word[1] != 'b' || *count != 6) MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Reduce(&own, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (ng_stub_rank != 0) goto ng_stub_mpi_end;
    *sum = all;
    *ranks = size;
    *count += 1;
    for (i = 0; i < 4; i++) allocated[i] = i;
}
Define doubled(IN int n, INOUT double x[n], OUT int *r) Backend "MPI" Calls "C" r = twice(n, x);
Define fails(IN int n) Backend "MPI" { if (ng_stub_rank == n) exit(3); }
"#;

/// Returns the command of a server of that file with three ranks for each call.
fn serve_command_on_ranks(grid: &Grid, file: &Path, arguments: &[&str]) -> Command {
    let mut command = serve_command_of(grid, file, arguments);
    command.env("GRIDLOOM_MPI_RANKS", "3").env("TMPDIR", file.parent().unwrap());
    // Open MPI requires these to run as root.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
    command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    command
}

#[test]
fn bodies_run_on_several_ranks_of_mpi() {
    if ["mpirun", "mpicc"].iter().any(|program| Command::new(program).arg("--version").output().is_err()) {
        return skipped("mpirun or mpicc is not there");
    }
    let folder = files("ranks", &[("ranks.idl", RANKS)]);
    let grid = Grid::start();
    let server = Running::start(serve_command_on_ranks(&grid, &folder.join("ranks.idl"), &[]));
    assert!(server.line.ends_with(" offers 3 functions"), "{}", server.line);
    let total = grid.json(&["call", "ranks/total", "[1, 2, 3, 4.5]", "abc", "6"])["results"].clone();
    let expected = json!({ "sum": 10.5, "ranks": 3, "count": 7, "allocated": [0, 1, 2, 3], "at": [0, 0, 0, 0] });
    assert_eq!(total, expected);
    let doubled = grid.json(&["call", "ranks/doubled", "[1, 2]"])["results"].clone();
    assert_eq!(doubled, json!({ "x": [2.0, 4.0], "r": 2 }));
    let (code, error) = status_and_stderr(grid.command(&["call", "ranks/fails", "1"]));
    assert!(code != 0 && error.contains("crashed its worker"), "{error}");
    let left = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(left.filter(|name| name.starts_with("gridloom-ranks-")).count(), 0, "call files are removed");
}

const TEXTS_ON_RANKS: &str = r#"Module texts;
Define texts(IN broadcast int n, IN broadcast string all[n], OUT allocate string found[n], IN string first[n], IN string word,
             OUT string *copy, INOUT string changed, INOUT string pair[2], IN broadcast filename paths[2], OUT int sizes[2])
Backend "MPI"
{
    char text[16] = "";
    int i;
    MPI_Status status;
    *copy = word;
    if (strcmp(*changed, "old") != 0 || all[n - 1] != NULL || found[0] != NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    if (ng_stub_rank != 0) {
        if (first != NULL || pair != NULL || access(paths[1], R_OK) != 0) MPI_Abort(MPI_COMM_WORLD, 2);
        snprintf(text, sizeof text, "%s%d", all[ng_stub_rank], ng_stub_rank);
        MPI_Send(text, sizeof text, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
        goto ng_stub_end;
    }
    found[0] = first[0];
    for (i = 1; i < 3; i++) {
        MPI_Recv(text, sizeof text, MPI_CHAR, i, 0, MPI_COMM_WORLD, &status);
        found[i] = strdup(text);
    }
    free(*changed);
    *changed = NULL;
    pair[0][0] = 'P';
    free(pair[1]);
    pair[1] = NULL;
    for (i = 0; i < 2; i++) {
        FILE *file = fopen(paths[i], "r");
        fseek(file, 0, SEEK_END);
        sizes[i] = ftell(file);
        fclose(file);
    }
}
"#;

#[test]
fn strings_and_paths_are_passed_to_several_ranks() {
    if ["mpirun", "mpicc"].iter().any(|program| Command::new(program).arg("--version").output().is_err()) {
        return skipped("mpirun or mpicc is not there");
    }
    let folder = files("texts-on-ranks", &[("texts.idl", TEXTS_ON_RANKS)]);
    let grid = Grid::start();
    let _server = Running::start(serve_command_on_ranks(&grid, &folder.join("texts.idl"), &[]));
    let (all, first) = (r#"["a", "b", "c", null]"#, r#"["x", null, "", "z"]"#);
    let call = ["call", "texts/texts", "4", all, first, "word", "old", r#"["pair", "gone"]"#, r#"["abc", "four"]"#];
    let expected = json!({
        "found": ["x", "b1", "c2", null], "copy": "word", "changed": [], "pair": ["Pair", null], "sizes": [3, 4],
    });
    assert_eq!(grid.json(&call)["results"], expected);
}

const FORTRAN_ON_RANKS: &str = r#"Module fortran;
Linker "mpifort";
FortranFormat "%s_";
Globals { extern void solve_(int *n, char *word, int length); }
Define solve(IN broadcast int n, IN broadcast double a[n][n], OUT allocate double first[n], IN string word, INOUT string text,
             OUT string line, OUT int *ranks, OUT int *value)
Required "solve.o" Backend "MPI" Language "FORTRAN"
Calls value = solve(n, a, first, word, text, line, "upper", 2*n, 'N', ranks);
"#;
const SOLVE: &str = "integer function solve(n, a, first, word, text, line, mode, twice, kind, ranks)
    use mpi
    implicit none
    integer :: n, twice, ranks, rank, error
    double precision :: a(n, n), first(n)
    character(*) :: word, text, line, mode
    character :: kind
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
    call MPI_Allreduce(a(:, 1), first, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
    line = word // '+' // mode // kind
    text = trim(text) // '!'
    solve = twice + rank
end function
";

#[test]
fn fortran_runs_on_several_ranks_of_mpi() {
    let works = |program: &str, option: &str| {
        Command::new(program).arg(option).output().is_ok_and(|output| output.status.success())
    };
    if !works("mpirun", "--version") || !works("mpicc", "--version") || !works("mpifort", "--version") {
        return skipped("mpirun, mpicc or mpifort is not there");
    }
    let folder = files("fortran-on-ranks", &[("fortran.idl", FORTRAN_ON_RANKS), ("solve.f90", SOLVE)]);
    let made = |file: &str| {
        Command::new("mpifort").args(["-c", "-fPIC", file]).current_dir(&folder).status().unwrap().success()
    };
    std::fs::write(folder.join("module.f90"), "subroutine s\n  use mpi\nend subroutine\n").unwrap();
    if !made("module.f90") {
        return skipped("mpifort does not have the module mpi");
    }
    assert!(made("solve.f90"));
    let grid = Grid::start();
    let _server = Running::start(serve_command_on_ranks(&grid, &folder.join("fortran.idl"), &[]));
    let solved = grid.json(&["call", "fortran/solve", "[[1, 2], [3, 4]]", "word", "text"])["results"].clone();
    let expected = json!({
        "first": [3.0, 9.0], "text": "text!", "line": "word+upperN", "ranks": 3, "value": 4,
    });
    assert_eq!(solved, expected);
}

#[test]
fn bodies_of_ninf_g_4_have_its_variable_and_may_call_fortran() {
    let idl = "Module m;\nGlobals {\n#include <error.h>\n}\n\
               Define canceled(OUT int *r) { error = 5; *r = grpc_is_canceled_np(&error); *r += 10 * error; }\n\
               Define own(OUT int *r) { int error = 3; if (error > 3) exit(1); *r = error; }\n\
               Define function(OUT int *r) { if (*r < 0) error(1, 0, \"negative\"); *r = 4; }\n\
               Define fortran(IN int n, OUT int *r) Language \"Fortran\" { *r = n; }\n";
    let folder = files("ninfg4", &[("m.idl", idl)]);
    let grid = Grid::start();
    let _server = Running::start(serve_command_of(&grid, &folder.join("m.idl"), &[]));
    for (call, result) in [(&["m/canceled"][..], 0), (&["m/own"], 3), (&["m/function"], 4), (&["m/fortran", "7"], 7)] {
        assert_eq!(succeeds(grid.command(&[&["call"], call].concat())), format!("r = {result}\n"), "{call:?}");
    }
}

#[test]
fn names_of_included_headers_take_precedence_over_the_variable_of_ninf_g_4() {
    let idl = "Module m;\nCompileOptions \"-Wall -Werror\";\nGlobals {\n#include \"e.h\"\n}\n\
               Define f(OUT int *r) { *r = error; }\n\
               Define text(OUT int *r) { const char *error = \"a\"; *r = error[0]; }\n";
    let grid = Grid::start();
    for (at, (header, result)) in [
        ("enum { error = 9 };\n", 9),
        ("static int error = 8;\n", 8),
        ("#define error 7\n", 7),
        // Bodies do not see that of a function.
        ("static inline int g(void) { int error = 6; return error; }\n", 0),
    ]
    .into_iter()
    .enumerate()
    {
        let folder = files(&format!("own-error-{at}"), &[("m.idl", idl), ("e.h", header)]);
        let file = folder.join("m.idl");
        if header.starts_with("#define") {
            std::fs::write(&file, idl.split_inclusive('\n').take(6).collect::<String>()).unwrap();
        }
        let server = Running::start(serve_command_of(&grid, &file, &[]));
        assert_eq!(succeeds(grid.command(&["call", "m/f"])), format!("r = {result}\n"), "{header}");
        assert!(server.close_input().success());
    }
}

#[test]
fn a_file_may_have_complex_types_of_its_own() {
    let idl = "Module m;\nGlobals {\n#include \"own.h\"\ntypedef struct { float re, im; } scomplex;\n}\n\
               Define f(IN int n, INOUT dcomplex z[n], IN scomplex s, OUT double *r)\n\
               { for (int i = 0; i < n; i++) z[i].imaginary += s.im; *r = z[0].real + s.re; }\n";
    let own = "typedef struct { double real, imaginary; } dcomplex;\n";
    let folder = files("complex", &[("m.idl", idl), ("own.h", own)]);
    let file = folder.join("m.idl");
    let grid = Grid::start();
    let _server = Running::start(serve_command_of(&grid, &file, &[]));
    let called = grid.json(&["call", "m/f", "[[1, 2], [3, 0]]", "[4, 5]"])["results"].clone();
    assert_eq!(called, json!({ "z": [[1.0, 7.0], [3.0, 5.0]], "r": 5.0 }));
    std::fs::write(folder.join("own.h"), own.replace("double", "float")).unwrap();
    let (_, error) = status_and_stderr(gridloom(&["idl", "compile", text(&file), "-o", text(&folder.join("x.so"))]));
    assert!(error.contains("gridloom_dcomplex_is_two_doubles"), "{error}");
    std::fs::write(&file, idl.replace("s.re;", "s.real;")).unwrap();
    std::fs::write(folder.join("own.h"), own).unwrap();
    let (_, error) = status_and_stderr(gridloom(&["idl", "compile", text(&file), "-o", text(&folder.join("x.so"))]));
    assert!(error.contains("m.idl:7:") && !error.contains("conflicting"), "{error}");
}

#[test]
fn bodies_call_functions_of_the_libraries_of_the_server() {
    let idl = "Module m;\nDefine f(IN int n, OUT int *r) Required \"part.o\" { int part_of(int); *r = part_of(n); }\n\
               DefClass c { DefMethod g(IN int n, OUT int *r) { int part_of(int); *r = part_of(n) + 1; } }\n";
    let folder = files("named", &[("m.idl", idl), ("part.c", "int part_of(int n) { return n + 40; }\n")]);
    let options = ["-shared", "-fPIC", "part.c", "-o", "libpart.so", "-Wl,-soname,libpart.so"];
    assert!(Command::new("cc").args(options).current_dir(&folder).status().unwrap().success());
    let (file, library) = (folder.join("m.idl"), folder.join("libpart.so"));
    let grid = Grid::start();
    let (_, error) = status_and_stderr(serve_command_of(&grid, &file, &[]));
    assert!(error.contains("part.o is required, but does not exist; compile it first"), "{error}");
    let server = Running::start(serve_command_of(&grid, &file, &["--library", text(&library)]));
    assert_eq!(succeeds(grid.command(&["call", "m/f", "2"])), "r = 42\n");
    assert!(server.close_input().success());
    let linked = libraries_in(&folder);
    std::fs::write(folder.join("part.c"), "int more; int part_of(int n) { return n + 40; }\n").unwrap();
    assert!(Command::new("cc").args(options).current_dir(&folder).status().unwrap().success());
    let server = Running::start(serve_command_of(&grid, &file, &["--library", text(&library)]));
    assert!(server.close_input().success());
    assert_eq!(libraries_in(&folder), 2 * linked, "a library that was built again is linked again");
    // Compiled for a server without a compiler.
    let compiled = folder.join("m.so");
    let made = gridloom(&["idl", "compile", text(&file), "-o", text(&compiled), "--library", text(&library)]);
    assert_eq!(succeeds(made).lines().count(), 2);
    let class = folder.join("m.c.so");
    let libraries = [&compiled, &class, &library].map(|library| ["--library", text(library)]).concat();
    let _server = Running::start(serve_command_of(&grid, &file, &[&["--no-compile"][..], &libraries].concat()));
    assert_eq!(succeeds(grid.command(&["call", "m/f", "3"])), "r = 43\n");
    // The missing object is reported if the libraries do not have its functions either.
    std::fs::write(folder.join("part.c"), "int other(int n) { return n; }\n").unwrap();
    assert!(Command::new("cc").args(options).current_dir(&folder).status().unwrap().success());
    let mut made = gridloom(&["idl", "compile", text(&file), "-o", text(&compiled), "--library", text(&library)]);
    made.env("LC_ALL", "C");
    let (_, error) = status_and_stderr(made);
    assert!(error.contains("part_of") && error.contains("part.o is required"), "{error}");
}

#[test]
fn mistakes_in_bodies_have_the_lines_of_the_file() {
    let folder =
        files("wrong", &[("wrong.idl", "Module m;\n\nDefine f(OUT int *r) {\n    *r = 1;\n    *r = nothing;\n}\n")]);
    let file = folder.join("wrong.idl");
    let (code, error) = status_and_stderr(serve_command_of(&Grid::start(), &file, &[]));
    assert_eq!(code, 1);
    assert!(error.contains(&format!("{}: its C does not compile", file.display())), "{error}");
    assert!(error.contains("wrong.idl:5:10: error: ") && error.contains("nothing"), "{error}");
    std::fs::write(&file, "Compiler \"no-such-compiler\"; Define f(OUT int *r) { *r = 1; }").unwrap();
    let (_, error) = status_and_stderr(gridloom(&["idl", "compile", text(&file), "-o", text(&folder.join("x.so"))]));
    assert!(error.contains("'no-such-compiler': No such file") && error.contains("--no-compile"), "{error}");
    std::fs::write(&file, "Define f(OUT int *r) Calls r = g();").unwrap();
    let (_, error) = status_and_stderr(gridloom(&["idl", "compile", text(&file)]));
    assert!(error.contains("nothing to compile"), "{error}");
    std::fs::write(&file, "Define f(OUT int *r) Required \"gone.o\" { *r = 1; }").unwrap();
    let (_, error) = status_and_stderr(gridloom(&["idl", "compile", text(&file)]));
    assert!(error.contains("gone.o is required, but does not exist; compile it first"), "{error}");
}

#[test]
fn a_library_is_compiled_for_machines_without_a_compiler() {
    let idl = "Module m;\nDefine f(IN int n, OUT int *r) Required \"part.o\" { int part(int); *r = part(n); }\n\
               Define g(IN int n, OUT int *r) Calls \"C\" r = part(n);\n";
    let folder = files("apart", &[("m.idl", idl), ("part.c", "int part(int n) { return n + 40; }\n")]);
    let part = Command::new("cc").args(["-c", "-fPIC", "part.c"]).current_dir(&folder).status().unwrap();
    assert!(part.success());
    let (file, library) = (folder.join("m.idl"), folder.join("lib.so"));
    let printed = succeeds(gridloom(&["idl", "compile", text(&file), "-o", text(&library), "--keep"]));
    assert_eq!(printed, format!("{}\n", library.display()));
    assert!(std::fs::read_to_string(folder.join("lib.c")).unwrap().contains("*r = part(n);"));
    let grid = Grid::start();
    let mut command = serve_command_of(&grid, &file, &["--no-compile", "--library", text(&library)]);
    command.env("PATH", "");
    let _server = Running::start(command);
    assert!(!folder.join("cache").exists(), "nothing was compiled");
    for function in ["m/f", "m/g"] {
        assert_eq!(succeeds(grid.command(&["call", function, "2"])), "r = 42\n");
    }
    // A library that was built for another signature cannot be used.
    std::fs::write(&file, idl.replace("IN int n", "IN long n")).unwrap();
    let (_, error) = status_and_stderr(serve_command_of(&grid, &file, &["--no-compile", "--library", text(&library)]));
    assert!(error.contains("function 'm/f' cannot be offered: symbol 'gridloom_f_"), "{error}");
}

#[test]
fn cpp_is_compiled_too() {
    let idl = "Module m;\nGlobals {\n#include <string>\n\
               namespace { int length(std::string text, int more) { return text.size() + more; } }\n}\n\
               Define f(IN string text, IN int more, OUT int *r) Calls \"C++\" r = length(text, more + 1);\n\
               Define g(OUT bool *r) Language \"C++\" { auto x = std::string(\"a\"); *r = x == \"a\"; }\n";
    let folder = files("cpp", &[("m.idl", idl)]);
    let grid = Grid::start();
    let _server = Running::start(serve_command_of(&grid, &folder.join("m.idl"), &[]));
    assert_eq!(succeeds(grid.command(&["call", "m/f", "abc", "4"])), "r = 8\n");
    assert_eq!(grid.json(&["call", "m/g"])["results"], json!({ "r": true }));
}

const ROUTINES: &str = r#"# GridSolve's way
SUBROUTINE rows(IN int m, IN int n, IN double A[lda][n], IN int lda, OUT double sums[m])
  "sums of the first m rows"
  LANGUAGE = "FORTRAN"  MAJOR = "COLUMN"  LIBS = "-L. -lown"
  COMPLEXITY = "(double)m * n"
FUNCTION double trace(IN int n, IN double A[n][n], OUT int last)   # the value is a result
  LANGUAGE = "C" MAJOR = "COLUMN" SYMBOL = "trace_of"
FUNCTION int first(IN int n, IN int A[n][n]) LIBS = "libarchived.a"
"#;
const OWN: &str = "void rows_(int *m, int *n, double *a, int *lda, double *sums) {
    for (int i = 0; i < *m; i++) { sums[i] = 0; for (int j = 0; j < *n; j++) sums[i] += a[i + j * *lda]; }
}
double trace_of(int n, double *a, int *last) {
    *last = (int) a[n * (n - 1)];
    double sum = 0;
    for (int i = 0; i < n; i++) sum += a[i + i * n];
    return sum;
}
";

#[test]
fn routines_get_arrays_in_their_order_from_their_libraries() {
    let archived = "int first(int n, int *a) { return a[n - 1]; }";
    let folder = files("routines", &[("r.idl", ROUTINES), ("own.c", OWN), ("archived.c", archived)]);
    for command in [
        &["cc", "-shared", "-fPIC", "own.c", "-o", "libown.so.7"][..],
        &["cc", "-c", "-fPIC", "archived.c"],
        &["ar", "rc", "libarchived.a", "archived.o"],
    ] {
        assert!(Command::new(command[0]).args(&command[1..]).current_dir(&folder).status().unwrap().success());
    }
    let grid = Grid::start();
    let _server = Running::start(serve_command_of(&grid, &folder.join("r.idl"), &[]));
    // Two of the three allocated rows, passed row by row.
    let sums = grid.json(&["call", "r/rows", "2", "2", "[[1, 2], [3, 4], [90, 90]]", "3"]);
    assert_eq!(sums["results"]["sums"], json!([3.0, 7.0]));
    let trace = grid.json(&["call", "r/trace", "[[1, 2], [3, 4]]"]);
    assert_eq!(trace["results"], json!({ "last": 2, "trace": 5.0 }));
    assert_eq!(succeeds(grid.command(&["call", "r/first", "[[1, 2], [3, 4]]"])), "first = 2\n");
    std::fs::write(folder.join("n.idl"), "SUBROUTINE f() LIBS = \"-lno_such_thing\"").unwrap();
    let (_, error) = status_and_stderr(serve_command_of(&grid, &folder.join("n.idl"), &[]));
    assert!(error.contains("n.idl: library '-lno_such_thing' is not found: there is no"), "{error}");
}

#[test]
fn functions_of_globals_are_called_and_checked_files_counted() {
    let idl = "Module m; Globals { int twice(int n) { return 2 * n; } } Define f(IN int n, OUT int *r) Calls r = twice(n);\n\
               Define g() { }";
    let folder = files("globals", &[("m.idl", idl)]);
    let file = folder.join("m.idl");
    let checked = succeeds(gridloom(&["idl", "check", text(&file)]));
    assert_eq!(checked, format!("{}: 2 functions, 1 of them compiled\n", file.display()));
    assert_eq!(succeeds(gridloom(&["idl", "show", text(&file)])), "m/f(n: int32) -> r: int32\nm/g() -> ()\n");
    let grid = Grid::start();
    let _server = Running::start(serve_command_of(&grid, &file, &[]));
    assert_eq!(succeeds(grid.command(&["call", "m/f", "21"])), "r = 42\n");
}

#[test]
fn classes_are_checked_shown_compiled_and_served() {
    let idl = "Module m;\nGlobals { static int step(void) { return 2; } }\nDefClass counter \"counts\" {\n  DefState { int total = 40; }\n  \
               DefMethod _initialize() { total += step(); }\n  DefMethod get(OUT int *r) { *r = total; }\n}\n\
               DefClass other { DefState { int total; } DefMethod set(IN int n) { total = n; } }\n";
    let folder = files("classes", &[("m.idl", idl)]);
    let file = folder.join("m.idl");
    assert_eq!(
        succeeds(gridloom(&["idl", "check", text(&file)])),
        format!("{}: 0 functions, 2 classes\n", file.display())
    );
    let shown = "class m/counter\n  m/counter.get() -> r: int32\nclass m/other\n  m/other.set(n: int32) -> ()\n";
    assert_eq!(succeeds(gridloom(&["idl", "show", text(&file)])), shown);
    let library = folder.join("m.so");
    let printed = succeeds(gridloom(&["idl", "compile", text(&file), "-o", text(&library), "--keep"]));
    let made = ["m.counter.so", "m.other.so"].map(|name| folder.join(name));
    assert_eq!(printed, format!("{}\n{}\n", made[0].display(), made[1].display()));
    assert!(made.iter().all(|library| library.exists()) && folder.join("m.counter.c").exists());
    let grid = Grid::start();
    let _server = Running::start(serve_command_of(&grid, &file, &[]));
    assert_eq!(
        succeeds(grid.command(&["functions"])).lines().filter(|line| line.starts_with('m')).collect::<Vec<_>>(),
        ["m/counter.get() -> r: int32", "m/other.set(n: int32) -> ()"]
    );
    let (_, error) = status_and_stderr(grid.command(&["call", "m/counter.get"]));
    assert!(error.contains("is a method: make an object of class 'm/counter'"), "{error}");
}
