//! Results that a call reads as something else than they were made, as the program's memory would have let it.

use gridloom_base::Meta;

use crate::Handle;

impl Handle {
    /// This result for a call that reads it as `wanted`, if the call gets then what the program would pass from memory;
    /// `made` is how the program would have the result there.
    pub fn read_for(&self, made: &Meta, wanted: &Meta) -> Option<Handle> {
        is_as_made(self.meta(), made, wanted).then(|| self.read_as(wanted)).flatten()
    }
}

/// Whether a reader of `wanted` finds the same elements in a result that lies as `lies` on its server as in the program's
/// memory, which would have it as `made`.
pub fn is_as_made(lies: &Meta, made: &Meta, wanted: &Meta) -> bool {
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
