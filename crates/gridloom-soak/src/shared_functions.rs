//! The functions whose calls get and put shared data: name and size are expressions of their arguments.

use gridloom_base::TaskId;
use gridloom_idl::Definition;

const IDL: &str = "Module part;
Define puts(IN int i, IN int n) CalcOrder 1e8 Puts(\"part/{i}\", 8*(n-i%3)) Calls \"C\" f(i, n);
Define keeps(IN int i, IN int n) CalcOrder 1e8 Puts(\"part/{i}\", 8*(n-i%3), replicas 2, durable) Calls \"C\" f(i, n);
Define replaces(IN int i, IN int n) CalcOrder 1e8 Replaces(\"part/{i}\", 8*(n-i%3)) Calls \"C\" f(i, n);
Define gets(IN int i, IN int n) CalcOrder 1e8 Gets(\"part/{i}\", 8*(n-i%3)) Calls \"C\" f(i, n);
Define passes(IN int i, IN int n) CalcOrder 1e8 Gets(\"part/{i}\", 8*(n-i%3)) Puts(\"part/{i+1}\", 8*(n-(i+1)%3))
    Calls \"C\" f(i, n);";

/// Number of calls, and of names, reserved for each program.
pub(crate) const OWN: u64 = 1_000;
/// Above all other values.
const VALUES_FROM: u64 = 4_000_000;

/// Returns the functions.
pub(crate) fn offered() -> Vec<Definition> {
    gridloom_idl::parse(IDL, "declared.idl").expect("the functions of the soak parse")
}

/// Returns the value that a call puts under a name.
pub(crate) fn value_of(call: TaskId) -> f64 {
    (VALUES_FROM + OWN * call.client.0 + call.serial % OWN) as f64
}
