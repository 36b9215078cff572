//! The state of an element that entry methods can access: everything except its chares.

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

use gridloom_base::Time;
use gridloom_base::limits::CHARE_MESSAGES_MAX;

use super::checkpoint::Checkpoints;
use super::contribution::{Combine, Contribution};
use super::credit::CreditDue;
use super::decision::Balancing;
use super::error::ChareError;
use super::id::{ArrayId, Index, Pe, Priority};
use super::location_table::{Location, LocationTable};
use super::mail::{AnyMail, Mail, Outcome, Slots, Work, WorkItem};
use super::migrations::Migrations;
use super::outbound::Outbound;
use super::payload::{Codec, Payload};
use super::placement::Elements;
use super::proxy::{Callback, CallbackTarget, Recipients};
use super::quiescence::{Quiescence, WaveOutcome};
use super::ready::Ready;
use super::record::{Control, Kind, RecordHeader};
use super::reduction::{Complete, Partial, Reduction};
use super::resize_state::Resizing;
use super::step_report::StepReport;
use super::value::Value;
use super::waiting_methods::WaitingMethods;

/// The state of an element that entry methods can access.
pub(crate) struct Core {
    pub(crate) me: Pe,
    pub(crate) elements: Arc<Elements>,
    pub(crate) rosters: Vec<LocationTable>,
    pub(crate) mails: Vec<Box<dyn AnyMail>>,
    pub(crate) reductions: Vec<Reduction>,
    pub(crate) reducers: Vec<Combine>,
    pub(crate) ready: Ready,
    pub(crate) outbound: Outbound,
    pub(crate) transit: Migrations,
    pub(crate) balancing: Balancing,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) resizing: Resizing,
    pub(crate) quiescence: Quiescence,
    pub(crate) account: StepReport,
    pub(crate) clock: Rc<dyn Fn() -> Time>,
    pub(crate) waits: WaitingMethods,
    pub(crate) ending: Ending,
}

/// How the program ends.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    pub(crate) value: Option<Value>,
    pub(crate) failure: Option<ChareError>,
}

impl Core {
    pub(crate) fn new(me: Pe, elements: Arc<Elements>) -> Core {
        let (rosters, mails, reductions, reducers) = Default::default();
        let (ready, transit, balancing, checkpoints, resizing) = Default::default();
        let (quiescence, account, waits, ending) = Default::default();
        let outbound = Outbound::new(elements.count());
        Core {
            me,
            elements,
            rosters,
            mails,
            reductions,
            reducers,
            ready,
            outbound,
            transit,
            balancing,
            checkpoints,
            resizing,
            quiescence,
            account,
            clock: Rc::new(|| Time(0)),
            waits,
            ending,
        }
    }

    /// Ends the program with an error. Only the first error counts.
    pub(crate) fn fail(&mut self, failure: ChareError) {
        self.ending.failure.get_or_insert(failure);
    }

    pub(crate) fn roster(&self, array: ArrayId) -> &LocationTable {
        &self.rosters[array.0 as usize]
    }

    /// # Panics
    /// Panics if the array's messages have another type.
    pub(crate) fn mail<M: Payload>(&mut self, array: ArrayId) -> &mut Mail<M> {
        let any: &mut dyn Any = &mut *self.mails[array.0 as usize];
        any.downcast_mut().expect("a proxy knows the type of its array's messages")
    }

    /// Adds an item to the mail of a chare on this element.
    pub(crate) fn put<M: Payload>(&mut self, array: ArrayId, priority: Priority, item: WorkItem<M>) {
        self.mail::<M>(array).put(priority, item);
        self.wait(array, priority, 1);
    }

    pub(crate) fn wait(&mut self, array: ArrayId, priority: Priority, count: usize) {
        (0..count).for_each(|_| self.ready.push(array, priority));
        if self.ready.len() + self.ready.parking.held() + self.transit.held() > CHARE_MESSAGES_MAX {
            self.fail(ChareError::WaitingLimit { element: self.me, limit: CHARE_MESSAGES_MAX });
        }
    }

    pub(crate) fn send<M: Payload>(&mut self, array: ArrayId, to: &Recipients, priority: Priority, message: M) {
        match to {
            Recipients::One(index) => match self.locate(array, index) {
                None => {}
                Some((_, Location::Here { slot })) => {
                    self.put(
                        array,
                        priority,
                        WorkItem::One { slot, work: Work::Message(message), debt: CreditDue::NONE },
                    );
                }
                Some((number, Location::At(element))) => self.send_to_one(element, array, number, priority, &message),
            },
            Recipients::All => {
                let head = RecordHeader { kind: Kind::All, array: array.0, priority: priority.0, number: 0 };
                for element in self.others() {
                    self.send_message(element, array, head, &[], &message);
                }
                if !self.roster(array).natives().is_empty() {
                    self.put(
                        array,
                        priority,
                        WorkItem::AllFrom { slot: 0, work: Work::Message(message), debt: CreditDue::NONE },
                    );
                }
            }
            Recipients::Section(indices) => {
                let (here, away) = self.split(array, indices);
                for (element, numbers) in away {
                    let number = numbers.len() as u32;
                    let head = RecordHeader { kind: Kind::Section, array: array.0, priority: priority.0, number };
                    self.send_message(element, array, head, &numbers, &message);
                }
                let Some((last, others)) = here.split_last() else { return };
                for slot in others {
                    self.put(
                        array,
                        priority,
                        WorkItem::One { slot: *slot, work: Work::Message(message.clone()), debt: CreditDue::NONE },
                    );
                }
                self.put(
                    array,
                    priority,
                    WorkItem::One { slot: *last, work: Work::Message(message), debt: CreditDue::NONE },
                );
            }
        }
    }

    fn locate(&mut self, array: ArrayId, index: &Index) -> Option<(u32, Location)> {
        let roster = &self.rosters[array.0 as usize];
        let found = roster.shape.number(index).and_then(|number| Some((number, roster.location(number)?)));
        if found.is_none() {
            let (name, has) = (roster.name.clone(), roster.shape.in_words());
            self.fail(ChareError::NoSuchChare { array: name, index: *index, has });
        }
        found
    }

    /// Splits indices into the slots of chares on this element, and the numbers of the others by element.
    fn split(&mut self, array: ArrayId, indices: &[Index]) -> (Vec<u32>, Vec<(Pe, Vec<u32>)>) {
        let (mut here, mut away): (Vec<u32>, Vec<(Pe, u32)>) = Default::default();
        for index in indices {
            match self.locate(array, index) {
                Some((_, Location::Here { slot })) => here.push(slot),
                Some((number, Location::At(element))) => away.push((element, number)),
                None => {}
            }
        }
        away.sort_by_key(|(element, _)| *element);
        let by_element = away.chunk_by(|one, other| one.0 == other.0);
        let away = by_element.map(|all| (all[0].0, all.iter().map(|(_, number)| *number).collect())).collect();
        (here, away)
    }

    pub(crate) fn others(&self) -> impl Iterator<Item = Pe> + use<> {
        let me = self.me;
        self.elements.all().filter(move |element| *element != me)
    }

    /// Sends a message to a chare on another element.
    pub(crate) fn send_to_one<M: Payload>(
        &mut self,
        element: Pe,
        array: ArrayId,
        number: u32,
        priority: Priority,
        message: &M,
    ) {
        let head = |kind| RecordHeader { kind, array: array.0, priority: priority.0, number };
        match self.roster(array).moves(number) {
            0 => self.send_message(element, array, head(Kind::One), &[], message),
            moves => self.send_message(element, array, head(Kind::Sought), &[moves], message),
        }
    }

    /// Sends a message to another element, preceded by the chares' numbers.
    fn send_message<M: Payload>(
        &mut self,
        element: Pe,
        array: ArrayId,
        head: RecordHeader,
        numbers: &[u32],
        message: &M,
    ) {
        let any: &mut dyn Any = &mut *self.mails[array.0 as usize];
        let mail: &mut Mail<M> = any.downcast_mut().expect("a proxy knows the type of its array's messages");
        let written = self.outbound.add(element, head, |out| {
            numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
            mail.codec.encode(message, out)
        });
        match written {
            Ok(()) => {
                self.quiescence.counts.sent += 1;
                if let Some(meter) = &mut self.balancing.meter {
                    meter.remote_messages += u64::from(self.elements.site(element) != self.elements.site(self.me));
                }
            }
            Err(why) => self.fail(ChareError::Message { array: self.roster(array).name.clone(), why }),
        }
    }

    /// Sends a control record to an element, which may be this one.
    pub(crate) fn send_control(&mut self, element: Pe, control: Control) {
        if element == self.me {
            if let Err(why) = self.on_control(control) {
                self.fail(why);
            }
            return;
        }
        let is_counted = is_counted(&control);
        let head = RecordHeader { kind: Kind::Control, array: 0, priority: 0, number: 0 };
        let written = self.outbound.add(element, head, |out| {
            let bytes =
                postcard::to_extend(&control, std::mem::take(out)).expect("serializing into a vector cannot fail");
            *out = bytes;
            Ok(())
        });
        match written {
            Ok(()) => self.quiescence.counts.sent += u64::from(is_counted),
            Err(why) => self.fail(ChareError::Failed(why)),
        }
    }

    pub(crate) fn contribute(&mut self, array: ArrayId, slot: u32, contribution: Contribution, callback: Callback) {
        let number = self.roster(array).number(slot);
        let reduction = &mut self.reductions[array.0 as usize];
        match reduction.contribute((slot, number), contribution, callback, &self.reducers) {
            Ok(rounds) => self.send_partials_to_root(array, rounds),
            Err(why) => self.fail(ChareError::Reduction { array: self.roster(array).name.clone(), why }),
        }
    }

    pub(crate) fn root(&self, array: ArrayId) -> Pe {
        Pe(array.0 % self.elements.count())
    }

    /// Reports whether this element completes the reductions of an array.
    pub(crate) fn is_root(&self, array: ArrayId) -> bool {
        self.root(array) == self.me
    }

    /// Sends partial results to the element that completes the reductions of an array.
    pub(crate) fn send_partials_to_root(&mut self, array: ArrayId, rounds: Vec<(u32, Partial)>) {
        let root = self.root(array);
        for (round, partial) in rounds {
            self.send_control(root, Control::Partial { array, round, partial });
        }
    }

    pub(crate) fn wait_for_quiescence(&mut self, callback: Callback) {
        self.send_control(Pe(0), Control::WaitForQuiescence(callback));
    }

    /// On the first element: fails the program if it is quiet and no callback waits for that.
    pub(crate) fn check_stall(&mut self) {
        if self.checkpoints.is_busy() {
            return;
        }
        if let Some(wave) = self.quiescence.check_stall() {
            self.probe(wave);
        }
    }

    /// Ends the program on all elements.
    pub(crate) fn exit(&mut self, value: Value) {
        if self.ending.value.is_none() {
            for element in self.others() {
                self.send_control(element, Control::End(value.clone()));
            }
            self.ending.value = Some(value);
        }
    }

    /// Notifies all other elements why this element ends.
    pub(crate) fn broadcast_failure(&mut self, failure: &ChareError) {
        let (from, why) = match failure {
            ChareError::RemoteFailure { element, why } => (*element, why.clone()),
            own => (self.me, own.to_string()),
        };
        for element in self.others() {
            self.send_control(element, Control::Fail { from, why: why.clone() });
        }
    }

    /// Reports that no message waits here. Returns true if the first element was waiting for this report.
    pub(crate) fn report_idle(&mut self) -> bool {
        let Some(report) = self.quiescence.idle() else { return false };
        self.send_control(Pe(0), Control::Report { from: self.me, report });
        true
    }

    pub(crate) fn on_control(&mut self, control: Control) -> Result<(), ChareError> {
        match control {
            Control::Partial { array, round, partial } => {
                let Some(reduction) = self.reductions.get_mut(array.0 as usize) else {
                    return Err(ChareError::Failed(format!(
                        "a reduction of array {}, which this element has not created",
                        array.0
                    )));
                };
                let roster = &self.rosters[array.0 as usize];
                let complete = reduction.add_part(round, partial, roster.shape.len() as u32, &self.reducers);
                let complete = complete.map_err(|why| ChareError::Reduction { array: roster.name.clone(), why })?;
                if let Some(complete) = complete {
                    self.reduced(array, complete);
                }
            }
            Control::Outcome { array, to, outcome } => self.put_outcome(array, &to, outcome),
            Control::ChareMoved { array, number, at, moves } => {
                if let Some(roster) = self.rosters.get_mut(array.0 as usize).filter(|_| at != self.me) {
                    roster.record_location(number, at, moves);
                }
            }
            Control::Credit { from, bytes } => self.on_credit(from, bytes),
            Control::MailboxLimit { from, bytes } => self.check_bound(from, bytes)?,
            Control::DeadlockProbe { from, question } => self.on_blocked(from, question),
            Control::WaitForQuiescence(callback) => {
                if let Some(wave) = self.quiescence.await_quiet(callback) {
                    self.probe(wave);
                }
            }
            Control::Measure => self.tell_measured(),
            Control::Measured { from, measured } => self.on_measured(from, measured),
            Control::Order(orders) => self.on_orders(orders),
            Control::OrdersDone => self.on_obeyed(),
            Control::Save { number, elements, is_asked } => {
                self.checkpoints.set_due(number);
                self.resizing.begin_saving(elements, is_asked);
            }
            Control::Saved(number) => self.on_saved(number, None),
            Control::SaveFailed { number, why } => self.on_saved(number, Some(why)),
            Control::Resize(elements) => self.request(elements),
            Control::EndForResize(elements) => self.end_for_resize(elements),
            Control::Probe { wave } => self.quiescence.asked(wave),
            Control::Report { report, .. } => match self.quiescence.on_report(report, self.elements.count()) {
                WaveOutcome::Wait => {}
                WaveOutcome::Ask { wave } => self.probe(wave),
                WaveOutcome::Quiet(callbacks) => self.on_quiescence(callbacks),
            },
            // Each element that ends notifies all others before it closes, so that none takes the closed connection for a failure.
            Control::End(value) => self.exit(value),
            Control::Fail { from, why } => return Err(ChareError::RemoteFailure { element: from, why }),
        }
        Ok(())
    }

    fn probe(&mut self, wave: u64) {
        self.elements.clone().all().for_each(|element| self.send_control(element, Control::Probe { wave }));
    }

    fn reduced(&mut self, array: ArrayId, complete: Complete) {
        let value = complete.combined.unwrap_or_else(|each| {
            let shape = &self.roster(array).shape;
            Value::Gathered(each.into_iter().map(|(number, value)| (shape.index(number), value)).collect())
        });
        self.call_back(complete.callback, value);
    }

    pub(crate) fn call_back(&mut self, callback: Callback, value: Value) {
        let Callback { goal, tag, .. } = callback;
        match goal {
            CallbackTarget::Exit => self.exit(value),
            CallbackTarget::Stalled => {
                self.fail(ChareError::Stalled { elements: self.elements.count(), waiting: String::new() })
            }
            CallbackTarget::Chares { array, to } => self.bring(array, to, Outcome { tag, value }),
        }
    }

    fn bring(&mut self, array: ArrayId, to: Recipients, outcome: Outcome) {
        let elements: Vec<Pe> = match &to {
            Recipients::One(index) => return self.deliver_to_one(array, index, outcome),
            // Elements may disagree about where the chares are, so each chare gets its own copy.
            Recipients::Section(indices) if self.roster(array).is_migratable => {
                return indices.iter().for_each(|index| self.deliver_to_one(array, index, outcome.clone()));
            }
            Recipients::Section(indices) => {
                let (here, away) = self.split(array, indices);
                let own = (!here.is_empty()).then_some(self.me);
                own.into_iter().chain(away.into_iter().map(|(element, _)| element)).collect()
            }
            Recipients::All => self.elements.all().collect(),
        };
        for element in elements {
            self.send_control(element, Control::Outcome { array, to: to.clone(), outcome: outcome.clone() });
        }
    }

    fn deliver_to_one(&mut self, array: ArrayId, index: &Index, outcome: Outcome) {
        match self.locate(array, index) {
            None => {}
            Some((_, Location::Here { slot })) => self.put_outcome_in(array, Slots::Some(&[slot]), outcome),
            Some((number, Location::At(element))) => self.post_outcome(element, array, number, &outcome),
        }
    }

    fn put_outcome(&mut self, array: ArrayId, to: &Recipients, outcome: Outcome) {
        if array.0 as usize >= self.rosters.len() {
            return self.fail(ChareError::Failed(format!(
                "a result for array {}, which this element has not created",
                array.0
            )));
        }
        let slots = match to {
            Recipients::One(index) => self.split(array, &[*index]).0,
            Recipients::Section(indices) => self.split(array, indices).0,
            Recipients::All => Vec::new(),
        };
        let slots = match to {
            Recipients::All if self.roster(array).natives().is_empty() => return,
            Recipients::All => Slots::All,
            Recipients::One(_) | Recipients::Section(_) => Slots::Some(&slots),
        };
        self.put_outcome_in(array, slots, outcome);
    }

    pub(crate) fn put_outcome_in(&mut self, array: ArrayId, slots: Slots<'_>, outcome: Outcome) {
        let count = self.mails[array.0 as usize].put_outcome(slots, outcome);
        self.wait(array, Priority::default(), count);
    }
}

/// Reports whether a record may cause activity at its receiver that is visible to the program.
pub(crate) fn is_counted(control: &Control) -> bool {
    match control {
        Control::Partial { .. } | Control::Outcome { .. } | Control::WaitForQuiescence(_) | Control::Resize(_) => true,
        Control::ChareMoved { .. }
        | Control::Credit { .. }
        | Control::MailboxLimit { .. }
        | Control::DeadlockProbe { .. }
        | Control::Measure
        | Control::Measured { .. }
        | Control::Order(_)
        | Control::OrdersDone
        | Control::Save { .. }
        | Control::Saved(_)
        | Control::SaveFailed { .. }
        | Control::EndForResize(_)
        | Control::Probe { .. }
        | Control::Report { .. }
        | Control::End(_)
        | Control::Fail { .. } => false,
    }
}
