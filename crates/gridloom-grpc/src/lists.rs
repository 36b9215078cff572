//! Files in the program's memory, by their paths or open, and arrays of strings and of files.

use std::ffi::{OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gridloom::data::PendingFile;
use gridloom::{Grid, Value};
use gridloom_base::Meta;
use gridloom_idl::{BaseType, BindError, Param, Signature};
use gridloom_net::payload::Payload;

use super::code::{Failed, Outcome};
use super::handles::missing;
use super::memory::{self, Allocated};

/// The destination of a result that is such an array.
#[derive(Clone)]
pub(crate) struct ListTarget {
    base: BaseType,
    /// Address of the pointers.
    address: usize,
    count: usize,
    /// For files: their paths at the time of the call.
    paths: Vec<Option<PathBuf>>,
}

/// An item of a result that only has to be stored.
pub(crate) enum ReadyItem<'a> {
    Text(Option<Allocated>),
    File(Option<PendingFile>),
    /// The content of a file that is written to an open file of the program.
    Stream(Option<&'a [u8]>),
}

/// Returns the path that a program passes for a file; null is none.
///
/// # Safety
/// A string, or null.
pub(crate) unsafe fn path(pointer: *const c_void) -> Option<PathBuf> {
    // SAFETY: promised by the caller.
    unsafe { memory::string_or_null(pointer) }.map(|path| PathBuf::from(OsStr::from_bytes(path)))
}

/// Returns the content of the file at a path; the empty path is a file without content.
pub(crate) fn file_value(grid: &Grid, signature: &Signature, param: &Param, path: Option<&Path>) -> Outcome<Value> {
    match path {
        None => Ok(Value::text("")),
        Some(path) if path.as_os_str().is_empty() => {
            Ok(Value::new(Meta::Bytes { size_bytes: 0 }, Payload::Inline(Arc::from([])))?)
        }
        Some(path) => Ok(grid.file_argument(&signature.name, &param.name, path)?),
    }
}

/// Returns the value for an array of `count` strings or files.
///
/// # Safety
/// The arguments match the signature (`memory`).
pub(crate) unsafe fn list_argument(
    grid: &Grid,
    signature: &Signature,
    param: &Param,
    pointer: *mut c_void,
    count: usize,
) -> Outcome<Value> {
    if pointer.is_null() && count > 0 {
        return Err(missing(signature, param));
    }
    let mut contents: Vec<Option<Vec<u8>>> = Vec::with_capacity(count);
    // SAFETY: this number of pointers, promised by the caller.
    for pointer in unsafe { pointers(pointer, count) }? {
        // SAFETY: strings, paths or open files, promised by the caller.
        contents.push(unsafe {
            match param.base {
                BaseType::Stream => stream(signature, param, pointer)?,
                BaseType::File => {
                    let value = file_value(grid, signature, param, path(pointer).as_deref())?;
                    let is_there = matches!(value.meta(), Meta::Bytes { .. });
                    value.payload().filter(|_| is_there).map(|payload| payload.bytes().to_vec())
                }
                _ => memory::string_or_null(pointer).map(<[u8]>::to_vec),
            }
        });
    }
    Ok(Value::list(contents.iter().map(Option::as_deref)))
}

/// Returns `count` pointers from memory; none at NULL.
unsafe fn pointers(pointer: *mut c_void, count: usize) -> Outcome<Vec<*mut c_void>> {
    let count = if pointer.is_null() { 0 } else { count };
    // SAFETY: promised by the caller.
    unsafe { memory::array(pointer.cast::<*mut c_void>(), count, "an array of pointers") }
}

/// Returns the content of an open file that is an input.
///
/// # Safety
/// The arguments match the signature (`memory`).
pub(crate) unsafe fn stream_argument(signature: &Signature, param: &Param, pointer: *mut c_void) -> Outcome<Value> {
    // SAFETY: promised by the caller.
    match unsafe { stream(signature, param, pointer) }? {
        None => Ok(Value::text("")),
        Some(content) => {
            let meta = Meta::Bytes { size_bytes: content.len() as u64 };
            Ok(Value::new(meta, Payload::Inline(content.into()))?)
        }
    }
}

unsafe fn stream(signature: &Signature, param: &Param, file: *mut c_void) -> Outcome<Option<Vec<u8>>> {
    if file.is_null() {
        return Ok(None);
    }
    // SAFETY: an open file, promised by the caller.
    unsafe { memory::stream_content(file) }.map(Some).map_err(|error| {
        let what = format!("argument '{}'", param.name);
        let why = format!("its file cannot be read: {error}; open it for reading");
        gridloom::Error::from(BindError::Value { function: signature.name.clone(), what, why }).into()
    })
}

impl ListTarget {
    /// Returns the destination for pointers of the program; `None` if it does not want the result.
    ///
    /// # Safety
    /// The arguments match the signature (`memory`).
    pub(crate) unsafe fn new(param: &Param, pointer: *mut c_void, count: usize) -> Outcome<Option<ListTarget>> {
        if pointer.is_null() {
            return Ok(None);
        }
        let mut paths = Vec::new();
        if param.base == BaseType::File {
            // SAFETY: this number of pointers to paths, promised by the caller.
            for pointer in unsafe { pointers(pointer, count) }? {
                // SAFETY: the same.
                paths.push(unsafe { path(pointer) }.filter(|path| !path.as_os_str().is_empty()));
            }
        }
        Ok(Some(ListTarget { base: param.base, address: pointer.expose_provenance(), count, paths }))
    }

    /// True if it has room for this value.
    pub(crate) fn fits(&self, value: &Value) -> bool {
        value.payload().is_none() || value.items().is_some_and(|items| items.len() == self.count)
    }

    /// Returns the items of a result; none if a simulation did not run the function.
    pub(crate) fn ready<'a>(&self, name: &str, value: &'a Value) -> Outcome<Vec<ReadyItem<'a>>> {
        let mut ready = Vec::with_capacity(self.count);
        for (at, item) in value.items().unwrap_or_default().into_iter().enumerate() {
            ready.push(match self.base {
                BaseType::Stream => ReadyItem::Stream(item),
                BaseType::File => {
                    let place = self.paths.get(at).and_then(Option::as_ref).zip(item);
                    ReadyItem::File(place.map(|(path, content)| PendingFile::write(name, path, content)).transpose()?)
                }
                _ => {
                    let text = item.map(|item| memory::allocated(item, &format!("result '{name}'")));
                    ReadyItem::Text(text.transpose()?)
                }
            });
        }
        Ok(ready)
    }

    /// Stores the items.
    ///
    /// # Safety
    /// The pointers of the call still match the signature (`memory`).
    pub(crate) unsafe fn put(&self, name: &str, items: Vec<ReadyItem<'_>>) -> Outcome<()> {
        for (at, item) in items.into_iter().enumerate() {
            let place: *mut *mut c_void =
                std::ptr::with_exposed_provenance_mut::<*mut c_void>(self.address).wrapping_add(at);
            // SAFETY: promised by the caller: memory for a pointer that is an open file or NULL.
            unsafe {
                match item {
                    ReadyItem::Text(None) => place.write_unaligned(std::ptr::null_mut()),
                    ReadyItem::Text(Some(text)) => text.store(place),
                    ReadyItem::File(file) => file.map_or(Ok(()), |file| file.place(name))?,
                    ReadyItem::Stream(None) => {}
                    ReadyItem::Stream(Some(content)) => {
                        let file = memory::stream_of(place.read_unaligned(), content);
                        let file = file.map_err(|error| {
                            Failed::other(format!(
                                "result '{name}': the file cannot be written: {error}; open it for writing"
                            ))
                        })?;
                        place.write_unaligned(file);
                    }
                }
            }
        }
        Ok(())
    }
}
