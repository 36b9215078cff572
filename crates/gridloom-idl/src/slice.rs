//! Slices: the part of an array that is sent.

use serde::{Deserialize, Serialize};

use crate::expr::{BinaryOp, Expr};

/// The part of one dimension that is sent: indices from `start` to below `end`, `step` apart. An `end` of 0 means the size, and a
/// `step` of 0 means 1.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Slice {
    pub size: Expr,
    pub start: Expr,
    pub end: Expr,
    pub step: Expr,
}

impl Slice {
    /// Creates the slice of a dimension that is sent whole.
    pub fn whole(size: Expr) -> Slice {
        Slice { size: size.clone(), start: Expr::Number(0.0), end: size, step: Expr::Number(1.0) }
    }

    /// True if its text shows that the dimension is sent whole.
    pub fn is_whole(&self) -> bool {
        *self == Slice::whole(self.size.clone())
    }

    /// The extent of the part: its number of indices.
    pub fn extent(&self) -> Expr {
        let binary = |op, left: &Expr, right: &Expr| Expr::Binary(op, Box::new(left.clone()), Box::new(right.clone()));
        let one = Expr::Number(1.0);
        let end = if self.end == self.size { self.end.clone() } else { or_if_zero(&self.end, &self.size) };
        let span = match self.start == Expr::Number(0.0) {
            true => end,
            false => binary(BinaryOp::Subtract, &end, &self.start),
        };
        let step = or_if_zero(&self.step, &one);
        if step == one {
            return span;
        }
        let more = binary(BinaryOp::Subtract, &step, &one);
        binary(BinaryOp::Divide, &binary(BinaryOp::Add, &span, &more), &step)
    }

    pub fn expressions(&self) -> [&Expr; 4] {
        [&self.size, &self.start, &self.end, &self.step]
    }
}

/// `expr == 0 ? otherwise : expr`.
fn or_if_zero(expr: &Expr, otherwise: &Expr) -> Expr {
    match expr {
        Expr::Number(0.0) => otherwise.clone(),
        Expr::Number(_) => expr.clone(),
        _ => {
            let is_zero = Expr::Binary(BinaryOp::Equal, Box::new(expr.clone()), Box::new(Expr::Number(0.0)));
            Expr::Conditional(Box::new(is_zero), Box::new(otherwise.clone()), Box::new(expr.clone()))
        }
    }
}
