//! The wire format of expressions: a flat list of tokens in postfix order.
//!
//! Signatures arrive from sockets, so reading one must neither recurse as deep as the sender likes nor grow without
//! bound. The list is read one token at a time onto an explicit stack. It is rejected as soon as it is too long, too deep
//! or malformed, or contains a constant that is not finite.

use std::fmt;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::ser::{Error as _, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::expr::{BinaryOp, EXPRESSION_NODES_MAX, Expr, UnaryOp};
use gridloom_base::limits::EXPRESSION_DEPTH_MAX;

/// One operand or operator; operators follow their operands.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Token {
    /// A constant.
    Number(f64),
    Param(u32),
    /// Consumes the last value.
    Unary(UnaryOp),
    /// Consumes the last two values.
    Binary(BinaryOp),
    /// Consumes the last three values.
    Conditional,
}

impl Expr {
    /// The expression as tokens, operands before their operator.
    pub fn postfix(&self) -> Vec<Token> {
        let mut tokens = Vec::new();
        push_postfix(self, &mut tokens);
        tokens
    }
}

fn push_postfix(expr: &Expr, tokens: &mut Vec<Token>) {
    match expr {
        Expr::Number(number) => tokens.push(Token::Number(*number)),
        Expr::Param(index) => tokens.push(Token::Param(u32::try_from(*index).unwrap_or(u32::MAX))),
        Expr::Unary(op, operand) => {
            push_postfix(operand, tokens);
            tokens.push(Token::Unary(*op));
        }
        Expr::Binary(op, left, right) => {
            push_postfix(left, tokens);
            push_postfix(right, tokens);
            tokens.push(Token::Binary(*op));
        }
        Expr::Conditional(condition, then, otherwise) => {
            push_postfix(condition, tokens);
            push_postfix(then, tokens);
            push_postfix(otherwise, tokens);
            tokens.push(Token::Conditional);
        }
    }
}

/// Builds an expression from tokens.
#[derive(Default)]
struct Assembler {
    stack: Vec<(Expr, usize)>,
    tokens: usize,
}

impl Assembler {
    fn push(&mut self, token: Token) -> Result<(), String> {
        self.tokens += 1;
        if self.tokens > EXPRESSION_NODES_MAX {
            return Err(format!("an expression has more than {EXPRESSION_NODES_MAX} tokens"));
        }
        let (expr, depth) = match token {
            Token::Number(number) if !number.is_finite() => return Err(format!("constant {number} is not finite")),
            Token::Number(number) => (Expr::Number(number), 1),
            Token::Param(index) => (Expr::Param(index as usize), 1),
            Token::Unary(op) => {
                let (operand, depth) = self.pop()?;
                (Expr::Unary(op, Box::new(operand)), depth + 1)
            }
            Token::Binary(op) => {
                let (right, right_depth) = self.pop()?;
                let (left, left_depth) = self.pop()?;
                (Expr::Binary(op, Box::new(left), Box::new(right)), 1 + left_depth.max(right_depth))
            }
            Token::Conditional => {
                let (otherwise, otherwise_depth) = self.pop()?;
                let (then, then_depth) = self.pop()?;
                let (condition, condition_depth) = self.pop()?;
                let depth = 1 + otherwise_depth.max(then_depth).max(condition_depth);
                (Expr::Conditional(Box::new(condition), Box::new(then), Box::new(otherwise)), depth)
            }
        };
        if depth > EXPRESSION_DEPTH_MAX {
            return Err(format!("an expression is nested deeper than {EXPRESSION_DEPTH_MAX} levels"));
        }
        self.stack.push((expr, depth));
        Ok(())
    }

    fn pop(&mut self) -> Result<(Expr, usize), String> {
        self.stack.pop().ok_or_else(|| "an operator of an expression lacks an operand".to_string())
    }

    fn finish(mut self) -> Result<Expr, String> {
        match (self.stack.pop(), self.stack.is_empty()) {
            (Some((expr, _)), true) => Ok(expr),
            (None, _) => Err("an expression is empty".to_string()),
            (Some(_), false) => Err("an expression has values without an operator".to_string()),
        }
    }
}

impl Serialize for Expr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.depth() > EXPRESSION_DEPTH_MAX {
            return Err(S::Error::custom("an expression is nested too deep to be sent"));
        }
        let tokens = self.postfix();
        if tokens.len() > EXPRESSION_NODES_MAX {
            return Err(S::Error::custom("an expression is too long to be sent"));
        }
        let mut sequence = serializer.serialize_seq(Some(tokens.len()))?;
        for token in &tokens {
            sequence.serialize_element(token)?;
        }
        sequence.end()
    }
}

impl<'de> Deserialize<'de> for Expr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Expr, D::Error> {
        deserializer.deserialize_seq(PostfixVisitor)
    }
}

struct PostfixVisitor;

impl<'de> Visitor<'de> for PostfixVisitor {
    type Value = Expr;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an expression as a list of tokens in postfix order")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Expr, A::Error> {
        let mut assembler = Assembler::default();
        while let Some(token) = sequence.next_element()? {
            assembler.push(token).map_err(A::Error::custom)?;
        }
        assembler.finish().map_err(A::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(tokens: &[Token]) -> Result<Expr, String> {
        let bytes = postcard::to_stdvec(tokens).unwrap();
        let through_json = serde_json::from_str::<Expr>(&serde_json::to_string(tokens).unwrap());
        match postcard::from_bytes::<Expr>(&bytes) {
            Ok(expr) => Ok(expr),
            Err(_) => Err(through_json.unwrap_err().to_string()),
        }
    }

    #[test]
    fn tokens_are_put_together() {
        let tokens = [Token::Param(0), Token::Number(1.0), Token::Binary(BinaryOp::Subtract)];
        let expr = read(&tokens).unwrap();
        assert_eq!(expr.postfix(), tokens);
        assert_eq!(postcard::to_stdvec(&expr).unwrap(), postcard::to_stdvec(&tokens[..]).unwrap());
    }

    #[test]
    fn deep_long_and_ill_formed_lists_are_refused() {
        let mut deep = vec![Token::Number(1.0)];
        deep.extend([Token::Unary(UnaryOp::Negate); EXPRESSION_DEPTH_MAX]);
        assert!(read(&deep).unwrap_err().contains("deeper than 64"));
        deep.pop();
        assert!(read(&deep).is_ok());
        let long = vec![Token::Number(1.0); EXPRESSION_NODES_MAX + 1];
        assert!(read(&long).unwrap_err().contains("more than 1024 tokens"));
        assert!(read(&[]).unwrap_err().contains("empty"));
        assert!(read(&[Token::Binary(BinaryOp::Add)]).unwrap_err().contains("lacks an operand"));
        assert!(read(&[Token::Number(1.0), Token::Param(1)]).unwrap_err().contains("without an operator"));
        let infinite = postcard::to_stdvec(&[Token::Number(f64::INFINITY)][..]).unwrap();
        assert!(postcard::from_bytes::<Expr>(&infinite).is_err());
    }
}
