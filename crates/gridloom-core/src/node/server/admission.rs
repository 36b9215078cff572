//! Admission: tasks are let in, in order, as the store has room for what they read and make, and start as slots come free.
//!
//! **Invariant:** as long as tasks are held and none runs, something is let in, makes way, or is refused: a store that is
//! too small is an error, never a silence.

use super::*;
use crate::base::limits::CALLED_BACK_NS_MAX;

impl Server {
    /// Admits what there is room for, starts what is ready.
    pub(super) fn pump(&mut self, now: Time, out: &mut Vec<Effect>) {
        loop {
            self.admit(now, out);
            let mut started = self.end_placements(now, out);
            let (known, depth) = (&self.known, self.config.queue_depth.max(1));
            let short_ns = ns_to_seconds(SHORT_CALL_NS_MAX);
            let is_short = |f: &str| known.get(f).and_then(Known::mean_s).is_some_and(|mean| mean < short_ns);
            while let Some(task) = self.executor.next_start(|f| if is_short(f) { depth } else { 1 }) {
                self.running.started(now, &task);
                out.push(Effect::StartTask { task });
                started = true;
            }
            if !started {
                return;
            }
        }
    }

    fn admit(&mut self, now: Time, out: &mut Vec<Effect>) {
        while let Some(entry) = self.executor.first_held() {
            let task = entry.task.clone();
            let inputs: BTreeSet<DatumId> = task.inputs().collect();
            let needed = self.room_needed(&task, &inputs);
            if !self.replicas.fits(needed) {
                self.evict(now, needed, &inputs, out);
            }
            if !self.replicas.fits(needed) {
                // Waiting tasks that keep the room from those they wait for (the order of a plan rules that out, a
                // later plan for what was lost may bring it about) make way.
                let stuck = if self.executor.is_busy() { Vec::new() } else { self.executor.waiting(true) };
                if !stuck.is_empty() {
                    self.hold_back(now, stuck, out);
                    continue;
                }
                if self.executor.admitted() > 0 {
                    return;
                }
                self.refuse_for_room(now, &task, needed, out);
                continue;
            }
            self.admit_first(now, &task, inputs, out);
        }
    }

    /// Bytes that the store has to have free before a task is let in.
    fn room_needed(&self, task: &Task, inputs: &BTreeSet<DatumId>) -> u64 {
        let size_of = |datum: &DatumId| self.awaited.get(datum).map_or(0, |awaited| awaited.size_bytes);
        let coming = inputs.iter().filter(|datum| !self.replicas.is_known(**datum)).map(size_of);
        let made = task.outputs.iter().map(|o| self.replicas.lacks_bytes(o.datum, o.meta.size_bytes()));
        coming.chain(made).fold(0, u64::saturating_add)
    }

    fn refuse_for_room(&mut self, now: Time, task: &Task, needed: u64, out: &mut Vec<Effect>) {
        let error = TaskError::StoreFull {
            function: task.function.clone(),
            server: self.config.name.clone(),
            task: task.id,
            needed,
            held: self.replicas.used_bytes(),
            limit: self.replicas.limit_bytes(),
        };
        self.give_up(now, task.id, error, out);
    }

    /// Makes room, but neither of what is `kept` (what the task reads that is to be let in) nor of copies of what a task
    /// here makes again: that is the room for its result. What a held call will read is asked for again when the call is
    /// let in.
    pub(super) fn evict(&mut self, now: Time, needed: u64, kept: &BTreeSet<DatumId>, out: &mut Vec<Effect>) {
        let executor = &self.executor;
        let evicted = self.replicas.evict(
            needed,
            |datum| kept.contains(&datum) || executor.makes(datum),
            |datum| executor.reads(datum),
        );
        for Evicted { datum, origin, size_bytes } in evicted {
            out.push(Effect::DropDatum { datum });
            let of_call = origin == Origin::Argument;
            if !of_call {
                self.report_transfers(now, datum.client, out);
                send(out, datum.client, Message::Dropped { data: vec![datum] });
            }
            if self.executor.reads(datum) {
                // A copy may come from elsewhere the next time: its owner is asked for the source.
                let from = if of_call { datum.client } else { self.config.id };
                let address = String::new();
                let awaited = Awaited { from, address, size_bytes, asked: false, of_call, comes_unasked: false };
                self.awaited.insert(datum, awaited);
            }
        }
    }

    fn admit_first(&mut self, now: Time, task: &Task, inputs: BTreeSet<DatumId>, out: &mut Vec<Effect>) {
        for output in &task.outputs {
            self.replicas.reserve(output.datum, output.meta.size_bytes(), Origin::Made, now);
        }
        for datum in inputs {
            if !self.replicas.is_known(datum) {
                match self.awaited.get(&datum) {
                    Some(awaited) => {
                        let origin = if awaited.of_call { Origin::Argument } else { Origin::Copied };
                        self.replicas.reserve(datum, awaited.size_bytes, origin, now);
                        if self.only_awaits(datum) {
                            for peer in self.replicas.refuse(datum) {
                                self.refuse_awaited(datum, peer, out);
                            }
                        }
                        self.ask(datum, out);
                    }
                    // A task that is held behind this one makes it.
                    None if self.executor.makes(datum) => {
                        self.replicas.reserve(datum, 0, Origin::Made, now);
                    }
                    None => {
                        self.ask_for_source(datum, out);
                        self.replicas.reserve(datum, 0, Origin::Copied, now);
                    }
                }
            }
            self.replicas.add_reader(datum);
        }
        self.executor.admit(|datum| self.replicas.is_here(datum));
    }

    /// If nothing has moved here for a heartbeat while tasks are held for lack of room, those that wait make way: what
    /// they wait for may itself be held up elsewhere by tasks that wait for what is held here.
    pub(super) fn unstick(&mut self, now: Time, out: &mut Vec<Effect>) {
        let is_stuck = self.executor.first_held().is_some() && !self.executor.is_busy();
        if is_stuck && now.since(self.last_progress) >= HEARTBEAT_NS {
            // Whoever is let in has called its program back, which may wait for the very task that finds no room.
            if self.executor.admitted() == self.executor.asking() && self.executor.asking() > 0 {
                if now.since(self.last_progress) >= CALLED_BACK_NS_MAX {
                    let task = self.executor.first_held().expect("seen above").task.clone();
                    let needed = self.room_needed(&task, &task.inputs().collect());
                    self.refuse_for_room(now, &task, needed, out);
                    self.pump(now, out);
                }
                return;
            }
            let waiting = self.executor.waiting(false);
            self.hold_back(now, waiting, out);
            self.last_progress = now;
            self.pump(now, out);
        }
    }

    /// Puts waiting tasks back behind all others and gives up the room that they had.
    pub(super) fn hold_back(&mut self, now: Time, tasks: Vec<TaskId>, out: &mut Vec<Effect>) {
        for id in tasks {
            self.executor.hold_back(id);
            let task = self.executor.get(id).expect("held back a moment ago").task.clone();
            for output in &task.outputs {
                self.replicas.unreserve(output.datum, now);
            }
            let inputs: BTreeSet<DatumId> = task.inputs().collect();
            for datum in inputs {
                if self.replicas.remove_reader(datum, now) {
                    out.push(Effect::DropDatum { datum });
                }
                if !self.executor.waits_for(datum) && !self.executor.makes(datum) {
                    self.replicas.unreserve(datum, now);
                    if let Some(awaited) = self.awaited.get_mut(&datum) {
                        awaited.asked = false;
                    }
                }
            }
        }
    }
}
