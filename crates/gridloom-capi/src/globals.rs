//! A copy of the program's global and static variables for each simulated process.
//!
//! All simulated processes run in one program. Before another process runs, the program's writable memory (`.data` and
//! `.bss`) is saved, and that process's copy is loaded. This concerns only the memory of the program itself: the
//! variables of shared libraries belong to the libraries and are not exchanged (the C library's buffers must not
//! change). Plain copying costs 0.1 µs for 1 KiB, 3 µs for 64 KiB, 90 µs for 1 MiB. A mapping for each process would
//! cost a system call and page faults at each switch. Loading the program once for each process (`dlmopen`) is limited
//! to 16 of them.
//!
//! **Invariants**
//! - While C code of process `n` runs, the program's memory is that of `n`; `loaded` names the process whose memory is loaded.
//! - Nothing of this library is in this memory. A program that contains the library itself (`libgridloom.a`) is
//!   refused, because the simulator's own state would be exchanged too.
//!
//! **Limits:** [`PROCESSES_MAX`], [`BYTES_MAX`]. Thread-local variables and those of shared libraries are shared by all processes.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ops::Range;

/// Maximum number of processes with globals of their own in a simulation.
pub(crate) const PROCESSES_MAX: usize = 20_000;
/// Maximum total size of their copies, in bytes.
pub(crate) const BYTES_MAX: usize = 4 << 30;

/// How to run without copies, for errors.
const REMEDY: &str = "if no process changes global or static variables, use '--set gridloom.globals=shared'";

/// The program's variables, for each process.
#[derive(Debug)]
pub(crate) struct Globals {
    memory: Writable,
    /// The variables before any process ran.
    initial: Vec<u8>,
    images: BTreeMap<usize, Vec<u8>>,
    next: usize,
    loaded: Option<usize>,
    processes_max: usize,
    bytes_max: usize,
}

/// The program's writable memory.
#[derive(Debug)]
struct Writable {
    ranges: Vec<Range<usize>>,
    bytes: usize,
}

impl Globals {
    /// Returns the running program's variables with their current values.
    pub(crate) fn of_program() -> Result<Globals, String> {
        let memory = Writable::of_program();
        let ours = std::ptr::from_ref(&MARK).addr();
        if memory.ranges.iter().any(|range| range.contains(&ours)) {
            return Err(format!(
                "this program contains the library itself (libgridloom.a), so in simulation its global variables \
                 cannot be distinguished from the library's; link it with libgridloom.so, or {REMEDY}"
            ));
        }
        Ok(Globals::new(memory, PROCESSES_MAX, BYTES_MAX))
    }

    fn new(memory: Writable, processes_max: usize, bytes_max: usize) -> Globals {
        let mut initial = vec![0; memory.bytes];
        memory.save(&mut initial);
        Globals { memory, initial, images: BTreeMap::new(), next: 0, loaded: None, processes_max, bytes_max }
    }

    /// Adds a process, loads its variables, and returns its number.
    pub(crate) fn enter(&mut self) -> Result<usize, String> {
        let (count, bytes) = (self.images.len() + 1, self.memory.bytes);
        let (processes_max, bytes_max) = (self.processes_max, self.bytes_max);
        if count > processes_max || count.saturating_mul(bytes) > bytes_max {
            return Err(format!(
                "process {count} of this simulation cannot have its own copy of the program's global variables: they take \
                 {bytes} bytes, and at most {processes_max} processes with {bytes_max} bytes in total can have one; \
                 make them smaller (allocate large arrays), or {REMEDY}"
            ));
        }
        let number = self.next;
        self.next += 1;
        self.images.insert(number, self.initial.clone());
        self.switch_to(number);
        Ok(number)
    }

    /// Loads that process's variables.
    pub(crate) fn switch_to(&mut self, number: usize) {
        if self.loaded == Some(number) {
            return;
        }
        self.save_loaded();
        let image = self.images.get(&number).expect("a process that runs has an image");
        self.memory.load(image);
        self.loaded = Some(number);
    }

    /// Removes a process that has ended.
    pub(crate) fn leave(&mut self, number: usize) {
        self.images.remove(&number);
        if self.loaded == Some(number) {
            self.loaded = None;
        }
    }

    /// Loads the variables from before any process ran.
    pub(crate) fn restore(&mut self) {
        self.save_loaded();
        self.memory.load(&self.initial);
    }

    fn save_loaded(&mut self) {
        if let Some(loaded) = self.loaded.take() {
            self.memory.save(self.images.get_mut(&loaded).expect("its image is dropped when it is over"));
        }
    }
}

/// A variable that shows where the library's own variables are.
static MARK: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(1);

impl Writable {
    fn of_program() -> Writable {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        // SAFETY: the callback gets this vector, and is called only before the function returns.
        unsafe { libc::dl_iterate_phdr(Some(first_object), (&raw mut ranges).cast()) };
        let bytes = ranges.iter().map(ExactSizeIterator::len).sum();
        Writable { ranges, bytes }
    }

    /// Copies the memory to `image`.
    fn save(&self, image: &mut [u8]) {
        let mut at = 0;
        for range in &self.ranges {
            let from = std::ptr::with_exposed_provenance::<u8>(range.start);
            // SAFETY: the range is mapped as long as the program runs. No Rust variable is in it (`of_program`), and
            // no C code runs meanwhile: a single thread runs all C code, and it is here.
            unsafe { std::ptr::copy_nonoverlapping(from, image[at..at + range.len()].as_mut_ptr(), range.len()) };
            at += range.len();
        }
    }

    /// Copies `image` to the memory.
    fn load(&self, image: &[u8]) {
        let mut at = 0;
        for range in &self.ranges {
            let to = std::ptr::with_exposed_provenance_mut::<u8>(range.start);
            // SAFETY: as in `save`; and the range is writable.
            unsafe { std::ptr::copy_nonoverlapping(image[at..at + range.len()].as_ptr(), to, range.len()) };
            at += range.len();
        }
    }
}

/// Records the writable memory of the first loaded object, which is the program.
unsafe extern "C" fn first_object(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: the loader passes a description of an object, and `data` is what `of_program` passed.
    let (info, ranges) = unsafe { (&*info, &mut *data.cast::<Vec<Range<usize>>>()) };
    // SAFETY: the object's table has this many entries.
    let segments = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let place = |at: usize, size: usize| {
        let start = (info.dlpi_addr as usize).wrapping_add(at);
        start..start + size
    };
    // Excludes memory that the loader makes read-only after relocation, in whole pages. SAFETY: only queries the
    // system.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("the system has pages");
    let sealed = segments.iter().find(|segment| segment.p_type == libc::PT_GNU_RELRO);
    let sealed = sealed.map(|segment| place(segment.p_vaddr as usize, segment.p_memsz as usize));
    let sealed = sealed.map_or(0..0, |sealed| sealed.start / page * page..sealed.end / page * page);
    for segment in segments {
        if segment.p_type != libc::PT_LOAD || segment.p_flags & libc::PF_W == 0 {
            continue;
        }
        let whole = place(segment.p_vaddr as usize, segment.p_memsz as usize);
        let before = whole.start..whole.end.min(sealed.start);
        let behind = whole.start.max(sealed.end)..whole.end;
        let parts = if sealed.is_empty() { [whole, 0..0] } else { [before, behind] };
        ranges.extend(parts.into_iter().filter(|part| !part.is_empty()));
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two pieces of memory that represent a program's.
    fn memory() -> (&'static [std::cell::Cell<u8>], Writable) {
        let cells = Box::leak(vec![std::cell::Cell::new(7u8); 12].into_boxed_slice());
        let start = std::ptr::from_mut::<[_]>(cells).cast::<u8>().expose_provenance();
        (cells, Writable { ranges: vec![start..start + 4, start + 8..start + 12], bytes: 8 })
    }

    #[test]
    fn each_has_its_own_and_begins_with_the_first() {
        let (cells, memory) = memory();
        let mut globals = Globals::new(memory, 10, 100);
        let seen = || [cells[0].get(), cells[5].get(), cells[11].get()];
        let set = |value: u8| [0, 5, 11].map(|at: usize| cells[at].set(value));
        let one = globals.enter().unwrap();
        set(1);
        let two = globals.enter().unwrap();
        // The memory between the pieces is shared by all.
        assert_eq!(seen(), [7, 1, 7]);
        set(2);
        globals.switch_to(two);
        globals.switch_to(one);
        assert_eq!(seen(), [1, 2, 1]);
        globals.leave(one);
        let three = globals.enter().unwrap();
        assert_eq!((seen(), three), ([7, 2, 7], 2));
        globals.switch_to(two);
        assert_eq!(seen(), [2, 2, 2]);
        globals.restore();
        assert_eq!(seen(), [7, 2, 7]);
    }

    #[test]
    fn beyond_the_limits_there_is_an_error() {
        let mut few = Globals::new(memory().1, 2, 100);
        let first = few.enter().unwrap();
        few.enter().unwrap();
        let error = few.enter().unwrap_err();
        assert!(
            error.contains("process 3") && error.contains("8 bytes") && error.contains("at most 2 processes"),
            "{error}"
        );
        assert!(error.contains("--set gridloom.globals=shared"), "{error}");
        few.leave(first);
        few.enter().unwrap();
        let mut small = Globals::new(memory().1, 10, 15);
        small.enter().unwrap();
        assert!(small.enter().unwrap_err().contains("with 15 bytes in total"));
    }

    #[test]
    fn the_programs_variables_are_found() {
        static mut OWN: u64 = 1;
        let memory = Writable::of_program();
        let own = (&raw const OWN).addr();
        assert!(memory.ranges.iter().any(|range| range.contains(&own)));
        assert_eq!(memory.bytes, memory.ranges.iter().map(|range| range.end - range.start).sum::<usize>());
        // A test contains the library itself.
        assert!(Globals::of_program().unwrap_err().contains("libgridloom.a"));
    }
}
