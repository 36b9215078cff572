//! Limits the bytes of messages waiting at another element, by credit for each pair of elements.
//!
//! ```text
//!  sender                                      receiver
//!    │ message, window not used up ──batch───────▶│ waits in its mail
//!    │ message, window used up: waits here        │ runs
//!    │◀──────── credit: bytes that have run ──────│
//!    │── waiting messages ───────────────────────▶│
//! ```
//! A sender counts the bytes of messages that it has sent and that have not yet run. When the *window* is used up,
//! further messages wait at the sender, in order. The receiver returns credit for a quarter of a window at a time, in
//! a record of any batch.
//!
//! **Promise:** the messages of one element waiting at another never exceed the window, the message that crosses it,
//! and one batch. **Does not** count control records and migrating chares. Nothing here blocks.
//!
//! Source: credit-based flow control (H. T. Kung, R. Morris, IEEE Network 1995).

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use gridloom_base::limits::{
    CHARE_BACKLOG_BYTES_MAX, CHARE_BATCH_BYTES, CHARE_MAILBOX_BYTES, CHARE_UNSENT_BYTES_MAX, CHARE_WINDOW_BYTES_MIN,
};

use super::id::Pe;

/// Credit to return to another element once a message has run.
#[derive(Clone, Debug)]
pub(crate) struct CreditDue {
    pub(crate) to: Pe,
    /// 0 for messages of this element.
    pub(crate) bytes: u64,
    /// Set for a message to several chares, which has run when its last copy has run.
    copies: Option<Rc<CopyCount>>,
}

#[derive(Debug)]
struct CopyCount {
    left: Cell<u32>,
    /// Number of those that wait for parked chares.
    for_parked: Cell<u32>,
}

impl CopyCount {
    fn are_held(&self) -> bool {
        self.for_parked.get() == self.left.get()
    }
}

impl CreditDue {
    /// No credit to return.
    pub(crate) const NONE: CreditDue = CreditDue { to: Pe(u32::MAX), bytes: 0, copies: None };

    pub(crate) fn new(to: Pe, bytes: u64) -> CreditDue {
        CreditDue { to, bytes, copies: None }
    }

    /// Shares this debt between the copies of a message to `count` chares.
    pub(crate) fn shared(self, count: usize) -> CreditDue {
        let is_shared = self.bytes > 0 && count > 1;
        let copies = is_shared.then(|| Rc::new(CopyCount { left: Cell::new(count as u32), for_parked: Cell::new(0) }));
        CreditDue { copies, ..self }
    }
}

/// Credit state with another element.
#[derive(Clone, Debug, Default)]
struct PairCredit {
    /// Bytes sent there that have not yet run.
    in_flight_bytes: u64,
    /// Batches that wait for credit.
    open_batch: VecDeque<Vec<u8>>,
    unsent_bytes: u64,
    /// Extra bytes allowed to wait, granted because elements waited for one another in a cycle.
    extra_bytes: u64,
    /// Bytes of that element's messages that wait here, and bytes that have run since credit was last returned.
    here: u64,
    run: u64,
    /// Bytes of those waiting messages that are for parked chares.
    held: u64,
}

#[derive(Debug)]
pub(crate) struct Credits {
    /// The program's own limit on bytes waiting at an element, if set.
    limit: Option<u64>,
    window: u64,
    /// A chare with more bytes than this waiting for one element is parked.
    unsent_max: u64,
    /// Credit state by element.
    pairs: Vec<PairCredit>,
    /// True if the running entry method has left too much waiting for some element.
    is_over: bool,
}

impl Credits {
    pub(crate) fn new(elements: u32) -> Credits {
        let (unsent_max, pairs) = (CHARE_BACKLOG_BYTES_MAX as u64, vec![PairCredit::default(); elements as usize]);
        let window = window(CHARE_MAILBOX_BYTES, elements);
        Credits { limit: None, window, unsent_max, pairs, is_over: false }
    }

    /// Limits the bytes of messages from other elements that wait here, and of this element's messages for each other element.
    pub(crate) fn bound(&mut self, bytes: u64) {
        self.limit = Some(bytes);
        self.window = window(bytes, self.pairs.len() as u32);
        self.unsent_max = bytes.min(CHARE_BACKLOG_BYTES_MAX as u64);
    }

    /// Returns the limit set by [`Credits::bound`].
    pub(crate) fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Reports whether further messages for an element must wait for credit.
    #[inline]
    pub(crate) fn is_window_used(&self, to: Pe) -> bool {
        let pair = &self.pairs[to.0 as usize];
        pair.in_flight_bytes >= self.window || !pair.open_batch.is_empty()
    }

    #[inline]
    pub(crate) fn spend(&mut self, to: Pe, bytes: usize) {
        self.pairs[to.0 as usize].in_flight_bytes += bytes as u64;
    }

    /// Returns the batch to which a message waiting for credit is written.
    pub(crate) fn unsent(&mut self, to: Pe) -> &mut Vec<u8> {
        let unsent = &mut self.pairs[to.0 as usize].open_batch;
        if unsent.back().is_none_or(|letter| letter.len() >= CHARE_BATCH_BYTES) {
            unsent.push_back(Vec::new());
        }
        unsent.back_mut().expect("one is there")
    }

    /// Counts bytes written to that batch, and removes the batch if it is empty.
    pub(crate) fn wrote(&mut self, to: Pe, bytes: usize) {
        let pair = &mut self.pairs[to.0 as usize];
        if pair.open_batch.back().is_some_and(Vec::is_empty) {
            pair.open_batch.pop_back();
        }
        pair.unsent_bytes += bytes as u64;
        self.is_over |= self.is_full(to);
    }

    /// Reports whether more bytes wait for an element than chares may leave waiting.
    pub(crate) fn is_full(&self, to: Pe) -> bool {
        let pair = &self.pairs[to.0 as usize];
        pair.unsent_bytes > self.unsent_max + pair.extra_bytes
    }

    /// Clears the overrun flag, so that earlier overruns, such as those from forwarded records, are not charged to
    /// this entry method.
    #[inline]
    pub(crate) fn begin_entry(&mut self) {
        self.is_over = false;
    }

    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the elements for which too much waits.
    pub(crate) fn full(&self) -> Vec<Pe> {
        (0..self.pairs.len() as u32).map(Pe).filter(|to| self.is_full(*to)).collect()
    }

    /// Handles credit returned by an element. Returns the batches that may be sent to it now.
    pub(crate) fn returned(&mut self, from: Pe, bytes: u64) -> Vec<Vec<u8>> {
        let window = self.window;
        let pair = &mut self.pairs[from.0 as usize];
        pair.in_flight_bytes = pair.in_flight_bytes.saturating_sub(bytes);
        let mut letters = Vec::new();
        while pair.in_flight_bytes < window
            && let Some(letter) = pair.open_batch.pop_front()
        {
            pair.in_flight_bytes += letter.len() as u64;
            pair.unsent_bytes -= letter.len() as u64;
            letters.push(letter);
        }
        if pair.open_batch.is_empty() {
            pair.extra_bytes = 0;
        }
        letters
    }

    /// Reports whether little enough waits for an element that parked chares may resume.
    pub(crate) fn is_relieved(&self, to: Pe) -> bool {
        let pair = &self.pairs[to.0 as usize];
        pair.unsent_bytes <= (self.unsent_max + pair.extra_bytes) / 2
    }

    /// Lets as many further bytes wait for an element as usual, beyond those that wait now. Returns false if more than
    /// [`CHARE_UNSENT_BYTES_MAX`] wait already.
    pub(crate) fn raise_limit(&mut self, to: Pe) -> bool {
        let pair = &mut self.pairs[to.0 as usize];
        pair.extra_bytes = pair.unsent_bytes;
        pair.unsent_bytes <= CHARE_UNSENT_BYTES_MAX
    }

    /// Counts a message that has arrived from another element.
    pub(crate) fn arrived(&mut self, debt: &CreditDue) {
        if debt.bytes > 0 {
            self.pairs[debt.to.0 as usize].here += debt.bytes;
        }
    }

    /// Records that a message or one of its copies has run. Returns the credit to return now.
    pub(crate) fn on_run(&mut self, debt: &CreditDue) -> Option<u64> {
        let window = self.window;
        let pair = &mut self.pairs[debt.to.0 as usize];
        if let Some(copies) = &debt.copies {
            copies.left.set(copies.left.get() - 1);
            if copies.left.get() > 0 {
                pair.held += if copies.are_held() { debt.bytes } else { 0 };
                return None;
            }
        }
        pair.here -= debt.bytes;
        pair.run += debt.bytes;
        (pair.run >= window.div_ceil(4)).then(|| std::mem::take(&mut pair.run))
    }

    /// Records that a message of another element waits for a parked chare.
    pub(crate) fn add_parked(&mut self, debt: &CreditDue) {
        if let Some(copies) = &debt.copies {
            copies.for_parked.set(copies.for_parked.get() + 1);
            if !copies.are_held() {
                return;
            }
        }
        self.pairs[debt.to.0 as usize].held += debt.bytes;
    }

    /// Records that a message's chare is no longer parked.
    pub(crate) fn release(&mut self, debt: &CreditDue) {
        let was_held = debt.copies.as_ref().is_none_or(|copies| copies.are_held());
        if let Some(copies) = &debt.copies {
            copies.for_parked.set(copies.for_parked.get() - 1);
        }
        if debt.bytes > 0 && was_held {
            self.pairs[debt.to.0 as usize].held -= debt.bytes;
        }
    }

    /// Reports whether an element lacks credit and gets none until a parked chare resumes.
    pub(crate) fn is_blocked(&self, sender: Pe) -> bool {
        let pair = &self.pairs[sender.0 as usize];
        pair.here > 0 && pair.held == pair.here && pair.here + pair.run >= self.window
    }

    /// Returns the bytes of messages from other elements that wait here.
    pub(crate) fn here(&self) -> u64 {
        self.pairs.iter().map(|pair| pair.here).sum()
    }

    /// Returns the bytes of messages that wait here for credit.
    pub(crate) fn all_unsent(&self) -> u64 {
        self.pairs.iter().map(|pair| pair.unsent_bytes).sum()
    }
}

/// Returns each element's share of the limit.
fn window(bytes: u64, elements: u32) -> u64 {
    let share = bytes / u64::from(elements.saturating_sub(1)).max(1);
    match bytes {
        CHARE_MAILBOX_BYTES => share.clamp(CHARE_WINDOW_BYTES_MIN, CHARE_BACKLOG_BYTES_MAX as u64),
        _ => share.max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: Pe = Pe(1);

    fn put(credits: &mut Credits, bytes: usize) {
        match credits.is_window_used(TO) {
            false => credits.spend(TO, bytes),
            true => {
                credits.unsent(TO).extend(vec![0; bytes]);
                credits.wrote(TO, bytes);
            }
        }
    }

    #[test]
    fn messages_wait_from_the_window_on_and_go_when_others_have_run() {
        let mut credits = Credits::new(2);
        credits.bound(100);
        for _ in 0..4 {
            put(&mut credits, 40);
        }
        assert_eq!((credits.all_unsent(), credits.is_over()), (40, false));
        assert!(credits.returned(TO, 20).is_empty());
        put(&mut credits, 10);
        assert_eq!(credits.returned(TO, 1).iter().map(Vec::len).collect::<Vec<_>>(), [50]);
        assert!(credits.is_window_used(TO), "a window and a letter are there");
    }

    #[test]
    fn credit_is_returned_in_quarters_of_a_window() {
        let mut credits = Credits::new(2);
        credits.bound(100);
        let debt = CreditDue::new(TO, 10);
        (0..9).for_each(|_| credits.arrived(&debt));
        assert_eq!(credits.here(), 90);
        let back: Vec<_> = (0..6).map(|_| credits.on_run(&debt)).collect();
        assert_eq!(back, [None, None, Some(30), None, None, Some(30)]);
        assert_eq!(credits.here(), 30);
    }

    #[test]
    fn a_message_to_several_chares_has_run_with_its_last_copy() {
        let mut credits = Credits::new(2);
        credits.bound(10);
        let debt = CreditDue::new(TO, 20).shared(3);
        credits.arrived(&debt);
        assert_eq!(credits.on_run(&debt), None);
        credits.add_parked(&debt);
        assert!(!credits.is_blocked(TO), "a copy can run");
        credits.add_parked(&debt);
        assert!(credits.is_blocked(TO));
        credits.release(&debt);
        assert!(!credits.is_blocked(TO));
        assert_eq!((credits.on_run(&debt), credits.here(), credits.is_blocked(TO)), (None, 20, true));
        credits.release(&debt);
        assert_eq!((credits.on_run(&debt), credits.here()), (Some(20), 0));
    }

    #[test]
    fn what_is_lent_ends_when_nothing_waits_and_has_a_limit() {
        let mut credits = Credits::new(2);
        credits.bound(10);
        (0..3).for_each(|_| put(&mut credits, 10));
        assert_eq!(credits.full(), [TO]);
        credits.begin_entry();
        assert!(!credits.is_over());
        assert!(!credits.is_relieved(TO) && credits.raise_limit(TO) && !credits.is_full(TO));
        put(&mut credits, 20);
        assert!(credits.is_over() && credits.is_full(TO));
        assert_eq!(credits.returned(TO, 10).len(), 1);
        assert!(credits.is_relieved(TO));
        put(&mut credits, CHARE_UNSENT_BYTES_MAX as usize + 1);
        assert!(!credits.raise_limit(TO));
    }
}
