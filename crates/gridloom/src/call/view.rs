//! Results that are read with another description than they were made with.

use gridloom_base::Meta;
use gridloom_idl::{ArrayOrder, Signature};

/// See [`Function::can_be_read_as`](crate::Function::can_be_read_as).
pub(crate) fn gives_as(signature: &Signature, made: &Meta, wanted: &Meta) -> bool {
    let (Meta::Array { dtype, shape, .. }, Meta::Array { dtype: other_dtype, shape: other_shape, .. }) = (made, wanted)
    else {
        return made == wanted;
    };
    let is_open = signature.params.iter().any(|param| param.is_output() && param.order == ArrayOrder::Any);
    let is_flat = shape.iter().filter(|extent| **extent > 1).count() < 2;
    let length = |shape: &[u64]| shape.iter().try_fold(1u64, |length, extent| length.checked_mul(*extent));
    let is_as_long = length(shape).is_some() && length(shape) == length(other_shape);
    dtype == other_dtype && is_as_long && (is_flat || !is_open || shape == other_shape)
}
