//! Size and complexity expressions over parameters, as a tree. [`postfix`] is its wire format,
//! [`crate::evaluation`] computes its value, and [`crate::expr_text`] prints it.
//!
//! **Invariant:** expressions made by the parser and the deserializer are at most
//! [`EXPRESSION_DEPTH_MAX`](gridloom_base::limits::EXPRESSION_DEPTH_MAX) deep, and have at most [`EXPRESSION_NODES_MAX`]
//! nodes. So recursion over them is bounded.

pub mod postfix;

use serde::{Deserialize, Serialize};

/// Maximum number of operators and operands in one expression: far more than a size or a complexity ever needs, and small enough
/// that a hostile signature costs nothing.
pub const EXPRESSION_NODES_MAX: usize = 1024;

/// Largest integer up to which all are exact in the `f64` that holds a constant.
pub(crate) const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// An expression. Parameters are referred to by index into [`crate::Signature::params`].
#[derive(Clone, PartialEq, Debug)]
pub enum Expr {
    /// A constant.
    Number(f64),
    /// A scalar parameter.
    Param(usize),
    /// Minus, logical not, or a function of one argument.
    Unary(UnaryOp, Box<Expr>),
    /// Two operands, or a function of two arguments.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `condition ? then : otherwise`.
    Conditional(Box<Expr>, Box<Expr>, Box<Expr>),
}

/// Operators with one operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum UnaryOp {
    Negate,
    Not,
    Sqrt,
    Log,
    Log2,
    Log10,
}

/// Operators with two operands; `^` is power, of which `pow` is another notation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum BinaryOp {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Power,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
    And,
    Or,
    Min,
    Max,
}

impl UnaryOp {
    /// Its name, if it is written as a function.
    pub(crate) fn function(self) -> Option<&'static str> {
        match self {
            UnaryOp::Negate | UnaryOp::Not => None,
            UnaryOp::Sqrt => Some("sqrt"),
            UnaryOp::Log => Some("log"),
            UnaryOp::Log2 => Some("log2"),
            UnaryOp::Log10 => Some("log10"),
        }
    }
}

impl BinaryOp {
    /// Its name, if it is written as a function.
    pub(crate) fn function(self) -> Option<&'static str> {
        match self {
            BinaryOp::Min => Some("min"),
            BinaryOp::Max => Some("max"),
            _ => None,
        }
    }
}

impl Expr {
    /// Calls `visit` with every parameter referred to, from left to right.
    pub fn visit_params(&self, visit: &mut dyn FnMut(usize)) {
        match self {
            Expr::Number(_) => {}
            Expr::Param(index) => visit(*index),
            Expr::Unary(_, operand) => operand.visit_params(visit),
            Expr::Binary(_, left, right) => {
                left.visit_params(visit);
                right.visit_params(visit);
            }
            Expr::Conditional(condition, then, otherwise) => {
                condition.visit_params(visit);
                then.visit_params(visit);
                otherwise.visit_params(visit);
            }
        }
    }

    /// The parameters referred to, ascending, each once.
    pub fn params(&self) -> Vec<usize> {
        let mut found = Vec::new();
        self.visit_params(&mut |index| found.push(index));
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Levels of nesting; 1 for a constant or a parameter.
    pub fn depth(&self) -> usize {
        match self {
            Expr::Number(_) | Expr::Param(_) => 1,
            Expr::Unary(_, operand) => 1 + operand.depth(),
            Expr::Binary(_, left, right) => 1 + left.depth().max(right.depth()),
            Expr::Conditional(condition, then, otherwise) => {
                1 + condition.depth().max(then.depth()).max(otherwise.depth())
            }
        }
    }
}
