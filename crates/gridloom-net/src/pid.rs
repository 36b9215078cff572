//! The id of this process, without a system call each time: calls check it often, to notice that the program has forked.
//!
//! The id is stored on a page of memory that the kernel clears in every forked child (`MADV_WIPEONFORK`, Linux 4.14).
//! Where such a page is not available, the system is asked each time.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

/// Returns the id of this process.
pub(crate) fn pid() -> u32 {
    static PAGE: OnceLock<Option<&AtomicU32>> = OnceLock::new();
    let Some(kept) = PAGE.get_or_init(page) else { return std::process::id() };
    match kept.load(Ordering::Relaxed) {
        0 => {
            let pid = std::process::id();
            kept.store(pid, Ordering::Relaxed);
            pid
        }
        pid => pid,
    }
}

fn page() -> Option<&'static AtomicU32> {
    let (bytes, access) = (size_of::<AtomicU32>(), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a new mapping, which nothing else refers to and which is never unmapped. It is aligned, and zero is a valid value.
    unsafe {
        let page = mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE).ok()?;
        madvise(page, bytes, Advice::LinuxWipeOnFork).ok()?;
        Some(&*page.cast::<AtomicU32>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_has_a_number_of_its_own() {
        let parent = pid();
        assert_eq!(parent, std::process::id());
        // SAFETY: the child calls nothing that takes a lock.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_known = pid() == std::process::id() && pid() != parent;
            // SAFETY: ends this process at once.
            unsafe { libc::_exit(i32::from(!is_known)) };
        }
        let mut status = -1;
        // SAFETY: the status is a local variable.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!((status, pid()), (0, parent));
    }
}
