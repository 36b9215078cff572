//! Copies in flight: data that arrive, their waiters, and data that a server forwards while it receives them.

use std::cmp::Reverse;

use super::sharing::{Milestone, PART_OVER};
use super::{ContentionEvaluator, CopyRecord, Event, NOBODY, State, Timed, Waiter};

impl ContentionEvaluator<'_> {
    /// Records that a datum is at a place, and serves its waiters there.
    pub(super) fn arrive(&mut self, datum: u32, place: u32) {
        let presence = self.presence_mut(datum, place);
        presence.state = State::Present;
        let mut next = std::mem::replace(&mut presence.waiters, NOBODY);
        while next != NOBODY {
            let (waiter, after) = self.waiters[next as usize];
            self.serve(datum, place, waiter);
            next = after;
        }
    }

    /// Records that the first part of a copy has arrived at a server, and starts the copies from there.
    fn begin(&mut self, number: u32) {
        let CopyRecord { datum, to: place, .. } = self.copies[number as usize];
        let mut next = std::mem::replace(&mut self.presence_mut(datum, place).waiters, NOBODY);
        // The remaining waiters keep their order.
        let mut stay = Vec::new();
        while next != NOBODY {
            let (waiter, after) = self.waiters[next as usize];
            match waiter {
                Waiter::CopyTo(_) => {
                    let copy = self.copies.len() as u32;
                    self.serve(datum, place, waiter);
                    if self.copies.len() as u32 > copy {
                        self.forwarded.insert(copy, number);
                    }
                }
                Waiter::Task(_) | Waiter::CopyFor(_) => stay.push(next),
            }
            next = after;
        }
        let mut first = NOBODY;
        for waiter in stay.into_iter().rev() {
            self.waiters[waiter as usize].1 = first;
            first = waiter;
        }
        self.presence_mut(datum, place).waiters = first;
    }

    /// Size of the first part of a copy, if the receiving server forwards it while receiving.
    pub(super) fn first_bytes(&mut self, datum: u32, place: u32) -> Option<f64> {
        if !self.problem.forwards_while_receiving(datum as usize, place as usize) || self.is_plain {
            return None;
        }
        let mut next = self.presence_mut(datum, place).waiters;
        while next != NOBODY {
            let (waiter, after) = self.waiters[next as usize];
            if matches!(waiter, Waiter::CopyTo(_)) {
                return Some(self.part_bytes(datum) as f64);
            }
            next = after;
        }
        None
    }

    pub(super) fn serve(&mut self, datum: u32, place: u32, waiter: Waiter) {
        match waiter {
            Waiter::Task(task) => {
                self.missing[task as usize] -= 1;
            }
            Waiter::CopyTo(to) => {
                let presence = self.presence_mut(datum, to);
                if matches!(presence.state, State::Present | State::InFlight) {
                    return;
                }
                presence.state = State::InFlight;
                self.send(datum, place, to, NOBODY);
            }
            Waiter::CopyFor(task) => self.send(datum, place, self.servers[task as usize], task),
        }
    }

    fn send(&mut self, datum: u32, from: u32, to: u32, task: u32) {
        let (start_s, number) = (self.now_s, self.copies.len() as u32);
        self.copies.push(CopyRecord { datum, from, to, start_s, end_s: f64::NAN });
        self.copied_for.push(task);
        let latency_s = self.problem.links_from(from as usize)[to as usize].latency_s;
        let flows_s = self.readable_s(datum, from) + latency_s;
        self.timed.push(Reverse(Timed { at_s: flows_s, what: Event::CopyFlows(number) }));
    }

    pub(super) fn end_copies(&mut self) {
        self.sharing.advance(self.now_s);
        while let Some((number, mark)) = self.sharing.take_ended() {
            match mark {
                Milestone::FirstPart => self.begin(number),
                Milestone::Complete => self.end_flow(number),
            }
        }
    }

    /// All bytes of a copy have been transferred. Its last part may not have been at its source in time.
    fn end_flow(&mut self, number: u32) {
        let Some(source) = self.forwarded.get(&number) else { return self.end_copy(number) };
        let came_s = self.copies[*source as usize].end_s;
        if came_s.is_nan() {
            return self.waiting_for_source.push(number);
        }
        let at_s = came_s + self.last_part_s(number);
        if at_s > self.now_s * (1.0 + PART_OVER) {
            self.timed.push(Reverse(Timed { at_s, what: Event::CopyEnds(number) }));
        } else {
            self.end_copy(number);
        }
    }

    /// Seconds that transferring the last part of a copy takes.
    fn last_part_s(&self, number: u32) -> f64 {
        let CopyRecord { datum, from, to, .. } = self.copies[number as usize];
        self.problem.link_seconds(from as usize, to as usize, self.part_bytes(datum))
    }

    fn part_bytes(&self, datum: u32) -> u64 {
        self.problem.part_bytes(datum as usize)
    }

    /// Time from which a datum that is sent through a storage can be read there: its first copy started when the writing began.
    fn readable_s(&self, datum: u32, from: u32) -> f64 {
        let write_s = self.problem.write_s(datum as usize, from as usize);
        if write_s == 0.0 {
            return self.now_s;
        }
        let first = self.copies.iter().find(|copy| copy.datum == datum);
        first.map_or(self.now_s, |copy| copy.start_s + write_s).max(self.now_s)
    }

    pub(super) fn end_copy(&mut self, number: u32) {
        let copy = &mut self.copies[number as usize];
        copy.end_s = self.now_s;
        let (datum, to) = (copy.datum, copy.to);
        let passed_on = &self.forwarded;
        let behind: Vec<u32> =
            self.waiting_for_source.extract_if(.., |late| passed_on.get(late) == Some(&number)).collect();
        for late in behind {
            let at_s = self.now_s + self.last_part_s(late);
            self.timed.push(Reverse(Timed { at_s, what: Event::CopyEnds(late) }));
        }
        match self.copied_for.get(number as usize) {
            Some(task) if *task != NOBODY => self.missing[*task as usize] -= 1,
            Some(_) | None => self.arrive(datum, to),
        }
        if (to as usize) < self.queues.len() {
            self.start_tasks(to as usize);
        }
    }
}
