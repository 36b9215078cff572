//! Texts that are not what they should be.

use thiserror::Error;

/// A name, a URI or another text that violates a rule. The text has the value, the limit and the remedy.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{0}")]
pub struct Invalid(pub String);

impl Invalid {
    pub(crate) fn new(why: impl ToString) -> Invalid {
        Invalid(why.to_string())
    }
}
