//! The order in which the messages of all arrays run: by priority, then by arrival.
//!
//! A message waits in the mail of its array, which knows its type. This queue holds only the arrays, in runs: `(array,
//! number of messages)`. So queueing a message, which is neither copied nor boxed, costs little, and most messages do
//! not change the queue's length.

use std::collections::{BTreeMap, VecDeque};

use super::id::{ArrayId, Priority};
use super::parking::Parking;

#[derive(Debug)]
struct Run {
    array: ArrayId,
    count: u32,
}

/// Arrays with waiting messages.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    /// Runs with the default priority.
    plain: VecDeque<Run>,
    other: BTreeMap<Priority, VecDeque<Run>>,
    waiting: usize,
    /// Chares that currently run no messages.
    pub(crate) parking: Parking,
}

impl Ready {
    pub(crate) fn len(&self) -> usize {
        self.waiting
    }

    /// Adds a message of an array.
    pub(crate) fn push(&mut self, array: ArrayId, priority: Priority) {
        self.waiting += 1;
        let runs = self.runs(priority);
        match runs.back_mut() {
            Some(run) if run.array == array && run.count < u32::MAX => run.count += 1,
            _ => runs.push_back(Run { array, count: 1 }),
        }
    }

    /// Puts a message that was taken back in front of its priority.
    pub(crate) fn put_back(&mut self, array: ArrayId, priority: Priority) {
        self.waiting += 1;
        let runs = self.runs(priority);
        match runs.front_mut() {
            Some(run) if run.array == array && run.count < u32::MAX => run.count += 1,
            _ => runs.push_front(Run { array, count: 1 }),
        }
    }

    /// Takes the array with the next message. Returns it with the priority.
    pub(crate) fn pop(&mut self) -> Option<(ArrayId, Priority)> {
        if self.waiting == 0 {
            return None;
        }
        self.waiting -= 1;
        let usual = Priority::default();
        let first = self.other.first_key_value().map(|(priority, _)| *priority);
        let priority = match first {
            Some(first) if first < usual || self.plain.is_empty() => first,
            _ => usual,
        };
        let runs = self.runs(priority);
        let run = runs.front_mut().expect("as many runs as messages wait");
        let array = run.array;
        run.count -= 1;
        if run.count == 0 {
            runs.pop_front();
            if runs.is_empty() && priority != usual {
                self.other.remove(&priority);
            }
        }
        Some((array, priority))
    }

    fn runs(&mut self, priority: Priority) -> &mut VecDeque<Run> {
        if priority == Priority::default() { &mut self.plain } else { self.other.entry(priority).or_default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_priority_number_goes_first_and_then_the_earliest() {
        let mut ready = Ready::default();
        for (array, priority) in [(0, 0), (1, 5), (2, 0), (2, 0), (3, -1), (0, 0), (4, -1)] {
            ready.push(ArrayId(array), Priority(priority));
        }
        let mut order = Vec::new();
        while let Some((ArrayId(array), Priority(priority))) = ready.pop() {
            order.push((array, priority));
        }
        assert_eq!(order, [(3, -1), (4, -1), (0, 0), (2, 0), (2, 0), (0, 0), (1, 5)]);
        assert_eq!(ready.len(), 0);
    }

    #[test]
    fn what_is_put_back_is_next() {
        let mut ready = Ready::default();
        ready.push(ArrayId(1), Priority(0));
        ready.push(ArrayId(2), Priority(0));
        assert_eq!(ready.pop(), Some((ArrayId(1), Priority(0))));
        ready.put_back(ArrayId(1), Priority(0));
        assert_eq!((ready.pop(), ready.len()), (Some((ArrayId(1), Priority(0))), 1));
    }
}
