//! The elements of all variables. Each variable has a contiguous block, so that solving walks through memory in order.
//!
//! **Invariant:** a freed block is reused by the next variable with as many elements; blocks are never split or joined.

use std::ops::{Index, IndexMut};

/// The weight of one variable on one constraint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element {
    pub(super) weight: f64,
    pub(super) constraint: u32,
    /// Position in the constraint's list of users or of waiting elements.
    pub(super) place: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ElementPool {
    elements: Vec<Element>,
    /// Starts of free blocks, by length.
    free: Vec<Vec<u32>>,
    /// The block being built.
    open: Vec<(u32, f64)>,
}

impl ElementPool {
    /// Begins a block.
    pub(super) fn open(&mut self) {
        self.open.clear();
    }

    /// Adds an element to the open block. If it already has one on the same constraint, `again` computes the new weight.
    pub(super) fn push(&mut self, constraint: u32, weight: f64, again: impl FnOnce(f64) -> f64) {
        match self.open.iter_mut().find(|(known, _)| *known == constraint) {
            Some((_, known)) => *known = again(*known),
            None => self.open.push((constraint, weight)),
        }
    }

    /// Ends the block and returns its start and length.
    pub(super) fn close(&mut self) -> (u32, u32) {
        let length = self.open.len();
        let start = match self.free.get_mut(length).and_then(Vec::pop) {
            Some(start) => start as usize,
            None => {
                let start = self.elements.len();
                assert!(start + length < u32::MAX as usize, "fewer than 2^32 elements at a time");
                let empty = Element { weight: 0.0, constraint: 0, place: 0 };
                self.elements.resize(start + length, empty);
                start
            }
        };
        for (element, &(constraint, weight)) in self.elements[start..].iter_mut().zip(&self.open) {
            *element = Element { weight, constraint, place: 0 };
        }
        (start as u32, length as u32)
    }

    /// Frees a block.
    pub(super) fn free_block(&mut self, start: u32, length: u32) {
        let length = length as usize;
        if self.free.len() <= length {
            self.free.resize(length + 1, Vec::new());
        }
        if length > 0 {
            self.free[length].push(start);
        }
    }
}

impl Index<usize> for ElementPool {
    type Output = Element;

    fn index(&self, element: usize) -> &Element {
        &self.elements[element]
    }
}

impl IndexMut<usize> for ElementPool {
    fn index_mut(&mut self, element: usize) -> &mut Element {
        &mut self.elements[element]
    }
}

impl Index<std::ops::Range<usize>> for ElementPool {
    type Output = [Element];

    fn index(&self, block: std::ops::Range<usize>) -> &[Element] {
        &self.elements[block]
    }
}
