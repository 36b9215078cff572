//! Declared graphs in files: JSON with one input or call per line. `docs/graphs.md` describes the format.
//!
//! The graph is built with [`Graph`]'s own methods, so that a file can contain nothing that a program could not declare.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gridloom_base::json::{self, JsonError};
use gridloom_base::{ByteOrder, Dtype, Meta, Order};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value as Json, json};

use super::{Graph, GraphArg, GraphRef, wrong};
use crate::{Error, read_text};

/// The format, at the beginning of the file. The number changes when a reader of the present format would misread the file.
const FORMAT: &str = "gridloom graph 1";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Checked before parsing.
    #[serde(rename = "format")]
    _format: String,
    #[serde(default)]
    inputs: Vec<FileInput>,
    calls: Vec<FileCall>,
    #[serde(default)]
    wanted: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileInput {
    name: String,
    /// NumPy's name of the element type, or `text` or `bytes`.
    r#type: String,
    /// Shape of an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shape: Option<Vec<Number>>,
    /// Memory order of an array; C by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    order: Option<Order>,
    /// Size of a text or of bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size_bytes: Option<Number>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileCall {
    name: String,
    function: String,
    #[serde(default)]
    args: Vec<Json>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    named: BTreeMap<String, Json>,
    /// Name of the server that has to run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    optional: bool,
}

/// Arguments by position, and by name.
type Arguments = (Vec<GraphArg>, Vec<(String, GraphArg)>);

impl Graph {
    /// Writes the graph to a file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        std::fs::write(path, self.to_json()).map_err(|error| Error::Input(format!("{}: {error}", path.display())))
    }

    /// Reads a graph from a file.
    ///
    /// # Errors
    /// If the file cannot be read or is not a graph: with the file, and line and column or the input or call at fault.
    pub fn load(path: impl AsRef<Path>) -> Result<Graph, Error> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let text = read_text(path)?;
        Graph::parse(&name, &text)
    }

    /// Adds an input, in the format of the file.
    ///
    /// # Errors
    /// As for [`Graph::load`].
    pub fn input_of(&mut self, described: Json) -> Result<GraphRef, Error> {
        let input: FileInput = read(described)?;
        self.input(&input.name, input.meta()?)
    }

    /// Adds a call, in the format of the file.
    ///
    /// # Errors
    /// As for [`Graph::load`].
    pub fn call_of(&mut self, described: Json) -> Result<GraphRef, Error> {
        let call: FileCall = read(described)?;
        let (args, named) = call.arguments()?;
        self.call_as(&call, &args, &named)
    }

    fn call_as(&mut self, call: &FileCall, args: &[GraphArg], named: &[(String, GraphArg)]) -> Result<GraphRef, Error> {
        let node = self.call_named(&call.name, &call.function, args, named, call.optional)?;
        if let Some(server) = &call.on {
            self.bind(&node, server)?;
        }
        Ok(node)
    }

    /// Returns the graph in the format of the file.
    pub fn to_json(&self) -> String {
        let inputs = self.inputs.iter().map(|input| json(&written(&input.name, &input.meta)));
        let calls = self.calls.iter().map(|call| {
            json(&FileCall {
                name: call.name.clone(),
                function: call.function.clone(),
                args: call.args.iter().map(arg_written).collect(),
                named: call.named.iter().map(|(name, arg)| (name.clone(), arg_written(arg))).collect(),
                on: call.server.clone(),
                optional: call.is_optional,
            })
        });
        let lines = |lines: Vec<String>| match lines.is_empty() {
            true => "[]".to_string(),
            false => format!("[\n{}\n]", lines.join(",\n")),
        };
        let (inputs, calls) = (lines(inputs.collect()), lines(calls.collect()));
        let wanted: Vec<&str> = self.wanted.iter().map(GraphRef::name).collect();
        let wanted = if wanted.is_empty() { String::new() } else { format!(",\n\"wanted\": {}", json(&wanted)) };
        format!("{{\n\"format\": {},\n\"inputs\": {inputs},\n\"calls\": {calls}{wanted}\n}}\n", json(FORMAT))
    }

    /// Parses a graph; `name` is the file's name, for errors.
    ///
    /// # Errors
    /// As for [`Graph::load`].
    pub fn parse(name: &str, text: &str) -> Result<Graph, Error> {
        // In another version everything else may be different too.
        if let Some(format) = json::string_at(text, "format").filter(|format| format != FORMAT) {
            return Err(Error::Input(format!("{name}: its format is '{format}'; this version reads '{FORMAT}'")));
        }
        let file: File = json::read(text).map_err(|JsonError { line, column, why }| {
            Error::Input(format!("{name}:{line}:{column}: not a declared graph: {why}"))
        })?;
        file.graph().map_err(|error| Error::Input(format!("{name}: {error}")))
    }
}

impl File {
    fn graph(self) -> Result<Graph, Error> {
        let mut graph = Graph::new();
        for input in &self.inputs {
            graph.input(&input.name, input.meta()?)?;
        }
        let mut calls = Vec::with_capacity(self.calls.len());
        for call in &self.calls {
            let (args, named) = call.arguments()?;
            calls.push((call, args, named));
        }
        let reads: BTreeMap<&str, Vec<&str>> = calls
            .iter()
            .map(|(call, args, named)| {
                let all = args.iter().chain(named.iter().map(|(_, arg)| arg));
                let read = all.filter_map(|arg| arg.node().map(GraphRef::node));
                (call.name.as_str(), read.collect())
            })
            .collect();
        for (call, args, named) in &calls {
            let name = call.name.as_str();
            let later = reads[name].iter().find(|node| reads.contains_key(*node) && !graph.names.contains_key(**node));
            if let Some(later) = later {
                return Err(match path(later, name, &reads) {
                    Some(path) => wrong(format!(
                        "calls read each other's results in a cycle: '{name}' reads '{}'; one of them has to be first",
                        path.join("', which reads '")
                    )),
                    None => wrong(format!(
                        "call '{name}' reads '{later}', which follows it; put each call after those that it reads"
                    )),
                });
            }
            graph.call_as(call, args, named)?;
        }
        for wanted in &self.wanted {
            graph.want_result(&GraphRef::named(wanted))?;
        }
        Ok(graph)
    }
}

/// Returns the path by which one call reads another: the calls on it, including both ends.
fn path<'a>(from: &'a str, to: &'a str, reads: &BTreeMap<&'a str, Vec<&'a str>>) -> Option<Vec<&'a str>> {
    let mut seen = BTreeSet::from([from]);
    let mut reader: BTreeMap<&str, &str> = BTreeMap::new();
    let mut work = vec![from];
    while let Some(node) = work.pop() {
        if node == to {
            let mut path = vec![to];
            while let Some(by) = reader.get(path[path.len() - 1]) {
                path.push(by);
            }
            path.reverse();
            return Some(path);
        }
        for read in reads.get(node).into_iter().flatten() {
            if seen.insert(read) {
                reader.insert(read, node);
                work.push(read);
            }
        }
    }
    None
}

impl FileCall {
    fn arguments(&self) -> Result<Arguments, Error> {
        let args = self.args.iter().map(|arg| arg_read(&self.name, arg)).collect::<Result<_, _>>()?;
        let named = self.named.iter().map(|(name, arg)| Ok((name.clone(), arg_read(&self.name, arg)?)));
        Ok((args, named.collect::<Result<_, Error>>()?))
    }
}

impl FileInput {
    fn meta(&self) -> Result<Meta, Error> {
        let FileInput { name, r#type, shape, order, size_bytes } = self;
        let whole = |number: &Number, what: &str| {
            number.as_u64().filter(|extent| *extent > 0).ok_or_else(|| {
                wrong(format!("input '{name}' has {what} {number}; it must be an integer of at least 1"))
            })
        };
        let misfit =
            |what: &str, of: &str| wrong(format!("input '{name}' is of type '{type}' and has {what}, as {of} has"));
        if let text @ ("text" | "bytes" | "list") = r#type.as_str() {
            if shape.is_some() || order.is_some() {
                return Err(misfit("a shape or an order", "an array"));
            }
            let Some(size_bytes) = size_bytes else {
                return Err(wrong(format!(
                    "input '{name}' is of type '{text}' and has no 'size_bytes'; add its length"
                )));
            };
            let size_bytes = whole(size_bytes, "the size")?;
            return Ok(match text {
                "text" => Meta::Text { size_bytes },
                "bytes" => Meta::Bytes { size_bytes },
                _ => Meta::List { size_bytes },
            });
        }
        let Some(dtype) = Dtype::from_name(r#type) else {
            let known: Vec<&str> = Dtype::ALL.iter().map(|dtype| dtype.name()).collect();
            let known = known.join(", ");
            return Err(wrong(format!("input '{name}' is of type '{type}'; there are {known}, text, bytes and list")));
        };
        if size_bytes.is_some() {
            return Err(misfit("a 'size_bytes'", "a text"));
        }
        let Some(shape) = shape else { return Ok(Meta::scalar(dtype)) };
        let shape = shape.iter().map(|extent| whole(extent, "the extent")).collect::<Result<_, _>>()?;
        Ok(Meta::Array { dtype, byte_order: ByteOrder::NATIVE, order: order.unwrap_or(Order::C), shape })
    }
}

fn written(name: &str, meta: &Meta) -> FileInput {
    let (name, shape, order, size_bytes) = (name.to_string(), None, None, None);
    let input = |r#type: &str| FileInput { name, r#type: r#type.to_string(), shape, order, size_bytes };
    match meta {
        Meta::Scalar { dtype, .. } => input(dtype.name()),
        Meta::Text { size_bytes } => FileInput { size_bytes: Some((*size_bytes).into()), ..input("text") },
        Meta::Bytes { size_bytes } => FileInput { size_bytes: Some((*size_bytes).into()), ..input("bytes") },
        Meta::List { size_bytes } => FileInput { size_bytes: Some((*size_bytes).into()), ..input("list") },
        Meta::Array { dtype, order, shape, .. } => FileInput {
            shape: Some(shape.iter().map(|extent| (*extent).into()).collect()),
            order: (*order == Order::F).then_some(Order::F),
            ..input(dtype.name())
        },
    }
}

fn arg_written(arg: &GraphArg) -> Json {
    match arg {
        GraphArg::Ref(node) => json!(node.name()),
        GraphArg::View(node, meta) => json!({ "view": written(node.name(), meta) }),
        GraphArg::Integer(number) => json!(number),
        GraphArg::Real(number) => json!(number),
        GraphArg::Truth(truth) => json!(truth),
        GraphArg::Text(text) => json!({ "text": text }),
    }
}

fn arg_read(call: &str, arg: &Json) -> Result<GraphArg, Error> {
    Ok(match arg {
        Json::String(node) => GraphArg::Ref(GraphRef::named(node)),
        Json::Bool(truth) => GraphArg::Truth(*truth),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => GraphArg::Integer(whole),
            None => GraphArg::Real(number.as_f64().unwrap_or(f64::INFINITY)),
        },
        Json::Object(fields) if fields.len() == 1 && fields.get("text").is_some_and(Json::is_string) => {
            GraphArg::Text(fields["text"].as_str().unwrap_or_default().to_string())
        }
        Json::Object(fields) if fields.len() == 1 && fields.contains_key("view") => {
            let view =
                FileInput::deserialize(&fields["view"]).map_err(|error| wrong(format!("call '{call}': {error}")))?;
            GraphArg::View(GraphRef::named(&view.name), view.meta()?)
        }
        Json::Null | Json::Array(_) | Json::Object(_) => {
            let rule = "it is the name of an input or call, a number, true or false, {\"text\": \"...\"}, or {\"view\": {...}}";
            return Err(wrong(format!("call '{call}' has the argument {arg}; {rule}")));
        }
    })
}

fn read<T: DeserializeOwned>(described: Json) -> Result<T, Error> {
    serde_json::from_value(described).map_err(|error| wrong(error.to_string()))
}

fn json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("names and numbers")
}
