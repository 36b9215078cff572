//! Measures the memory of a worker and the processes that it has started, for its limit (`watch`).
//!
//! **Counted:** private memory, in RAM or swapped out, and mapped shared memory in RAM: anonymous mappings, System V segments,
//! and files in `/dev/shm` or of `memfd_create`. Memory that several processes share is divided among them, so it counts
//! once for a worker and its children. Arguments and results in shared memory belong to the store, which has a limit of its own. Files
//! in memory that no process maps are not counted: only a control group could attribute them to a worker.
//!
//! **Alternatives:** a limit of the address space (`RLIMIT_AS`) also counts memory that threads and numerical libraries
//! reserve but never use, and each library reports its violation in another way. A control group needs privileges that few
//! users have.

use std::{fs, io};

use crate::children;
use crate::segment::STORE_FILE;

/// Maximum number of processes of one worker that are counted.
const PROCESSES_MAX: usize = 1024;

/// Returns the memory of a process and its descendants in bytes. Processes that have ended count 0. A result up to the limit
/// is an upper bound: it contains data of the store, and shared memory counts for each process.
pub(super) fn held_bytes(pid: i32, limit_bytes: u64) -> u64 {
    let most = sum(pid, resident_bytes);
    // The exact numbers take long: the kernel walks over all pages.
    if most > limit_bytes { sum(pid, proportional_bytes) } else { most }
}

fn sum(pid: i32, bytes: fn(i32) -> u64) -> u64 {
    let (mut left, mut sum) = (vec![pid], 0_u64);
    for _ in 0..PROCESSES_MAX {
        let Some(pid) = left.pop() else { break };
        sum = sum.saturating_add(bytes(pid));
        left.extend(children::of(pid));
    }
    sum
}

fn resident_bytes(pid: i32) -> u64 {
    let status = proc_file(pid, "status").unwrap_or_default();
    let bytes = |name: &str| field_bytes(&status, name).unwrap_or(0);
    bytes("RssAnon:").saturating_add(bytes("VmSwap:")).saturating_add(bytes("RssShmem:"))
}

/// Returns the memory of a process, without data of the store and with its share of shared memory. All numbers are read at
/// once, because the process may map and unmap data of the store at any time.
fn proportional_bytes(pid: i32) -> u64 {
    match proc_file(pid, "smaps") {
        Ok(mappings) => Mappings(&mappings).fold(0, |sum, mapping| sum.saturating_add(mapping.counted_bytes())),
        // The process does not let others read this, so its shared memory cannot be distinguished from data of the store.
        Err(_) => {
            let status = proc_file(pid, "status").unwrap_or_default();
            resident_bytes(pid).saturating_sub(field_bytes(&status, "RssShmem:").unwrap_or(0))
        }
    }
}

/// Returns the text of a file in `/proc/PID`. Names of processes and paths need not be UTF-8.
fn proc_file(pid: i32, name: &str) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/{name}"))?).into_owned())
}

/// The mappings in a text of `/proc/PID/smaps`.
struct Mappings<'a>(&'a str);

/// One mapping: its path, and the lines of its fields.
struct MappedMemory<'a> {
    path: &'a str,
    fields: &'a str,
}

impl<'a> Iterator for Mappings<'a> {
    type Item = MappedMemory<'a>;

    fn next(&mut self) -> Option<MappedMemory<'a>> {
        let (first, rest) = self.0.split_once('\n')?;
        // A field begins with a capital letter, the first line of a mapping with its address. Its path is the sixth word.
        let is_field = |line: &str| line.starts_with(|letter: char| letter.is_ascii_uppercase());
        let length: usize = rest.split_inclusive('\n').take_while(|line| is_field(line)).map(str::len).sum();
        let (fields, others) = rest.split_at(length);
        self.0 = others;
        let path = (0..5).fold(first, |line, _| line.split_once(' ').map_or("", |(_, after)| after.trim_start()));
        Some(MappedMemory { path, fields })
    }
}

impl MappedMemory<'_> {
    fn counted_bytes(&self) -> u64 {
        let field = |name| field_bytes(self.fields, name).unwrap_or(0);
        let is_in_memory = ["/memfd:", "/dev/shm/", "/dev/zero", "/SYSV"].iter().any(|one| self.path.starts_with(one));
        let is_file = self.path == STORE_FILE || self.path.starts_with('/') && !is_in_memory;
        // Of a file on disk or of the store, only the pages that the process has copied by writing to them count.
        let resident = if is_file { field("Pss:").min(field("Anonymous:")) } else { field("Pss:") };
        resident.saturating_add(field("SwapPss:"))
    }
}

fn field_bytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;
    use crate::segment::sealed_file;

    #[test]
    fn the_memory_of_a_process_and_its_children_is_counted() {
        // The child of a child holds 40 MB.
        let script = "sh -c 'x=$(head -c 40000000 /dev/zero | tr \"\\\\0\" x); echo ready; read end; echo ${#x}'; true";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (mut output, mut line) = (BufReader::new(process.stdout.take().unwrap()), String::new());
        output.read_line(&mut line).unwrap();
        let held = held_bytes(process.id() as i32, u64::MAX);
        assert!((40_000_000..400_000_000).contains(&held), "{held}");
        drop(process.stdin.take());
        process.wait().unwrap();
        assert_eq!(held_bytes(i32::MAX, 0), 0);
    }

    #[test]
    fn memory_that_processes_share_after_a_fork_counts_once() {
        let script = "exec 3<&0; x=$(head -c 40000000 /dev/zero | tr '\\0' x); \
                      for i in 1 2 3 4; do (echo ready; read end; echo ${#x}) <&3 & done; wait";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut lines = output.lines();
        assert!(lines.by_ref().take(4).all(|line| line.unwrap() == "ready"));
        let pid = process.id() as i32;
        let (most, exact) = (held_bytes(pid, u64::MAX), held_bytes(pid, 0));
        assert!(most > 150_000_000 && (35_000_000..100_000_000).contains(&exact), "{most} {exact}");
        drop(process.stdin.take());
        process.wait().unwrap();
    }

    #[test]
    fn only_some_kinds_of_mappings_count() {
        let mapping = |path: &str, pss: u64, anonymous: u64| {
            format!(
                "7f00-7f01 rw-s 00000000 00:01 1034    {path}\nSize: 9999 kB\nPss: {pss} kB\nPss_Dirty: 1 kB\nAnonymous: {anonymous} kB\nSwapPss: 1 kB\nVmFlags: rd wr\n"
            )
        };
        let text = [
            mapping("", 10, 10),
            mapping("[heap]", 20, 20),
            mapping("/usr/lib/libc.so.6", 4000, 3),
            mapping(STORE_FILE, 8000, 0),
            mapping(STORE_FILE, 9000, 500),
            mapping("/dev/zero (deleted)", 100, 0),
            mapping("/dev/shm/psm_1 2", 200, 0),
        ]
        .concat();
        let counted: Vec<u64> = Mappings(&text).map(|one| one.counted_bytes() / 1024).collect();
        assert_eq!(counted, [11, 21, 4, 1, 501, 101, 201]);
    }

    #[test]
    fn shared_memory_counts_except_that_of_the_store() {
        use std::os::fd::AsFd;

        use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

        const SIZE: usize = 400 << 20;
        let pid = std::process::id() as i32;
        let before = held_bytes(pid, 0);
        let grown = || held_bytes(pid, 0).saturating_sub(before);
        let fill = |memory: *mut std::ffi::c_void| {
            // SAFETY: the mapping has this size and is writable, and nothing else uses it.
            unsafe { std::ptr::write_bytes(memory.cast::<u8>(), 1, SIZE) };
            memory
        };
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the addresses.
        let anonymous = unsafe { mmap_anonymous(std::ptr::null_mut(), SIZE, rights, MapFlags::SHARED) };
        let anonymous = fill(anonymous.unwrap());
        // Other tests of this process need some memory, too.
        assert!((SIZE as u64 * 9 / 10..SIZE as u64 * 3 / 2).contains(&grown()), "{}", grown());
        assert!(held_bytes(pid, u64::MAX) >= SIZE as u64);
        // SAFETY: the mapping was made above.
        unsafe { munmap(anonymous, SIZE) }.unwrap();
        let file = sealed_file(SIZE as u64).unwrap();
        // SAFETY: the kernel chooses the addresses.
        let stored = unsafe { mmap(std::ptr::null_mut(), SIZE, rights, MapFlags::SHARED, file.as_fd(), 0) };
        let stored = fill(stored.unwrap());
        assert!(grown() < SIZE as u64 / 2, "{}", grown());
        assert!(held_bytes(pid, u64::MAX) >= SIZE as u64);
        // SAFETY: the mapping was made above.
        unsafe { munmap(stored, SIZE) }.unwrap();
    }
}
