//! Data management as in GFD.186 (`grpc_data.h`): data whose sources and destinations the program specifies.
//!
//! The session manages them ([`gridloom::data`]); this file converts pointers, numbers and strings of C into its
//! types. A datum is identified by the address of the program's `grpc_data_t`.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use gridloom::data::{DataError, Datum, DatumStatus, Description, Kind, Mode, Uri};
use gridloom_base::TaskId;

use super::super::code::{Failed, GRPC_COMMUNICATION_FAILED, GRPC_INVALID_DATA_NP, Outcome, run};
use super::super::library::{Library, library};
use super::super::memory;
use super::super::remotes::{GIVEN_UP, MARK};

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

/// Maximum number of elements of a list, in case the program has forgotten to end it.
const LIST_MAX: usize = 1 << 16;
/// `GRPC_END_LIST`.
const END_LIST: u32 = 5;
const WAIT_ALL: u32 = 0;

/// Reads a list that ends at the first element for which `is_end` is true.
///
/// # Safety
/// Null, or such a list.
unsafe fn list<T: Copy>(pointer: *const T, is_end: impl Fn(T) -> bool, what: &str) -> Outcome<Vec<T>> {
    let mut all = Vec::new();
    while !pointer.is_null() {
        // SAFETY: promised by the caller: no previous element ended the list.
        let element = unsafe { pointer.add(all.len()).read() };
        if is_end(element) {
            break;
        }
        all.push(element);
        if all.len() > LIST_MAX {
            return Err(invalid(format!("{what} do not end within {LIST_MAX} elements")));
        }
    }
    Ok(all)
}

/// # Safety
/// Null, or a list of C strings that ends with NULL.
unsafe fn uris(pointer: *mut *const c_char, what: &str) -> Outcome<Vec<Uri>> {
    // SAFETY: promised by the caller.
    let texts = unsafe { list(pointer, |text: *const c_char| text.is_null(), what) }?;
    // SAFETY: C strings, promised by the caller.
    texts.into_iter().map(|text| unsafe { uri(text) }).collect()
}

/// # Safety
/// A C string.
unsafe fn uri(text: *const c_char) -> Outcome<Uri> {
    // SAFETY: promised by the caller.
    Ok(Uri::parse(unsafe { memory::text(text, "the URI") }?)?)
}

/// Returns outputs with the modes of their copies; `GRPC_VOLATILE` if no modes are given.
///
/// # Safety
/// Null, or a list that ends with `GRPC_END_LIST`.
unsafe fn with_modes(outputs: Vec<Uri>, modes: *const CDataMode) -> Outcome<Vec<(Uri, Mode)>> {
    if modes.is_null() {
        return Ok(outputs.into_iter().map(|uri| (uri, Mode::Volatile)).collect());
    }
    // SAFETY: promised by the caller.
    let modes = unsafe { list(modes, |mode: CDataMode| mode.0 == END_LIST, "the modes") }?;
    if modes.len() != outputs.len() {
        let (modes, outputs) = (modes.len(), outputs.len());
        return Err(invalid(format!("{modes} modes for {outputs} outputs; give one each, and GRPC_END_LIST")));
    }
    let with_mode = |(uri, CDataMode(number)): (Uri, CDataMode)| match Mode::ALL.get(number as usize) {
        Some(mode) => Ok((uri, *mode)),
        None => Err(invalid(format!("mode {number} of output '{uri}' is unknown; grpc_data_mode_t lists the modes"))),
    };
    outputs.into_iter().zip(modes).map(with_mode).collect()
}

fn invalid(why: impl Into<String>) -> Failed {
    Failed::new(GRPC_INVALID_DATA_NP, why)
}

impl Library {
    /// Returns the program's datum at that address.
    fn datum(&self, data: *mut CData) -> Outcome<Arc<Datum>> {
        let found = self.remotes.find(data.cast()).filter(|remote| remote.description().is_some());
        found.ok_or_else(|| {
            let size_bytes = size_of::<CData>() as u64;
            // SAFETY: memory of the program for a datum, as the header requires.
            let known = unsafe { self.remotes.check(data.cast(), size_bytes, || true) };
            let text = "this is not a datum: grpc_data_init did not make it at this address";
            known.err().unwrap_or_else(|| invalid(text))
        })
    }

    /// # Safety
    /// `data` points to memory for a datum.
    unsafe fn add_datum(&self, data: *mut CData, datum: Arc<Datum>) -> Outcome<()> {
        let place = memory::program_memory(data, "the pointer for the datum")?;
        let number = datum.number();
        self.remotes.bind(data.addr(), datum);
        // SAFETY: promised by the caller.
        unsafe { place.write(CData { mark: MARK, number }) };
        Ok(())
    }

    /// Marks the program's memory at that address as a former datum.
    ///
    /// # Safety
    /// It is a datum.
    unsafe fn remove_datum(&self, data: *mut CData) {
        self.remotes.forget(data.addr());
        // SAFETY: promised by the caller.
        unsafe { data.write(CData { mark: GIVEN_UP, number: 0 }) };
    }

    /// Waits for the first of these data that has a value or that will never have one.
    fn await_one(&self, data: &[(*mut CData, Arc<Datum>)]) -> Outcome<usize> {
        let tasks: Vec<Option<TaskId>> = data.iter().map(|(_, datum)| datum.task()).collect();
        let found = self.await_sessions(None, |table| {
            tasks.iter().position(|task| task.is_none_or(|task| !table.is_running(task)))
        });
        Ok(found?)
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
        // SAFETY: lists, as the header requires.
        let (inputs, outputs, extents) = unsafe {
            let extents = list(dimensions, |extent: usize| extent == 0, "the dimensions")?;
            (uris(input_uris, "the inputs")?, uris(output_uris, "the outputs")?, extents)
        };
        let kind = Kind::ALL.get(r#type.0 as usize).copied();
        let kind = kind
            .ok_or_else(|| invalid(format!("{} is not a type of data; grpc_data_type_t lists the types", r#type.0)))?;
        // SAFETY: as above.
        let outputs = unsafe { with_modes(outputs, output_modes) }?;
        let extents = extents.into_iter().map(|extent| extent as u64).collect();
        let description = Description::new(inputs, outputs, kind, extents)?;
        // SAFETY: memory for a datum, as the header requires.
        unsafe { library.add_datum(data, Datum::managed(description)) }
    })
}

/// See `grpc_data.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_data_memory_mapping_set(key: *const c_char, data: *mut c_void) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: a C string, as the header requires.
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
        let place = memory::program_memory(data, "the pointer for the address")?;
        // SAFETY: a C string, as the header requires.
        let key = unsafe { memory::text(key, "the key") }?;
        let address = library.remotes.key(key);
        let none = || invalid(format!("the key '{key}' has no address"));
        // SAFETY: required by the header.
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
        // SAFETY: lists, as the header requires.
        let (inputs, outputs) = unsafe { (uris(input_uris, "the inputs")?, uris(output_uris, "the outputs")?) };
        // SAFETY: as above.
        let outputs = match unsafe { with_modes(outputs, output_modes) }? {
            _ if output_uris.is_null() => datum.description().map_or(Vec::new(), |known| known.outputs().to_vec()),
            outputs => outputs,
        };
        // SAFETY: memory that is named is as described, as the header requires.
        Ok(datum.begin_transfer(&unsafe { library.places() }, &inputs, outputs)?)
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
        // SAFETY: a list, as the header requires.
        let pointers = unsafe { list(data.cast_const(), |data: *mut CData| data.is_null(), "the data") }?;
        let data: Vec<(*mut CData, Arc<Datum>)> =
            pointers.into_iter().map(|data| Ok((data, library.datum(data)?))).collect::<Outcome<_>>()?;
        let lost = |error: DataError| Failed::new(GRPC_COMMUNICATION_FAILED, Failed::from(error).text);
        // SAFETY: memory that was named remains as described until this call, as the header requires.
        let end = |datum: &Datum| datum.end_transfers(&unsafe { library.places() }).map_err(lost);
        let (first, outcome) = match mode.0 {
            _ if data.is_empty() => (None, Ok(())),
            WAIT_ALL => {
                let ends: Vec<Outcome<()>> = data.iter().map(|(_, datum)| end(datum)).collect();
                (Some(data[0].0), ends.into_iter().collect())
            }
            _ => {
                let (pointer, datum) = &data[library.await_one(&data)?];
                (Some(*pointer), end(datum))
            }
        };
        if let Ok(place) = memory::program_memory(returned, "the pointer for the datum") {
            // SAFETY: required by the header.
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
        // SAFETY: a C string, and memory for a description, as the header requires.
        Ok(unsafe { datum.save(&library.places(), uri(uri_output)?) }?)
    })
}

/// See `grpc_data.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_data_load(data: *mut CData, uri_input: *const c_char) -> c_int {
    run(|| {
        let library = library()?;
        let numbered = |number| library.remotes.numbered(number);
        // SAFETY: a text, a description, and memory for a datum, as the header requires.
        unsafe { library.add_datum(data, Datum::load(&library.places(), &uri(uri_input)?, numbered)?) }
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
        let place = memory::program_memory(info, "the pointer for the text")?;
        // SAFETY: a C string, as the header requires.
        let server =
            if server_name.is_null() { None } else { Some(unsafe { memory::text(server_name, "the server") }?) };
        let known = datum.description().ok_or_else(|| invalid(format!("{datum} was not described")))?;
        let lines = |lines: Vec<String>| lines.join("\n");
        let text = match info_tag.0 {
            0 => format!("gridloom-datum-{}", datum.number()),
            1 => lines(known.inputs().iter().map(Uri::to_string).collect()),
            2 => lines(known.outputs().iter().map(|(uri, _)| uri.to_string()).collect()),
            3 => lines(known.outputs().iter().map(|(_, mode)| mode.to_string()).collect()),
            4 => known.kind().name().to_string(),
            5 => lines(known.extents().iter().map(u64::to_string).collect()),
            6 => lines(datum.status().1),
            7 => match (datum.status(), server) {
                ((_, places), Some(server)) if !places.iter().any(|place| place == server) => {
                    DatumStatus::Undefined.to_string()
                }
                ((status, _), _) => status.to_string(),
            },
            other => return Err(invalid(format!("{other} is not information about data"))),
        };
        // SAFETY: a string with a single NUL at its end; and memory for a pointer, as the header requires.
        unsafe { place.write(libc::strdup(crate::code::to_c(&text).as_ptr())) };
        Ok(())
    })
}

/// See `grpc_data.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_data_container_set(container: *mut CData, rank: c_int, data: *mut CData) -> c_int {
    run(|| {
        let library = library()?;
        Ok(library.datum(container)?.set_item(rank, library.datum(data)?)?)
    })
}

/// See `grpc_data.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_data_container_get(container: *mut CData, rank: c_int, data: *mut CData) -> c_int {
    run(|| {
        let library = library()?;
        let found = library.datum(container)?.item(rank)?;
        // SAFETY: memory for a datum, as the header requires.
        unsafe { library.add_datum(data, found) }
    })
}

/// See `grpc_data.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_data_unbind(data: *mut CData) -> c_int {
    run(|| {
        let library = library()?;
        library.datum(data)?;
        // SAFETY: a datum of the program, in memory that belongs to the program until then, as the header requires.
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
        // SAFETY: a list, as the header requires.
        let places = unsafe { uris(uri_locations, "the places") }?;
        let is_all = uri_locations.is_null();
        // SAFETY: memory is only looked up, and not accessed.
        let deleted = datum.delete(&unsafe { library.places() }, (!is_all).then_some(&*places));
        if is_all {
            // SAFETY: as in grpc_data_unbind.
            unsafe { library.remove_datum(data) };
        }
        Ok(deleted?)
    })
}
