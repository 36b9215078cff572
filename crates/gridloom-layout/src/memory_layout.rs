//! A message type in the memory of one machine: its sizes and offsets, and which of its bytes must be checked.
//!
//! **Invariant:** every size is at least 1 and at most `LAYOUT_BYTES_MAX`.

use std::sync::Arc;

use super::abi::Abi;
use super::error::LayoutError;
use super::schema::Schema;
use super::sizes::{Sizes, shapes};
use super::slots::{Slot, compile, targets};
use super::types::Type;

pub use super::sizes::Shape;

/// A schema laid out for one ABI.
#[derive(Clone, Debug)]
pub struct MemoryLayout {
    pub(super) schema: Arc<Schema>,
    pub(super) abi: Abi,
    shapes: Vec<Shape>,
    pub(super) targets: Vec<Target>,
}

/// Properties of the blocks of one type.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) size: u64,
    /// Pointers and other parts of one element that must be checked. If empty, any bytes are valid.
    pub(super) slots: Vec<Slot>,
    /// The type as text.
    pub(super) name: String,
    /// True if a value can reach another of its type through pointers.
    pub(super) recursive: bool,
}

impl MemoryLayout {
    /// Lays the schema out.
    ///
    /// # Errors
    /// If a type's size exceeds the limit.
    pub fn new(schema: Arc<Schema>, abi: Abi) -> Result<MemoryLayout, LayoutError> {
        let name = schema.name().to_string();
        let shapes = shapes(&schema, &abi).map_err(|problem| LayoutError {
            message: name.clone(),
            path: String::new(),
            offset: None,
            problem,
        })?;
        let mut form = MemoryLayout { schema, abi, shapes, targets: Vec::new() };
        let types = form.schema.targets().to_vec();
        for ty in &types {
            let size = form.size_of(ty);
            let slots = compile(form.sizes(), ty).map_err(|fault| fault.of(&name))?;
            let text = super::text::declarator(ty, "", form.schema.declarations()).trim_end().to_string();
            form.targets.push(Target { size, slots, name: text, recursive: false });
        }
        let edges: Vec<Vec<usize>> = form.targets.iter().map(|target| targets(&target.slots)).collect();
        for (number, target) in form.targets.iter_mut().enumerate() {
            target.recursive = reaches(&edges, number);
        }
        Ok(form)
    }

    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    pub fn abi(&self) -> &Abi {
        &self.abi
    }

    /// Size, alignment and offsets of a declaration of the schema.
    pub fn shape(&self, declaration: usize) -> &Shape {
        &self.shapes[declaration]
    }

    /// Bytes of a value of that type.
    pub fn size_of(&self, ty: &Type) -> u64 {
        self.sizes().of(ty)
    }

    /// Alignment of that type.
    pub fn align_of(&self, ty: &Type) -> u64 {
        self.sizes().align_of(ty)
    }

    pub(super) fn sizes(&self) -> Sizes<'_> {
        Sizes { schema: &self.schema, abi: &self.abi, shapes: &self.shapes }
    }

    #[allow(clippy::boxed_local, reason = "every fallible function returns it boxed")]
    pub(super) fn fail(&self, fault: Box<super::error::Fault>) -> LayoutError {
        fault.of(self.schema.name())
    }
}

/// True if a path along the edges leads from `start` back to it.
fn reaches(edges: &[Vec<usize>], start: usize) -> bool {
    let mut seen = vec![false; edges.len()];
    let mut open = edges[start].clone();
    while let Some(next) = open.pop() {
        if next == start {
            return true;
        }
        if !std::mem::replace(&mut seen[next], true) {
            open.extend(&edges[next]);
        }
    }
    false
}
