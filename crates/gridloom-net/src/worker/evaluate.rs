//! Values of expressions that a native call passes.

use gridloom_core::idl::expr::{BinaryOp, Expr, UnaryOp};

/// The value in real arithmetic, given those of the scalar parameters.
///
/// # Errors
/// If the value of a parameter is not known, or an integer expression divides by zero.
pub fn real(expr: &Expr, value: &dyn Fn(usize) -> Option<f64>) -> Result<f64, String> {
    Ok(match expr {
        Expr::Number(number) => *number,
        Expr::Param(index) => value(*index).ok_or_else(|| format!("the value of parameter {index} is not known"))?,
        Expr::Unary(UnaryOp::Negate, operand) => -real(operand, value)?,
        Expr::Unary(UnaryOp::Not, operand) => truth(real(operand, value)? == 0.0),
        Expr::Conditional(condition, then, otherwise) => {
            real(if real(condition, value)? != 0.0 { then } else { otherwise }, value)?
        }
        Expr::Binary(op, left, right) => {
            let (left, right) = (real(left, value)?, real(right, value)?);
            match op {
                BinaryOp::Add => left + right,
                BinaryOp::Subtract => left - right,
                BinaryOp::Multiply => left * right,
                BinaryOp::Divide => left / right,
                BinaryOp::Remainder => left % right,
                BinaryOp::Power => left.powf(right),
                BinaryOp::Less => truth(left < right),
                BinaryOp::LessEqual => truth(left <= right),
                BinaryOp::Greater => truth(left > right),
                BinaryOp::GreaterEqual => truth(left >= right),
                BinaryOp::Equal => truth(left == right),
                BinaryOp::NotEqual => truth(left != right),
                BinaryOp::And => truth(left != 0.0 && right != 0.0),
                BinaryOp::Or => truth(left != 0.0 || right != 0.0),
            }
        }
    })
}

/// The value in integer arithmetic: division truncates.
///
/// # Errors
/// As [`real`], and on overflow and division by zero.
pub fn integer(expr: &Expr, value: &dyn Fn(usize) -> Option<i128>) -> Result<i128, String> {
    let overflow = || "an integer expression overflows or divides by zero".to_string();
    let flag = |truth: bool| Ok(i128::from(truth));
    match expr {
        Expr::Number(number) if number.fract() == 0.0 => Ok(*number as i128),
        Expr::Number(number) => Err(format!("{number} is not an integer")),
        Expr::Param(index) => value(*index).ok_or_else(|| format!("the value of parameter {index} is not known")),
        Expr::Unary(UnaryOp::Negate, operand) => integer(operand, value)?.checked_neg().ok_or_else(overflow),
        Expr::Unary(UnaryOp::Not, operand) => flag(integer(operand, value)? == 0),
        Expr::Conditional(condition, then, otherwise) => {
            integer(if integer(condition, value)? != 0 { then } else { otherwise }, value)
        }
        Expr::Binary(op, left, right) => {
            let (left, right) = (integer(left, value)?, integer(right, value)?);
            match op {
                BinaryOp::Add => left.checked_add(right).ok_or_else(overflow),
                BinaryOp::Subtract => left.checked_sub(right).ok_or_else(overflow),
                BinaryOp::Multiply => left.checked_mul(right).ok_or_else(overflow),
                BinaryOp::Divide => left.checked_div(right).ok_or_else(overflow),
                BinaryOp::Remainder => left.checked_rem(right).ok_or_else(overflow),
                BinaryOp::Power => {
                    u32::try_from(right).ok().and_then(|power| left.checked_pow(power)).ok_or_else(overflow)
                }
                BinaryOp::Less => flag(left < right),
                BinaryOp::LessEqual => flag(left <= right),
                BinaryOp::Greater => flag(left > right),
                BinaryOp::GreaterEqual => flag(left >= right),
                BinaryOp::Equal => flag(left == right),
                BinaryOp::NotEqual => flag(left != right),
                BinaryOp::And => flag(left != 0 && right != 0),
                BinaryOp::Or => flag(left != 0 || right != 0),
            }
        }
    }
}

fn truth(truth: bool) -> f64 {
    f64::from(u8::from(truth))
}
