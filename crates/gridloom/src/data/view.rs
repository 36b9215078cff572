//! Results that a call reads by another description than the one by which they were made, as it could read them from
//! the program's memory.

use gridloom_base::Meta;

use crate::Handle;

impl Handle {
    /// Returns this result for a call that reads it as `wanted`, if the call would get the same from the program's memory, where
    /// the result would be described by `made`.
    pub fn read_for(&self, made: &Meta, wanted: &Meta) -> Option<Handle> {
        reads_same_elements(self.meta(), made, wanted).then(|| self.read_as(wanted)).flatten()
    }
}

/// True if a reader of `wanted` finds the same elements in a result that is stored as `lies` on its server as in the program's
/// memory, where it would be stored as `made`.
pub fn reads_same_elements(lies: &Meta, made: &Meta, wanted: &Meta) -> bool {
    let order_and_shape = |meta: &Meta| match meta {
        Meta::Array { order, shape, .. } if shape.iter().filter(|extent| **extent > 1).count() > 1 => {
            (Some(*order), shape.clone())
        }
        Meta::Array { shape, .. } => (None, shape.clone()),
        _ => (None, Vec::new()),
    };
    let ((order, shape), (wanted_order, wanted_shape)) = (order_and_shape(made), order_and_shape(wanted));
    let (lies, _) = order_and_shape(lies);
    if shape == wanted_shape { order == wanted_order } else { order == lies }
}
