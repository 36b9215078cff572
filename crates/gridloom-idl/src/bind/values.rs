//! Checks the values of a call's arguments against those that its signature lists: scalars once they are known, elements of
//! arrays where the function runs.

use super::check_call::KnownArgument;
use super::error::BindError;
use super::extents::Sizes;
use crate::expr::Expr;
use crate::scalar::{Scalar, scalar_value};
use crate::signature::{BaseType, Param, Signature};
use crate::values::AllowedValues;
use gridloom_base::{Dtype, Meta};

impl Signature {
    /// Checks the elements of arrays with listed values. All inputs are known, in this machine's byte order.
    ///
    /// # Errors
    /// The first element that is not listed.
    pub fn check_elements<'a>(&self, inputs: impl Iterator<Item = KnownArgument<'a>>) -> Result<(), BindError> {
        if self.params.iter().all(|param| param.values.is_none() || !param.is_array) {
            return Ok(());
        }
        let mut sizes = Sizes::unknown(self);
        let mut arrays: Vec<(usize, &[u8])> = Vec::new();
        for ((index, param), KnownArgument { meta, bytes }) in
            self.params.iter().enumerate().filter(|(_, param)| param.is_input()).zip(inputs)
        {
            match meta {
                Meta::Scalar { .. } => sizes.scalars[index] = Some((meta.clone(), bytes.to_vec())),
                Meta::Array { .. } if param.values.is_some() => arrays.push((index, bytes)),
                _ => {}
            }
        }
        arrays.into_iter().try_for_each(|(index, bytes)| sizes.check_elements_of(&self.params[index], bytes))
    }
}

impl Sizes<'_> {
    /// Checks the known scalars against their listed values.
    pub(super) fn check_scalars(&self) -> Result<(), BindError> {
        for (index, param) in self.signature.params.iter().enumerate() {
            let (Some(values), Some(value)) = (&param.values, scalar_value(&self.scalars, index)) else { continue };
            if let Some(value) = value.integer().filter(|_| !param.is_array) {
                self.check_value(param, values, value, "it ".to_string())?;
            }
        }
        Ok(())
    }

    fn check_elements_of(&self, param: &Param, bytes: &[u8]) -> Result<(), BindError> {
        let (Some(values), BaseType::Number(dtype)) = (&param.values, param.base) else { return Ok(()) };
        let elements = bytes.chunks_exact(dtype.size_bytes() as usize);
        for (at, element) in elements.enumerate() {
            if let Some(value) = integer(dtype, element) {
                self.check_value(param, values, value, format!("its element {} ", at + 1))?;
            }
        }
        Ok(())
    }

    /// `which` describes the element for the error.
    fn check_value(&self, param: &Param, values: &AllowedValues, value: i128, which: String) -> Result<(), BindError> {
        let refused = |got: String, expected: String| {
            Err(BindError::Value {
                function: self.function(),
                what: format!("argument '{}'", param.name),
                why: format!("{which}is {got}, expected {expected}"),
            })
        };
        match values {
            AllowedValues::Characters(letters) => {
                let is_one = letters.bytes().any(|letter| i128::from(letter) == value);
                let got = || match u8::try_from(value) {
                    Ok(code) if code.is_ascii_graphic() => format!("'{}'", char::from(code)),
                    _ => format!("the code {value}"),
                };
                let listed = || letters.chars().map(|letter| format!("'{letter}'")).collect::<Vec<_>>().join(", ");
                if is_one { Ok(()) } else { refused(got(), format!("one of {}", listed())) }
            }
            AllowedValues::Range(first, last) => {
                let (first, last) = (self.bound(param, first)?, self.bound(param, last)?);
                match (first..=last).contains(&value) {
                    true => Ok(()),
                    false => refused(value.to_string(), format!("{first} to {last}")),
                }
            }
        }
    }

    fn bound(&self, param: &Param, expr: &Expr) -> Result<i128, BindError> {
        let value = |index| scalar_value(&self.scalars, index).and_then(Scalar::integer);
        let bound = expr.evaluate_integer(&self.signature.params, &value);
        bound.map_err(|error| self.eval_error(error, format!("values of '{}'", param.name)))
    }
}

fn integer(dtype: Dtype, element: &[u8]) -> Option<i128> {
    Scalar::read(dtype, gridloom_base::ByteOrder::NATIVE, element).and_then(Scalar::integer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind::ActualArgument;
    use crate::parse;

    const FUNCTION: &str = "Module m; Define f(IN char trans values in \"NTnt\", IN int n, IN int k values in 0..n-1, \
                            IN int pivots[n] each in 1..n) Calls f(trans, n, k, pivots);";

    fn signature() -> Signature {
        parse(FUNCTION, "t.idl").unwrap().remove(0).signature
    }

    fn bound(trans: u8, n: i32, k: i32) -> Result<(), String> {
        let int = |value: i32| ActualArgument {
            meta: Meta::scalar(Dtype::Int32),
            inline: Some(value.to_ne_bytes().to_vec()),
        };
        let actuals = [
            ActualArgument { meta: Meta::scalar(Dtype::Int8), inline: Some(vec![trans]) },
            int(n),
            int(k),
            ActualArgument { meta: Meta::array(Dtype::Int32, &[n as u64]), inline: None },
        ];
        signature().bind(&actuals, &[]).map(drop).map_err(|error| error.reason("m/f"))
    }

    #[test]
    fn scalars_have_listed_values() {
        assert_eq!(bound(b'N', 3, 2), Ok(()));
        assert_eq!(bound(b'R', 3, 2), Err("argument 'trans': it is 'R', expected one of 'N', 'T', 'n', 't'".into()));
        assert_eq!(
            bound(0, 3, 2),
            Err("argument 'trans': it is the code 0, expected one of 'N', 'T', 'n', 't'".into())
        );
        assert_eq!(bound(b't', 3, 3), Err("argument 'k': it is 3, expected 0 to 2".into()));
        assert_eq!(bound(b't', 3, -1), Err("argument 'k': it is -1, expected 0 to 2".into()));
    }

    #[test]
    fn elements_are_checked_where_they_are_known() {
        let check = |pivots: [i32; 3]| {
            let (char, int, array) =
                (Meta::scalar(Dtype::Int8), Meta::scalar(Dtype::Int32), Meta::array(Dtype::Int32, &[3]));
            let (n, k) = (3i32.to_ne_bytes(), 0i32.to_ne_bytes());
            let pivots: Vec<u8> = pivots.iter().flat_map(|pivot| pivot.to_ne_bytes()).collect();
            let inputs = [(&char, &b"N"[..]), (&int, &n), (&int, &k), (&array, &pivots)];
            let checked =
                signature().check_elements(inputs.into_iter().map(|(meta, bytes)| KnownArgument { meta, bytes }));
            checked.map_err(|error| error.reason("m/f"))
        };
        assert_eq!(check([1, 3, 3]), Ok(()));
        assert_eq!(check([1, 4, 3]), Err("argument 'pivots': its element 2 is 4, expected 1 to 3".into()));
        assert_eq!(check([0, 1, 1]), Err("argument 'pivots': its element 1 is 0, expected 1 to 3".into()));
    }

    #[test]
    fn listed_values_read_back_as_printed() {
        let definition = parse(FUNCTION, "t.idl").unwrap().remove(0);
        let text = definition.to_string();
        assert!(text.contains("IN char trans values in \"NTnt\"") && text.contains("each in 1..n"), "{text}");
        assert_eq!(parse(&text, "t.idl").unwrap(), [definition]);
        for (wrong, word) in [
            ("IN double x values in \"N\"", "only whole numbers"),
            ("OUT int *x values in 1..2", "only whole numbers that are inputs"),
            ("IN int x values in \"N\"", "only a char has letters"),
            ("IN char x values in \"\"", "1 to"),
            ("IN int x values in 1", "expected '..'"),
            ("IN int x[2] values in 1..2", "write `each in`"),
            ("IN int x each in 1..2", "write `values in`"),
        ] {
            let error = parse(&format!("Define f({wrong}) Calls f(x);"), "t.idl").unwrap_err().to_string();
            assert!(error.contains(word), "{wrong}: {error}");
        }
    }
}
