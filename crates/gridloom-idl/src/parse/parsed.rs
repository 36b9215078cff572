//! The parts of a definition, as parsed before all names are known.

use super::lexer::Position;
use crate::expr::Expr;
use crate::ranks::OnRanks;
use crate::signature::Param;
use crate::uses::{Does, Kept};

/// An expression in which [`Expr::Param`] are still indices into [`Parser::uses`](super::cursor::Parser).
#[derive(Clone)]
pub(crate) struct ParsedExpr {
    pub(crate) expr: Expr,
    pub(crate) place: Position,
    /// Whether a constant in it has a point or an exponent.
    pub(crate) real: bool,
}

/// A parameter with extents that wait until all names are known.
#[derive(Clone)]
pub(crate) struct ParsedParam {
    /// Without extents.
    pub(crate) param: Param,
    /// Whole extents.
    pub(crate) dims: Vec<ParsedExpr>,
    /// For each of them the part that is sent, if it is one.
    pub(crate) slices: Vec<Option<ParsedSlice>>,
    /// Its listed values.
    pub(crate) values: Option<ParsedValues>,
    /// What further ranks get of it.
    pub(crate) on_ranks: OnRanks,
    pub(crate) place: Position,
}

/// The values that a parameter may have.
#[derive(Clone)]
pub(crate) enum ParsedValues {
    Letters(String),
    Range(ParsedExpr, ParsedExpr),
}

/// Shared data that a function gets or puts.
pub(crate) struct ParsedUse {
    pub(crate) does: Does,
    /// With values in braces.
    pub(crate) name: String,
    pub(crate) place: Position,
    pub(crate) size_bytes: ParsedExpr,
    pub(crate) kept: Kept,
}

/// A callback with extents that wait likewise.
#[derive(Clone)]
pub(crate) struct ParsedCallback {
    pub(crate) name: String,
    pub(crate) params: Vec<ParsedParam>,
}

/// Start (none: the beginning), end (none: the end) and step (none: each) of a slice.
#[derive(Clone)]
pub(crate) struct ParsedSlice {
    pub(crate) start: Option<ParsedExpr>,
    pub(crate) end: Option<ParsedExpr>,
    pub(crate) step: Option<ParsedExpr>,
}
