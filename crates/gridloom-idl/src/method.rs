//! Names of methods: `module/class.method`.
//!
//! Names of functions may also contain `.`. A name is the name of a method only if its class is declared, that is, if
//! `module/class._initialize` exists ([`method_of`]).

use serde::{Deserialize, Serialize};

/// The method that runs when an object is made. Every class has it.
pub const INITIALIZE: &str = "_initialize";
/// The method that runs when an object ends. Every class has it.
pub const FINALIZE: &str = "_finalize";

/// True if lists of functions show it. The methods that run Python streams are of no use by themselves.
pub fn is_listed(function: &str) -> bool {
    !function.starts_with("python/stream.")
}

/// Splits a name into `module/class` and `method` if it belongs to a declared class; `None` if it is the name of a function.
/// `is_offered` states whether a function of that name exists.
pub fn method_of(name: &str, is_offered: impl FnOnce(&str) -> bool) -> Option<(&str, &str)> {
    class_of(name).filter(|(class, _)| is_offered(&format!("{class}.{INITIALIZE}")))
}

/// Splits the possible name of a method into `module/class` and `method`. The name of a class contains no `.`.
pub fn class_of(name: &str) -> Option<(&str, &str)> {
    // A single pass from the end, since every call does this.
    let last_part = name.bytes().enumerate().rev().take_while(|(_, byte)| *byte != b'/');
    let (dot, _) = last_part.filter(|(_, byte)| *byte == b'.').last()?;
    Some((&name[..dot], &name[dot + 1..]))
}

/// Checks the name of a function that is declared on its own. It must not be the name of an automatic method: that would
/// declare a class, and neither this function nor others of that class could be called as functions.
///
/// # Errors
/// Names the method and the remedy.
pub fn check_function_name(name: &str) -> Result<(), String> {
    match class_of(name) {
        Some((class, method)) if is_automatic(method) && is_listed(name) => Err(format!(
            "'{method}' after a dot is a method of the class '{class}', which runs automatically and is declared only by \
             DefClass in an interface description; use another name for the function"
        )),
        _ => Ok(()),
    }
}

/// The name of a method, parsed once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MethodName {
    name: String,
    /// Position of the dot between class and method.
    dot: usize,
}

impl MethodName {
    /// Returns `None` if the name cannot be the name of a method.
    pub fn parse(name: &str) -> Option<MethodName> {
        class_of(name).map(|(class, _)| MethodName { name: name.to_string(), dot: class.len() })
    }

    /// `module/class.method`.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// `module/class`.
    pub fn class(&self) -> &str {
        &self.name[..self.dot]
    }

    /// `method`.
    pub fn method(&self) -> &str {
        &self.name[self.dot + 1..]
    }

    /// True if it creates the object.
    pub fn is_initialize(&self) -> bool {
        self.method() == INITIALIZE
    }

    /// True if it ends the object.
    pub fn is_finalize(&self) -> bool {
        self.method() == FINALIZE
    }
}

impl TryFrom<String> for MethodName {
    type Error = String;

    fn try_from(name: String) -> Result<MethodName, String> {
        MethodName::parse(&name).ok_or_else(|| format!("'{name}' is not the name of a method"))
    }
}

impl From<MethodName> for String {
    fn from(method: MethodName) -> String {
        method.name
    }
}

/// True if the method runs automatically when an object is created or ends. Programs cannot call it.
pub fn is_automatic(method: &str) -> bool {
    method == INITIALIZE || method == FINALIZE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_functions_of_declared_classes_are_methods() {
        let offered = ["m/counter._initialize", "m/counter.add", "m/A.B", "m/A.B.C"];
        let class = |name| method_of(name, |initialize| offered.contains(&initialize)).map(|(class, _)| class);
        assert_eq!(class("m/counter.add"), Some("m/counter"));
        assert_eq!(class("m/counter._initialize"), Some("m/counter"));
        for function in ["m/A.B", "m/A.B.C", "my.module/add", "n/counter.add"] {
            assert_eq!(class(function), None, "{function}");
        }
    }

    #[test]
    fn a_function_does_not_declare_a_class() {
        for name in ["m/A._initialize", "m/A._finalize", "m/._initialize", "my.module/A._finalize"] {
            let error = check_function_name(name).unwrap_err();
            assert!(error.contains("runs automatically") && error.contains("use another name"), "{error}");
        }
        for name in
            ["m/_initialize", "m._initialize/f", "m/A._initialize.x", "m/A.initialize", "python/stream._initialize"]
        {
            assert_eq!(check_function_name(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn a_dot_in_a_module_makes_no_class() {
        assert_eq!(class_of("my.module/counter.add"), Some(("my.module/counter", "add")));
        assert_eq!(class_of("my.module/add"), None);
        assert_eq!(class_of("counter.add"), Some(("counter", "add")));
        let name = MethodName::parse("my.module/counter._initialize").unwrap();
        assert_eq!((name.class(), name.method(), name.is_initialize()), ("my.module/counter", INITIALIZE, true));
        assert_eq!(MethodName::parse("my.module/add"), None);
    }
}
