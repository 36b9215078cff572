//! Data that calls take in place of memory: handles of remote data (`grpc_remote.h`), and the program's own descriptions
//! (`grpc_data.h`), both known by their addresses.
//!
//! **Invariant:** a pointer is looked up by its address, and never followed.

use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use gridloom::data::{Datum, Memory, Uri};
use gridloom_net::payload::Payload;

use super::code::{Failed, GRPC_INVALID_DATA_NP, Outcome};
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
    /// While it is 0, calls look at nothing else here.
    count: AtomicUsize,
    table: Mutex<Table>,
    /// Addresses by the keys of `memory:` URIs.
    keys: Mutex<HashMap<String, usize>>,
}

#[derive(Default)]
struct Table {
    /// The handles, and the program's data.
    by_address: HashMap<usize, Arc<Datum>>,
    by_name: HashMap<String, usize>,
}

impl Remotes {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The datum that a pointer of a call stands for, if it does for one.
    pub(super) fn find(&self, pointer: *const c_void) -> Option<Arc<Datum>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.table().by_address.get(&pointer.addr()).cloned()
    }

    /// Whether a pointer of a call stands for nothing any more, or for a datum that lies elsewhere.
    ///
    /// # Safety
    /// It leads to `size_bytes`, which have a value if it `is_read`.
    pub(super) unsafe fn check(
        &self,
        pointer: *const c_void,
        size_bytes: u64,
        is_read: impl FnOnce() -> bool,
    ) -> Outcome<()> {
        if HAS_HANDLES.load(Ordering::Acquire) && is_handle(pointer) {
            return Err(Failed::new(GRPC_INVALID_DATA_NP, NO_HANDLE));
        }
        if !HAS_DATA.load(Ordering::Acquire) || pointer.is_null() {
            return Ok(());
        }
        // What is only written to may be the program's new memory where a datum was.
        if size_bytes < size_of::<u64>() as u64 || !is_read() {
            return Ok(());
        }
        // SAFETY: promised by the caller.
        match unsafe { pointer.cast::<u64>().read_unaligned() } {
            MARK => Err(Failed::new(GRPC_INVALID_DATA_NP, COPIED)),
            GIVEN_UP => Err(Failed::new(GRPC_INVALID_DATA_NP, FREED)),
            _ => Ok(()),
        }
    }

    pub(super) fn known(&self, pointer: *mut CRemote) -> Outcome<Arc<Datum>> {
        self.find(pointer.cast()).ok_or_else(|| Failed::new(GRPC_INVALID_DATA_NP, NO_HANDLE))
    }

    pub(super) fn add(&self, name: &str) -> Outcome<*mut CRemote> {
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
        table.by_address.insert(address, Arc::new(Datum::new(name)));
        self.count.store(table.by_address.len(), Ordering::Release);
        Ok(std::ptr::without_provenance_mut(address))
    }

    pub(super) fn named(&self, name: &str) -> Outcome<*mut CRemote> {
        let address = self.table().by_name.get(name).copied();
        let none = || Failed::new(GRPC_INVALID_DATA_NP, format!("there is no remote datum '{name}'"));
        address.map(std::ptr::without_provenance_mut).ok_or_else(none)
    }

    pub(super) fn remove(&self, pointer: *mut CRemote) -> Outcome<()> {
        let remote = self.known(pointer)?;
        self.table().by_name.remove(remote.name());
        self.forget(pointer.addr());
        Ok(())
    }

    /// The program's memory at that address stands for the datum from now on.
    pub(super) fn bind(&self, address: usize, datum: Arc<Datum>) {
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
    pub(super) fn numbered(&self, number: u64) -> Option<Arc<Datum>> {
        let table = self.table();
        table.by_address.values().find(|remote| remote.number() == number).cloned()
    }

    pub(super) fn key(&self, key: &str) -> Option<usize> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied()
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

/// Marks of memory that is a datum, and of memory that was one.
pub(super) const MARK: u64 = 0x4772_6964_4461_7461;
pub(super) const GIVEN_UP: u64 = 0x4772_6964_476f_6e65;
/// Whether the program ever had such data: calls of a program without any look at nothing else. They stay true, so that uses
/// of freed data are found.
static HAS_HANDLES: AtomicBool = AtomicBool::new(false);
static HAS_DATA: AtomicBool = AtomicBool::new(false);
const NO_HANDLE: &str = "this is no handle of a remote datum: nothing made it, or it was freed";
const FREED: &str = "this datum was freed, or unbound; describe it anew with grpc_data_init";
const COPIED: &str = "this is a copy of a grpc_data_t, or one of an earlier session: a datum is known by its address";

/// Memory that `memory:` URIs name. Only `Library::places` hands it out. Its caller
/// promises that all such memory is as it was described.
impl Memory for Remotes {
    fn read(&self, uri: &Uri, size_bytes: Option<u64>) -> Result<Payload, String> {
        let pointer: *const c_void = std::ptr::with_exposed_provenance(self.address(uri)?);
        let size_bytes = match size_bytes {
            Some(size_bytes) => size_bytes,
            // SAFETY: a text that ends with a NUL, promised as above.
            None => unsafe { CStr::from_ptr(pointer.cast()) }.to_bytes_with_nul().len() as u64,
        };
        // SAFETY: promised as above.
        let copy = unsafe { memory::copied(pointer, size_bytes) };
        copy.map(Payload::Inline).ok_or_else(|| "it is NULL".into())
    }

    fn write(&self, uri: &Uri, bytes: &[u8]) -> Result<(), String> {
        let place = std::ptr::with_exposed_provenance_mut(self.address(uri)?);
        // SAFETY: promised as above.
        unsafe { memory::write(place, bytes) };
        Ok(())
    }
}

impl Remotes {
    fn address(&self, uri: &Uri) -> Result<usize, String> {
        match uri {
            Uri::Address(address) => Ok(*address),
            Uri::Key(key) => self.key(key).ok_or_else(|| "the key has no address".into()),
            other => unreachable!("'{other}' is no memory"),
        }
    }
}
