//! Detects that no message is waiting or in transit anywhere.
//!
//! Each element counts the records that it has sent to others and received from them. The first element polls all of
//! them in *waves*; an element answers once nothing waits there. The program is quiet if as many records were received
//! as sent, in two consecutive waves with the same sums. Then no record was in transit when the first of the two waves
//! ended, and no element has been active since: only a received record could have activated it, and that would have
//! changed a sum.
//!
//! Source: F. Mattern, *Algorithms for distributed termination detection* (four counters), Distributed Computing 2, 1987.
//!
//! **Promise:** quiescence is never reported early, whatever the order in which records arrive. It is reported at the
//! latest after the two waves that begin once the program is quiet. **Does not** count its own records, nor the end of
//! the program.

use serde::{Deserialize, Serialize};

use super::proxy::Callback;

/// Numbers of records that an element has sent to others and received from them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// An element's answer to a wave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    wave: u64,
    counts: Counts,
}

/// The result of a report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum WaveOutcome {
    /// Other elements have yet to answer.
    Wait,
    /// Another wave must be sent to all elements.
    Ask {
        wave: u64,
    },
    Quiet(Vec<Callback>),
}

#[derive(Debug, Default)]
pub(crate) struct Quiescence {
    pub(crate) counts: Counts,
    /// The wave that this element has yet to answer.
    wave_received: Option<u64>,
    /// On the first element: the callbacks that wait for quiescence.
    waiting: Vec<Callback>,
    wave: u64,
    reports: u32,
    sum: Counts,
    /// The sum of the previous wave of the same detection.
    before: Option<Counts>,
}

impl Quiescence {
    /// On the first element: adds a callback that waits for quiescence. Returns the wave to send to all elements if
    /// none is in progress.
    pub(crate) fn await_quiet(&mut self, callback: Callback) -> Option<u64> {
        self.waiting.push(callback);
        (self.waiting.len() == 1).then(|| {
            self.before = None;
            self.next_wave()
        })
    }

    /// On the first element: returns the last wave that was started.
    pub(crate) fn wave(&self) -> u64 {
        self.wave
    }

    /// On the first element: starts one check whether the program has stalled, unless a waiting callback will make it
    /// continue. Returns the wave to send to all elements.
    pub(crate) fn check_stall(&mut self) -> Option<u64> {
        if self.waiting.is_empty() { self.await_quiet(Callback::stalled()) } else { None }
    }

    fn next_wave(&mut self) -> u64 {
        self.wave += 1;
        (self.reports, self.sum) = (0, Counts::default());
        self.wave
    }

    /// Records a received wave.
    pub(crate) fn asked(&mut self, wave: u64) {
        self.wave_received = Some(wave);
    }

    /// Called when nothing waits here. Returns the answer if the first element waits for one.
    pub(crate) fn idle(&mut self) -> Option<Report> {
        self.wave_received.take().map(|wave| Report { wave, counts: self.counts })
    }

    /// Handles a report. Called only on the first element. `elements` is the number of elements.
    pub(crate) fn on_report(&mut self, report: Report, elements: u32) -> WaveOutcome {
        if report.wave != self.wave || self.waiting.is_empty() {
            return WaveOutcome::Wait;
        }
        self.reports += 1;
        self.sum.sent += report.counts.sent;
        self.sum.received += report.counts.received;
        if self.reports < elements {
            return WaveOutcome::Wait;
        }
        let is_check = self.waiting.iter().all(Callback::is_stalled);
        if self.sum.sent == self.sum.received && self.before == Some(self.sum) {
            let mut callbacks = std::mem::take(&mut self.waiting);
            // A callback of the program makes it continue.
            callbacks.retain(|callback| is_check || !callback.is_stalled());
            return WaveOutcome::Quiet(callbacks);
        }
        if is_check && self.before.is_some() {
            self.waiting.clear();
            return WaveOutcome::Wait;
        }
        self.before = Some(self.sum);
        WaveOutcome::Ask { wave: self.next_wave() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(wave: u64, sent: u64, came: u64) -> Report {
        Report { wave, counts: Counts { sent, received: came } }
    }

    #[test]
    fn two_waves_with_the_same_sums_are_quiet() {
        let mut first = Quiescence::default();
        assert_eq!(first.await_quiet(Callback::exit()), Some(1));
        assert_eq!(first.await_quiet(Callback::exit().tagged(1)), None, "the same waves answer it");
        assert_eq!(first.on_report(report(1, 5, 2), 2), WaveOutcome::Wait);
        assert_eq!(first.on_report(report(1, 1, 4), 2), WaveOutcome::Ask { wave: 2 });
        first.on_report(report(2, 5, 2), 2);
        assert_eq!(
            first.on_report(report(2, 1, 4), 2),
            WaveOutcome::Quiet(vec![Callback::exit(), Callback::exit().tagged(1)])
        );
        assert_eq!(first.await_quiet(Callback::exit()), Some(3));
    }

    #[test]
    fn what_is_on_its_way_and_what_came_between_two_waves_is_not_quiet() {
        let mut first = Quiescence::default();
        first.await_quiet(Callback::exit());
        first.on_report(report(1, 5, 2), 2);
        assert_eq!(first.on_report(report(1, 1, 3), 2), WaveOutcome::Ask { wave: 2 });
        first.on_report(report(2, 5, 3), 2);
        assert_eq!(first.on_report(report(2, 1, 3), 2), WaveOutcome::Ask { wave: 3 }, "balanced, but not twice");
        first.on_report(report(3, 6, 3), 2);
        assert_eq!(first.on_report(report(3, 1, 4), 2), WaveOutcome::Ask { wave: 4 }, "another balance");
    }

    #[test]
    fn a_check_for_a_stall_is_dropped_if_something_moves_or_a_callback_waits() {
        let mut first = Quiescence::default();
        assert_eq!(first.check_stall(), Some(1));
        assert_eq!(first.on_report(report(1, 3, 2), 1), WaveOutcome::Ask { wave: 2 });
        assert_eq!(first.on_report(report(2, 3, 3), 1), WaveOutcome::Wait, "it is not asked for ever");
        assert_eq!(first.check_stall(), Some(3));
        assert_eq!(first.on_report(report(3, 3, 3), 1), WaveOutcome::Ask { wave: 4 });
        assert_eq!(first.await_quiet(Callback::exit()), None);
        assert_eq!(first.on_report(report(4, 3, 3), 1), WaveOutcome::Quiet(vec![Callback::exit()]));
        first.await_quiet(Callback::exit());
        assert_eq!(first.check_stall(), None);
    }

    #[test]
    fn an_element_answers_each_wave_once_and_only_when_idle() {
        let mut element = Quiescence::default();
        assert_eq!(element.idle(), None);
        element.asked(7);
        element.counts.sent = 3;
        assert_eq!(element.idle(), Some(report(7, 3, 0)));
        assert_eq!(element.idle(), None);
    }
}
