//! Decodes messages for display: field names and values, and long arrays as their type, shape and first elements.
//!
//! The first message of a type on a connection carries its declaration, which is kept. So every typed message can be read,
//! whatever the language of its sender. A message without a declaration is shown as bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use gridloom_layout::{Abi, Graph, MessageParts, Receiver, Value, parse};
use gridloom_process::ProcessMessage;
use serde_json::{Map, Value as Json, json};

/// Maximum number of array elements shown.
const SHOWN_MAX: u64 = 8;
/// Maximum number of bytes shown of a message without a declaration.
const TEXT_SHOWN_MAX: usize = 64;
/// Maximum number of declarations kept; messages of further types are shown as bytes.
const DECLARATIONS_MAX: usize = 4096;

/// Declarations of messages, by hash.
#[derive(Default)]
pub(super) struct MessageDecoder {
    receivers: BTreeMap<u64, Receiver>,
}

impl MessageDecoder {
    /// Returns the content of a message.
    pub(super) fn decode(&mut self, letter: &ProcessMessage) -> Json {
        self.typed(letter).unwrap_or_else(|| untyped(&letter.payload))
    }

    /// Decodes a typed message; `None` if its declaration is not known.
    fn typed(&mut self, letter: &ProcessMessage) -> Option<Json> {
        let header = MessageParts::parse(&letter.payload).ok().filter(|header| header.name() == &*letter.kind)?;
        let hash = header.hash();
        if let Some(text) = header.description().filter(|_| !self.receivers.contains_key(&hash))
            && self.receivers.len() < DECLARATIONS_MAX
        {
            let schema = parse(text, "message").ok()?.schema(header.name()).ok()?;
            self.receivers.insert(hash, Receiver::new(Arc::new(schema), Abi::NATIVE).ok()?);
        }
        let incoming = self.receivers.get_mut(&hash)?.open(&letter.payload).ok()?;
        let graph = incoming.to_graph_of_first(SHOWN_MAX).ok()?;
        Some(graph_json(&graph))
    }
}

fn graph_json(graph: &Graph) -> Json {
    let mut root = json(graph.root().unwrap_or(&Value::Null));
    // Values that several pointers share: `#0` is the first of them, and is the root if the message itself is shared.
    let is_root = |index: usize| matches!(graph.root, Value::Reference { shared, .. } if shared == index);
    let others = graph.shared.iter().enumerate().filter(|(index, _)| !is_root(*index));
    if let Json::Object(fields) = &mut root {
        fields.extend(others.map(|(index, values)| {
            let values: Vec<Json> = values.iter().map(json).collect();
            (format!("#{index}"), Json::Array(values))
        }));
    }
    root
}

fn json(value: &Value) -> Json {
    match value {
        Value::Integer(number) => match (i64::try_from(*number), u64::try_from(*number)) {
            (Ok(number), _) => number.into(),
            (_, Ok(number)) => number.into(),
            _ => number.to_string().into(),
        },
        // JSON has no infinities.
        Value::Float(number) if !number.is_finite() => number.to_string().into(),
        Value::Float(number) => (*number).into(),
        Value::Bool(truth) => (*truth).into(),
        Value::Struct(fields) => fields.iter().map(|(name, value)| (name.clone(), json(value))).collect(),
        Value::List(values) => values.iter().map(json).collect(),
        Value::Truncated { element, values, shape } => match &values[..] {
            [Value::Text(text)] if element == "char" => format!("{text}… ({} bytes)", shape[0]).into(),
            [Value::Bytes(bytes)] if element == "char" => {
                format!("{}… ({} bytes)", bytes.escape_ascii(), shape[0]).into()
            }
            values => {
                let first: Vec<Json> = values.iter().map(json).collect();
                json!({ "dtype": element, "shape": shape, "first": first })
            }
        },
        Value::Bytes(bytes) => bytes.escape_ascii().to_string().into(),
        Value::Text(text) => text.clone().into(),
        Value::Null => Json::Null,
        Value::Pointee(value) => json(value),
        Value::Case(name, value) => Map::from_iter([(name.clone(), json(value))]).into(),
        Value::Constant(_) | Value::Reference { .. } => value.to_string().into(),
    }
}

/// Returns the size and the first bytes as escaped text.
fn untyped(payload: &[u8]) -> Json {
    let first = &payload[..payload.len().min(TEXT_SHOWN_MAX)];
    let more = if first.len() < payload.len() { "…" } else { "" };
    json!({ "bytes": payload.len(), "first": format!("{}{more}", first.escape_ascii()) })
}
