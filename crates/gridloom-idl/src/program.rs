//! Programs that servers offer by name, as functions: a call starts as many processes of one at its server as it takes slots.

use std::ffi::OsString;
use std::path::PathBuf;

use gridloom_base::NameKind;

use crate::{ArrayOrder, BaseType, Body, Callback, Definition, Signature, SignatureBuilder};

/// The module of programs' functions.
pub const PROGRAMS_MODULE: &str = "programs";

/// The function of a program of that name.
pub fn function_of(program: &str) -> String {
    format!("{PROGRAMS_MODULE}/{program}")
}

/// Returns a program's function. Its inputs are the caller's request and the program's arguments; its results are how the
/// processes ended and what they did. It calls back before it starts the processes, and when one has failed.
///
/// # Errors
/// If the name cannot be that of a function, or the command is empty.
pub fn definition(
    name: &str,
    command: Vec<OsString>,
    listen: String,
    checkpoints: Option<PathBuf>,
) -> Result<Definition, String> {
    NameKind::Program.check(name).map_err(|error| error.to_string())?;
    if command.is_empty() {
        return Err(format!("'{name}': give NAME=PATH, a name and a program"));
    }
    let about = format!("a program of chares: gridloom chares run -n NUMBER --agent HOST:PORT -- {name}");
    let built = SignatureBuilder::new(&function_of(name))
        .input("arguments", BaseType::String, Some(&["count"]), ArrayOrder::C)
        .output("ends", BaseType::Text, None, ArrayOrder::Any)
        .output("records", BaseType::Bytes, None, ArrayOrder::Any)
        .about(&about)
        .build();
    let callbacks = ["start", "failed"].map(|name| Callback { name: name.into(), params: Vec::new() }).to_vec();
    let signature = Signature { callbacks, ..built.map_err(|error| format!("'{name}': {}", error.message))? };
    Ok(Definition { signature, body: Body::Program { command, listen, checkpoints } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_a_function_with_a_callback() {
        let define = |name: &str| definition(name, vec!["/bin/x".into()], "127.0.0.1".into(), None);
        let signature = define("heat-2d").unwrap().signature;
        assert_eq!(signature.check(), Ok(()));
        assert_eq!((signature.name.as_str(), signature.callbacks.len()), ("programs/heat-2d", 2));
        assert_eq!(define("heat.v2").unwrap().signature.name, "programs/heat.v2");
        assert!(
            define("A._initialize")
                .unwrap_err()
                .contains("'_initialize' after a dot is a method of the class 'programs/A'")
        );
        for name in ["", "a/b", "a b", &"x".repeat(300)] {
            assert!(define(name).unwrap_err().contains("cannot be the name of a program"), "{name}");
        }
    }
}
