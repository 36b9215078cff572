//! The parts of a definition, as parsed before all names are known.

use super::lexer::Position;
use crate::expr::Expr;
use crate::ranks::RankShare;
use crate::signature::Param;
use crate::uses::{Retention, UseKind};

/// An expression in which [`Expr::Param`] are still indices into [`Parser::uses`](super::cursor::Parser).
#[derive(Clone)]
pub(crate) struct ParsedExpr {
    pub(crate) expr: Expr,
    pub(crate) place: Position,
    /// True if a constant in it has a point or an exponent.
    pub(crate) real: bool,
}

/// A parameter whose extents are resolved when all names are known.
#[derive(Clone)]
pub(crate) struct ParsedParam {
    /// The parameter without its extents.
    pub(crate) param: Param,
    /// Extents of the whole array.
    pub(crate) dims: Vec<ParsedExpr>,
    /// The sent part of each dimension, if only a part is sent.
    pub(crate) slices: Vec<Option<ParsedSlice>>,
    /// Its listed values.
    pub(crate) values: Option<ParsedDomain>,
    /// The share of it that ranks other than the first receive.
    pub(crate) on_ranks: RankShare,
    pub(crate) place: Position,
}

/// The values that a parameter may have.
#[derive(Clone)]
pub(crate) enum ParsedDomain {
    Letters(String),
    Range(ParsedExpr, ParsedExpr),
}

/// Shared data that a function gets or puts.
pub(crate) struct ParsedDataUse {
    pub(crate) does: UseKind,
    /// Name, with expressions in braces.
    pub(crate) name: String,
    pub(crate) place: Position,
    pub(crate) size_bytes: ParsedExpr,
    pub(crate) kept: Retention,
}

/// A callback whose extents are resolved when all names are known.
#[derive(Clone)]
pub(crate) struct ParsedCallback {
    pub(crate) name: String,
    pub(crate) params: Vec<ParsedParam>,
}

/// Start (default: the beginning), end (default: the end) and step (default: 1) of a slice.
#[derive(Clone)]
pub(crate) struct ParsedSlice {
    pub(crate) start: Option<ParsedExpr>,
    pub(crate) end: Option<ParsedExpr>,
    pub(crate) step: Option<ParsedExpr>,
}
