//! Values that chares contribute to reductions, and reduction results.

use serde::{Deserialize, Serialize};

use super::id::Index;

/// A value of a reduction.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub enum Value {
    /// The result of a barrier or of quiescence.
    #[default]
    Nothing,
    Floats(Vec<f64>),
    Integers(Vec<i64>),
    Bytes(Vec<u8>),
    /// Each chare's contribution, in the order of their indices.
    Gathered(Vec<(Index, Value)>),
}

impl Value {
    /// Returns the first float; `None` if there is none.
    pub fn float(&self) -> Option<f64> {
        match self {
            Value::Floats(floats) => floats.first().copied(),
            Value::Nothing | Value::Integers(_) | Value::Bytes(_) | Value::Gathered(_) => None,
        }
    }

    /// Returns the first integer; `None` if there is none.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Value::Integers(integers) => integers.first().copied(),
            Value::Nothing | Value::Floats(_) | Value::Bytes(_) | Value::Gathered(_) => None,
        }
    }

    /// Describes kind and length as text.
    pub(crate) fn in_words(&self) -> String {
        match self {
            Value::Nothing => "nothing".into(),
            Value::Floats(all) => format!("{} floats", all.len()),
            Value::Integers(all) => format!("{} integers", all.len()),
            Value::Bytes(all) => format!("{} bytes", all.len()),
            Value::Gathered(all) => format!("{} gathered values", all.len()),
        }
    }
}

impl From<()> for Value {
    fn from((): ()) -> Value {
        Value::Nothing
    }
}

impl From<f64> for Value {
    fn from(float: f64) -> Value {
        Value::Floats(vec![float])
    }
}

impl From<Vec<f64>> for Value {
    fn from(floats: Vec<f64>) -> Value {
        Value::Floats(floats)
    }
}

impl From<i64> for Value {
    fn from(integer: i64) -> Value {
        Value::Integers(vec![integer])
    }
}

impl From<Vec<i64>> for Value {
    fn from(integers: Vec<i64>) -> Value {
        Value::Integers(integers)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Value {
        Value::Bytes(bytes)
    }
}
