//! Pending work of a process: waiting messages, timers that are due, closed connections.
//!
//! **Order.** Timers that are due precede messages, in the order in which they are due. A close follows the messages
//! of its connection. A timer that is set while due timers are handled waits until a wanted message or a close has
//! been handled. So timers whose actions take longer than their periods cannot starve anything else.
//!
//! **A repeating timer fires once for all missed periods:** periods that have passed meanwhile are skipped.

use std::collections::{BTreeMap, VecDeque};

use super::{Incoming, Mailbox, PeerId, ProcessMessage};
use gridloom_base::Time;
use gridloom_base::limits::FORMER_PEERS_MAX;

/// Identifier of a timer of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TimerNumber(pub u64);

/// An event to handle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProcessEvent {
    Message {
        from: PeerId,
        letter: ProcessMessage,
    },
    /// A timer is due.
    Timer(TimerNumber),
    /// The other side closed a connection.
    Closed {
        peer: PeerId,
        why: String,
    },
}

#[derive(Clone, Copy, Debug)]
struct Timer {
    every_ns: Option<u64>,
    armed: u64,
}

#[derive(Clone, Debug, Default)]
pub struct EventQueue {
    mailbox: Mailbox,
    timers: BTreeMap<(Time, TimerNumber), Timer>,
    next_timer: u64,
    /// How often any timer was armed or rearmed.
    armings: u64,
    /// While due timers are handled: the value of `armings` when this round began.
    round: Option<u64>,
    /// Closed connections with their reasons, at most [`FORMER_PEERS_MAX`]. The oldest are dropped first.
    closed: VecDeque<(PeerId, String)>,
}

impl EventQueue {
    /// Sets a timer. With `every_ns` it is rearmed each time it fires.
    pub fn set_timer(&mut self, at: Time, every_ns: Option<u64>) -> TimerNumber {
        self.next_timer += 1;
        let number = TimerNumber(self.next_timer);
        self.arm(at, number, every_ns);
        number
    }

    fn arm(&mut self, at: Time, number: TimerNumber, every_ns: Option<u64>) {
        self.armings += 1;
        self.timers.insert((at, number), Timer { every_ns, armed: self.armings });
    }

    /// Removes a timer. Returns true if it was set.
    pub fn cancel_timer(&mut self, number: TimerNumber) -> bool {
        let before = self.timers.len();
        self.timers.retain(|(_, timer), _| *timer != number);
        self.timers.len() < before
    }

    /// Returns the time at which the next timer is due.
    pub fn next_timer_at(&self) -> Option<Time> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    /// Adds a received event.
    pub fn put(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Message { from, letter } => self.mailbox.put(from, letter),
            Incoming::Closed { peer, why } => {
                self.closed.push_back((peer, why));
                if self.closed.len() > FORMER_PEERS_MAX {
                    self.closed.pop_front();
                }
            }
        }
    }

    /// Returns the next event to handle. Messages of types that `wants` rejects stay in the mailbox.
    pub fn next(&mut self, now: Time, wants: impl Fn(&str) -> bool) -> Option<ProcessEvent> {
        if let Some(timer) = self.due(now) {
            return Some(timer);
        }
        let closed = |(peer, why)| ProcessEvent::Closed { peer, why };
        let letter = self.mailbox.take_first(wants).map(|(from, letter)| ProcessEvent::Message { from, letter });
        let other = letter.or_else(|| self.closed.pop_front().map(closed));
        // The next round of timers begins.
        self.round = None;
        other.or_else(|| self.due(now))
    }

    /// Returns the next timer that is due and belongs to this round.
    fn due(&mut self, now: Time) -> Option<ProcessEvent> {
        let round = self.round.unwrap_or(self.armings);
        let mut due = self.timers.iter().take_while(|((at, _), _)| *at <= now);
        let ((at, number), timer) = due.find(|(_, timer)| timer.armed <= round).map(|(key, timer)| (*key, *timer))?;
        self.round = Some(round);
        self.timers.remove(&(at, number));
        if let Some(every_ns) = timer.every_ns.map(|every_ns| every_ns.max(1)) {
            let left_out = now.since(at) / every_ns;
            self.arm(at + every_ns.saturating_mul(left_out + 1), number, Some(every_ns));
        }
        Some(ProcessEvent::Timer(number))
    }

    /// Removes the first message of that type, from that peer if one is given.
    pub fn letter(&mut self, kind: &str, from: Option<PeerId>) -> Option<(PeerId, ProcessMessage)> {
        self.mailbox.take(kind, from)
    }

    /// Returns why that connection was closed, if the other side closed it and the process has not been notified yet.
    pub fn closed(&mut self, peer: PeerId) -> Option<String> {
        let at = self.closed.iter().position(|(closed, _)| *closed == peer)?;
        self.closed.remove(at).map(|(_, why)| why)
    }

    /// Returns the number of waiting messages by type.
    pub fn waiting(&self) -> Vec<(&str, usize)> {
        self.mailbox.waiting()
    }

    /// Returns the number of waiting messages by type and sender.
    pub fn unread(&self) -> BTreeMap<(&str, PeerId), usize> {
        self.mailbox.unread()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(kind: &str) -> Incoming {
        Incoming::Message { from: PeerId(0), letter: ProcessMessage { kind: kind.into(), payload: Vec::new() } }
    }

    #[test]
    fn timers_are_first_and_closes_last() {
        let mut agenda = EventQueue::default();
        agenda.put(Incoming::Closed { peer: PeerId(0), why: "done".into() });
        agenda.put(letter("a"));
        let once = agenda.set_timer(Time(5), None);
        let often = agenda.set_timer(Time(5), Some(10));
        assert_eq!(agenda.next_timer_at(), Some(Time(5)));
        let order: Vec<Option<ProcessEvent>> = (0..5).map(|_| agenda.next(Time(5), |_| true)).collect();
        assert_eq!(order[..2], [Some(ProcessEvent::Timer(once)), Some(ProcessEvent::Timer(often))]);
        assert!(matches!(order[2], Some(ProcessEvent::Message { .. })));
        assert!(matches!(order[3], Some(ProcessEvent::Closed { .. })));
        assert_eq!(order[4], None);
        assert_eq!(agenda.next_timer_at(), Some(Time(15)));
        assert!(agenda.cancel_timer(often));
        assert!(!agenda.cancel_timer(often));
    }

    #[test]
    fn timers_that_are_always_due_and_letters_take_turns() {
        let mut agenda = EventQueue::default();
        let often = agenda.set_timer(Time(10), Some(10));
        for kind in ["a", "b"] {
            agenda.put(letter(kind));
        }
        agenda.put(Incoming::Closed { peer: PeerId(0), why: "done".into() });
        let mut order = Vec::new();
        for now in [35, 65, 95, 125, 155, 185, 215] {
            let happening = agenda.next(Time(now), |_| true).expect("the timer is due");
            order.push(match happening {
                ProcessEvent::Timer(number) if number == often => "timer".to_string(),
                ProcessEvent::Message { letter, .. } => letter.kind.to_string(),
                other => format!("{other:?}").split(' ').next().unwrap_or_default().to_string(),
            });
        }
        assert_eq!(order, ["timer", "a", "timer", "b", "timer", "Closed", "timer"]);
        // Periods that have passed are skipped.
        assert_eq!(agenda.next_timer_at(), Some(Time(220)));
        // A timer that rearms itself at once does not starve messages either.
        let mut agenda = EventQueue::default();
        agenda.set_timer(Time(0), None);
        agenda.put(letter("a"));
        assert!(matches!(agenda.next(Time(0), |_| true), Some(ProcessEvent::Timer(_))));
        agenda.set_timer(Time(0), None);
        assert!(matches!(agenda.next(Time(0), |_| true), Some(ProcessEvent::Message { .. })));
        assert!(matches!(agenda.next(Time(0), |_| true), Some(ProcessEvent::Timer(_))));
    }

    #[test]
    fn the_number_of_unread_ends_is_bounded() {
        let mut agenda = EventQueue::default();
        for peer in 0..FORMER_PEERS_MAX as u64 + 5 {
            agenda.put(Incoming::Closed { peer: PeerId(peer), why: String::new() });
        }
        assert_eq!(agenda.closed.len(), FORMER_PEERS_MAX);
        assert_eq!(agenda.closed(PeerId(4)), None);
        assert!(agenda.closed(PeerId(5)).is_some());
    }

    #[test]
    fn letters_that_nobody_wants_yet_wait() {
        let mut agenda = EventQueue::default();
        agenda.put(letter("later"));
        assert_eq!(agenda.next(Time(0), |kind| kind == "now"), None);
        assert_eq!(agenda.letter("later", Some(PeerId(1))), None);
        assert!(agenda.letter("later", Some(PeerId(0))).is_some());
    }
}
