//! Checks a call against its signature where it runs. The server does not trust its peers: native code reads and
//! writes as many elements as the sizes say, whatever was sent.
//!
//! Unlike [`crate::bind`], nothing is inferred or converted. Memory order and byte order are free: the worker that runs the
//! call converts them. Values that are not known yet, because the datum has not arrived, are not checked: the server checks
//! what a task states, the worker checks everything.

use super::error::BindError;
use super::extents::{Sizes, described, wanted};
use crate::signature::{BaseType, Mode, Param, Signature};
use gridloom_base::Meta;

#[derive(Clone, Copy, Debug)]
pub struct KnownArgument<'a> {
    /// Its description.
    pub meta: &'a Meta,
    /// Its bytes; those of arrays are not read.
    pub bytes: &'a [u8],
}

impl Signature {
    /// Checks the arguments (`IN` and `INOUT` parameters in order, `None` if not known yet) and the descriptions of
    /// the results (`OUT` and `INOUT`): number, type, number of dimensions, extents.
    ///
    /// # Errors
    /// The first mismatch. A size that is not known yet is not a mismatch, unless all arguments are known.
    pub fn check_call<'a>(
        &self,
        inputs: impl ExactSizeIterator<Item = Option<KnownArgument<'a>>>,
        outputs: impl ExactSizeIterator<Item = &'a Meta>,
    ) -> Result<(), BindError> {
        let params = || self.params.iter().enumerate();
        let expected =
            (params().filter(|(_, p)| p.is_input()).count(), params().filter(|(_, p)| p.is_output()).count());
        let got = (inputs.len(), outputs.len());
        if expected != got {
            return Err(BindError::Parts { function: self.name.clone(), expected, got });
        }
        let mut sizes = Sizes::unknown(self);
        let mut arrays: Vec<(usize, &[u64])> = Vec::new();
        let mut lists: Vec<(usize, &[u8])> = Vec::new();
        let mut all_known = true;
        for ((index, param), given) in params().filter(|(_, param)| param.is_input()).zip(inputs) {
            let Some(KnownArgument { meta, bytes }) = given else {
                all_known = false;
                continue;
            };
            match fitting(&sizes, param, meta)? {
                Some(shape) => arrays.push((index, shape)),
                None if meta.checked_size_bytes() != Some(bytes.len() as u64) => {
                    return Err(sizes.malformed(param, format!("{} bytes were received for {meta}", bytes.len())));
                }
                None if param.is_list() => lists.push((index, bytes)),
                None if matches!(meta, Meta::Scalar { .. }) => {
                    sizes.scalars[index] = Some((meta.clone(), bytes.to_vec()));
                }
                None => {}
            }
        }
        for ((index, param), meta) in params().filter(|(_, param)| param.is_output()).zip(outputs) {
            arrays.extend(fitting(&sizes, param, meta)?.map(|shape| (index, shape)));
        }
        match sizes.check_scalars() {
            Err(BindError::NeedsValue { .. }) if !all_known => {}
            checked => checked?,
        }
        let arrays = arrays.into_iter().map(|(index, shape)| sizes.check_shape(index, shape));
        let lists = lists.into_iter().map(|(index, packed)| sizes.check_items(index, packed));
        for checked in arrays.chain(lists) {
            match checked {
                Err(BindError::NeedsValue { .. }) if !all_known => {}
                checked => checked?,
            }
        }
        Ok(())
    }
}

/// Checks kind, element type and number of dimensions; returns the shape of an array.
fn fitting<'a>(sizes: &Sizes<'_>, param: &Param, meta: &'a Meta) -> Result<Option<&'a [u64]>, BindError> {
    match (meta, param.base) {
        (Meta::Bytes { .. }, _) if param.mode == Mode::VarOut => Ok(None),
        (Meta::Array { dtype, shape, .. }, BaseType::Number(want)) if param.is_array && *dtype == want => {
            sizes.check_dimensions(param, shape)?;
            match meta.checked_size_bytes() {
                Some(_) => Ok(Some(shape)),
                None => Err(sizes.malformed(param, "its size is past 2^64 bytes".to_string())),
            }
        }
        (Meta::Scalar { dtype, .. }, BaseType::Number(want)) if !param.is_array && *dtype == want => Ok(None),
        (meta, _) if param.holds(meta) => Ok(None),
        _ => {
            let (expected, got) = (wanted(param), described(meta));
            let (function, param) = (sizes.function(), param.name.clone());
            Err(BindError::Type { function, param, expected, got, remedy: String::new() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use gridloom_base::Dtype;

    fn signature() -> Signature {
        let text =
            "Module m; Define f(IN int n, IN double x[2*n], INOUT double y[n], IN string s) Calls f(n, x, y, s);";
        parse(text, "t.idl").unwrap().remove(0).signature
    }

    /// Checks the call with `n` = 3, in which each given value is known.
    fn check(n: Option<&[u8]>, x: Option<&Meta>, y: Option<&Meta>, result: &Meta) -> Result<(), String> {
        let (int, text) = (Meta::scalar(Dtype::Int32), Meta::Text { size_bytes: 2 });
        let array = |meta| KnownArgument { meta, bytes: &[] };
        let inputs = [
            n.map(|bytes| KnownArgument { meta: &int, bytes }),
            x.map(array),
            y.map(array),
            Some(KnownArgument { meta: &text, bytes: b"ab" }),
        ];
        let checked = signature().check_call(inputs.into_iter(), [result].into_iter());
        checked.map_err(|error| error.reason("m/f"))
    }

    #[test]
    fn what_is_known_is_checked_and_what_is_not_is_left_to_who_knows() {
        let array = |extent| Meta::array(Dtype::Float64, &[extent]);
        let (three, four, six) = (array(3), array(4), array(6));
        let n = 3i32.to_ne_bytes();
        assert_eq!(check(Some(&n), Some(&six), Some(&three), &three), Ok(()));
        assert_eq!(check(Some(&n), None, None, &three), Ok(()));
        assert_eq!(check(None, Some(&six), Some(&four), &three), Ok(()), "nobody knows n yet");
        let wrong = "argument 'y' has shape [4], expected [n] = [3] (n = 3 as given)";
        assert_eq!(check(Some(&n), Some(&six), Some(&four), &three), Err(wrong.into()));
        assert_eq!(check(Some(&n), None, None, &four), Err(wrong.into()));
        let wrong = check(Some(&n), Some(&Meta::array(Dtype::Float64, &[2, 3])), None, &three).unwrap_err();
        assert!(wrong.contains("'x' has shape [2, 3], expected [2*n] of 1 dimension"), "{wrong}");
        let wrong = check(Some(&n), Some(&Meta::array(Dtype::Float32, &[6])), None, &three).unwrap_err();
        assert!(wrong.contains("'x' is an array of float32, expected an array of float64"), "{wrong}");
        let wrong = check(Some(&n[..3]), None, None, &three).unwrap_err();
        assert!(wrong.contains("'n' is described wrongly: 3 bytes were received for int32"), "{wrong}");
    }

    #[test]
    fn another_number_of_values_is_reported() {
        let error = signature().check_call([].into_iter(), [].into_iter()).unwrap_err();
        assert_eq!(error.reason("m/f"), "expected 4 arguments and 1 results, got 0 and 0");
    }
}
