//! Step reports from an element to its owner: the work charged and, for a timeline, the entry methods that ran.

use std::collections::BTreeMap;

use super::id::ArrayId;

/// An entry method that has run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryMethodRun {
    pub array: ArrayId,
    /// The chare's number in its array ([`Element::index_of`](super::Element::index_of)).
    pub chare: u32,
    /// The entry method's number among [`Element::entry_methods`](super::Element::entry_methods).
    pub method: u32,
}

#[derive(Debug, Default)]
pub(crate) struct StepReport {
    /// Work that entry methods have charged, floating-point operations.
    pub(crate) flops: f64,
    is_named: bool,
    numbers: BTreeMap<String, u32>,
    pub(crate) methods: Vec<String>,
    ran: Option<EntryMethodRun>,
}

impl StepReport {
    /// Reports whether entry methods are recorded by name.
    #[inline]
    pub(crate) fn is_named(&self) -> bool {
        self.is_named
    }

    pub(crate) fn name(&mut self) {
        self.is_named = true;
    }

    pub(crate) fn runs(&mut self, array: ArrayId, chare: u32, name: &str) {
        let method = match self.numbers.get(name) {
            Some(number) => *number,
            None => {
                let number = self.methods.len() as u32;
                self.methods.push(name.to_string());
                self.numbers.insert(name.to_string(), number);
                number
            }
        };
        self.ran = Some(EntryMethodRun { array, chare, method });
    }

    pub(crate) fn take_ran(&mut self) -> Option<EntryMethodRun> {
        self.ran.take()
    }
}
