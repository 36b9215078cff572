//! Data that calls accept in place of memory: handles of remote data (`grpc_remote.h`), and the program's own
//! descriptions (`grpc_data.h`), both identified by their addresses.
//!
//! **Invariant:** a pointer is looked up by its address, and never dereferenced.

use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use gridloom::data::{Datum, Memory, Uri};
use gridloom_net::payload::Payload;

use super::code::{Failed, GRPC_INVALID_DATA_NP, Outcome};
use super::memory;

/// `struct grpc_remote_np`: the target of a `grpc_remote_t`. Only its address counts, and nothing is stored there:
/// handles are addresses in a range that nobody else has, and that is never accessed. So a freed handle can be
/// distinguished from memory.
#[derive(Debug)]
#[repr(C)]
pub struct CRemote {
    unused: u64,
}

/// Number of handles of a process before addresses are reused.
const HANDLES_MAX: usize = 1 << 21;

/// Returns the first of their addresses.
fn first_handle() -> usize {
    static FIRST: OnceLock<usize> = OnceLock::new();
    *FIRST.get_or_init(|| Vec::<CRemote>::with_capacity(HANDLES_MAX).leak().as_mut_ptr().addr())
}

/// True if a pointer is a handle, or was one.
fn is_handle(pointer: *const c_void) -> bool {
    let first = first_handle();
    (first..first + HANDLES_MAX * size_of::<CRemote>()).contains(&pointer.addr())
}

/// All data of a session.
#[derive(Default)]
pub(crate) struct Remotes {
    /// While it is 0, calls check nothing else here.
    count: AtomicUsize,
    table: Mutex<Table>,
    /// Addresses by the keys of `memory:` URIs.
    keys: Mutex<HashMap<String, usize>>,
}

#[derive(Default)]
struct Table {
    /// The handles and the program's data.
    by_address: HashMap<usize, Arc<Datum>>,
    by_name: HashMap<String, usize>,
}

impl Remotes {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the datum that a pointer of a call represents, if any.
    pub(crate) fn find(&self, pointer: *const c_void) -> Option<Arc<Datum>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.table().by_address.get(&pointer.addr()).cloned()
    }

    /// Refuses a pointer of a call that represents a freed datum, or a copy of a datum's description.
    ///
    /// # Safety
    /// It points to `size_bytes` bytes, which have a value if it `is_read`.
    pub(crate) unsafe fn check(
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
        // An output argument may be the program's new memory where a datum was.
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

    pub(crate) fn known(&self, pointer: *mut CRemote) -> Outcome<Arc<Datum>> {
        self.find(pointer.cast()).ok_or_else(|| Failed::new(GRPC_INVALID_DATA_NP, NO_HANDLE))
    }

    pub(crate) fn add(&self, name: &str) -> Outcome<*mut CRemote> {
        let mut table = self.table();
        if !name.is_empty() && table.by_name.contains_key(name) {
            let text = format!("there is a remote datum '{name}' already; grpc_remote_find_np returns it");
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

    pub(crate) fn named(&self, name: &str) -> Outcome<*mut CRemote> {
        let address = self.table().by_name.get(name).copied();
        let none = || Failed::new(GRPC_INVALID_DATA_NP, format!("there is no remote datum '{name}'"));
        address.map(std::ptr::without_provenance_mut).ok_or_else(none)
    }

    pub(crate) fn remove(&self, pointer: *mut CRemote) -> Outcome<()> {
        let remote = self.known(pointer)?;
        self.table().by_name.remove(remote.name());
        self.forget(pointer.addr());
        Ok(())
    }

    /// Makes the program's memory at that address represent the datum.
    pub(crate) fn bind(&self, address: usize, datum: Arc<Datum>) {
        let mut table = self.table();
        let old = table.by_address.insert(address, datum);
        HAS_DATA.store(true, Ordering::Release);
        self.count.store(table.by_address.len(), Ordering::Release);
        drop(table);
        // Its value is dropped last, outside of the lock.
        drop(old);
    }

    /// The pointer represents nothing any more.
    pub(crate) fn forget(&self, address: usize) {
        let mut table = self.table();
        let old = table.by_address.remove(&address);
        self.count.store(table.by_address.len(), Ordering::Release);
        drop(table);
        // Its value is dropped last, outside of the lock.
        drop(old);
    }

    /// Returns the datum of that number, if the program has it.
    pub(crate) fn numbered(&self, number: u64) -> Option<Arc<Datum>> {
        let table = self.table();
        table.by_address.values().find(|remote| remote.number() == number).cloned()
    }

    pub(crate) fn key(&self, key: &str) -> Option<usize> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied()
    }

    /// Sets the address of a key; 0 removes the key.
    pub(crate) fn set_key(&self, key: &str, address: usize) {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        match address {
            0 => drop(keys.remove(key)),
            address => drop(keys.insert(key.to_string(), address)),
        }
    }
}

impl Table {
    /// Returns an address that no handle has; freed addresses are reused as late as possible.
    fn free_handle(&self) -> Option<usize> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let address = |_| first_handle() + NEXT.fetch_add(1, Ordering::Relaxed) % HANDLES_MAX * size_of::<CRemote>();
        (0..HANDLES_MAX).map(address).find(|address| !self.by_address.contains_key(address))
    }
}

/// Marks of memory that is a datum, and of memory that was one.
pub(crate) const MARK: u64 = 0x4772_6964_4461_7461;
pub(crate) const GIVEN_UP: u64 = 0x4772_6964_476f_6e65;
/// True if the program ever had such data: calls of a program without any check nothing else. They remain true, so
/// that uses of freed data are detected.
static HAS_HANDLES: AtomicBool = AtomicBool::new(false);
static HAS_DATA: AtomicBool = AtomicBool::new(false);
const NO_HANDLE: &str = "this is not a handle of a remote datum: it was never made, or it was freed";
const FREED: &str = "this datum was freed, or unbound; describe it again with grpc_data_init";
const COPIED: &str =
    "this is a copy of a grpc_data_t, or one of an earlier session: a datum is identified by its address";

/// Memory that `memory:` URIs name. Only `Library::places` returns it. Its caller promises that all such memory is as
/// it was described.
impl Memory for Remotes {
    fn read(&self, uri: &Uri, size_bytes: Option<u64>) -> Result<Payload, String> {
        let pointer: *const c_void = std::ptr::with_exposed_provenance(self.address(uri)?);
        let size_bytes = match size_bytes {
            Some(size_bytes) => size_bytes,
            // SAFETY: a string that ends with a NUL, promised as above.
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
