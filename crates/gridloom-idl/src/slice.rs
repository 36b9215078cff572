//! Slices: the part of an array that is sent.

use serde::{Deserialize, Serialize};

use crate::expr::{BinaryOp, Expr};

/// The part of one dimension that is sent: indices from `start` to below `end`, `step` apart.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Slice {
    pub size: Expr,
    pub start: Expr,
    pub end: Expr,
    pub step: Expr,
}

/// The part of an array that is sent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Slices {
    /// Of each dimension, outermost first.
    pub dims: Vec<Slice>,
    /// The function gets the part alone, and not the whole array with the part filled in.
    pub is_shrunk: bool,
}

impl Slice {
    /// A dimension that is sent whole.
    pub fn whole(size: Expr) -> Slice {
        Slice { size: size.clone(), start: Expr::Number(0.0), end: size, step: Expr::Number(1.0) }
    }

    /// Whether it is such by its text.
    pub fn is_whole(&self) -> bool {
        *self == Slice::whole(self.size.clone())
    }

    /// The extent of the part: how many indices there are.
    pub fn extent(&self) -> Expr {
        let binary = |op, left: &Expr, right: &Expr| Expr::Binary(op, Box::new(left.clone()), Box::new(right.clone()));
        let one = Expr::Number(1.0);
        let span = match self.start == Expr::Number(0.0) {
            true => self.end.clone(),
            false => binary(BinaryOp::Subtract, &self.end, &self.start),
        };
        if self.step == one {
            return span;
        }
        let more = binary(BinaryOp::Subtract, &self.step, &one);
        binary(BinaryOp::Divide, &binary(BinaryOp::Add, &span, &more), &self.step)
    }

    pub fn expressions(&self) -> [&Expr; 4] {
        [&self.size, &self.start, &self.end, &self.step]
    }
}
