//! Remote data: results that stay where they are made, under pointers of the library that calls take in place of memory.
//!
//! **Invariant:** a pointer is known here by its address only, and never followed. Calls under way have their own share of what
//! they read, so that a value may be replaced or freed at any time.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use gridloom_net::payload::Payload;

use super::code::{Failed, GRPC_INVALID_DATA_NP, Outcome, run};
use super::datum::Remote;
use super::description::Keys;
use super::library::{Library, library};
use super::memory;

/// `struct grpc_remote_np`: what a `grpc_remote_t` leads to. Its address is what counts, and nothing is there: handles are
/// addresses of a range that nobody else has, and that is never touched. So one that was freed is told from memory.
#[derive(Debug)]
#[repr(C)]
pub struct CRemote {
    unused: u64,
}

/// Handles of a process, until addresses are given a second time.
const HANDLES_MAX: usize = 1 << 21;

/// The first of their addresses.
fn first_handle() -> usize {
    static FIRST: OnceLock<usize> = OnceLock::new();
    *FIRST.get_or_init(|| Vec::<CRemote>::with_capacity(HANDLES_MAX).leak().as_mut_ptr().addr())
}

/// Whether a pointer is a handle, or was one.
fn is_handle(pointer: *const c_void) -> bool {
    let first = first_handle();
    (first..first + HANDLES_MAX * size_of::<CRemote>()).contains(&pointer.addr())
}

/// All of a session.
#[derive(Default)]
pub(super) struct Remotes {
    /// So that a call of a program without any looks at nothing else.
    count: AtomicUsize,
    table: Mutex<Table>,
    /// Addresses by the keys of `memory:` URIs.
    keys: Mutex<Keys>,
}

#[derive(Default)]
struct Table {
    /// The handles, and the program's data.
    by_address: HashMap<usize, Arc<Remote>>,
    by_name: HashMap<String, usize>,
}

impl Remotes {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The datum that a pointer of a call stands for, if it does for one.
    pub(super) fn find(&self, pointer: *const c_void) -> Option<Arc<Remote>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.table().by_address.get(&pointer.addr()).cloned()
    }

    /// Whether a pointer of a call stands for nothing any more, or for a datum that lies elsewhere.
    ///
    /// # Safety
    /// It leads to `size_bytes`, which have a value if it `is_read`.
    pub(super) unsafe fn check(&self, pointer: *const c_void, size_bytes: u64, is_read: bool) -> Outcome<()> {
        if HAS_HANDLES.load(Ordering::Acquire) && is_handle(pointer) {
            return Err(Failed::new(GRPC_INVALID_DATA_NP, NO_HANDLE));
        }
        if !HAS_DATA.load(Ordering::Acquire) || pointer.is_null() {
            return Ok(());
        }
        // What is only written to may be the program's new memory where a datum was.
        if !is_read || size_bytes < size_of::<u64>() as u64 {
            return Ok(());
        }
        // SAFETY: promised by the caller.
        match unsafe { pointer.cast::<u64>().read_unaligned() } {
            MARK => Err(Failed::new(GRPC_INVALID_DATA_NP, COPIED)),
            GIVEN_UP => Err(Failed::new(GRPC_INVALID_DATA_NP, FREED)),
            _ => Ok(()),
        }
    }

    fn known(&self, pointer: *mut CRemote) -> Outcome<Arc<Remote>> {
        self.find(pointer.cast()).ok_or_else(|| Failed::new(GRPC_INVALID_DATA_NP, NO_HANDLE))
    }

    fn add(&self, name: &str) -> Outcome<*mut CRemote> {
        let mut table = self.table();
        if !name.is_empty() && table.by_name.contains_key(name) {
            let text = format!("there is a remote datum '{name}' already; grpc_remote_find_np gives it");
            return Err(Failed::new(GRPC_INVALID_DATA_NP, text));
        }
        let address = table.free_handle().ok_or_else(|| Failed::other("there are too many remote data; free some"))?;
        HAS_HANDLES.store(true, Ordering::Release);
        if !name.is_empty() {
            table.by_name.insert(name.to_string(), address);
        }
        table.by_address.insert(address, Arc::new(Remote::new(name, None)));
        self.count.store(table.by_address.len(), Ordering::Release);
        Ok(std::ptr::without_provenance_mut(address))
    }

    fn named(&self, name: &str) -> Outcome<*mut CRemote> {
        let address = self.table().by_name.get(name).copied();
        let none = || Failed::new(GRPC_INVALID_DATA_NP, format!("there is no remote datum '{name}'"));
        address.map(std::ptr::without_provenance_mut).ok_or_else(none)
    }

    fn remove(&self, pointer: *mut CRemote) -> Outcome<()> {
        let remote = self.known(pointer)?;
        self.table().by_name.remove(remote.name());
        self.forget(pointer.addr());
        Ok(())
    }

    /// The program's memory at that address stands for the datum from now on.
    pub(super) fn bind(&self, address: usize, datum: Arc<Remote>) {
        let mut table = self.table();
        let old = table.by_address.insert(address, datum);
        HAS_DATA.store(true, Ordering::Release);
        self.count.store(table.by_address.len(), Ordering::Release);
        drop(table);
        // Its value goes last, outside of the lock.
        drop(old);
    }

    /// The pointer stands for nothing any more.
    pub(super) fn forget(&self, address: usize) {
        let mut table = self.table();
        let old = table.by_address.remove(&address);
        self.count.store(table.by_address.len(), Ordering::Release);
        drop(table);
        // Its value goes last, outside of the lock.
        drop(old);
    }

    /// The datum of that number, if the program has it.
    pub(super) fn numbered(&self, number: u64) -> Option<Arc<Remote>> {
        let table = self.table();
        table.by_address.values().find(|remote| remote.number() == number).cloned()
    }

    pub(super) fn keys(&self) -> Keys {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives a key an address; 0 takes it away.
    pub(super) fn set_key(&self, key: &str, address: usize) {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        match address {
            0 => drop(keys.remove(key)),
            address => drop(keys.insert(key.to_string(), address)),
        }
    }
}

impl Table {
    /// An address that no handle has; as late as can be one that another had.
    fn free_handle(&self) -> Option<usize> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let address = |_| first_handle() + NEXT.fetch_add(1, Ordering::Relaxed) % HANDLES_MAX * size_of::<CRemote>();
        (0..HANDLES_MAX).map(address).find(|address| !self.by_address.contains_key(address))
    }
}

/// In memory that is a datum, and in such that was one.
pub(super) const MARK: u64 = 0x4772_6964_4461_7461;
pub(super) const GIVEN_UP: u64 = 0x4772_6964_476f_6e65;
/// So that a call of a program without any looks at nothing else; they stay, as what was freed is to be found out.
static HAS_HANDLES: AtomicBool = AtomicBool::new(false);
static HAS_DATA: AtomicBool = AtomicBool::new(false);
const NO_HANDLE: &str = "this is no handle of a remote datum: nothing made it, or it was freed";
const FREED: &str = "this datum was freed, or unbound; describe it anew with grpc_data_init";
const COPIED: &str = "this is a copy of a grpc_data_t, or one of an earlier session: a datum is known by its address";

/// A copy of memory of the program, where servers of this host can map it if it is large.
///
/// # Safety
/// As of [`memory::copied`].
unsafe fn copied(library: &Library, data: *const c_void, size_bytes: usize) -> Outcome<Payload> {
    let mut segment = library.grid.allocate(size_bytes as u64)?;
    // SAFETY: promised by the caller.
    unsafe { memory::copy_to(data, segment.bytes_mut()) }.ok_or_else(|| Failed::null("the data"))?;
    Ok(Payload::segment(segment.freeze()))
}

/// See `grpc_remote.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_remote_new_np(remote: *mut *mut CRemote, name: *const c_char) -> c_int {
    run(|| {
        let library = library()?;
        let place = memory::place(remote, "the place for the handle")?;
        // SAFETY: a text, as the header asks.
        let name = if name.is_null() { "" } else { unsafe { memory::text(name, "the name") }? };
        let made = library.remotes.add(name)?;
        // SAFETY: as the header asks.
        unsafe { place.write(made) };
        Ok(())
    })
}

/// See `grpc_remote.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_remote_find_np(remote: *mut *mut CRemote, name: *const c_char) -> c_int {
    run(|| {
        let library = library()?;
        let place = memory::place(remote, "the place for the handle")?;
        // SAFETY: a text, and a place, as the header asks.
        unsafe { place.write(library.remotes.named(memory::text(name, "the name")?)?) };
        Ok(())
    })
}

/// See `grpc_remote.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_remote_put_np(
    remote: *mut CRemote,
    data: *const c_void,
    size_bytes: usize,
) -> c_int {
    run(|| {
        let library = library()?;
        let remote = library.remotes.known(remote)?;
        // SAFETY: as the header asks.
        remote.put(unsafe { copied(&library, data, size_bytes) }?);
        Ok(())
    })
}

/// See `grpc_remote.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_remote_get_np(
    remote: *mut CRemote,
    data: *mut c_void,
    size_bytes: usize,
) -> c_int {
    run(|| {
        let remote = library()?.remotes.known(remote)?;
        let Some(bytes) = remote.bytes()? else { return Ok(()) };
        if bytes.len() > size_bytes {
            let text = format!("{remote} has {} bytes, and there is room for {size_bytes}", bytes.len());
            return Err(Failed::other(text));
        }
        if data.is_null() && !bytes.is_empty() {
            return Err(Failed::null("the place for the data"));
        }
        // SAFETY: there is room for so many, as the header asks.
        unsafe { memory::write(data, &bytes) };
        Ok(())
    })
}

/// See `grpc_remote.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_remote_size_np(remote: *mut CRemote, size_bytes: *mut usize) -> c_int {
    run(|| {
        let remote = library()?.remotes.known(remote)?;
        // SAFETY: a place, as the header asks.
        unsafe { memory::place(size_bytes, "the place for the size")?.write(remote.size_bytes() as usize) };
        Ok(())
    })
}

/// See `grpc_remote.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_remote_wait_np(remote: *mut CRemote) -> c_int {
    run(|| library()?.remotes.known(remote)?.wait())
}

/// See `grpc_remote.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_remote_free_np(remote: *mut CRemote) -> c_int {
    run(|| library()?.remotes.remove(remote))
}
