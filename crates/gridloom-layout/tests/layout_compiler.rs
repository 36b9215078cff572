//! Compares computed layouts with those of this machine's C compiler, also for i386 if it can compile for it (no library
//! is needed), and with those of cross compilers that are installed: each size, alignment and offset becomes an assertion in C.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;

use gridloom_layout::types::{Declaration, Type};
use gridloom_layout::{Abi, MemoryLayout, parse};

/// The annotations' definitions for a C compiler.
const HEADER: &str = include_str!("../include/gridloom_layout.h");

const DECLARATIONS: &str = "
    enum Kind { SMALL, LARGE = 7 };
    struct Mixed { char c; double d; short s; long l; bool b; long long q; float f; int8_t i; size_t z; uint16_t w[3]; };
    struct GRIDLOOM_PACKED Tight { char c; double d; struct Mixed m; short s; };
    struct Pair { struct Mixed one; char end; };
    union Body { double d GRIDLOOM_CASE(SMALL); char text[13] GRIDLOOM_CASE(LARGE); struct Pair pair GRIDLOOM_CASE(3); };
    struct Welcome { int id, row_count; double time_sent; struct Row *rows GRIDLOOM_LENGTH(row_count); int leaves[16]; };
    struct Row { int which_row; int row[16][3]; };
    struct All {
        uint8_t first; enum Kind kind; union Body body GRIDLOOM_TAG(kind); struct Tight tight; char last;
        GRIDLOOM_ARRAY(long) marks; char end; struct Welcome welcome; struct All *next; int (*grid)[3]; char *names[2];
    };
";

fn assertions(machine: Abi) -> String {
    let schema = Arc::new(parse(DECLARATIONS, "declarations").unwrap().schema("All").unwrap());
    let form = MemoryLayout::new(schema.clone(), machine).unwrap();
    let mut text = format!("{HEADER}{DECLARATIONS}");
    for (number, declaration) in schema.declarations().iter().enumerate() {
        let (name, shape) = (declaration.name(), form.shape(number));
        match declaration {
            Declaration::Struct(declared) if !declared.dynamic => {
                for (field, offset) in declared.fields.iter().zip(&shape.offsets) {
                    let field = &field.name;
                    text += &format!(
                        "_Static_assert(__builtin_offsetof(struct {name}, {field}) == {offset}, \"{name}.{field}\");\n"
                    );
                }
                text += &format!("_Static_assert(sizeof(struct {name}) == {}, \"{name}\");\n", shape.size);
                text += &format!("_Static_assert(_Alignof(struct {name}) == {}, \"align {name}\");\n", shape.align);
            }
            Declaration::Union(_) => {
                text += &format!("_Static_assert(sizeof(union {name}) == {}, \"{name}\");\n", shape.size);
            }
            Declaration::Struct(_) | Declaration::Enum(_) => {}
        }
    }
    assert_eq!(form.size_of(&Type::Bool), 1);
    text
}

/// Returns whether the compiler accepts the text; `None` if it cannot compile for that machine.
fn compiles(compiler: &str, flags: &[&str], text: &str) -> Option<Result<(), String>> {
    let run = |text: &str| {
        let mut compiler = Command::new(compiler)
            .args(flags)
            .args(["-std=c11", "-ffreestanding", "-S", "-o", "/dev/null", "-x", "c", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .ok()?;
        compiler.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        compiler.wait_with_output().ok()
    };
    if !run("int main(void) { return 0; }")?.status.success() {
        return None;
    }
    let output = run(text)?;
    Some(if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) })
}

#[test]
fn layouts_are_those_of_the_compiler() {
    if let Some(result) = compiles("cc", &[], &assertions(Abi::NATIVE)) {
        result.unwrap();
    }
    if cfg!(target_arch = "x86_64") {
        if let Some(result) = compiles("cc", &["-m32"], &assertions(Abi::from_name("i386").unwrap())) {
            result.unwrap();
        }
        let wrong = assertions(Abi::from_name("ppc").unwrap());
        assert!(compiles("cc", &[], &wrong).is_none_or(|result| result.is_err()));
    }
    for (machine, compiler) in [
        ("s390x", "s390x-linux-gnu-gcc"),
        ("ppc", "powerpc-linux-gnu-gcc"),
        ("arm", "arm-linux-gnueabihf-gcc"),
        ("i386", "i686-linux-gnu-gcc"),
    ] {
        if let Some(result) = compiles(compiler, &[], &assertions(Abi::from_name(machine).unwrap())) {
            result.unwrap();
        }
    }
}
