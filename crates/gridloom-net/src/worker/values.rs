//! The values of one call in the worker: arguments that are mapped or copied and converted, memory for the results,
//! and the mappings kept between calls.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use gridloom_base::{DatumId, Meta, Order, TaskError};
use gridloom_idl::{BindError, KnownArgument, Param, Signature};

use super::convert::{Aligned, is_native, to_native};
use super::protocol::{Location, Run, Value};
use super::{ArgView, Room};
use crate::segment::Mapping;

/// The result buffer of a parameter.
pub(super) enum Buffer {
    Scratch(Aligned),
    Shared { key: u64, mapping: Mapping, len: usize, stale: bool },
    Growing(Vec<u8>),
}

/// An argument with its memory.
pub(super) struct Input<'a> {
    meta: Meta,
    memory: InputMemory<'a>,
}

pub(super) enum InputMemory<'a> {
    Copy(Aligned),
    Mapped {
        datum: Option<DatumId>,
        mapping: Arc<Mapping>,
        offset: usize,
        len: usize,
    },
    /// An argument without bytes.
    Nothing(&'a [u8]),
}

impl Input<'_> {
    fn bytes(&self) -> &[u8] {
        match &self.memory {
            InputMemory::Copy(copy) => copy.bytes(),
            InputMemory::Mapped { mapping, offset, len, .. } => &mapping.bytes()[*offset..*offset + *len],
            InputMemory::Nothing(bytes) => bytes,
        }
    }

    pub(super) fn view(&self) -> ArgView<'_> {
        let (mapping, datum) = match &self.memory {
            InputMemory::Mapped { datum, mapping, .. } => (Some(mapping.clone()), *datum),
            InputMemory::Copy(_) | InputMemory::Nothing(_) => (None, None),
        };
        ArgView { meta: self.meta.clone(), bytes: self.bytes(), mapping, datum }
    }
}

impl Buffer {
    pub(super) fn room(&mut self) -> Room<'_> {
        match self {
            Buffer::Scratch(bytes) => Room::Fixed(bytes.bytes_mut()),
            Buffer::Shared { mapping, len, .. } => Room::Fixed(&mut mapping.bytes_mut()[..*len]),
            Buffer::Growing(bytes) => Room::Growing(bytes),
        }
    }

    /// Reports whether the buffer contains data left by another call.
    pub(super) fn is_stale(&self) -> bool {
        matches!(self, Buffer::Shared { stale: true, .. })
    }

    fn written_whole(&mut self) {
        if let Buffer::Shared { stale, .. } = self {
            *stale = false;
        }
    }
}

/// Fetches the arguments, checks the call and allocates memory for the results; the results of `INOUT` parameters are
/// filled with the old values.
pub(super) fn prepare<'a>(
    cache: &mut Cache,
    signature: &Signature,
    run: &Run,
    inline: &'a [u8],
    buffers: &mut Vec<Buffer>,
) -> Result<Vec<Input<'a>>, TaskError> {
    let params = &signature.params;
    let mut inputs = all_inputs(cache, signature, &run.args, inline)?;
    // Checked again although the server has checked it: native code relies on the sizes.
    if let Err(error) = check(signature, run, &inputs) {
        let viewed = viewed(signature, &run.args, &inputs);
        let viewed = viewed.ok_or_else(|| refused(error.reason(&signature.name)))?;
        inputs = all_inputs(cache, signature, &viewed, inline)?;
        check(signature, run, &inputs).map_err(|error| refused(error.reason(&signature.name)))?;
    }
    let known = inputs.iter().map(|input| KnownArgument { meta: &input.meta, bytes: input.bytes() });
    signature.check_elements(known).map_err(|error| refused(error.reason(&signature.name)))?;
    let (mut arg, mut out) = (0, 0);
    for param in params {
        if param.is_output() {
            let mut buffer = output(cache, &run.outs[out])?;
            if param.is_input() {
                fill(&inputs[arg], &run.outs[out].meta, &mut buffer)?;
            }
            buffers.push(buffer);
            out += 1;
        }
        arg += usize::from(param.is_input());
    }
    Ok(inputs)
}

fn all_inputs<'a>(
    cache: &mut Cache,
    signature: &Signature,
    args: &[Value],
    inline: &'a [u8],
) -> Result<Vec<Input<'a>>, TaskError> {
    let params = signature.params.iter().filter(|param| param.is_input());
    let mut rest = inline;
    args.iter().zip(params).map(|(value, param)| input(cache, value, wanted_order(param), &mut rest)).collect()
}

fn check(signature: &Signature, run: &Run, inputs: &[Input<'_>]) -> Result<(), BindError> {
    let given = inputs.iter().map(|input| Some(KnownArgument { meta: &input.meta, bytes: input.bytes() }));
    signature.check_call(given, run.outs.iter().map(|out| &out.meta))
}

/// Returns the arguments with arrays whose extents differ from the declared ones reinterpreted as they are stored in
/// memory: a C program passes memory, and each function has its own view of it. Returns `None` if there are none.
fn viewed(signature: &Signature, args: &[Value], inputs: &[Input<'_>]) -> Option<Vec<Value>> {
    let mut scalars = vec![None; signature.params.len()];
    let indices = || signature.params.iter().enumerate().filter(|(_, param)| param.is_input());
    for ((index, _), input) in indices().zip(inputs) {
        if matches!(input.meta, Meta::Scalar { .. }) {
            scalars[index] = Some((input.meta.clone(), input.bytes().to_vec()));
        }
    }
    let shapes = signature.shapes(scalars).ok()?;
    let mut args = args.to_vec();
    let mut is_other = false;
    for ((index, param), value) in indices().zip(&mut args) {
        if let (Meta::Array { order, shape, .. }, Some(wanted)) = (&mut value.meta, &shapes[index])
            && shape != wanted
            && shape.iter().product::<u64>() == wanted.iter().product::<u64>()
        {
            (*order, *shape) = (wanted_order(param).unwrap_or(Order::C), wanted.clone());
            is_other = true;
        }
    }
    is_other.then_some(args)
}

fn input<'a>(
    cache: &mut Cache,
    value: &Value,
    wanted: Option<Order>,
    rest: &mut &'a [u8],
) -> Result<Input<'a>, TaskError> {
    let (bytes, mapped) = match value.place {
        Location::Inline { size_bytes } => {
            let (bytes, after) =
                rest.split_at_checked(size_bytes as usize).ok_or_else(|| refused("a value is missing".into()))?;
            *rest = after;
            (bytes, None)
        }
        Location::Shared { datum, key, offset, size_bytes, .. } => {
            let mapping =
                cache.readable(key).map_err(|error| cannot_run(format!("cannot map an argument: {error}")))?;
            (&[][..], Some((datum, mapping, offset as usize, size_bytes as usize)))
        }
        Location::Room { .. } | Location::File { .. } => {
            return Err(refused("an argument cannot be a result buffer or a file".into()));
        }
    };
    let from = match &mapped {
        Some((_, mapping, offset, len)) => mapping.bytes().get(*offset..*offset + *len).unwrap_or_default(),
        None => bytes,
    };
    if value.meta.checked_size_bytes() != Some(from.len() as u64) {
        return Err(refused(format!("{} bytes were sent for {}", from.len(), value.meta)));
    }
    if !is_native(&value.meta, wanted) {
        let mut copy = Aligned::zeroed(from.len());
        let meta = to_native(&value.meta, from, wanted, copy.bytes_mut()).map_err(refused)?;
        return Ok(Input { meta, memory: InputMemory::Copy(copy) });
    }
    // A value that is native except for a label (order of a vector, byte order of single bytes) gets the wanted label.
    let meta = relabelled(&value.meta, wanted);
    let memory = match mapped {
        Some((datum, mapping, offset, len)) if offset % 64 == 0 => InputMemory::Mapped { datum, mapping, offset, len },
        Some(_) => InputMemory::Copy(Aligned::copied(from)),
        None if from.is_empty() => InputMemory::Nothing(bytes),
        None => InputMemory::Copy(Aligned::copied(from)),
    };
    Ok(Input { meta, memory })
}

fn output(cache: &mut Cache, value: &Value) -> Result<Buffer, TaskError> {
    match (&value.meta, value.place) {
        (Meta::Text { .. } | Meta::Bytes { .. } | Meta::List { .. }, _) => Ok(Buffer::Growing(Vec::new())),
        (_, Location::Room { key, size_bytes, zeroed, .. }) => {
            let mapping =
                cache.take_writable(key).map_err(|error| cannot_run(format!("cannot map a result: {error}")))?;
            Ok(Buffer::Shared { key, mapping, len: size_bytes as usize, stale: !zeroed })
        }
        (meta, Location::Inline { .. }) => Ok(Buffer::Scratch(Aligned::zeroed(meta.size_bytes() as usize))),
        (_, Location::Shared { .. } | Location::File { .. }) => Err(refused("a result has no buffer".into())),
    }
}

/// Copies the old value of an `INOUT` parameter into the buffer of the new one.
fn fill(old: &Input<'_>, meta: &Meta, buffer: &mut Buffer) -> Result<(), TaskError> {
    if let Buffer::Growing(bytes) = buffer {
        bytes.extend_from_slice(old.bytes());
        return Ok(());
    }
    let Room::Fixed(to) = buffer.room() else { return Ok(()) };
    if old.bytes().len() != to.len() {
        return Err(refused(format!(
            "argument {} is updated in place to {meta}, which has a different size",
            old.meta
        )));
    }
    let wanted = match meta {
        Meta::Array { order, .. } => Some(*order),
        Meta::Scalar { .. } | Meta::Text { .. } | Meta::Bytes { .. } | Meta::List { .. } => None,
    };
    to_native(&old.meta, old.bytes(), wanted, to).map_err(refused)?;
    buffer.written_whole();
    Ok(())
}

/// Returns the memory order that a parameter requires.
pub(crate) fn wanted_order(param: &Param) -> Option<Order> {
    param.order.in_memory()
}

/// Returns the description with this machine's byte order and the wanted memory order.
pub(crate) fn relabelled(meta: &Meta, wanted: Option<Order>) -> Meta {
    let mut meta = meta.clone();
    match &mut meta {
        Meta::Scalar { byte_order, .. } => *byte_order = gridloom_base::ByteOrder::NATIVE,
        Meta::Array { byte_order, order, .. } => {
            *byte_order = gridloom_base::ByteOrder::NATIVE;
            *order = wanted.unwrap_or(*order);
        }
        Meta::Text { .. } | Meta::Bytes { .. } | Meta::List { .. } => {}
    }
    meta
}

/// Mappings of the server's memory, kept until the server asks to forget them.
#[derive(Default)]
pub(super) struct Cache(BTreeMap<u64, CachedMapping>);

pub(super) struct CachedMapping {
    fd: OwnedFd,
    len: u64,
    readable: Option<Arc<Mapping>>,
    writable: Option<Mapping>,
}

impl Cache {
    pub(super) fn learn(&mut self, key: u64, fd: OwnedFd, len: u64) {
        self.0.insert(key, CachedMapping { fd, len, readable: None, writable: None });
    }

    pub(super) fn forget(&mut self, key: u64) {
        self.0.remove(&key);
    }

    fn readable(&mut self, key: u64) -> io::Result<Arc<Mapping>> {
        let cached = self.0.get_mut(&key).ok_or_else(|| invalid("unknown memory"))?;
        if let Some(mapping) = &cached.readable {
            return Ok(mapping.clone());
        }
        let mapping = Arc::new(Mapping::read_only(cached.fd.as_fd(), cached.len)?);
        cached.readable = Some(mapping.clone());
        Ok(mapping)
    }

    fn take_writable(&mut self, key: u64) -> io::Result<Mapping> {
        let cached = self.0.get_mut(&key).ok_or_else(|| invalid("unknown memory"))?;
        match cached.writable.take() {
            Some(mapping) => Ok(mapping),
            None => Mapping::read_write_in_function(cached.fd.as_fd(), cached.len),
        }
    }

    pub(super) fn put_back(&mut self, buffer: Buffer) {
        if let Buffer::Shared { key, mapping, .. } = buffer
            && let Some(cached) = self.0.get_mut(&key)
        {
            cached.writable = Some(mapping);
        }
    }
}

pub(super) fn cannot_run(why: String) -> TaskError {
    TaskError::CannotRun { function: String::new(), server: String::new(), why }
}

pub(super) fn refused(why: String) -> TaskError {
    TaskError::Refused { function: String::new(), server: String::new(), why }
}

pub(super) fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
