//! Memory that ends at the beginning of a protected page: a function that reads or writes beyond its array crashes its process
//! at once. For testing descriptions; it costs two pages and two system calls per array.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::LazyLock;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use rustix::param::page_size;

/// Environment variable that enables it in workers, if neither empty nor 0. If it is `writes`, the page can be read: some
/// kernels of OpenBLAS read past the end of a matrix, as [`SPARE_BYTES`](crate::segment::SPARE_BYTES) explains.
const VARIABLE: &str = "GRIDLOOM_GUARD_ARRAYS";

/// Returns the protection of the page after each array; `None` if arrays are not guarded in this process.
fn protection() -> Option<MprotectFlags> {
    static PROTECTION: LazyLock<Option<MprotectFlags>> =
        LazyLock::new(|| match std::env::var(VARIABLE).ok()?.as_str() {
            "" | "0" => None,
            "writes" => Some(MprotectFlags::READ),
            _ => Some(MprotectFlags::empty()),
        });
    *PROTECTION
}

/// Zeroed bytes directly before a protected page.
#[derive(Debug)]
pub(super) struct Guarded {
    pages: NonNull<c_void>,
    pages_bytes: usize,
    at: usize,
    len: usize,
}

// SAFETY: it owns its memory, like a vector.
unsafe impl Send for Guarded {}
// SAFETY: likewise.
unsafe impl Sync for Guarded {}

impl Guarded {
    /// Allocates guarded memory. Returns `None` if arrays are not guarded, or the system has no memory.
    pub(super) fn zeroed(len: usize) -> Option<Guarded> {
        let protection = protection()?;
        let open_bytes = len.next_multiple_of(page_size()).max(page_size());
        let pages_bytes = open_bytes + page_size();
        // SAFETY: new pages, of which the last is protected; nothing was mapped there before.
        let pages = unsafe {
            let pages = mmap_anonymous(null_mut(), pages_bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            let pages = NonNull::new(pages.ok()?)?;
            mprotect(pages.as_ptr().byte_add(open_bytes), page_size(), protection).ok()?;
            pages
        };
        Some(Guarded { pages, pages_bytes, at: open_bytes - len, len })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: accessible pages owned by this value; all bytes are mapped, and are written only through `bytes_mut`.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().byte_add(self.at).cast(), self.len) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_ptr().byte_add(self.at).cast(), self.len) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: its own pages, which nothing else refers to.
        let _ = unsafe { munmap(self.pages.as_ptr(), self.pages_bytes) };
    }
}
