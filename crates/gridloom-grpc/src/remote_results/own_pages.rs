//! Memory whose first and last page may be closed with it, although it does not fill them.
//!
//! A closed page also stops the threads of the library and the system, if they use other memory in it. So a page that
//! is filled only in part is closed if nobody but the program uses the rest: in a large allocation of the C library,
//! which has pages of its own, and in the variables of the program itself.

use std::ffi::{c_int, c_void};

use super::faults::page_bytes;

/// True if only the program uses the pages that contain the memory from `start` up to `end`.
pub(super) fn has_own_pages(start: usize, end: usize) -> bool {
    let page = page_bytes();
    let is_filled = start.is_multiple_of(page) && end.is_multiple_of(page);
    is_filled || is_own_allocation(start, end, page) || is_variable(start, end, page)
}

/// True if `malloc` has mapped pages for this memory alone. Its header, in the two words before the memory, says so:
/// the second bit of the size is set, and address and size of the whole are multiples of a page.
#[cfg(target_env = "gnu")]
fn is_own_allocation(start: usize, end: usize, page: usize) -> bool {
    const IS_MAPPED: usize = 2;
    const FLAGS: usize = 7;
    let header = 2 * size_of::<usize>();
    if start % page < header || !start.is_multiple_of(header) {
        return false;
    }
    let words = std::ptr::with_exposed_provenance::<[usize; 2]>(start - header);
    // SAFETY: memory in a page of which the program has passed another part.
    let [before, size] = unsafe { words.read_volatile() };
    let (base, bytes) = ((start - header).wrapping_sub(before), (size & !FLAGS).wrapping_add(before));
    let is_mapped = size & IS_MAPPED != 0 && base.is_multiple_of(page) && bytes.is_multiple_of(page);
    is_mapped && base <= start && before < page && base.checked_add(bytes).is_some_and(|last| end <= last)
}

#[cfg(not(target_env = "gnu"))]
fn is_own_allocation(_: usize, _: usize, _: usize) -> bool {
    false
}

unsafe extern "C" {
    static environ: *const c_void;
    static stdin: *const c_void;
    static stdout: *const c_void;
    static stderr: *const c_void;
}

/// True if this memory is in the variables of the program, and no variable of the C library is in its first or last
/// page: the linker puts some of these into the program.
fn is_variable(start: usize, end: usize, page: usize) -> bool {
    let of_library = (&raw const OF_LIBRARY).addr();
    let Some((first, last)) = variables() else { return false };
    let is_within = |address: usize| first <= address && address < last;
    if !is_within(start) || !is_within(end - 1) || is_within(of_library) {
        return false;
    }
    let shared = [&raw const environ, &raw const stdin, &raw const stdout, &raw const stderr];
    let (head, tail) = (start / page, (end - 1) / page);
    shared.iter().map(|variable| variable.addr() / page).all(|its| its != head && its != tail)
}

/// A variable of this library: where it is linked into the program, the library's variables are among the program's.
static OF_LIBRARY: u8 = 1;

/// Returns first address and end of the program's writable segment.
fn variables() -> Option<(usize, usize)> {
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
        // SAFETY: the system's description of the program, which is the first, and the caller's variable.
        unsafe {
            let info = &*info;
            let segments = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
            let writable = segments.iter().find(|one| one.p_type == libc::PT_LOAD && one.p_flags & libc::PF_W != 0);
            let place = found.cast::<Option<(usize, usize)>>();
            *place = writable.map(|one| {
                let start = (info.dlpi_addr + one.p_vaddr) as usize;
                (start, start + one.p_memsz as usize)
            });
        }
        1
    }
    let mut found = None;
    // SAFETY: `look` keeps to its types, and nothing else is called.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_allocations_and_whole_pages_are_own_and_small_ones_are_not() {
        let page = page_bytes();
        // SAFETY: memory that is freed below.
        let (large, small) = unsafe { (libc::malloc(64 << 20), libc::malloc(200)) };
        assert!(has_own_pages(large.addr(), large.addr() + (64 << 20)));
        assert!(!has_own_pages(large.addr(), large.addr() + (65 << 20)), "beyond the allocation");
        assert!(!has_own_pages(small.addr(), small.addr() + 200));
        assert!(has_own_pages(16 * page, 18 * page) && !has_own_pages(16 * page + 8, 18 * page));
        // SAFETY: as above.
        unsafe {
            libc::free(large);
            libc::free(small);
        }
    }
}
