//! Data management after GFD.186 (`grpc_data.h`): data of which a program says where they come from and where they go.
//!
//! A datum is a remote datum (`remote`) that has a description, and is known by the address of the program's `grpc_data_t`.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use gridloom_core::base::TaskId;
use gridloom_net::payload::Payload;
use serde::{Deserialize, Serialize};

use super::code::{Failed, GRPC_COMMUNICATION_FAILED, GRPC_INVALID_DATA_NP, Outcome, run};
use super::datum::Remote;
use super::description::{Description, MODES, TYPES};
use super::library::{Library, library};
use super::memory;
use super::remote::{GIVEN_UP, MARK};
use super::uri::Uri;

/// `grpc_data_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CData {
    mark: u64,
    number: u64,
}

/// `grpc_data_type_t`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct CDataType(pub c_uint);

/// `grpc_data_mode_t`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct CDataMode(pub c_uint);

/// `grpc_completion_mode_t`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct CCompletionMode(pub c_uint);

/// `grpc_data_info_type_t`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct CDataInfo(pub c_uint);

/// Elements of a list of the program that has no end, which it may have forgotten.
const LIST_MAX: usize = 1 << 16;
/// Room for a description in memory.
const SAVED_BYTES_MAX: usize = 4096;
/// `GRPC_END_LIST`.
const END_LIST: u32 = 5;
const WAIT_ALL: u32 = 0;

/// A description in a file or in memory.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    inputs: Vec<String>,
    outputs: Vec<String>,
    modes: Vec<String>,
    r#type: String,
    dimensions: Vec<u64>,
    /// Files that have its value.
    files: Vec<String>,
    /// By which this program knows it.
    datum: u64,
    program: String,
}

/// A list that ends where `is_end` says.
///
/// # Safety
/// Null, or such a list.
unsafe fn list<T: Copy>(pointer: *const T, is_end: impl Fn(T) -> bool, what: &str) -> Outcome<Vec<T>> {
    let mut all = Vec::new();
    while !pointer.is_null() {
        // SAFETY: promised by the caller: no end came before.
        let element = unsafe { pointer.add(all.len()).read() };
        if is_end(element) {
            break;
        }
        all.push(element);
        if all.len() > LIST_MAX {
            return Err(Failed::new(GRPC_INVALID_DATA_NP, format!("{what} have no end within {LIST_MAX}")));
        }
    }
    Ok(all)
}

/// # Safety
/// Null, or a list of texts that ends with NULL.
unsafe fn uris(pointer: *mut *const c_char, what: &str) -> Outcome<Vec<Uri>> {
    // SAFETY: promised by the caller.
    let texts = unsafe { list(pointer, |text: *const c_char| text.is_null(), what) }?;
    // SAFETY: texts, promised by the caller.
    texts.into_iter().map(|text| Uri::parse(unsafe { memory::text(text, "the URI") }?)).collect()
}

/// Modes for that many outputs.
///
/// # Safety
/// Null, or a list that ends with `GRPC_END_LIST`.
unsafe fn modes(pointer: *const CDataMode, outputs: usize) -> Outcome<Vec<usize>> {
    if pointer.is_null() {
        return Ok(vec![0; outputs]);
    }
    // SAFETY: promised by the caller.
    let modes = unsafe { list(pointer, |mode: CDataMode| mode.0 == END_LIST, "the modes") }?;
    if modes.len() != outputs {
        let text = format!("{} modes for {outputs} outputs; give one each, and GRPC_END_LIST", modes.len());
        return Err(Failed::new(GRPC_INVALID_DATA_NP, text));
    }
    Ok(modes.into_iter().map(|mode| mode.0 as usize).collect())
}

impl Library {
    /// The program's datum at that address.
    fn datum(&self, data: *mut CData) -> Outcome<Arc<Remote>> {
        let found = self.remotes.find(data.cast()).filter(|remote| remote.description().is_some());
        found.ok_or_else(|| {
            let size_bytes = size_of::<CData>() as u64;
            // SAFETY: memory of the program for a datum, as the header asks.
            let known = unsafe { self.remotes.check(data.cast(), size_bytes, true) };
            let text = "this is no datum: grpc_data_init did not make it at this address";
            known.err().unwrap_or_else(|| Failed::new(GRPC_INVALID_DATA_NP, text))
        })
    }

    /// # Safety
    /// Memory for one.
    unsafe fn add_datum(&self, data: *mut CData, datum: Arc<Remote>) -> Outcome<()> {
        let place = memory::place(data, "the place for the datum")?;
        let number = datum.number();
        self.remotes.bind(data.addr(), datum);
        // SAFETY: promised by the caller.
        unsafe { place.write(CData { mark: MARK, number }) };
        Ok(())
    }

    /// The program's memory at that address is no datum any more, and says so.
    ///
    /// # Safety
    /// It is one.
    unsafe fn remove_datum(&self, data: *mut CData) {
        self.remotes.forget(data.addr());
        // SAFETY: promised by the caller.
        unsafe { data.write(CData { mark: GIVEN_UP, number: 0 }) };
    }

    /// Deletes what servers have of a datum at these places, and files that they made, of all places if none is named.
    fn delete(&self, datum: &Remote, places: Option<&[Uri]>) -> Outcome<()> {
        let files = datum.described()?.take_files(|file| places.is_none_or(|places| places.contains(file)));
        let files = files.iter().map(|(server, path)| self.delete_file(server, path));
        let stores = places.into_iter().flatten().filter_map(|uri| match uri {
            Uri::Store(server) => Some(datum.give_up_at(self, server)),
            _ => None,
        });
        files.chain(stores).collect::<Vec<Outcome<()>>>().into_iter().collect()
    }

    /// Ends the transfers of a datum: writes what is to be written.
    fn end_transfers(&self, datum: &Remote) -> Outcome<()> {
        for transfer in datum.described()?.take_transfers() {
            let lost = |failed: Failed| Failed::new(GRPC_COMMUNICATION_FAILED, failed.text);
            let outputs = transfer.map_err(lost)?;
            // SAFETY: memory that was named stays as described until this, as the header asks.
            unsafe { datum.write(self, &outputs) }.map_err(lost)?;
        }
        Ok(())
    }

    /// The first of these whose value is there, or will not be: waits for one.
    fn await_one(&self, data: &[(*mut CData, Arc<Remote>)]) -> Outcome<usize> {
        let tasks: Vec<Option<TaskId>> = data.iter().map(|(_, datum)| datum.task()).collect();
        let found = self.await_sessions(None, |table| {
            tasks.iter().position(|task| task.is_none_or(|task| !table.is_running(task)))
        });
        Ok(found?)
    }
}

fn saved(datum: &Remote) -> Outcome<Saved> {
    let Description { inputs, outputs, kind, extents, .. } = datum.described()?;
    Ok(Saved {
        inputs: inputs.iter().map(Uri::to_string).collect(),
        outputs: outputs.iter().map(|(uri, _)| uri.to_string()).collect(),
        modes: outputs.iter().map(|(_, mode)| MODES[*mode].to_string()).collect(),
        r#type: TYPES[*kind].0.to_string(),
        dimensions: extents.clone(),
        files: datum.described()?.files().iter().map(Uri::to_string).collect(),
        datum: datum.number(),
        program: program(),
    })
}

/// Tells the data of this process from others that were saved: when it asked first, and its number.
fn program() -> String {
    static FIRST: OnceLock<u64> = OnceLock::new();
    let since = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let first = FIRST.get_or_init(|| since().map_or(0, |since| since.as_nanos() as u64));
    format!("{first:016x}-{:08x}", std::process::id())
}

impl Saved {
    fn description(&self) -> Outcome<Description> {
        let wrong =
            |what: &str, name: &str| Failed::new(GRPC_INVALID_DATA_NP, format!("'{name}' is no {what} of data"));
        let kind = TYPES.iter().position(|(name, _)| *name == self.r#type);
        let mode = |name: &String| MODES.iter().position(|mode| mode == name).ok_or_else(|| wrong("mode", name));
        let modes = self.modes.iter().map(mode).collect::<Outcome<Vec<usize>>>()?;
        let parsed = |texts: &[String]| texts.iter().map(|text| Uri::parse(text)).collect::<Outcome<Vec<Uri>>>();
        // Addresses are of the program that saved it.
        let is_of_all = |uri: &Uri| !matches!(uri, Uri::Address(_));
        let outputs = parsed(&self.outputs)?.into_iter().zip(modes).filter(|(uri, _)| is_of_all(uri)).collect();
        let inputs = parsed(&self.files)?.into_iter().chain(parsed(&self.inputs)?).filter(is_of_all).collect();
        let kind = kind.ok_or_else(|| wrong("type", &self.r#type))?;
        Description::new(inputs, outputs, kind, self.dimensions.clone())
    }
}

/// See `grpc_data.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_data_init(
    data: *mut CData,
    input_uris: *mut *const c_char,
    output_uris: *mut *const c_char,
    r#type: CDataType,
    dimensions: *const usize,
    output_modes: *const CDataMode,
) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: lists, as the header asks.
        let (inputs, outputs, extents) = unsafe {
            let extents = list(dimensions, |extent: usize| extent == 0, "the dimensions")?;
            (uris(input_uris, "the inputs")?, uris(output_uris, "the outputs")?, extents)
        };
        // SAFETY: as above.
        let modes = unsafe { modes(output_modes, outputs.len()) }?;
        let outputs = outputs.into_iter().zip(modes).collect();
        let extents = extents.into_iter().map(|extent| extent as u64).collect();
        let description = Description::new(inputs, outputs, r#type.0 as usize, extents)?;
        // SAFETY: memory for a datum, as the header asks.
        unsafe { library.add_datum(data, Remote::managed(description)) }
    })
}

/// See `grpc_data.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_data_memory_mapping_set(key: *const c_char, data: *mut c_void) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: a text, as the header asks.
        let key = unsafe { memory::text(key, "the key") }?;
        library.remotes.set_key(key, data.expose_provenance());
        Ok(())
    })
}

/// See `grpc_data.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_data_memory_mapping_get(key: *const c_char, data: *mut *mut c_void) -> c_int {
    run(|| {
        let library = library()?;
        let place = memory::place(data, "the place for the address")?;
        // SAFETY: a text, as the header asks.
        let key = unsafe { memory::text(key, "the key") }?;
        let address = library.remotes.keys().get(key).copied();
        let none = || Failed::new(GRPC_INVALID_DATA_NP, format!("the key '{key}' has no address"));
        // SAFETY: as the header asks.
        unsafe { place.write(std::ptr::with_exposed_provenance_mut(address.ok_or_else(none)?)) };
        Ok(())
    })
}

/// See `grpc_data.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_data_transfer(
    data: *mut CData,
    input_uris: *mut *const c_char,
    output_uris: *mut *const c_char,
    output_modes: *const CDataMode,
) -> c_int {
    run(|| {
        let library = library()?;
        let datum = library.datum(data)?;
        let description = datum.described()?;
        // SAFETY: lists, as the header asks.
        let (inputs, outputs) = unsafe { (uris(input_uris, "the inputs")?, uris(output_uris, "the outputs")?) };
        // SAFETY: as above.
        let modes = unsafe { modes(output_modes, outputs.len()) }?;
        let outputs = match output_uris.is_null() {
            true => description.outputs.clone(),
            false => outputs.into_iter().zip(modes).collect(),
        };
        // SAFETY: memory that is named is as described, as the header asks.
        let read = unsafe { datum.fill(&library, &inputs) };
        description.begin_transfer(read.map(|()| outputs));
        Ok(())
    })
}

/// See `grpc_data.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_data_wait(
    data: *mut *mut CData,
    mode: CCompletionMode,
    returned: *mut *mut CData,
) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: a list, as the header asks.
        let pointers = unsafe { list(data.cast_const(), |data: *mut CData| data.is_null(), "the data") }?;
        let data: Vec<(*mut CData, Arc<Remote>)> =
            pointers.into_iter().map(|data| Ok((data, library.datum(data)?))).collect::<Outcome<_>>()?;
        let (first, outcome) = match mode.0 {
            _ if data.is_empty() => (None, Ok(())),
            WAIT_ALL => {
                let ends: Vec<Outcome<()>> = data.iter().map(|(_, datum)| library.end_transfers(datum)).collect();
                (Some(data[0].0), ends.into_iter().collect())
            }
            _ => {
                let (pointer, datum) = &data[library.await_one(&data)?];
                (Some(*pointer), library.end_transfers(datum))
            }
        };
        if let Ok(place) = memory::place(returned, "the place for the datum") {
            // SAFETY: as the header asks.
            unsafe { place.write(first.unwrap_or(std::ptr::null_mut())) };
        }
        outcome
    })
}

/// See `grpc_data.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_data_save(data: *mut CData, uri_output: *const c_char) -> c_int {
    run(|| {
        let library = library()?;
        let datum = library.datum(data)?;
        // SAFETY: a text, as the header asks.
        let uri = Uri::parse(unsafe { memory::text(uri_output, "the URI") }?)?;
        let text = toml::to_string(&saved(&datum)?).map_err(|error| Failed::other(error.to_string()))?;
        let is_memory = !matches!(uri, Uri::File(_) | Uri::ServerFile(..));
        if is_memory && text.len() >= SAVED_BYTES_MAX {
            let text = format!("the description has {} bytes, memory has room for {SAVED_BYTES_MAX}", text.len());
            return Err(Failed::other(text));
        }
        let bytes = if is_memory { [text.as_bytes(), b"\0"].concat() } else { text.into_bytes() };
        let plain = Remote::managed(Description::new(Vec::new(), Vec::new(), SAVED, vec![])?);
        plain.put(Payload::Inline(bytes.into()));
        // SAFETY: room for a description, as the header asks.
        unsafe { plain.write(&library, &[(uri, 0)]) }
    })
}

/// `GRPC_STRING`: a description in memory is a text.
const SAVED: usize = 9;

/// See `grpc_data.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_data_load(data: *mut CData, uri_input: *const c_char) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: a text, as the header asks.
        let uri = Uri::parse(unsafe { memory::text(uri_input, "the URI") }?)?;
        let plain = Remote::managed(Description::new(Vec::new(), Vec::new(), SAVED, vec![])?);
        // SAFETY: a description, as the header asks.
        unsafe { plain.fill(&library, std::slice::from_ref(&uri)) }?;
        let bytes = plain.bytes()?.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let saved: Saved = toml::from_str(text.trim_end_matches('\0'))
            .map_err(|error| Failed::new(GRPC_INVALID_DATA_NP, format!("'{uri}': {error}")))?;
        let known = (saved.program == program()).then(|| library.remotes.numbered(saved.datum)).flatten();
        let datum = match known {
            Some(datum) => datum,
            None => Remote::managed(saved.description()?),
        };
        // SAFETY: memory for a datum, as the header asks.
        unsafe { library.add_datum(data, datum) }
    })
}

/// See `grpc_data.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_data_getinfo(
    data: *mut CData,
    info_tag: CDataInfo,
    server_name: *const c_char,
    info: *mut *mut c_char,
) -> c_int {
    run(|| {
        let datum = library()?.datum(data)?;
        let place = memory::place(info, "the place for the text")?;
        // SAFETY: a text, as the header asks.
        let server =
            if server_name.is_null() { None } else { Some(unsafe { memory::text(server_name, "the server") }?) };
        let Description { inputs, outputs, kind, extents, .. } = datum.described()?;
        let lines = |lines: Vec<String>| lines.join("\n");
        let text = match info_tag.0 {
            0 => format!("gridloom-datum-{}", datum.number()),
            1 => lines(inputs.iter().map(Uri::to_string).collect()),
            2 => lines(outputs.iter().map(|(uri, _)| uri.to_string()).collect()),
            3 => lines(outputs.iter().map(|(_, mode)| MODES[*mode].to_string()).collect()),
            4 => TYPES[*kind].0.to_string(),
            5 => lines(extents.iter().map(u64::to_string).collect()),
            6 => lines(datum.status().1),
            7 => match (datum.status(), server) {
                ((status, _), None) => status,
                ((status, places), Some(server)) if places.iter().any(|place| place == server) => status,
                _ => "undefined".into(),
            },
            other => return Err(Failed::new(GRPC_INVALID_DATA_NP, format!("{other} is nothing that data have"))),
        };
        // SAFETY: a text without NUL but its last; and a place, as the header asks.
        unsafe { place.write(libc::strdup(crate::current::to_c(&text).as_ptr())) };
        Ok(())
    })
}

/// See `grpc_data.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_data_container_set(container: *mut CData, rank: c_int, data: *mut CData) -> c_int {
    run(|| {
        let library = library()?;
        let (container, datum) = (library.datum(container)?, library.datum(data)?);
        if Arc::ptr_eq(&container, &datum) {
            return Err(Failed::new(GRPC_INVALID_DATA_NP, "a container cannot hold itself"));
        }
        let old = container.described()?.item(rank, |place| place.replace(datum))?;
        drop(old);
        Ok(())
    })
}

/// See `grpc_data.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_data_container_get(container: *mut CData, rank: c_int, data: *mut CData) -> c_int {
    run(|| {
        let library = library()?;
        let found = library.datum(container)?.described()?.item(rank, |place| place.clone())?;
        let none = || Failed::new(GRPC_INVALID_DATA_NP, format!("the container has nothing at rank {rank}"));
        // SAFETY: memory for a datum, as the header asks.
        unsafe { library.add_datum(data, found.ok_or_else(none)?) }
    })
}

/// See `grpc_data.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_data_unbind(data: *mut CData) -> c_int {
    run(|| {
        let library = library()?;
        library.datum(data)?;
        // SAFETY: a datum of the program, whose memory it is until then, as the header asks.
        unsafe { library.remove_datum(data) };
        Ok(())
    })
}

/// See `grpc_data.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_data_free(data: *mut CData, uri_locations: *mut *const c_char) -> c_int {
    run(|| {
        let library = library()?;
        let datum = library.datum(data)?;
        // SAFETY: a list, as the header asks.
        let places = unsafe { uris(uri_locations, "the places") }?;
        let is_all = uri_locations.is_null();
        let there = library.delete(&datum, (!is_all).then_some(&*places));
        if is_all || places.contains(&Uri::Grid) {
            datum.clear();
        }
        let here = datum.described()?.delete(|path| is_all || places.contains(&Uri::File(path.into())));
        if is_all {
            // SAFETY: as in grpc_data_unbind.
            unsafe { library.remove_datum(data) };
        }
        there.and(here)
    })
}
