//! Declared groups: their calls are declared before they are made, for programs with data-dependent control flow.
//!
//! | file | content |
//! |---|---|
//! | here | [`Graph`]: inputs by size, calls by function and arguments; independent of a grid |
//! | [`mod@file`] | its file format |
//! | [`resolve`] | resolves a graph with the signatures of a grid, into the group to map |
//! | [`matching`] | matches actual calls with the declared ones, and notes [`Difference`](crate::Difference)s |
//!
//! **Invariant:** names are unique, and a call reads only inputs and results of earlier calls, so there are no cycles.

mod file;
mod matching;
mod resolve;

use std::collections::BTreeMap;

use gridloom_base::Meta;
use gridloom_base::limits::{GROUP_TASKS_MAX, NAME_BYTES_MAX};
use gridloom_base::near::near_names;

use crate::Error;
use crate::call::IntoArgs;
pub(crate) use matching::{MatchResult, Matching, RemainingCalls};

/// A declaration of the calls that a group will make. It is mapped as declared ([`Grid::plan_of`](crate::Grid::plan_of)), and
/// the calls made later take their places in the plan ([`Grid::group_of`](crate::Grid::group_of)).
///
/// ```
/// use gridloom::Graph;
/// use gridloom::base::{Dtype, Meta};
///
/// let mut graph = Graph::new();
/// let a = graph.input("a", Meta::array(Dtype::Float64, &[500, 500]))?;
/// let square = graph.call("square", "linalg/dgemm", (&a, &a))?;
/// graph.call("cube", "linalg/dgemm", (&square, &a))?;
/// assert_eq!(Graph::parse("g.json", &graph.to_json())?, graph);
/// # Ok::<(), gridloom::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    inputs: Vec<GraphInput>,
    calls: Vec<GraphCall>,
    wanted: Vec<GraphRef>,
    /// Names of inputs and calls, with whether each is a call.
    names: BTreeMap<String, bool>,
}

/// A datum that exists beforehand.
#[derive(Clone, Debug, PartialEq)]
struct GraphInput {
    name: String,
    meta: Meta,
}

#[derive(Clone, Debug, PartialEq)]
struct GraphCall {
    name: String,
    function: String,
    args: Vec<GraphArg>,
    named: Vec<(String, GraphArg)>,
    /// Name of the server that has to run it, if there is one.
    server: Option<String>,
    /// If set, a missing call is not a difference.
    is_optional: bool,
}

impl GraphCall {
    fn reads(&self, name: &str) -> bool {
        let mut args = self.args.iter().chain(self.named.iter().map(|(_, arg)| arg));
        args.any(|arg| arg.node().is_some_and(|node| node.node() == name))
    }
}

/// A reference to a datum: an input by its name, the only result of a call by the call's name, one of several results
/// as `call.parameter`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GraphRef(String);

impl GraphRef {
    /// Returns the result for a parameter, of a call with several results.
    pub fn result(&self, parameter: &str) -> GraphRef {
        GraphRef(format!("{}.{parameter}", self.0))
    }

    /// Returns the reference in the format of files.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Creates a reference from the format of files; whether it is valid is checked on use.
    pub fn named(name: &str) -> GraphRef {
        GraphRef(name.to_string())
    }

    /// The name of the input or call.
    fn node(&self) -> &str {
        self.0.split_once('.').map_or(&self.0, |(node, _)| node)
    }
}

/// An argument of a declared call. Numbers matter only for the sizes and the work that depend on them.
#[derive(Clone, Debug, PartialEq)]
pub enum GraphArg {
    /// An input, or a call's result.
    Ref(GraphRef),
    /// A call's result, an array that is read as another array of as many elements of the same type, in their order in memory.
    View(GraphRef, Meta),
    /// An integer.
    Integer(i64),
    Real(f64),
    Truth(bool),
    Text(String),
}

impl GraphArg {
    /// The part of the graph that it reads.
    fn node(&self) -> Option<&GraphRef> {
        match self {
            GraphArg::Ref(node) | GraphArg::View(node, _) => Some(node),
            GraphArg::Integer(_) | GraphArg::Real(_) | GraphArg::Truth(_) | GraphArg::Text(_) => None,
        }
    }
}

impl From<&GraphRef> for GraphArg {
    fn from(node: &GraphRef) -> GraphArg {
        GraphArg::Ref(node.clone())
    }
}

impl From<GraphRef> for GraphArg {
    fn from(node: GraphRef) -> GraphArg {
        GraphArg::Ref(node)
    }
}

impl From<i64> for GraphArg {
    fn from(number: i64) -> GraphArg {
        GraphArg::Integer(number)
    }
}

impl From<f64> for GraphArg {
    fn from(number: f64) -> GraphArg {
        GraphArg::Real(number)
    }
}

impl Graph {
    /// Creates a graph without calls.
    pub fn new() -> Graph {
        Graph::default()
    }

    /// Declares a datum that exists beforehand.
    ///
    /// # Errors
    /// If the name is taken or invalid, or the size is invalid.
    pub fn input(&mut self, name: &str, meta: Meta) -> Result<GraphRef, Error> {
        self.check_name(name)?;
        check_size(name, &meta)?;
        self.names.insert(name.to_string(), false);
        self.inputs.push(GraphInput { name: name.to_string(), meta });
        Ok(GraphRef(name.to_string()))
    }

    /// Declares a call, which is made after the earlier calls that it reads. Its function is looked up when the
    /// graph is mapped.
    ///
    /// # Errors
    /// If the name is taken or invalid, or an argument is neither an input nor a declared call.
    pub fn call(&mut self, name: &str, function: &str, args: impl IntoArgs<GraphArg>) -> Result<GraphRef, Error> {
        self.call_named(name, function, args, &[], false)
    }

    /// Declares a call with arguments by name. If `is_optional` is set, the call may be missing.
    ///
    /// # Errors
    /// As for [`Graph::call`].
    pub fn call_named(
        &mut self,
        name: &str,
        function: &str,
        args: impl IntoArgs<GraphArg>,
        named: &[(String, GraphArg)],
        is_optional: bool,
    ) -> Result<GraphRef, Error> {
        let args = args.into_args();
        self.check_name(name)?;
        for arg in args.iter().chain(named.iter().map(|(_, arg)| arg)) {
            match arg {
                GraphArg::Ref(node) => self.check_ref(name, node)?,
                GraphArg::View(node, meta) => {
                    self.check_ref(name, node)?;
                    check_size(node.name(), meta)?;
                }
                GraphArg::Real(number) if !number.is_finite() => {
                    let why = "declare a finite one: only the sizes and the work that follow from it matter";
                    return Err(wrong(format!("call '{name}' has the number {number}; {why}")));
                }
                GraphArg::Real(_) | GraphArg::Integer(_) | GraphArg::Truth(_) | GraphArg::Text(_) => {}
            }
        }
        if self.calls.len() >= GROUP_TASKS_MAX {
            return Err(wrong(format!("a graph has at most {GROUP_TASKS_MAX} calls; split it into several groups")));
        }
        self.names.insert(name.to_string(), true);
        self.calls.push(GraphCall {
            name: name.to_string(),
            function: function.to_string(),
            args,
            named: named.to_vec(),
            server: None,
            is_optional,
        });
        Ok(GraphRef(name.to_string()))
    }

    /// Binds a declared call to a server, which is looked up when the graph is mapped. No other server will run the call.
    ///
    /// # Errors
    /// If there is no such call.
    pub fn bind(&mut self, call: &GraphRef, server: &str) -> Result<(), Error> {
        match self.calls.iter_mut().find(|known| known.name == call.node()) {
            Some(call) => call.server = Some(server.to_string()),
            None => {
                let near = self.near(call.node());
                return Err(wrong(format!("'{}' is bound to server '{server}', but is not a call{near}", call.0)));
            }
        }
        Ok(())
    }

    /// Declares that the program will read that result, so it has to be sent to the client. Results that no call reads
    /// are sent anyway.
    ///
    /// # Errors
    /// If there is no such call.
    pub fn want_result(&mut self, result: &GraphRef) -> Result<(), Error> {
        if self.names.get(result.node()) == Some(&false) {
            let why = "is an input, which the program already has; only results of calls can be wanted";
            return Err(wrong(format!("'{}' {why}", result.0)));
        }
        if !self.names.contains_key(result.node()) {
            let near = self.near(result.node());
            return Err(wrong(format!("'{}' is wanted, and no call has that name{near}", result.0)));
        }
        self.wanted.push(result.clone());
        Ok(())
    }

    /// Removes an input or a call, and its results from the wanted ones.
    ///
    /// # Errors
    /// If there is none of that name, or a call reads it.
    pub fn remove(&mut self, name: &str) -> Result<(), Error> {
        if !self.names.contains_key(name) {
            return Err(wrong(format!("there is no input or call '{name}' to remove{}", self.near(name))));
        }
        if let Some(reader) = self.calls.iter().find(|call| call.reads(name)) {
            return Err(wrong(format!(
                "'{name}' cannot be removed: call '{}' reads it; remove that first",
                reader.name
            )));
        }
        self.names.remove(name);
        self.inputs.retain(|input| input.name != name);
        self.calls.retain(|call| call.name != name);
        self.wanted.retain(|result| result.node() != name);
        Ok(())
    }

    /// Number of calls.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// True if it has no calls.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Names of the calls, in order.
    pub fn calls(&self) -> impl Iterator<Item = &str> {
        self.calls.iter().map(|call| call.name.as_str())
    }

    fn check_name(&self, name: &str) -> Result<(), Error> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('.') {
            let rule =
                format!("a name has 1 to {NAME_BYTES_MAX} bytes and no '.', which precedes the parameter of a result");
            return Err(wrong(format!("'{name}' cannot be a name: {rule}")));
        }
        match self.names.contains_key(name) {
            true => Err(wrong(format!("two inputs or calls are named '{name}'; give each its own name"))),
            false => Ok(()),
        }
    }

    fn check_ref(&self, call: &str, node: &GraphRef) -> Result<(), Error> {
        if self.names.contains_key(node.node()) {
            return Ok(());
        }
        let near = self.near(node.node());
        Err(wrong(format!("call '{call}' reads '{}', which is neither an input nor a call before it{near}", node.0)))
    }

    fn near(&self, name: &str) -> String {
        let near = near_names(name, self.names.keys().map(String::as_str));
        if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(" or ")) }
    }
}

fn check_size(name: &str, meta: &Meta) -> Result<(), Error> {
    if let Meta::Array { shape, .. } = meta
        && shape.contains(&0)
    {
        return Err(wrong(format!("input '{name}' is {meta}; extents are integers of at least 1")));
    }
    match meta.checked_size_bytes() {
        Some(_) => Ok(()),
        None => Err(wrong(format!(
            "input '{name}' is {meta}, more than 2^64 bytes; declare a size that a machine can hold"
        ))),
    }
}

fn wrong(why: String) -> Error {
    Error::Input(format!("described graph: {why}"))
}
