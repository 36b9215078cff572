//! The reductions of one array: the values combined by this element, and those combined by the array's root.
//!
//! Each chare contributes once to each *round*, and goes through the rounds in order. An element combines the
//! contributions of its chares to a round, and sends them to the root once none of them has yet to contribute. The
//! root counts contributions, not elements: the round is complete when it has as many as the array has chares. So an
//! element may send a round in several parts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::contribution::{Combine, Contribution, Reducer, combine};
use super::proxy::Callback;
use super::value::Value;

/// The combined contributions of several chares to a round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Partial {
    reducer: Reducer,
    callback: Callback,
    count: u32,
    combined: Combined,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Combined {
    One(Value),
    /// The values by the numbers of the chares; for an ordered reduction, or a gather.
    Each(Vec<(u32, Value)>),
}

/// A completed round.
pub(crate) struct Complete {
    pub(crate) callback: Callback,
    /// The value. For a gather, each chare's contribution, in the order of their numbers.
    pub(crate) combined: Result<Value, Vec<(u32, Value)>>,
}

/// The reductions of one array.
#[derive(Debug)]
pub(crate) struct Reduction {
    /// The next round of each chare here, by slot. Entries of empty slots are meaningless.
    next: Vec<u32>,
    /// Number of chares here in each round.
    at: BTreeMap<u32, u32>,
    /// Contributions of chares here that were not yet sent to the root.
    open: BTreeMap<u32, Partial>,
    /// The contributions received so far; used only at the root.
    received: BTreeMap<u32, Partial>,
}

impl Reduction {
    pub(crate) fn new(chares: u32) -> Reduction {
        let at = if chares > 0 { BTreeMap::from([(0, chares)]) } else { BTreeMap::new() };
        Reduction { next: vec![0; chares as usize], at, open: BTreeMap::new(), received: BTreeMap::new() }
    }

    /// Adds a chare's contribution to its next round. Returns the rounds to send to the root now.
    ///
    /// # Errors
    /// If it does not fit the other contributions.
    pub(crate) fn contribute(
        &mut self,
        (slot, number): (u32, u32),
        contribution: Contribution,
        callback: Callback,
        own: &[Combine],
    ) -> Result<Vec<(u32, Partial)>, String> {
        let round = self.next[slot as usize];
        self.next[slot as usize] += 1;
        self.decrement_round(round);
        *self.at.entry(round + 1).or_default() += 1;
        let Contribution { reducer, value, is_ordered } = contribution;
        let combined = match is_ordered || reducer == Reducer::Gather {
            true => Combined::Each(vec![(number, value)]),
            false => Combined::One(value),
        };
        add(&mut self.open, round, Partial { reducer, callback, count: 1, combined }, own)?;
        Ok(self.take_complete())
    }

    /// Removes a chare that leaves this element. Returns its next round, and the rounds to send to the root now.
    pub(crate) fn remove_chare(&mut self, slot: u32) -> (u32, Vec<(u32, Partial)>) {
        let round = self.next[slot as usize];
        self.decrement_round(round);
        (round, self.take_complete())
    }

    /// Adds a chare that has arrived from another element.
    pub(crate) fn add_chare(&mut self, slot: u32, round: u32) {
        let slots = self.next.len().max(slot as usize + 1);
        self.next.resize(slots, 0);
        self.next[slot as usize] = round;
        *self.at.entry(round).or_default() += 1;
    }

    /// Returns the next round of the chare in a slot.
    pub(crate) fn round(&self, slot: u32) -> u32 {
        self.next[slot as usize]
    }

    /// Sets the round with which a chare on this element continues.
    pub(crate) fn set_round(&mut self, slot: u32, round: u32) {
        self.decrement_round(self.next[slot as usize]);
        self.add_chare(slot, round);
    }

    /// Returns the parts of rounds that are known here.
    pub(crate) fn parts(&self) -> Vec<(u32, Partial)> {
        self.open.iter().chain(&self.received).map(|(round, part)| (*round, part.clone())).collect()
    }

    fn decrement_round(&mut self, round: u32) {
        let left = self.at.get_mut(&round).expect("each chare here is counted");
        *left -= 1;
        if *left == 0 {
            self.at.remove(&round);
        }
    }

    /// Takes the rounds to which all chares here have contributed.
    fn take_complete(&mut self) -> Vec<(u32, Partial)> {
        let first = self.at.first_key_value().map_or(u32::MAX, |(round, _)| *round);
        let rest = self.open.split_off(&first);
        std::mem::replace(&mut self.open, rest).into_iter().collect()
    }

    /// Adds a received part of a round. Called only at the root. `chares` is the number of chares in the array.
    ///
    /// # Errors
    /// If it does not fit the other contributions.
    pub(crate) fn add_part(
        &mut self,
        round: u32,
        partial: Partial,
        chares: u32,
        own: &[Combine],
    ) -> Result<Option<Complete>, String> {
        let count = add(&mut self.received, round, partial, own)?;
        if count < chares {
            return Ok(None);
        }
        if count > chares {
            return Err(format!("{count} contributions of {chares} chares to round {round}"));
        }
        let Partial { callback, reducer, combined, .. } = self.received.remove(&round).expect("just added");
        let combined = match combined {
            Combined::One(value) => Ok(value),
            Combined::Each(mut each) => {
                each.sort_unstable_by_key(|(number, _)| *number);
                match reducer {
                    Reducer::Gather => Err(each),
                    _ => Ok(in_order(reducer, own, each)?),
                }
            }
        };
        Ok(Some(Complete { callback, combined }))
    }
}

/// Combines the values of an ordered reduction one after the other.
fn in_order(reducer: Reducer, own: &[Combine], each: Vec<(u32, Value)>) -> Result<Value, String> {
    let mut values = each.into_iter().map(|(_, value)| value);
    let first = values.next().unwrap_or_default();
    values.try_fold(first, |left, right| combine(reducer, own, left, right))
}

/// Adds a part to a round. Returns the number of chares that have contributed to it.
fn add(rounds: &mut BTreeMap<u32, Partial>, round: u32, part: Partial, own: &[Combine]) -> Result<u32, String> {
    let Some(mut known) = rounds.remove(&round) else {
        let count = part.count;
        rounds.insert(round, part);
        return Ok(count);
    };
    if known.reducer != part.reducer {
        return Err(format!(
            "round {round}: some chares contribute to {:?} and some to {:?}",
            known.reducer, part.reducer
        ));
    }
    if known.callback != part.callback {
        return Err(format!("round {round}: chares disagree about the callback of the result"));
    }
    known.combined = match (known.combined, part.combined) {
        (Combined::One(left), Combined::One(right)) => Combined::One(combine(known.reducer, own, left, right)?),
        (Combined::Each(mut left), Combined::Each(right)) => {
            left.extend(right);
            Combined::Each(left)
        }
        (Combined::One(_), Combined::Each(_)) | (Combined::Each(_), Combined::One(_)) => {
            return Err(format!("round {round}: some contributions are ordered and some are not"));
        }
    };
    known.count = known.count.saturating_add(part.count);
    let count = known.count;
    rounds.insert(round, known);
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(value: i64) -> Contribution {
        Contribution::sum(value)
    }

    #[test]
    fn an_element_reports_a_round_once_all_its_chares_have_contributed() {
        let mut reduction = Reduction::new(2);
        let mut give = |slot, value| reduction.contribute((slot, slot), sum(value), Callback::exit(), &[]).unwrap();
        assert!(give(0, 1).is_empty());
        assert!(give(0, 10).is_empty(), "a chare may be rounds ahead");
        let told = give(1, 2);
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].0, told[0].1.count), (0, 2));
        assert_eq!(give(1, 20)[0].0, 1);
    }

    #[test]
    fn the_root_counts_contributions_in_any_parts_and_order() {
        let (mut one, mut other, mut root) = (Reduction::new(1), Reduction::new(2), Reduction::new(0));
        let exit = Callback::exit;
        let mut parts = one.contribute((0, 0), sum(1).ordered(), exit(), &[]).unwrap();
        other.contribute((1, 2), sum(4).ordered(), exit(), &[]).unwrap();
        parts.extend(other.contribute((0, 1), sum(2).ordered(), exit(), &[]).unwrap());
        let (last, first) = (parts.pop().unwrap(), parts.pop().unwrap());
        assert!(root.add_part(last.0, last.1, 3, &[]).unwrap().is_none());
        let complete = root.add_part(first.0, first.1, 3, &[]).unwrap().unwrap();
        assert_eq!(complete.combined, Ok(Value::from(7)));
    }

    #[test]
    fn a_chare_that_moves_gives_to_its_next_round_where_it_arrives() {
        let (mut one, mut other, mut root) = (Reduction::new(2), Reduction::new(1), Reduction::new(0));
        let exit = Callback::exit;
        assert!(one.contribute((0, 0), sum(1), exit(), &[]).unwrap().is_empty());
        let (round, told) = one.remove_chare(1);
        assert_eq!((round, told.len()), (0, 1), "none that is left has still to give to it");
        let mut parts = told;
        other.add_chare(5, round);
        assert!(other.contribute((0, 2), sum(4), exit(), &[]).unwrap().is_empty(), "the guest has still to give");
        parts.extend(other.contribute((5, 1), sum(2), exit(), &[]).unwrap());
        let mut learned = parts.into_iter().map(|(round, part)| root.add_part(round, part, 3, &[]).unwrap());
        assert!(learned.next().unwrap().is_none());
        assert_eq!(learned.next().unwrap().unwrap().combined, Ok(Value::from(7)));
    }

    #[test]
    fn differences_between_contributions_are_reported() {
        let mut reduction = Reduction::new(2);
        reduction.contribute((0, 0), sum(1), Callback::exit(), &[]).unwrap();
        let wrong = |contribution, callback| {
            let mut own = Reduction {
                next: vec![0, 0],
                at: [(0, 2)].into(),
                open: reduction.open.clone(),
                received: BTreeMap::new(),
            };
            own.contribute((1, 1), contribution, callback, &[]).unwrap_err()
        };
        assert!(wrong(Contribution::max(1), Callback::exit()).contains("some to Max"));
        assert!(wrong(sum(1).ordered(), Callback::exit()).contains("ordered"));
        assert!(wrong(sum(1), Callback::exit().tagged(1)).contains("the callback of the result"));
    }
}
