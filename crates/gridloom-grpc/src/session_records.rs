//! Records of sessions that were collected: the last ones, and failed ones until the program asks for them.
//!
//! **Invariant:** a session is here as long as it is recent, or its failure has not been reported. The total size of
//! the texts of sessions that are kept only for their failure is bounded.

use std::collections::VecDeque;
use std::ffi::c_int;

use rustc_hash::FxHashMap;

use super::code::GRPC_NO_ERROR;
use super::session::Record;

/// Maximum number of failed sessions that are kept until the program asks for them.
const FAILED_MAX: usize = 1 << 20;
/// Maximum total size of the texts of sessions that are kept only for that, in bytes.
const AGED_TEXT_BYTES_MAX: usize = 4 << 20;

pub(crate) struct SessionRecords {
    known: FxHashMap<c_int, KnownSession>,
    recent: VecDeque<c_int>,
    failed: VecDeque<c_int>,
    /// Failed sessions that are kept only for that, in the order in which they became so, and the bytes of their texts.
    aged: VecDeque<c_int>,
    aged_bytes: usize,
    /// Number of recent sessions; `None` for all.
    recent_max: Option<usize>,
}

/// A session, and why it is kept.
struct KnownSession {
    record: Record,
    is_recent: bool,
    is_untold: bool,
}

impl SessionRecords {
    /// `recent_max` is the number of recent sessions; negative for all.
    pub(crate) fn new(recent_max: i64) -> SessionRecords {
        SessionRecords {
            known: FxHashMap::default(),
            recent: VecDeque::new(),
            failed: VecDeque::new(),
            aged: VecDeque::new(),
            aged_bytes: 0,
            recent_max: usize::try_from(recent_max).ok(),
        }
    }

    /// Adds a session that was collected.
    pub(crate) fn add(&mut self, id: c_int, record: Record) {
        let is_untold = record.code != GRPC_NO_ERROR;
        if is_untold {
            self.failed.push_back(id);
            if self.failed.len() > FAILED_MAX {
                self.take_failed();
            }
        }
        self.known.insert(id, KnownSession { record, is_recent: true, is_untold });
        self.recent.push_back(id);
        self.shorten();
    }

    /// Changes the number of recent sessions; negative for all.
    pub(crate) fn set_recent_max(&mut self, recent_max: i64) {
        self.recent_max = usize::try_from(recent_max).ok();
        self.shorten();
    }

    fn shorten(&mut self) {
        while self.recent_max.is_some_and(|most| self.recent.len() > most)
            && let Some(old) = self.recent.pop_front()
        {
            self.forget_if(old, |known| known.is_recent = false);
        }
    }

    /// Takes the failed session that was waited for first.
    pub(crate) fn take_failed(&mut self) -> Option<c_int> {
        while let Some(id) = self.failed.pop_front() {
            if self.forget_if(id, |known| known.is_untold = false) {
                return Some(id);
            }
        }
        None
    }

    /// Returns the record of a session.
    pub(crate) fn find(&self, id: c_int) -> Option<&Record> {
        self.known.get(&id).map(|known| &known.record)
    }

    /// Keeps a session until the program asks for failed ones: if there are too many, the oldest lose their texts.
    fn keep_for_failure(&mut self, id: c_int, text_bytes: usize) {
        self.aged_bytes += text_bytes;
        self.aged.push_back(id);
        while self.aged_bytes > AGED_TEXT_BYTES_MAX
            && let Some(oldest) = self.aged.pop_front()
        {
            if let Some(known) = self.known.get_mut(&oldest) {
                self.aged_bytes -= known.record.text.len();
                (known.record.text, known.record.server) = Default::default();
            }
        }
    }

    /// Removes a session's text from the bound, because it is not kept for that any more.
    fn release_failure(&mut self, text_bytes: usize) {
        self.aged_bytes -= text_bytes;
        while self.aged.front().is_some_and(|oldest| !self.known.contains_key(oldest)) {
            self.aged.pop_front();
        }
    }

    /// Removes a session. Returns whether it was known.
    pub(crate) fn forget(&mut self, id: c_int) -> bool {
        let Some(known) = self.known.remove(&id) else { return false };
        if !known.is_recent {
            self.release_failure(known.record.text.len());
        }
        self.recent.retain(|known| *known != id);
        self.failed.retain(|known| *known != id);
        true
    }

    /// Removes one reason for keeping a session. Returns whether it was known.
    fn forget_if(&mut self, id: c_int, less: impl FnOnce(&mut KnownSession)) -> bool {
        let Some(known) = self.known.get_mut(&id) else { return false };
        let was_aged = !known.is_recent;
        less(known);
        let (is_recent, is_untold, text_bytes) = (known.is_recent, known.is_untold, known.record.text.len());
        if !is_recent && !is_untold {
            self.known.remove(&id);
        }
        match (was_aged, is_recent, is_untold) {
            (true, ..) => self.release_failure(text_bytes),
            (false, false, true) => self.keep_for_failure(id, text_bytes),
            (false, ..) => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Origin;

    fn record(code: c_int) -> Record {
        let origin = Origin { handle: 0, number: 0, begun_s: 0.0 };
        Record { code, text: String::new(), server: String::new(), run_s: 0.0, total_s: 0.0, origin }
    }

    #[test]
    fn the_last_are_remembered_and_failed_ones_until_they_are_reported() {
        let mut table = SessionRecords::new(2);
        for (id, code) in [(1, 0), (2, 11), (3, 0), (4, 0), (5, 17)] {
            table.add(id, record(code));
        }
        let known = |table: &SessionRecords| (1..=5).filter(|id| table.find(*id).is_some()).collect::<Vec<c_int>>();
        assert_eq!(known(&table), [2, 4, 5]);
        assert_eq!(table.take_failed(), Some(2));
        assert_eq!(known(&table), [4, 5]);
        assert_eq!(table.take_failed(), Some(5));
        assert_eq!(table.take_failed(), None);
        assert_eq!(known(&table), [4, 5]);
        assert!(table.forget(5));
        assert_eq!(known(&table), [4]);
        assert!(!table.forget(5));
    }

    #[test]
    fn texts_of_very_many_failed_ones_are_bounded() {
        let mut table = SessionRecords::new(2);
        let long = "x".repeat(AGED_TEXT_BYTES_MAX / 4);
        for id in 1..=10 {
            table.add(id, Record { text: long.clone(), ..record(11) });
        }
        let kept = |table: &SessionRecords| table.known.values().map(|known| known.record.text.len()).sum::<usize>();
        // Four that are kept for their failure, and the last two.
        assert_eq!((kept(&table), table.aged_bytes), (6 * long.len(), 4 * long.len()));
        assert!(table.find(1).unwrap().text.is_empty() && table.find(5).unwrap().text == long);
        assert!(table.forget(5));
        assert_eq!((1..=9).filter(|_| table.take_failed().is_some()).count(), 9);
        assert_eq!((kept(&table), table.aged_bytes, table.aged.len()), (2 * long.len(), 0, 0));
    }

    #[test]
    fn none_or_all_are_remembered_if_that_is_set() {
        for (said, left) in [(0, 1), (-1, 1000)] {
            let mut table = SessionRecords::new(said);
            table.add(1000, record(11));
            (1..1000).for_each(|id| table.add(id, record(0)));
            assert_eq!(table.known.len(), left);
        }
    }
}
