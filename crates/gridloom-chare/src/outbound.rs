//! Records waiting to be sent to other elements. Records for one element share a batch until it is long enough or is taken.

use std::collections::VecDeque;

use gridloom_base::limits::CHARE_BATCH_BYTES;

use super::credit::Credits;
use super::id::Pe;
use super::record::{RecordHeader, close, open};

#[derive(Debug)]
pub(crate) struct Outbound {
    /// The open batch for each element.
    open_batches: Vec<Vec<u8>>,
    /// Elements with a non-empty open batch, in the order in which the batches were begun.
    elements_with_open: VecDeque<Pe>,
    full_batches: VecDeque<(Pe, Vec<u8>)>,
    pub(crate) credits: Credits,
}

impl Outbound {
    pub(crate) fn new(elements: u32) -> Outbound {
        let (open_batches, credits) = (vec![Vec::new(); elements as usize], Credits::new(elements));
        Outbound { open_batches, elements_with_open: VecDeque::new(), full_batches: VecDeque::new(), credits }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.elements_with_open.is_empty() && self.full_batches.is_empty()
    }

    /// Adds a record; `write` appends its body.
    ///
    /// # Errors
    /// If `write` fails, or if the body is too long. Nothing is sent then.
    pub(crate) fn add(
        &mut self,
        to: Pe,
        head: RecordHeader,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), String>,
    ) -> Result<(), String> {
        let takes_credit = head.kind.takes_credit();
        let waits = takes_credit && self.credits.is_window_used(to);
        let letter = if waits { self.credits.unsent(to) } else { &mut self.open_batches[to.0 as usize] };
        let start = open(head, letter);
        let written = write(letter).and_then(|()| close(start, letter));
        if written.is_err() {
            letter.truncate(start);
        }
        let bytes = letter.len() - start;
        if waits {
            self.credits.wrote(to, bytes);
            return written;
        }
        written?;
        if takes_credit {
            self.credits.spend(to, bytes);
        }
        let letter = &mut self.open_batches[to.0 as usize];
        if letter.len() >= CHARE_BATCH_BYTES {
            self.full_batches.push_back((to, std::mem::take(letter)));
            if start > 0 {
                self.elements_with_open.retain(|element| *element != to);
            }
        } else if start == 0 {
            self.elements_with_open.push_back(to);
        }
        Ok(())
    }

    /// Handles credit returned by an element, so that more can be sent to it.
    pub(crate) fn returned(&mut self, from: Pe, bytes: u64) {
        let letters = self.credits.returned(from, bytes);
        if letters.is_empty() {
            return;
        }
        // The open batch holds messages that were written before these had credit.
        let open = &mut self.open_batches[from.0 as usize];
        if !open.is_empty() {
            self.full_batches.push_back((from, std::mem::take(open)));
            self.elements_with_open.retain(|element| *element != from);
        }
        self.full_batches.extend(letters.into_iter().map(|letter| (from, letter)));
    }

    /// Takes the next batch to send.
    pub(crate) fn take(&mut self) -> Option<(Pe, Vec<u8>)> {
        self.full_batches.pop_front().or_else(|| {
            let to = self.elements_with_open.pop_front()?;
            Some((to, std::mem::take(&mut self.open_batches[to.0 as usize])))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Kind, next};

    #[test]
    fn records_share_batches_and_keep_their_order() {
        let mut outbound = Outbound::new(3);
        let head = |number| RecordHeader { kind: Kind::One, array: 0, priority: 0, number };
        let sizes = [10, 20, CHARE_BATCH_BYTES, 5, 2 * CHARE_BATCH_BYTES, 1, 1];
        for (number, size) in sizes.iter().enumerate() {
            let write = |out: &mut Vec<u8>| {
                out.extend(std::iter::repeat_n(0, *size));
                Ok(())
            };
            outbound.add(Pe(number as u32 % 2 + 1), head(number as u32), write).unwrap();
        }
        outbound.add(Pe(1), head(99), |_| Err("no bytes".into())).unwrap_err();
        let (mut letters, mut came) = (0, [Vec::new(), Vec::new(), Vec::new()]);
        while let Some((to, letter)) = outbound.take() {
            letters += 1;
            let mut rest = &letter[..];
            while let Some((head, body)) = next(&mut rest).unwrap() {
                assert_eq!(body.len(), sizes[head.number as usize]);
                came[to.0 as usize].push(head.number);
            }
        }
        assert_eq!(came, [vec![], vec![0, 2, 4, 6], vec![1, 3, 5]]);
        assert!(letters < sizes.len() && outbound.is_empty());
    }
}
