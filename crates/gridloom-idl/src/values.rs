//! Which values a parameter may have: letters that a function knows, or numbers from one to another. What has others is refused
//! before the function is called, which may look nowhere else than where they lead.

use serde::{Deserialize, Serialize};

use crate::expr::Expr;

/// The values of a scalar, or of each element of an array.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Values {
    /// Those characters.
    Letters(String),
    /// Whole numbers from the first to the last, both among them.
    Range(Expr, Expr),
}

impl Values {
    /// The expressions in it.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let (first, last) = match self {
            Values::Letters(_) => (None, None),
            Values::Range(first, last) => (Some(first), Some(last)),
        };
        first.into_iter().chain(last)
    }
}
