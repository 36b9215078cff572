//! Names of methods: `module/class.method`. Functions have no `.` in the last part of their names.

/// The method that runs when an object is made. Every class has it.
pub const INITIALIZE: &str = "_initialize";
/// The method that runs when an object ends. Every class has it.
pub const FINALIZE: &str = "_finalize";

/// `module/class` and `method` of a method's name; `None` if it is that of a function.
pub fn class_of(name: &str) -> Option<(&str, &str)> {
    let function = name.rfind('/').map_or(0, |at| at + 1);
    let dot = function + name[function..].find('.')?;
    Some((&name[..dot], &name[dot + 1..]))
}

/// Whether the method runs when an object is made, or ends: nobody calls it.
pub fn runs_by_itself(method: &str) -> bool {
    method == INITIALIZE || method == FINALIZE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dot_in_a_module_makes_no_class() {
        assert_eq!(class_of("my.module/counter.add"), Some(("my.module/counter", "add")));
        assert_eq!(class_of("my.module/add"), None);
        assert_eq!(class_of("counter.add"), Some(("counter", "add")));
    }
}
