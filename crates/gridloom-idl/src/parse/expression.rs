//! Expressions: operators of C with `^` for powers, which bind tightest and to the right, and functions. GridSolve's expressions
//! may have casts, which have no effect, since work is real.

use super::cursor::Parser;
use super::lexer::{IdlError, Position, Token};
use super::parsed::ParsedExpr;
use crate::expr::{BinaryOp, EXPRESSION_NODES_MAX, Expr, UnaryOp};
use crate::expr_text::binary_level;
use crate::type_words::is_type_word;
use gridloom_base::limits::EXPRESSION_DEPTH_MAX;

/// A subtree with its depth, and whether it contains a real constant.
struct Tree(Expr, usize, bool);

impl Parser<'_> {
    pub(crate) fn expression(&mut self) -> Result<ParsedExpr, IdlError> {
        let place = self.peek()?.1;
        self.nesting = 0;
        self.nodes = 0;
        let Tree(expr, _, real) = self.conditional()?;
        Ok(ParsedExpr { expr, place, real })
    }

    fn conditional(&mut self) -> Result<Tree, IdlError> {
        self.enter()?;
        let condition = self.binary(1)?;
        let tree = if self.take_mark("?")? {
            let then = self.conditional()?;
            let (token, place) = self.next()?;
            if token != Token::Mark(":") {
                return Err(self.expected("':' of the conditional", &token, place));
            }
            let otherwise = self.conditional()?;
            let depth = condition.1.max(then.1).max(otherwise.1);
            let real = condition.2 || then.2 || otherwise.2;
            let expr = Expr::Conditional(Box::new(condition.0), Box::new(then.0), Box::new(otherwise.0));
            self.tree(expr, depth, real, place)?
        } else {
            condition
        };
        self.nesting -= 1;
        Ok(tree)
    }

    fn binary(&mut self, level: u8) -> Result<Tree, IdlError> {
        let mut left = self.unary()?;
        loop {
            let (token, place) = self.peek()?;
            let Some(op) = binary_operator(&token).filter(|op| binary_level(*op) >= level) else { return Ok(left) };
            self.next()?;
            let right = self.binary(binary_level(op) + 1)?;
            let (depth, real) = (left.1.max(right.1), left.2 || right.2);
            left = self.tree(Expr::Binary(op, Box::new(left.0), Box::new(right.0)), depth, real, place)?;
        }
    }

    fn unary(&mut self) -> Result<Tree, IdlError> {
        let (token, place) = self.peek()?;
        let op = match token {
            Token::Mark("-") => Some(UnaryOp::Negate),
            Token::Mark("!") => Some(UnaryOp::Not),
            Token::Mark("+") => None,
            _ => return self.power(),
        };
        self.next()?;
        self.enter()?;
        let Tree(operand, depth, real) = self.unary()?;
        self.nesting -= 1;
        match op {
            Some(op) => self.tree(Expr::Unary(op, Box::new(operand)), depth, real, place),
            None => Ok(Tree(operand, depth, real)),
        }
    }

    fn power(&mut self) -> Result<Tree, IdlError> {
        let base = self.primary()?;
        let place = self.peek()?.1;
        if !self.take_mark("^")? {
            return Ok(base);
        }
        self.enter()?;
        let exponent = self.unary()?;
        self.nesting -= 1;
        let (depth, real) = (base.1.max(exponent.1), base.2 || exponent.2);
        self.tree(Expr::Binary(BinaryOp::Power, Box::new(base.0), Box::new(exponent.0)), depth, real, place)
    }

    fn primary(&mut self) -> Result<Tree, IdlError> {
        let (token, place) = self.next()?;
        match token {
            Token::Integer(number) => self.tree(Expr::Number(number), 0, false, place),
            Token::Real(number) => self.tree(Expr::Number(number), 0, true, place),
            Token::Name(name) if self.peek()?.0 == Token::Mark("(") => self.function(&name, place),
            Token::Mark("(") if self.is_cast()? => {
                while self.next()?.0 != Token::Mark(")") {}
                self.enter()?;
                let operand = self.unary()?;
                self.nesting -= 1;
                Ok(operand)
            }
            Token::Name(name) => {
                self.uses.push((name, place));
                self.tree(Expr::Param(self.uses.len() - 1), 0, false, place)
            }
            Token::Mark("(") => {
                let inner = self.conditional()?;
                let (token, place) = self.next()?;
                if token != Token::Mark(")") {
                    return Err(self.expected("an operator or ')'", &token, place));
                }
                Ok(inner)
            }
            Token::Mark("*") => Err(self.expected(
                "a number, a parameter or '(' (a power is written with '^', such as n^2)",
                &token,
                place,
            )),
            other => Err(self.expected("a number, a parameter or '('", &other, place)),
        }
    }

    /// Parses `min(x, y)` or the like, after its name was read.
    fn function(&mut self, name: &str, place: Position) -> Result<Tree, IdlError> {
        let unary = [UnaryOp::Sqrt, UnaryOp::Log, UnaryOp::Log2, UnaryOp::Log10];
        let unary = unary.into_iter().find(|op| op.function() == Some(name));
        let binary = match name {
            "pow" => Some(BinaryOp::Power),
            "min" => Some(BinaryOp::Min),
            "max" => Some(BinaryOp::Max),
            _ => None,
        };
        if unary.is_none() && binary.is_none() {
            let message = format!("unknown function '{name}'; expressions have {FUNCTIONS}");
            return Err(self.error(place, message));
        }
        self.mark("(")?;
        let Tree(first, mut depth, mut real) = self.conditional()?;
        let mut expr = first;
        if let Some(op) = unary {
            (expr, real) = (Expr::Unary(op, Box::new(expr)), true);
        }
        if let Some(op) = binary {
            self.mark(",")?;
            let second = self.conditional()?;
            (depth, real) = (depth.max(second.1), real || second.2);
            expr = Expr::Binary(op, Box::new(expr), Box::new(second.0));
        }
        self.mark(")")?;
        self.tree(expr, depth, real, place)
    }

    /// True if the rest of a cast follows the opening parenthesis: type words up to the closing one.
    fn is_cast(&self) -> Result<bool, IdlError> {
        let mut ahead = self.lexer;
        let mut has_words = false;
        loop {
            match ahead.next().map_err(|failure| self.failed(failure))?.0 {
                Token::Name(word) if self.is_routine && is_type_word(&word) => has_words = true,
                token => return Ok(has_words && token == Token::Mark(")")),
            }
        }
    }

    fn tree(&mut self, expr: Expr, depth_below: usize, real: bool, place: Position) -> Result<Tree, IdlError> {
        self.nodes += 1;
        if depth_below >= EXPRESSION_DEPTH_MAX {
            return Err(self.too_deep(place));
        }
        if self.nodes > EXPRESSION_NODES_MAX {
            let message = format!("this expression has more than {EXPRESSION_NODES_MAX} operators and operands");
            return Err(self.error(place, message));
        }
        Ok(Tree(expr, depth_below + 1, real))
    }

    /// Counts the recursion, which parentheses and signs deepen without deepening the tree. A tree of maximum depth
    /// needs at most two levels of recursion for each of its own.
    fn enter(&mut self) -> Result<(), IdlError> {
        self.nesting += 1;
        if self.nesting > 2 * EXPRESSION_DEPTH_MAX + 2 {
            let place = self.peek()?.1;
            return Err(self.too_deep(place));
        }
        Ok(())
    }

    fn too_deep(&self, place: Position) -> IdlError {
        let message = format!("this expression is nested deeper than {EXPRESSION_DEPTH_MAX} levels; simplify it");
        self.error(place, message)
    }
}

const FUNCTIONS: &str = "pow(x, y), min(x, y), max(x, y), sqrt(x), log(x), log2(x) and log10(x)";

fn binary_operator(token: &Token) -> Option<BinaryOp> {
    let Token::Mark(mark) = token else { return None };
    Some(match *mark {
        "+" => BinaryOp::Add,
        "-" => BinaryOp::Subtract,
        "*" => BinaryOp::Multiply,
        "/" => BinaryOp::Divide,
        "%" => BinaryOp::Remainder,
        "<" => BinaryOp::Less,
        "<=" => BinaryOp::LessEqual,
        ">" => BinaryOp::Greater,
        ">=" => BinaryOp::GreaterEqual,
        "==" => BinaryOp::Equal,
        "!=" => BinaryOp::NotEqual,
        "&&" => BinaryOp::And,
        "||" => BinaryOp::Or,
        _ => return None,
    })
}
