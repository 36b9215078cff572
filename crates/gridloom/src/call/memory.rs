//! Checks that an argument can be copied, before the copy is made.
//!
//! It must fit into the largest store among the servers that offer the function, and into this machine's free memory, for the
//! copy. Totals over several arguments are checked by servers and the mapper, not here.

use gridloom_resources::Memory;

use crate::Error;
use crate::plan::bytes;
use crate::session::Session;

/// Below this size free memory is not checked: the check would cost as much as the copy.
const ASK_BYTES_MIN: u64 = 64 << 20;

/// Rejects an argument that is too large to be sent.
///
/// # Errors
/// [`Error::TooLarge`], with the size, the limit and the remedy.
pub(crate) fn admit_argument(session: &Session, function: &str, argument: &str, size_bytes: u64) -> Result<(), Error> {
    let refuse = |bound: String| {
        let (function, argument) = (function.to_string(), argument.to_string());
        Err(Error::TooLarge { function, argument, size: bytes(size_bytes), bound })
    };
    if size_bytes < ASK_BYTES_MIN {
        return Ok(());
    }
    let servers = session.servers();
    let offering = servers.servers.iter().filter(|server| server.functions.contains_key(function));
    if let Some(largest) = offering.max_by_key(|server| server.memory_bytes)
        && size_bytes > largest.memory_bytes
    {
        let (store, name) = (bytes(largest.memory_bytes), &largest.name);
        return refuse(format!(
            "the {store} of the largest store that could take it, on server '{name}'; pass less at a time, or start a \
             server with a larger --memory"
        ));
    }
    match Memory::find().available_bytes {
        Some(left) if size_bytes > left => refuse(format!(
            "the {} of memory left on this machine, where it is copied; pass less at a time",
            bytes(left)
        )),
        Some(_) | None => Ok(()),
    }
}
