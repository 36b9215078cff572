//! Arguments of calls.

use gridloom_base::Meta;
use gridloom_base::limits::INLINE_BYTES_MAX;
use gridloom_idl::ActualArgument;

use super::handle::Handle;
use crate::{Error, Value};

/// An argument of a call.
#[derive(Clone, Debug)]
pub enum Arg {
    /// A value that the client has.
    Value(Value),
    /// A result that is, or will be, on some server.
    Handle(Handle),
}

impl<T: Into<Value>> From<T> for Arg {
    fn from(value: T) -> Arg {
        Arg::Value(value.into())
    }
}

impl From<&Handle> for Arg {
    fn from(handle: &Handle) -> Arg {
        Arg::Handle(handle.clone())
    }
}

impl From<Handle> for Arg {
    fn from(handle: Handle) -> Arg {
        Arg::Handle(handle)
    }
}

impl From<&Arg> for Arg {
    fn from(arg: &Arg) -> Arg {
        arg.clone()
    }
}

impl Arg {
    pub(crate) fn actual(&self) -> ActualArgument {
        match self {
            Arg::Value(value) => {
                let inline = match value.meta {
                    Meta::Array { .. } => None,
                    // The content of a file: it is not checked, so it need not be copied.
                    Meta::Bytes { size_bytes } if size_bytes > INLINE_BYTES_MAX as u64 => None,
                    Meta::Scalar { .. } | Meta::Text { .. } | Meta::Bytes { .. } | Meta::List { .. } => {
                        value.inline_bytes()
                    }
                };
                ActualArgument { meta: value.meta.clone(), inline }
            }
            Arg::Handle(handle) => ActualArgument { meta: handle.meta().clone(), inline: None },
        }
    }

    /// Fetches a remote scalar that is needed now, as a value.
    pub(crate) fn resolved(&self) -> Result<Arg, Error> {
        match self {
            Arg::Value(_) => Ok(self.clone()),
            Arg::Handle(handle) => Ok(Arg::Value(handle.get()?)),
        }
    }
}
