//! Puts of shared data that have begun, until they are waited for.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use gridloom::BegunPut;

use super::code::{Failed, GRPC_INVALID_SESSION_ID, Outcome};

/// A put that has begun.
pub(super) struct Put {
    pub(super) name: String,
    pub(super) begun: BegunPut,
    /// All servers are to get it.
    pub(super) is_for_all: bool,
}

/// Puts that no thread has waited for, by their numbers.
#[derive(Default)]
pub(super) struct Puts(Mutex<(usize, BTreeMap<usize, Put>)>);

impl Puts {
    /// Gives it a number above 0.
    pub(super) fn add(&self, put: Put) -> usize {
        let mut puts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        puts.0 += 1;
        let number = puts.0;
        puts.1.insert(number, put);
        number
    }

    pub(super) fn take(&self, number: usize) -> Outcome<Put> {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&number);
        let none = || Failed::new(GRPC_INVALID_SESSION_ID, "this is no request of OmstPutData, or it was waited for");
        taken.ok_or_else(none)
    }

    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).1);
        // Outside of the lock.
        drop(all);
    }
}
