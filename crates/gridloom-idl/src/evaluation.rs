//! Evaluates expressions.
//!
//! Extents are evaluated exactly, in 128-bit integers; division truncates towards zero as in C. If an extent has no
//! integer value (overflow, division by zero, a constant such as 0.5), the error names the expression. Work is
//! evaluated in `f64`, where `/` divides real numbers; powers, roots and logarithms use `libm`, so that two machines
//! agree. Among the functions only `min` and `max` are exact, so only they are allowed in extents. Comparisons and
//! logical operators return 0 or 1, and `&&`, `||` and `?:` evaluate only the operands that decide the result.

use thiserror::Error;

use crate::expr::{BinaryOp, EXACT_INTEGER_MAX, Expr, UnaryOp};
use crate::signature::{BaseType, Mode, Param};
use crate::type_words::type_name;
use gridloom_base::limits::EXPRESSION_DEPTH_MAX;

/// An expression that has no value.
#[derive(Clone, PartialEq, Debug, Error)]
#[error("expression '{expression}' {failure}")]
pub struct EvalError {
    /// The text of the expression.
    pub expression: String,
    /// The failure.
    pub failure: EvalFailure,
}

/// Why an expression has no value.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum EvalFailure {
    /// An intermediate value is out of range.
    #[error("overflows")]
    Overflow,
    /// `/ 0` or `% 0`.
    #[error("divides by zero")]
    DivisionByZero,
    /// An integer to a negative power.
    #[error("raises an integer to the negative power {0}")]
    NegativePower(i128),
    /// The value of a size is negative.
    #[error("is {0}, expected a size of 0 or more")]
    Negative(i128),
    /// A constant or parameter is not an integer where one is needed.
    #[error("uses {0}, which is not an exact integer")]
    NotAnInteger(f64),
    /// A function whose values are in general not integers is used where an integer is needed.
    #[error("uses {0}(), which does not return exact integers")]
    NotWhole(&'static str),
    /// The value does not fit the expected type.
    #[error("is {value}, which does not fit {dtype}")]
    DoesNotFit {
        /// The value, in words.
        value: String,
        /// The type.
        dtype: gridloom_base::Dtype,
    },
    /// The value of a parameter is not known.
    #[error("needs the value of parameter '{name}'")]
    NeedsValue {
        /// Index of the parameter.
        param: usize,
        name: String,
    },
}

impl Expr {
    /// Returns the exact value, given the values of the parameters.
    ///
    /// # Errors
    /// If a step overflows 128-bit integers or divides by zero, or `value` returns `None` for a parameter.
    pub fn evaluate_integer(&self, params: &[Param], value: &dyn Fn(usize) -> Option<i128>) -> Result<i128, EvalError> {
        self.integer(params, value).map_err(|failure| self.error(params, failure))
    }

    /// Returns the exact value as an extent.
    ///
    /// # Errors
    /// Those of [`Expr::evaluate_integer`], and if the value is negative or is 2⁶⁴ or more.
    pub fn evaluate_extent(&self, params: &[Param], value: &dyn Fn(usize) -> Option<i128>) -> Result<u64, EvalError> {
        let extent = self.evaluate_integer(params, value)?;
        if extent < 0 {
            return Err(self.error(params, EvalFailure::Negative(extent)));
        }
        u64::try_from(extent).map_err(|_| self.error(params, EvalFailure::Overflow))
    }

    /// Returns the value in real arithmetic; it may be infinite or NaN.
    ///
    /// # Errors
    /// If `value` returns `None` for a parameter.
    pub fn evaluate_real(&self, params: &[Param], value: &dyn Fn(usize) -> Option<f64>) -> Result<f64, EvalError> {
        self.real(params, value).map_err(|failure| self.error(params, failure))
    }

    /// True if the expression can be evaluated exactly: it contains only integral constants and integer parameters.
    pub fn is_integral(&self, params: &[Param]) -> bool {
        match self {
            Expr::Number(number) => number.fract() == 0.0 && number.abs() <= EXACT_INTEGER_MAX,
            Expr::Param(index) => params.get(*index).is_some_and(is_integer_scalar),
            Expr::Unary(op, operand) => op.function().is_none() && operand.is_integral(params),
            Expr::Binary(_, left, right) => left.is_integral(params) && right.is_integral(params),
            Expr::Conditional(condition, then, otherwise) => {
                condition.is_integral(params) && then.is_integral(params) && otherwise.is_integral(params)
            }
        }
    }

    /// Checks that the expression is not nested too deeply, and that it uses only scalars that are known when it is
    /// evaluated. These must be integers; the work may also use real scalars and constants with a fraction.
    ///
    /// # Errors
    /// A message that names the parameter and the remedy.
    pub fn checked(&self, params: &[Param], used: Use) -> Result<(), String> {
        if self.depth() > EXPRESSION_DEPTH_MAX {
            return Err(format!("the expression is nested deeper than {EXPRESSION_DEPTH_MAX} levels"));
        }
        self.uses_known(params, used)
    }

    fn uses_known(&self, params: &[Param], used: Use) -> Result<(), String> {
        match self {
            Expr::Number(number) if !number.is_finite() => Err(format!("the constant {number} is not finite")),
            Expr::Number(number)
                if used != Use::Work && (number.fract() != 0.0 || number.abs() > EXACT_INTEGER_MAX) =>
            {
                Err(format!("the constant {number} is not an exact integer, and sizes are whole numbers"))
            }
            Expr::Number(_) => Ok(()),
            Expr::Param(index) => match params.get(*index) {
                Some(param) => usable(param, used),
                None => Err(format!("the expression refers to parameter {index} of {}", params.len())),
            },
            Expr::Unary(op, operand) => match op.function().filter(|_| used != Use::Work) {
                None => operand.uses_known(params, used),
                Some(name) => Err(format!(
                    "{name}() does not return exact integers, and sizes are whole numbers: pass the size as an IN int"
                )),
            },
            Expr::Binary(_, left, right) => {
                left.uses_known(params, used)?;
                right.uses_known(params, used)
            }
            Expr::Conditional(condition, then, otherwise) => {
                condition.uses_known(params, used)?;
                then.uses_known(params, used)?;
                otherwise.uses_known(params, used)
            }
        }
    }

    pub(crate) fn error(&self, params: &[Param], failure: EvalFailure) -> EvalError {
        EvalError { expression: self.display(params).to_string(), failure }
    }

    fn integer(&self, params: &[Param], value: &dyn Fn(usize) -> Option<i128>) -> Result<i128, EvalFailure> {
        match self {
            Expr::Number(number) if number.fract() == 0.0 && number.abs() <= EXACT_INTEGER_MAX => Ok(*number as i128),
            Expr::Number(number) => Err(EvalFailure::NotAnInteger(*number)),
            Expr::Param(index) => value(*index).ok_or_else(|| needs_value(params, *index)),
            Expr::Unary(UnaryOp::Negate, operand) => {
                operand.integer(params, value)?.checked_neg().ok_or(EvalFailure::Overflow)
            }
            Expr::Unary(UnaryOp::Not, operand) => Ok(i128::from(operand.integer(params, value)? == 0)),
            Expr::Unary(op @ (UnaryOp::Sqrt | UnaryOp::Log | UnaryOp::Log2 | UnaryOp::Log10), _) => {
                Err(EvalFailure::NotWhole(op.function().unwrap_or_default()))
            }
            Expr::Binary(BinaryOp::And, left, right) => {
                Ok(i128::from(left.integer(params, value)? != 0 && right.integer(params, value)? != 0))
            }
            Expr::Binary(BinaryOp::Or, left, right) => {
                Ok(i128::from(left.integer(params, value)? != 0 || right.integer(params, value)? != 0))
            }
            Expr::Binary(op, left, right) => {
                integer_operation(*op, left.integer(params, value)?, right.integer(params, value)?)
            }
            Expr::Conditional(condition, then, otherwise) => {
                let branch = if condition.integer(params, value)? != 0 { then } else { otherwise };
                branch.integer(params, value)
            }
        }
    }

    fn real(&self, params: &[Param], value: &dyn Fn(usize) -> Option<f64>) -> Result<f64, EvalFailure> {
        match self {
            Expr::Number(number) => Ok(*number),
            Expr::Param(index) => value(*index).ok_or_else(|| needs_value(params, *index)),
            Expr::Unary(UnaryOp::Negate, operand) => Ok(-operand.real(params, value)?),
            Expr::Unary(UnaryOp::Not, operand) => Ok(truth(operand.real(params, value)? == 0.0)),
            Expr::Unary(UnaryOp::Sqrt, operand) => Ok(libm::sqrt(operand.real(params, value)?)),
            Expr::Unary(UnaryOp::Log, operand) => Ok(libm::log(operand.real(params, value)?)),
            Expr::Unary(UnaryOp::Log2, operand) => Ok(libm::log2(operand.real(params, value)?)),
            Expr::Unary(UnaryOp::Log10, operand) => Ok(libm::log10(operand.real(params, value)?)),
            Expr::Binary(BinaryOp::And, left, right) => {
                Ok(truth(left.real(params, value)? != 0.0 && right.real(params, value)? != 0.0))
            }
            Expr::Binary(BinaryOp::Or, left, right) => {
                Ok(truth(left.real(params, value)? != 0.0 || right.real(params, value)? != 0.0))
            }
            Expr::Binary(op, left, right) => {
                Ok(real_operation(*op, left.real(params, value)?, right.real(params, value)?))
            }
            Expr::Conditional(condition, then, otherwise) => {
                let branch = if condition.real(params, value)? != 0.0 { then } else { otherwise };
                branch.real(params, value)
            }
        }
    }
}

/// The use of an expression, which determines the parameters that it may contain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// A size that is known before the call.
    Size,
    /// A size of a `VAROUT` array, which may use results, too.
    SizeAfter,
    /// The work, or the likely size of a result. Here the value of a text, bytes or a file is its size in bytes.
    Work,
}

/// True if the parameter is a single number of an integer type.
pub(crate) fn is_integer_scalar(param: &Param) -> bool {
    !param.is_array && param.dims.is_empty() && matches!(param.base, BaseType::Number(dtype) if dtype.is_integer())
}

fn usable(param: &Param, used: Use) -> Result<(), String> {
    let (name, real) = (&param.name, used == Use::Work);
    let is_known = match used {
        Use::Size | Use::Work => param.mode == Mode::In,
        Use::SizeAfter => matches!(param.mode, Mode::In | Mode::Out | Mode::InOut),
    };
    if !is_known {
        let mode = param.mode;
        return Err(format!(
            "parameter '{name}' is {mode}, and expressions use only IN scalars, known before the call"
        ));
    }
    if param.is_array || !param.dims.is_empty() {
        return Err(format!("parameter '{name}' is an array, and expressions use only IN scalars"));
    }
    match param.base {
        BaseType::Number(dtype) if dtype.is_integer() => Ok(()),
        BaseType::Number(dtype) if real && dtype.is_real() => Ok(()),
        BaseType::Number(dtype) if real => {
            Err(format!("parameter '{name}' is {dtype}, and expressions use only integer and real numbers"))
        }
        BaseType::Number(dtype) => Err(format!("parameter '{name}' is {dtype}, and sizes use only integers")),
        BaseType::Text | BaseType::Bytes | BaseType::String | BaseType::File | BaseType::Stream if real => Ok(()),
        BaseType::Text | BaseType::Bytes | BaseType::String | BaseType::File | BaseType::Stream => {
            Err(format!("parameter '{name}' is a {}, and expressions use only numbers", type_name(param.base)))
        }
    }
}

fn needs_value(params: &[Param], index: usize) -> EvalFailure {
    let name = params.get(index).map_or_else(|| format!("#{index}"), |param| param.name.clone());
    EvalFailure::NeedsValue { param: index, name }
}

fn integer_operation(op: BinaryOp, left: i128, right: i128) -> Result<i128, EvalFailure> {
    let result = match op {
        BinaryOp::Add => left.checked_add(right),
        BinaryOp::Subtract => left.checked_sub(right),
        BinaryOp::Multiply => left.checked_mul(right),
        BinaryOp::Divide | BinaryOp::Remainder if right == 0 => return Err(EvalFailure::DivisionByZero),
        BinaryOp::Divide => left.checked_div(right),
        BinaryOp::Remainder => left.checked_rem(right),
        BinaryOp::Power => return integer_power(left, right),
        BinaryOp::Less => Some(i128::from(left < right)),
        BinaryOp::LessEqual => Some(i128::from(left <= right)),
        BinaryOp::Greater => Some(i128::from(left > right)),
        BinaryOp::GreaterEqual => Some(i128::from(left >= right)),
        BinaryOp::Equal => Some(i128::from(left == right)),
        BinaryOp::NotEqual => Some(i128::from(left != right)),
        BinaryOp::And => Some(i128::from(left != 0 && right != 0)),
        BinaryOp::Or => Some(i128::from(left != 0 || right != 0)),
        BinaryOp::Min => Some(left.min(right)),
        BinaryOp::Max => Some(left.max(right)),
    };
    result.ok_or(EvalFailure::Overflow)
}

fn integer_power(base: i128, exponent: i128) -> Result<i128, EvalFailure> {
    if exponent < 0 {
        return Err(EvalFailure::NegativePower(exponent));
    }
    match (base, u32::try_from(exponent)) {
        (0 | 1, _) => Ok(if exponent == 0 { 1 } else { base }),
        (-1, _) => Ok(if exponent % 2 == 0 { 1 } else { -1 }),
        (_, Ok(exponent)) => base.checked_pow(exponent).ok_or(EvalFailure::Overflow),
        (_, Err(_)) => Err(EvalFailure::Overflow),
    }
}

fn real_operation(op: BinaryOp, left: f64, right: f64) -> f64 {
    match op {
        BinaryOp::Add => left + right,
        BinaryOp::Subtract => left - right,
        BinaryOp::Multiply => left * right,
        BinaryOp::Divide => left / right,
        BinaryOp::Remainder => libm::fmod(left, right),
        BinaryOp::Power => libm::pow(left, right),
        BinaryOp::Less => truth(left < right),
        BinaryOp::LessEqual => truth(left <= right),
        BinaryOp::Greater => truth(left > right),
        BinaryOp::GreaterEqual => truth(left >= right),
        BinaryOp::Equal => truth(left == right),
        BinaryOp::NotEqual => truth(left != right),
        BinaryOp::And => truth(left != 0.0 && right != 0.0),
        BinaryOp::Or => truth(left != 0.0 || right != 0.0),
        BinaryOp::Min => left.min(right),
        BinaryOp::Max => left.max(right),
    }
}

fn truth(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse_expression;

    fn extent(text: &str, n: i128) -> Result<u64, String> {
        let params = [Param::scalar("n", Mode::In, BaseType::Number(gridloom_base::Dtype::Int32))];
        let expr = parse_expression(text, &["n"]).unwrap();
        expr.evaluate_extent(&params, &|_| Some(n)).map_err(|error| error.to_string())
    }

    #[test]
    fn extents_are_exact() {
        assert_eq!(extent("n*n*n", 2_097_151), Ok(9_223_358_842_721_533_951));
        assert_eq!(extent("7/2 + 7%4 + 2^10", 0), Ok(3 + 3 + 1024));
        assert_eq!(extent("n > 3 ? n - 1 : 8/n", 0).unwrap_err(), "expression 'n > 3 ? n-1 : 8/n' divides by zero");
        assert_eq!(extent("n > 3 ? n - 1 : 8/n", 5), Ok(4));
        assert_eq!(extent("2^3^2", 0), Ok(512));
        assert_eq!(extent("!n + (n == 0 && 1)", 0), Ok(2));
    }

    #[test]
    fn what_is_no_extent_is_named() {
        assert_eq!(extent("n - 1", 0).unwrap_err(), "expression 'n-1' is -1, expected a size of 0 or more");
        assert_eq!(extent("n^40", 1 << 40).unwrap_err(), "expression 'n^40' overflows");
        assert_eq!(extent("2^64", 0).unwrap_err(), "expression '2^64' overflows");
        assert_eq!(extent("n % 0", 1).unwrap_err(), "expression 'n%0' divides by zero");
        assert_eq!(extent("2^-n", 1).unwrap_err(), "expression '2^-n' raises an integer to the negative power -1");
        assert_eq!(extent("n*0.5", 1).unwrap_err(), "expression 'n*0.5' uses 0.5, which is not an exact integer");
    }

    #[test]
    fn a_missing_value_is_named() {
        let params = [Param::scalar("n", Mode::In, BaseType::Number(gridloom_base::Dtype::Int32))];
        let error = parse_expression("n+1", &["n"]).unwrap().evaluate_integer(&params, &|_| None).unwrap_err();
        assert_eq!(error.failure, EvalFailure::NeedsValue { param: 0, name: "n".into() });
    }

    #[test]
    fn work_is_real() {
        let expr = parse_expression("2/3*n^3 + (n < 4 || 0)", &["n"]).unwrap();
        assert_eq!(expr.evaluate_real(&[], &|_| Some(3.0)), Ok(2.0 / 3.0 * 27.0 + 1.0));
    }

    #[test]
    fn functions_have_the_values_of_the_mathematical_library() {
        let value = |text: &str| parse_expression(text, &[]).unwrap().evaluate_real(&[], &|_| None).unwrap();
        assert_eq!(value("log2(8) + log10(1000) + sqrt(16) + log(1)"), 10.0);
        assert_eq!(value("min(3, 2.5) + max(-1, pow(2, 3)) + min(max(1, 2), 0)"), 10.5);
        assert_eq!(value("log2(min(5, 0))"), f64::NEG_INFINITY);
    }

    #[test]
    fn only_the_least_and_the_largest_are_sizes() {
        assert_eq!(extent("min(n, 3) * max(n, 3)", 5), Ok(15));
        assert_eq!(extent("max(1, n)", 0), Ok(1));
        assert_eq!(
            extent("log2(n)", 8).unwrap_err(),
            "expression 'log2(n)' uses log2(), which does not return exact integers"
        );
        let params = [Param::scalar("n", Mode::In, BaseType::Number(gridloom_base::Dtype::Int32))];
        let checked = |text, used| parse_expression(text, &["n"]).unwrap().checked(&params, used);
        assert!(checked("1 + sqrt(n)", Use::Size).unwrap_err().contains("sqrt() does not return exact integers"));
        assert_eq!((checked("1 + sqrt(n)", Use::Work), checked("min(n, 2)", Use::Size)), (Ok(()), Ok(())));
        assert!(!parse_expression("log(2)", &[]).unwrap().is_integral(&[]));
    }
}
