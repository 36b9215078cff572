//! Signatures from the wire: accepted ones are bounded, and their expressions have values or return errors, whatever
//! the sizes are.

#![no_main]

use gridloom_base::Meta;
use gridloom_idl::{BaseType, Definition, Param};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok((definition, rest)) = postcard::take_from_bytes::<Definition>(bytes) else { return };
    let signature = &definition.signature;
    if signature.check().is_err() {
        return;
    }
    let _ = (definition.to_string(), signature.to_string(), signature.hash(), signature.c_prototype(None));
    // Scalars take their bytes from the rest of the input.
    let mut bytes = rest.iter().copied().chain(std::iter::repeat(0));
    let mut scalar = |param: &Param| match param.base {
        BaseType::Number(dtype) if !param.is_array && param.is_input() => {
            Some((Meta::scalar(dtype), bytes.by_ref().take(dtype.size_bytes() as usize).collect()))
        }
        _ => None,
    };
    let scalars: Vec<Option<(Meta, Vec<u8>)>> = signature.params.iter().map(&mut scalar).collect();
    let _ = signature.shapes(scalars.clone());
    (0..signature.callbacks.len()).for_each(|index| drop(signature.callback_metas(index, scalars.clone())));
    for (index, param) in signature.params.iter().enumerate() {
        if param.slices.is_some() {
            let _ = signature.whole(index, scalars.clone());
        }
    }
});
