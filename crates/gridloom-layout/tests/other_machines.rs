//! Messages between this machine and others that are really big-endian or have 32 bits: a C program for each of them runs under
//! QEMU's emulator of user programs. It writes its structs as they are in its memory, and shows the structs that the message of the
//! other side became. A test is skipped if the cross compiler or the emulator is missing (Debian: qemu-user,
//! gcc-s390x-linux-gnu, gcc-powerpc-linux-gnu, gcc-arm-linux-gnueabihf, and the libc6-dev packages for them).

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use gridloom_layout::{Abi, MemoryAt, MemoryLayout, Receiver, Schema, parse};

/// The annotations' definitions for a C compiler.
const HEADER: &str = include_str!("../include/gridloom_layout.h");

const DECLARATIONS: &str = "
    enum Kind { SMALL, LARGE = 7 };
    struct Row { int16_t which; bool last; double values[2]; };
    union Body { double small GRIDLOOM_CASE(SMALL); char large[5] GRIDLOOM_CASE(LARGE); };
    struct All {
        uint8_t first; enum Kind kind; union Body body GRIDLOOM_TAG(kind); long number; long long wide; float part; size_t count;
        struct Row *rows GRIDLOOM_LENGTH(count); char *name; struct All *next;
    };
";

/// `write` prints the address of its memory, that of its struct, and the memory. `where` prints the address of its memory, and
/// `show ADDRESS` reads the memory from its standard input and prints the struct at that address.
const PROGRAM: &str = r#"
static union { char bytes[4096]; double alignment; } memory;

static void build(void) {
    static const struct Row rows[] = {{-2, false, {0.5, -1}}, {300, true, {3.25, 1e300}}};
    struct All *all = (struct All *)memory.bytes;
    struct Row *placed = (struct Row *)(memory.bytes + 1024);
    char *name = memory.bytes + 2048;
    memcpy(placed, rows, sizeof rows);
    strcpy(name, "grid");
    all[0] = (struct All){200, LARGE, {.large = "abc\n"}, -70000, -5000000000LL, 1.5f, 2, placed, name, &all[1]};
    all[1] = (struct All){7, SMALL, {.small = -0.25}, 2147483647, 1LL << 40, -2.5f, 1, placed + 1, NULL, &all[0]};
}

static void show(const struct All *all) {
    printf("%d ", all->first);
    if (all->kind == LARGE) printf("%.3s", all->body.large);
    else printf("%g", all->body.small);
    printf(" %ld %lld %g %s:", all->number, all->wide, all->part, all->name == NULL ? "-" : all->name);
    for (size_t i = 0; i < all->count; i++) {
        const struct Row *row = &all->rows[i];
        printf(" (%d %d %g %g)", row->which, row->last, row->values[0], row->values[1]);
    }
    printf("\n");
}

int main(int argc, char **argv) {
    const struct All *all = (const struct All *)memory.bytes;
    if (argc == 2 && strcmp(argv[1], "where") == 0) {
        printf("%llu\n", (unsigned long long)(uintptr_t)memory.bytes);
    } else if (argc == 2 && strcmp(argv[1], "write") == 0) {
        build();
        printf("%llu %llu\n", (unsigned long long)(uintptr_t)memory.bytes, (unsigned long long)(uintptr_t)all);
        fwrite(memory.bytes, 1, sizeof memory, stdout);
    } else if (argc == 3 && strcmp(argv[1], "show") == 0) {
        if (fread(memory.bytes, 1, sizeof memory, stdin) == 0) return 1;
        all = (const struct All *)(uintptr_t)strtoull(argv[2], NULL, 10);
        show(all);
        show(all->next);
        printf("%d %d\n", all->next->next == all, all->next->rows == all->rows + 1);
    } else {
        return 2;
    }
    return 0;
}
"#;
const SHOWN: &str = "200 abc -70000 -5000000000 1.5 grid: (-2 0 0.5 -1) (300 1 3.25 1e+300)\n\
                     7 -0.25 2147483647 1099511627776 -2.5 -: (300 1 3.25 1e+300)\n1 1\n";

/// A machine's program.
struct Machine {
    abi: Abi,
    /// The program, after its emulator if it has one.
    command: Vec<PathBuf>,
}

impl Machine {
    /// Compiles the program; `None` if the compiler or the emulator is missing.
    fn new(abi: Abi, compiler: &str, emulator: Option<&str>) -> Option<Machine> {
        let exists = |program: &str| Command::new(program).arg("--version").output().is_ok();
        if !exists(compiler) || emulator.is_some_and(|emulator| !exists(emulator)) {
            return None;
        }
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let program = folder.join(format!("other-machines-{compiler}-{}", std::process::id()));
        let source = program.with_extension("c");
        let headers = ["stdbool.h", "stdint.h", "stdio.h", "stdlib.h", "string.h"];
        let headers: String = headers.iter().map(|header| format!("#include <{header}>\n")).collect();
        std::fs::write(&source, format!("{headers}{HEADER}{DECLARATIONS}{PROGRAM}")).unwrap();
        // The memory has the same address in each run. The emulator needs no libraries of the machine.
        let mut options = vec!["-std=c11", "-no-pie", "-fno-pie"];
        options.extend(emulator.map(|_| "-static"));
        let made = Command::new(compiler).args(options).arg("-o").arg(&program).arg(&source).output().unwrap();
        assert!(made.status.success(), "{compiler}: {}", String::from_utf8_lossy(&made.stderr));
        let command = emulator.map(PathBuf::from).into_iter().chain([program]).collect();
        Some(Machine { abi, command })
    }

    /// Runs the program and returns its output.
    fn run(&self, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{}: {arguments:?}: {}", self.abi, done.status);
        done.stdout
    }

    /// Returns the message of the program's struct.
    fn message(&self, schema: &Arc<Schema>) -> Vec<u8> {
        let output = self.run(&["write"], &[]);
        let end = output.iter().position(|byte| *byte == b'\n').unwrap();
        let line = std::str::from_utf8(&output[..end]).unwrap();
        let (base, root) = line.split_once(' ').unwrap();
        let memory = MemoryAt { base: base.parse().unwrap(), bytes: &output[end + 1..] };
        let layout = MemoryLayout::new(schema.clone(), self.abi).unwrap();
        layout.encode(&memory, root.parse().unwrap()).unwrap()
    }

    /// Returns the text that the program shows of a message.
    fn show(&self, schema: &Arc<Schema>, message: &[u8]) -> String {
        let mut receiver = Receiver::new(schema.clone(), self.abi).unwrap();
        let incoming = receiver.open(message).unwrap();
        assert_eq!(incoming.is_native(), *incoming.abi() == self.abi);
        let base = String::from_utf8(self.run(&["where"], &[])).unwrap().trim_end().parse().unwrap();
        let mut memory = vec![0; incoming.size_bytes()];
        let root = incoming.place(&mut memory, base).unwrap();
        String::from_utf8(self.run(&["show", &root.to_string()], &memory)).unwrap()
    }
}

/// Reports that this test is skipped, also in the file that `GRIDLOOM_SKIPPED` names.
fn skipped(why: &str) {
    let line = format!("{}: {why}\n", std::thread::current().name().unwrap_or("a test"));
    eprint!("skipped: {line}");
    if let Some(file) = std::env::var_os("GRIDLOOM_SKIPPED") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
}

/// Sends messages from this machine to the one of that name, and back.
fn exchange(name: &str, compiler: &str, emulator: &str) {
    let abi = Abi::from_name(name).unwrap();
    let machines = (Machine::new(Abi::NATIVE, "cc", None), Machine::new(abi, compiler, Some(emulator)));
    let (Some(here), Some(there)) = machines else {
        return skipped(&format!("{compiler}, {emulator} or cc is not there"));
    };
    let schema = Arc::new(parse(DECLARATIONS, "declarations").unwrap().schema("All").unwrap());
    for (from, to) in [(&there, &here), (&here, &there), (&there, &there)] {
        assert_eq!(to.show(&schema, &from.message(&schema)), SHOWN, "from {} to {}", from.abi, to.abi);
    }
}

#[test]
fn big_endian_machines_of_64_bits() {
    exchange("s390x", "s390x-linux-gnu-gcc", "qemu-s390x");
}

#[test]
fn big_endian_machines_of_32_bits() {
    exchange("ppc", "powerpc-linux-gnu-gcc", "qemu-ppc");
}

#[test]
fn little_endian_machines_of_32_bits() {
    exchange("arm", "arm-linux-gnueabihf-gcc", "qemu-arm");
}
