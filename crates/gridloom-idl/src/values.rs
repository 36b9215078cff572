//! Allowed values of a parameter: letters that a function knows, or a range of numbers. A call with other values is rejected
//! before the function runs, since the function may use them without a check of its own.

use serde::{Deserialize, Serialize};

use crate::expr::Expr;

/// The values of a scalar, or of each element of an array.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum AllowedValues {
    /// One of these characters.
    Characters(String),
    /// Whole numbers from the first to the last, both inclusive.
    Range(Expr, Expr),
}

impl AllowedValues {
    /// The expressions in it.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let (first, last) = match self {
            AllowedValues::Characters(_) => (None, None),
            AllowedValues::Range(first, last) => (Some(first), Some(last)),
        };
        first.into_iter().chain(last)
    }
}
