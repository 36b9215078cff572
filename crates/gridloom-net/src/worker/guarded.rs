//! Memory that ends where a page begins which nobody may touch: a function that reads or writes behind its array ends its
//! process at once. For tests of descriptions; it costs two pages and two system calls an array.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::LazyLock;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use rustix::param::page_size;

/// Turns it on in workers, if it is neither empty nor 0.
const VARIABLE: &str = "GRIDLOOM_GUARD_ARRAYS";

/// Whether arrays are guarded in this process.
pub(super) fn is_on() -> bool {
    static ON: LazyLock<bool> =
        LazyLock::new(|| std::env::var(VARIABLE).is_ok_and(|value| !value.is_empty() && value != "0"));
    *ON
}

/// So many zero bytes in front of a closed page.
#[derive(Debug)]
pub(super) struct Guarded {
    pages: NonNull<c_void>,
    pages_bytes: usize,
    at: usize,
    len: usize,
}

// SAFETY: memory of its own, as that of a vector.
unsafe impl Send for Guarded {}
// SAFETY: likewise.
unsafe impl Sync for Guarded {}

impl Guarded {
    /// `None` if the system has no such memory.
    pub(super) fn zeroed(len: usize) -> Option<Guarded> {
        let open_bytes = len.next_multiple_of(page_size()).max(page_size());
        let pages_bytes = open_bytes + page_size();
        // SAFETY: new pages, of which the last is closed; nothing is there before.
        let pages = unsafe {
            let pages = mmap_anonymous(null_mut(), pages_bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            let pages = NonNull::new(pages.ok()?)?;
            mprotect(pages.as_ptr().byte_add(open_bytes), page_size(), MprotectFlags::empty()).ok()?;
            pages
        };
        Some(Guarded { pages, pages_bytes, at: open_bytes - len, len })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: open pages of its own; all of the bytes are there, and are written through `bytes_mut` only.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().byte_add(self.at).cast(), self.len) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and it is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_ptr().byte_add(self.at).cast(), self.len) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: its own pages, which nobody else has.
        let _ = unsafe { munmap(self.pages.as_ptr(), self.pages_bytes) };
    }
}
