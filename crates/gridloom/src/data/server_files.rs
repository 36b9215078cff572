//! Files of servers, read and written there by functions that servers offer (`builtin:files`). The content is sent directly from
//! the place where it is stored to the place where a call uses it.

use gridloom_base::{Dtype, Meta, NodeId};
use rustix::io::Errno;

use super::{DataError, DataPlaces, Datum, Uri};
use crate::Function;

impl DataPlaces<'_> {
    /// Makes a server read one of its files: the datum is then stored on that server.
    pub(super) fn read_file(&self, datum: &Datum, server: &str, path: &str) -> Result<(), DataError> {
        let uri = Uri::ServerFile(server.into(), path.into());
        let description = datum.as_managed()?.description();
        let (node, name) = self.server(server)?;
        // If no bodies run, the size is that of the description.
        let size_bytes = self.file_size(&uri, node, path)?.or(description.size_bytes()).unwrap_or(0);
        description.check_size(&uri, size_bytes)?;
        let (dtype, count) = description.elements(size_bytes);
        let read = self.file_function("read", Some(dtype), &name)?;
        let call = read.submit_remote(Some(node), (path, count as i64), &[])?;
        call.wait().map_err(|error| DataError::no_value(error, &uri))?;
        let code = call.results()[1].get()?;
        checked(&uri, code.payload().map_or(0, |payload| int(payload.bytes())))?;
        datum.set_result(&call.results()[0], &description.meta(size_bytes), &call);
        Ok(())
    }

    /// Makes a server write a datum to one of its files.
    pub(super) fn write_file(&self, datum: &Datum, server: &str, path: &str) -> Result<(), DataError> {
        let uri = Uri::ServerFile(server.into(), path.into());
        let (node, name) = self.server(server)?;
        let (dtype, count) = datum.as_managed()?.description().elements(datum.size_bytes());
        let write = self.file_function("write", Some(dtype), &name)?;
        let meta = Meta::array(dtype, &[count]);
        let content = datum.read(write.name(), "content", &meta)?;
        let call = write.submit_remote(Some(node), (path, count as i64, content), &[])?;
        call.wait().map_err(|error| DataError::no_value(error, datum))?;
        let code = call.results()[0].get()?;
        checked(&uri, code.payload().map_or(0, |payload| int(payload.bytes())))?;
        datum.as_managed()?.note_server_file(server, path);
        Ok(())
    }

    /// Makes a server delete one of its files; a missing file is no error.
    pub(super) fn delete_file(&self, server: &str, path: &str) -> Result<(), DataError> {
        let (node, name) = self.server(server)?;
        let results = self.file_function("remove", None, &name)?.submit_on(node, (path,), &[], None)?;
        let code = results.wait()?.one()?;
        match code.payload().map_or(0, |payload| int(payload.bytes())) {
            code if code == Errno::NOENT.raw_os_error() => Ok(()),
            code => checked(&Uri::ServerFile(server.into(), path.into()), code),
        }
    }

    /// Returns the size of a file; `None` in a simulation that runs no bodies.
    fn file_size(&self, uri: &Uri, node: NodeId, path: &str) -> Result<Option<u64>, DataError> {
        let size = self.file_function("size", None, &self.name_of(node))?;
        let results = size.submit_on(node, (path,), &[], None)?.wait()?;
        let bytes = |at: usize| results[at].payload().map(|payload| payload.bytes().to_vec());
        checked(uri, bytes(1).map_or(0, |bytes| int(&bytes)))?;
        let size = |bytes: Vec<u8>| i64::from_ne_bytes(bytes.try_into().unwrap_or_default()).unsigned_abs();
        Ok(bytes(0).map(size))
    }

    /// Returns the function of `builtin:files` for elements of that type.
    fn file_function(&self, what: &str, dtype: Option<Dtype>, server: &str) -> Result<Function, DataError> {
        let name = match dtype {
            None => format!("files/{what}"),
            Some(dtype) => format!("files/{what}_{}", dtype.name()),
        };
        let view = self.grid.servers();
        let is_offered = view.servers.iter().any(|known| known.name == server && known.functions.contains_key(&name));
        let why = || {
            let text = format!("server '{server}' offers no files; start it with builtin:files and GRIDLOOM_FILES");
            DataError::Invalid(text)
        };
        if is_offered { Ok(self.grid.function(&name)?) } else { Err(why()) }
    }
}

fn int(bytes: &[u8]) -> i32 {
    bytes.try_into().map_or(0, i32::from_ne_bytes)
}

/// Checks the error code that the server's system returned for a file.
fn checked(uri: &Uri, code: i32) -> Result<(), DataError> {
    if code == 0 {
        return Ok(());
    }
    let why = std::io::Error::from_raw_os_error(code);
    Err(DataError::Invalid(format!("'{uri}': {why}")))
}
