//! Expressions as text, in the notation that the parser reads, with no more parentheses than needed.

use std::fmt;

use crate::expr::{BinaryOp, EXACT_INTEGER_MAX, Expr, UnaryOp};
use crate::signature::Param;

/// An expression with the parameters that its indices refer to; prints as text. Made by [`Expr::display`].
#[derive(Clone, Copy, Debug)]
pub struct ExprText<'a> {
    expr: &'a Expr,
    params: &'a [Param],
}

impl Expr {
    /// The expression as text. An index without a parameter prints as `#7`.
    pub fn display<'a>(&'a self, params: &'a [Param]) -> ExprText<'a> {
        ExprText { expr: self, params }
    }
}

impl fmt::Display for ExprText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, self.expr, CONDITIONAL)
    }
}

impl ExprText<'_> {
    /// Writes `expr`, in parentheses if it binds weaker than `level`.
    fn write(&self, f: &mut fmt::Formatter<'_>, expr: &Expr, level: u8) -> fmt::Result {
        if level_of(expr) < level {
            f.write_str("(")?;
            self.write_bare(f, expr)?;
            f.write_str(")")
        } else {
            self.write_bare(f, expr)
        }
    }

    fn write_bare(&self, f: &mut fmt::Formatter<'_>, expr: &Expr) -> fmt::Result {
        match expr {
            Expr::Number(number) => write_number(f, *number),
            Expr::Param(index) => match self.params.get(*index) {
                Some(param) => f.write_str(&param.name),
                None => write!(f, "#{index}"),
            },
            Expr::Unary(op, operand) => match op.function() {
                Some(name) => {
                    write!(f, "{name}(")?;
                    self.write(f, operand, CONDITIONAL)?;
                    f.write_str(")")
                }
                None => {
                    f.write_str(if *op == UnaryOp::Not { "!" } else { "-" })?;
                    self.write(f, operand, UNARY)
                }
            },
            Expr::Binary(op @ (BinaryOp::Min | BinaryOp::Max), left, right) => {
                write!(f, "{}(", symbol(*op))?;
                self.write(f, left, CONDITIONAL)?;
                f.write_str(", ")?;
                self.write(f, right, CONDITIONAL)?;
                f.write_str(")")
            }
            Expr::Binary(BinaryOp::Power, base, exponent) => {
                self.write(f, base, PRIMARY)?;
                f.write_str("^")?;
                self.write(f, exponent, UNARY)
            }
            Expr::Binary(op, left, right) => {
                let level = binary_level(*op);
                self.write(f, left, level)?;
                if level < ADDITIVE {
                    write!(f, " {} ", symbol(*op))?
                } else {
                    f.write_str(symbol(*op))?
                }
                self.write(f, right, level + 1)
            }
            Expr::Conditional(condition, then, otherwise) => {
                self.write(f, condition, CONDITIONAL + 1)?;
                f.write_str(" ? ")?;
                self.write(f, then, CONDITIONAL)?;
                f.write_str(" : ")?;
                self.write(f, otherwise, CONDITIONAL)
            }
        }
    }
}

fn write_number(f: &mut fmt::Formatter<'_>, number: f64) -> fmt::Result {
    // `{}` never uses an exponent: 1e300 would take 301 digits and read back as an integer.
    if number.fract() == 0.0 && number.abs() <= EXACT_INTEGER_MAX {
        write!(f, "{number}")
    } else {
        write!(f, "{number:?}")
    }
}

fn level_of(expr: &Expr) -> u8 {
    match expr {
        Expr::Number(number) if number.is_sign_negative() => UNARY,
        Expr::Number(_) | Expr::Param(_) => PRIMARY,
        Expr::Unary(op, _) if op.function().is_some() => PRIMARY,
        Expr::Unary(..) => UNARY,
        Expr::Binary(op, ..) => binary_level(*op),
        Expr::Conditional(..) => CONDITIONAL,
    }
}

/// Precedence of an operator; higher binds tighter.
pub(crate) fn binary_level(op: BinaryOp) -> u8 {
    match op {
        BinaryOp::Or => 1,
        BinaryOp::And => 2,
        BinaryOp::Equal | BinaryOp::NotEqual => 3,
        BinaryOp::Less | BinaryOp::LessEqual | BinaryOp::Greater | BinaryOp::GreaterEqual => 4,
        BinaryOp::Add | BinaryOp::Subtract => ADDITIVE,
        BinaryOp::Multiply | BinaryOp::Divide | BinaryOp::Remainder => 6,
        BinaryOp::Power => 8,
        BinaryOp::Min | BinaryOp::Max => PRIMARY,
    }
}

fn symbol(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Add => "+",
        BinaryOp::Subtract => "-",
        BinaryOp::Multiply => "*",
        BinaryOp::Divide => "/",
        BinaryOp::Remainder => "%",
        BinaryOp::Power => "^",
        BinaryOp::Less => "<",
        BinaryOp::LessEqual => "<=",
        BinaryOp::Greater => ">",
        BinaryOp::GreaterEqual => ">=",
        BinaryOp::Equal => "==",
        BinaryOp::NotEqual => "!=",
        BinaryOp::And => "&&",
        BinaryOp::Or => "||",
        BinaryOp::Min => "min",
        BinaryOp::Max => "max",
    }
}

const CONDITIONAL: u8 = 0;
const ADDITIVE: u8 = 5;
const UNARY: u8 = 7;
const PRIMARY: u8 = 9;

#[cfg(test)]
mod tests {
    use crate::parse::parse_expression;
    use crate::signature::{BaseType, Mode, Param};

    fn printed(text: &str) -> String {
        let params =
            ["m", "n"].map(|name| Param::scalar(name, Mode::In, BaseType::Number(gridloom_base::Dtype::Int32)));
        parse_expression(text, &["m", "n"]).unwrap().display(&params).to_string()
    }

    #[test]
    fn only_needed_parentheses_are_printed() {
        assert_eq!(printed("((2*m)*n)+(1)"), "2*m*n+1");
        assert_eq!(printed("m-(n-1)"), "m-(n-1)");
        assert_eq!(printed("(m*n)^2^(n+1)"), "(m*n)^2^(n+1)");
        assert_eq!(printed("(-m)^2 + -m^2 + 2^-m"), "(-m)^2+-m^2+2^-m");
        assert_eq!(printed("(m<n?m:n)*2"), "(m < n ? m : n)*2");
        assert_eq!(printed("m<n || !n&&m"), "m < n || !n && m");
        assert_eq!(printed("-(log2((m+n)))*min((m),n?m:1)^max(2,-n)"), "-log2(m+n)*min(m, n ? m : 1)^max(2, -n)");
        assert_eq!(printed("pow(m, sqrt(n)) - !log(m)"), "m^sqrt(n)-!log(m)");
    }

    #[test]
    fn constants_keep_their_value() {
        assert_eq!(printed("0.667*n"), "0.667*n");
        assert_eq!(printed("1e300"), "1e300");
        assert_eq!(printed("101"), "101");
    }
}
