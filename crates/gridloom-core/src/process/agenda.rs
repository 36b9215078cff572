//! What a process has to attend to: letters that wait, timers that are due, connections that have closed.
//!
//! **Order.** A timer that is due comes before a letter; closes come behind the letters of their connection. Timers that
//! are due at the same time come in the order in which they were set.

use std::collections::{BTreeMap, VecDeque};

use super::{Incoming, Letter, Mailbox, PeerId};
use crate::base::Time;

/// A timer of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TimerNumber(pub u64);

/// Something to attend to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Happening {
    /// A letter.
    Letter {
        /// From whom.
        from: PeerId,
        /// The letter.
        letter: Letter,
    },
    /// A timer is due.
    Timer(TimerNumber),
    /// A connection was closed by the other side.
    Closed {
        /// Which.
        peer: PeerId,
        /// Why.
        why: String,
    },
}

/// The agenda.
#[derive(Clone, Debug, Default)]
pub struct Agenda {
    mailbox: Mailbox,
    timers: BTreeMap<(Time, TimerNumber), Option<u64>>,
    next_timer: u64,
    closed: VecDeque<(PeerId, String)>,
}

impl Agenda {
    /// Sets a timer; with `every_ns` it is set again each time it was due.
    pub fn set_timer(&mut self, at: Time, every_ns: Option<u64>) -> TimerNumber {
        self.next_timer += 1;
        let number = TimerNumber(self.next_timer);
        self.timers.insert((at, number), every_ns);
        number
    }

    /// Forgets a timer; whether it was set.
    pub fn cancel_timer(&mut self, number: TimerNumber) -> bool {
        let before = self.timers.len();
        self.timers.retain(|(_, timer), _| *timer != number);
        self.timers.len() < before
    }

    /// When the next timer is due.
    pub fn next_timer_at(&self) -> Option<Time> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes in what came.
    pub fn put(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Letter { from, letter } => self.mailbox.put(from, letter),
            Incoming::Closed { peer, why } => self.closed.push_back((peer, why)),
        }
    }

    /// The next thing to attend to, if its letter's type is wanted.
    pub fn next(&mut self, now: Time, wants: impl Fn(&str) -> bool) -> Option<Happening> {
        if let Some(((at, number), every_ns)) = self.timers.first_key_value().map(|(key, every)| (*key, *every))
            && at <= now
        {
            self.timers.remove(&(at, number));
            if let Some(every_ns) = every_ns {
                self.timers.insert((at + every_ns.max(1), number), Some(every_ns));
            }
            return Some(Happening::Timer(number));
        }
        if let Some((from, letter)) = self.mailbox.take_first(wants) {
            return Some(Happening::Letter { from, letter });
        }
        self.closed.pop_front().map(|(peer, why)| Happening::Closed { peer, why })
    }

    /// The first letter of that type, from that peer if one is named.
    pub fn letter(&mut self, kind: &str, from: Option<PeerId>) -> Option<(PeerId, Letter)> {
        self.mailbox.take(kind, from)
    }

    /// Why that connection was closed, if it was and nobody was told yet.
    pub fn closed(&mut self, peer: PeerId) -> Option<String> {
        let at = self.closed.iter().position(|(closed, _)| *closed == peer)?;
        self.closed.remove(at).map(|(_, why)| why)
    }

    /// How many letters of each type wait.
    pub fn waiting(&self) -> Vec<(&str, usize)> {
        self.mailbox.waiting()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(kind: &str) -> Incoming {
        Incoming::Letter { from: PeerId(0), letter: Letter { kind: kind.into(), payload: Vec::new() } }
    }

    #[test]
    fn timers_come_first_and_closes_last() {
        let mut agenda = Agenda::default();
        agenda.put(Incoming::Closed { peer: PeerId(0), why: "done".into() });
        agenda.put(letter("a"));
        let once = agenda.set_timer(Time(5), None);
        let often = agenda.set_timer(Time(5), Some(10));
        assert_eq!(agenda.next_timer_at(), Some(Time(5)));
        let order: Vec<Option<Happening>> = (0..5).map(|_| agenda.next(Time(5), |_| true)).collect();
        assert_eq!(order[..2], [Some(Happening::Timer(once)), Some(Happening::Timer(often))]);
        assert!(matches!(order[2], Some(Happening::Letter { .. })));
        assert!(matches!(order[3], Some(Happening::Closed { .. })));
        assert_eq!(order[4], None);
        assert_eq!(agenda.next_timer_at(), Some(Time(15)));
        assert!(agenda.cancel_timer(often));
        assert!(!agenda.cancel_timer(often));
    }

    #[test]
    fn letters_that_nobody_wants_yet_wait() {
        let mut agenda = Agenda::default();
        agenda.put(letter("later"));
        assert_eq!(agenda.next(Time(0), |kind| kind == "now"), None);
        assert_eq!(agenda.letter("later", Some(PeerId(1))), None);
        assert!(agenda.letter("later", Some(PeerId(0))).is_some());
    }
}
