//! Files as arguments: their content, read when the call is made.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use gridloom_base::Meta;
use gridloom_base::limits::EAGER_BYTES_MAX;
use gridloom_idl::BindError;
use gridloom_net::payload::Payload;

use super::memory::admit_argument;
use crate::session::Session;
use crate::{Error, Value};

/// Reads a file as the value of a function's argument.
///
/// # Errors
/// If the file cannot be read, or is too large to be sent.
pub(crate) fn file_argument(session: &Session, function: &str, argument: &str, path: &Path) -> Result<Value, Error> {
    let unreadable = |error: io::Error| {
        let why = format!("the file '{}' cannot be read: {error}", path.display());
        BindError::Value { function: function.to_string(), what: format!("argument '{argument}'"), why }
    };
    let mut file = File::open(path).map_err(unreadable)?;
    let about = file.metadata().map_err(unreadable)?;
    if !about.is_file() || about.len() <= EAGER_BYTES_MAX {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(unreadable)?;
        return Ok(Value::from(std::sync::Arc::<[u8]>::from(bytes)));
    }
    admit_argument(session, function, argument, about.len())?;
    let mut segment = session.allocate(about.len())?;
    let size_bytes = fill(&mut file, segment.bytes_mut()).map_err(unreadable)?;
    let payload = Payload::Segment { segment: segment.freeze(), offset: 0, size_bytes };
    Value::new(Meta::Bytes { size_bytes }, payload)
}
/// Reads until the buffer is full or the file ends: a file that grows meanwhile is read up to its former length.
fn fill(file: &mut File, room: &mut [u8]) -> io::Result<u64> {
    let mut filled = 0;
    while filled < room.len() {
        match file.read(&mut room[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled as u64)
}
