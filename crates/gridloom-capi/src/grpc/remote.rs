//! Remote data: results that stay where they are made, under pointers of the library that calls take in place of memory.
//!
//! **Invariant:** a pointer is known here by its address only, and never followed. Calls under way have their own share of what
//! they read, so that a value may be replaced or freed at any time.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridloom::{Arg, Handle, Submitted, Value};
use gridloom_core::base::{Meta, TaskId};
use gridloom_net::payload::Payload;

use super::code::{Failed, GRPC_INVALID_DATA_NP, Outcome, run};
use super::deliver::arranged;
use super::description::{Description, Keys};
use super::library::{Library, library};
use super::memory;
use super::uri::Uri;

/// `struct grpc_remote_np`: what a `grpc_remote_t` leads to. Its address is what counts.
#[derive(Debug)]
#[repr(C)]
pub struct CRemote {
    unused: u64,
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
    /// The library's own pointers with what lies there, and the program's data.
    by_address: HashMap<usize, (Option<Box<CRemote>>, Arc<Remote>)>,
    by_name: HashMap<String, usize>,
}

/// A datum of the program that may be anywhere.
pub(super) struct Remote {
    /// Given once.
    number: u64,
    /// Empty if it has none.
    name: String,
    /// Of one that is managed (`data`).
    description: Option<Description>,
    content: Mutex<Content>,
}

/// What it is now.
#[derive(Clone)]
enum Content {
    Nothing,
    /// Bytes of the program, of which each call that reads them has its own view.
    Put(Payload),
    /// A result of that call.
    Made {
        result: Handle,
        /// As the program would have it in memory.
        meta: Meta,
        call: Submitted,
    },
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
        self.table().by_address.get(&pointer.addr()).map(|(_, remote)| remote.clone())
    }

    fn known(&self, pointer: *mut CRemote) -> Outcome<Arc<Remote>> {
        let text = "this is no handle of a remote datum: nothing made it, or it was freed";
        self.find(pointer.cast()).ok_or_else(|| Failed::new(GRPC_INVALID_DATA_NP, text))
    }

    fn add(&self, name: &str) -> Outcome<*mut CRemote> {
        let mut table = self.table();
        if !name.is_empty() && table.by_name.contains_key(name) {
            let text = format!("there is a remote datum '{name}' already; grpc_remote_find_np gives it");
            return Err(Failed::new(GRPC_INVALID_DATA_NP, text));
        }
        let mut place = Box::new(CRemote { unused: 0 });
        let pointer = std::ptr::from_mut(&mut *place);
        if !name.is_empty() {
            table.by_name.insert(name.to_string(), pointer.addr());
        }
        table.by_address.insert(pointer.addr(), (Some(place), Arc::new(Remote::new(name, None))));
        self.count.store(table.by_address.len(), Ordering::Release);
        Ok(pointer)
    }

    fn named(&self, name: &str) -> Outcome<*mut CRemote> {
        let mut table = self.table();
        let address = table.by_name.get(name).copied();
        let found = address.and_then(|address| table.by_address.get_mut(&address));
        let none = || Failed::new(GRPC_INVALID_DATA_NP, format!("there is no remote datum '{name}'"));
        found.and_then(|(place, _)| place.as_deref_mut()).map(std::ptr::from_mut).ok_or_else(none)
    }

    fn remove(&self, pointer: *mut CRemote) -> Outcome<()> {
        let remote = self.known(pointer)?;
        self.table().by_name.remove(&remote.name);
        self.unbind(pointer.addr());
        Ok(())
    }

    /// The program's memory at that address stands for the datum from now on.
    pub(super) fn bind(&self, address: usize, datum: Arc<Remote>) {
        let mut table = self.table();
        let old = table.by_address.insert(address, (None, datum));
        self.count.store(table.by_address.len(), Ordering::Release);
        drop(table);
        // Its value goes last, outside of the lock.
        drop(old);
    }

    /// The pointer stands for nothing any more.
    pub(super) fn unbind(&self, address: usize) {
        let mut table = self.table();
        let old = table.by_address.remove(&address);
        self.count.store(table.by_address.len(), Ordering::Release);
        drop(table);
        // As above.
        drop(old);
    }

    /// The datum of that number, if the program has it.
    pub(super) fn numbered(&self, number: u64) -> Option<Arc<Remote>> {
        let table = self.table();
        let found = table.by_address.values().find(|(_, remote)| remote.number == number);
        found.map(|(_, remote)| remote.clone())
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

impl Remote {
    fn new(name: &str, description: Option<Description>) -> Remote {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Remote { number, name: name.to_string(), description, content: Mutex::new(Content::Nothing) }
    }

    /// One that is managed.
    pub(super) fn managed(description: Description) -> Arc<Remote> {
        Arc::new(Remote::new("", Some(description)))
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn description(&self) -> Option<&Description> {
        self.description.as_ref()
    }

    /// The description of one that is managed.
    pub(super) fn described(&self) -> Outcome<&Description> {
        let none = || Failed::new(GRPC_INVALID_DATA_NP, format!("{self} was not made by grpc_data_init"));
        self.description().ok_or_else(none)
    }

    /// The call that makes its value.
    pub(super) fn task(&self) -> Option<TaskId> {
        match self.content() {
            Content::Nothing | Content::Put(_) => None,
            Content::Made { call, .. } => Some(call.task()),
        }
    }

    /// How its value is, and where.
    pub(super) fn status(&self) -> (String, String) {
        match self.content() {
            Content::Nothing => ("undefined".into(), String::new()),
            Content::Put(_) => ("ready".into(), "client".into()),
            Content::Made { call, .. } => match call.end() {
                None => ("under way".into(), String::new()),
                Some(end) => match end.error {
                    Some(error) => (format!("lost: {error}"), String::new()),
                    None => ("ready".into(), end.server.unwrap_or_default()),
                },
            },
        }
    }

    pub(super) fn clear(&self) {
        self.set(Content::Nothing);
    }

    /// Reads its value from one of these places; for none, from its own if it has no value.
    ///
    /// # Safety
    /// As of [`Description::read`].
    pub(super) unsafe fn fill(&self, inputs: &[Uri], keys: &Keys) -> Outcome<()> {
        let description = self.described()?;
        let inputs = match (inputs.is_empty(), self.content()) {
            (true, Content::Put(_) | Content::Made { .. }) => return Ok(()),
            (true, Content::Nothing) => &description.inputs,
            (false, _) => inputs,
        };
        // SAFETY: promised by the caller.
        self.put(unsafe { description.read(inputs, keys) }?);
        Ok(())
    }

    /// Writes its value to these places, once it is there.
    ///
    /// # Safety
    /// As of [`Description::write`].
    pub(super) unsafe fn write<'a>(&self, outputs: impl Iterator<Item = &'a Uri>, keys: &Keys) -> Outcome<()> {
        let Some(bytes) = self.bytes()? else { return Ok(()) };
        // SAFETY: promised by the caller.
        unsafe { self.described()?.write(&bytes, outputs, keys) }
    }

    /// Whether its value is to be written somewhere as soon as it is there.
    pub(super) fn is_put_elsewhere(&self) -> bool {
        let outputs = self.description.iter().flat_map(|description| &description.outputs);
        outputs.into_iter().any(|(uri, _)| *uri != Uri::Grid)
    }

    /// Writes it where it has to be put.
    ///
    /// # Safety
    /// As of [`Description::write`].
    pub(super) unsafe fn put_elsewhere(&self, remotes: &Remotes) -> Outcome<()> {
        match &self.description {
            Some(description) if self.is_put_elsewhere() => {
                // SAFETY: promised by the caller.
                unsafe { self.write(description.outputs.iter().map(|(uri, _)| uri), &remotes.keys()) }
            }
            _ => Ok(()),
        }
    }

    fn content(&self) -> Content {
        self.content.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, content: Content) {
        let old = std::mem::replace(&mut *self.content.lock().unwrap_or_else(PoisonError::into_inner), content);
        // Outside of the lock.
        drop(old);
    }

    /// From now on it names that result.
    pub(super) fn names(&self, result: &Handle, meta: &Meta, call: &Submitted) {
        self.set(Content::Made { result: result.clone(), meta: meta.clone(), call: call.clone() });
    }

    fn put(&self, payload: Payload) {
        self.set(Content::Put(payload));
    }

    fn size_bytes(&self) -> u64 {
        match self.content() {
            Content::Nothing => 0,
            Content::Put(payload) => payload.size_bytes(),
            Content::Made { result, .. } => result.meta().size_bytes(),
        }
    }

    /// As an argument of that description.
    ///
    /// # Safety
    /// Memory of which it is read is as it was described.
    pub(super) unsafe fn argument(
        &self,
        remotes: &Remotes,
        function: &str,
        argument: &str,
        meta: &Meta,
    ) -> Outcome<Arg> {
        if self.description.is_some() {
            // SAFETY: promised by the caller.
            unsafe { self.fill(&[], &remotes.keys()) }?;
        }
        let arg = self.read(function, argument, meta);
        if self.description.as_ref().is_some_and(Description::is_strictly_volatile) {
            // The call has its own share.
            self.clear();
        }
        arg
    }

    fn read(&self, function: &str, argument: &str, meta: &Meta) -> Outcome<Arg> {
        let (got, needed) = (self.size_bytes(), meta.size_bytes());
        let content = self.content();
        if !matches!(content, Content::Nothing) && got != needed {
            let text = format!("{function}: argument '{argument}' is {meta}, {needed} bytes; {self} has {got}");
            return Err(Failed::other(text));
        }
        match content {
            Content::Nothing => Err(self.without_value()),
            Content::Put(payload) => Ok(Value::new(meta.clone(), payload)?.into()),
            Content::Made { result, meta: made, .. } => match read_as(&result, &made, meta) {
                Some(result) => Ok(Arg::Handle(result)),
                // It is read as something else than it was made: as the program's memory would be.
                None => {
                    let value = result.get().map_err(|error| Failed::without_value(error, self))?;
                    let Some(payload) = value.payload() else { return Ok(Value::placeholder(meta.clone()).into()) };
                    let bytes = arranged(value.meta(), payload, &made);
                    Ok(Value::new(meta.clone(), Payload::copied(&bytes))?.into())
                }
            },
        }
    }

    /// Its bytes as the program sees them, once they are there; `None` in a simulation without content.
    fn bytes(&self) -> Outcome<Option<Vec<u8>>> {
        match self.content() {
            Content::Nothing => Err(self.without_value()),
            Content::Put(payload) => Ok(Some(payload.bytes().to_vec())),
            Content::Made { result, meta, .. } => {
                let value = result.get().map_err(|error| Failed::without_value(error, self))?;
                let arranged = |payload| arranged(value.meta(), payload, &meta).into_owned();
                Ok(value.payload().map(arranged))
            }
        }
    }

    fn wait(&self) -> Outcome<()> {
        match self.content() {
            Content::Nothing => Err(self.without_value()),
            Content::Put(_) => Ok(()),
            Content::Made { call, .. } => call.wait().map_err(|error| Failed::without_value(error, self)),
        }
    }

    fn without_value(&self) -> Failed {
        let text = format!("{self} has no value yet: put one, or give it to a call as an output");
        Failed::new(GRPC_INVALID_DATA_NP, text)
    }
}

impl std::fmt::Display for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "the remote datum"),
            name => write!(f, "the remote datum '{name}'"),
        }
    }
}

/// The result for a call that reads it as that, if it gets what the program would pass; `made` is how the program would have
/// the result in memory.
pub(super) fn read_as(result: &Handle, made: &Meta, wanted: &Meta) -> Option<Handle> {
    is_as_made(result.meta(), made, wanted).then(|| result.read_as(wanted)).flatten()
}

/// Whether memory has a result, which is `made` there and `lies` where it is, as who wants that would find it.
pub(super) fn is_as_made(lies: &Meta, made: &Meta, wanted: &Meta) -> bool {
    let order_and_shape = |meta: &Meta| match meta {
        Meta::Array { order, shape, .. } if shape.iter().filter(|extent| **extent > 1).count() > 1 => {
            (Some(*order), shape.clone())
        }
        Meta::Array { shape, .. } => (None, shape.clone()),
        _ => (None, Vec::new()),
    };
    let ((order, shape), (wanted_order, wanted_shape)) = (order_and_shape(made), order_and_shape(wanted));
    let (lies, _) = order_and_shape(lies);
    if shape == wanted_shape { order == wanted_order } else { order == lies }
}

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
