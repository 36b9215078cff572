//! What an entry method acts on: all of an element but its chares.

use std::any::Any;
use std::sync::Arc;

use gridloom_base::Time;
use gridloom_base::limits::CHARE_MESSAGES_MAX;

use super::contribution::{Combine, Contribution};
use super::error::ChareError;
use super::id::{ArrayId, Index, Pe, Priority};
use super::mail::{AnyMail, Item, Mail, Outcome, Slots, Work};
use super::outbound::Outbound;
use super::payload::{Codec, Payload};
use super::placement::Elements;
use super::proxy::{Callback, Goal, To};
use super::quiescence::{Quiescence, Verdict};
use super::ready::Ready;
use super::record::{Control, Head, Kind, section};
use super::reduction::{Complete, Reduction};
use super::shape::Shape;
use super::value::Value;

/// Where a chare is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Here { slot: u32 },
    At(Pe),
}

/// Marks a slot of this element in the table of places.
const HERE: u32 = 1 << 31;

/// Which chares an array has, and where they are.
pub(crate) struct Roster {
    pub(crate) name: String,
    pub(crate) shape: Shape,
    /// By the chares' numbers: an element, or [`HERE`] and a slot.
    places: Vec<u32>,
    /// The numbers of the chares here, by slot.
    pub(crate) here: Vec<u32>,
}

impl Roster {
    pub(crate) fn new(name: String, shape: Shape) -> Roster {
        let places = vec![0; shape.len()];
        Roster { name, shape, places, here: Vec::new() }
    }

    pub(crate) fn put_at(&mut self, number: u32, element: Pe, me: Pe) {
        self.places[number as usize] = if element == me {
            self.here.push(number);
            HERE | (self.here.len() - 1) as u32
        } else {
            element.0
        };
    }

    fn place(&self, number: u32) -> Option<Place> {
        let place = *self.places.get(number as usize)?;
        Some(if place & HERE != 0 { Place::Here { slot: place & !HERE } } else { Place::At(Pe(place)) })
    }
}

pub(crate) struct Core {
    pub(crate) me: Pe,
    pub(crate) elements: Arc<Elements>,
    pub(crate) rosters: Vec<Roster>,
    pub(crate) mails: Vec<Box<dyn AnyMail>>,
    pub(crate) reductions: Vec<Reduction>,
    pub(crate) reducers: Vec<Combine>,
    pub(crate) ready: Ready,
    pub(crate) outbound: Outbound,
    quiescence: Quiescence,
    /// Work that entry methods have charged, floating-point operations.
    pub(crate) flops: f64,
    pub(crate) clock: Box<dyn Fn() -> Time>,
    pub(crate) end: Option<Value>,
    pub(crate) failure: Option<ChareError>,
}

impl Core {
    pub(crate) fn new(me: Pe, elements: Arc<Elements>) -> Core {
        let (rosters, mails, reductions, reducers) = Default::default();
        let (ready, quiescence, end, failure) = Default::default();
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
            quiescence,
            flops: 0.0,
            clock: Box::new(|| Time(0)),
            end,
            failure,
        }
    }

    /// The program ends with that; only the first counts.
    pub(crate) fn fail(&mut self, failure: ChareError) {
        self.failure.get_or_insert(failure);
    }

    pub(crate) fn roster(&self, array: ArrayId) -> &Roster {
        &self.rosters[array.0 as usize]
    }

    /// # Panics
    /// If the array's messages have another type.
    pub(crate) fn mail<M: Payload>(&mut self, array: ArrayId) -> &mut Mail<M> {
        let any: &mut dyn Any = &mut *self.mails[array.0 as usize];
        any.downcast_mut().expect("a proxy knows the type of its array's messages")
    }

    /// Something more waits for a chare here.
    fn put<M: Payload>(&mut self, array: ArrayId, priority: Priority, item: Item<M>) {
        self.mail::<M>(array).put(priority, item);
        self.wait(array, priority, 1);
    }

    fn wait(&mut self, array: ArrayId, priority: Priority, count: usize) {
        (0..count).for_each(|_| self.ready.push(array, priority));
        if self.ready.len() > CHARE_MESSAGES_MAX {
            self.fail(ChareError::TooMany { element: self.me, limit: CHARE_MESSAGES_MAX });
        }
    }

    pub(crate) fn send<M: Payload>(&mut self, array: ArrayId, to: &To, priority: Priority, message: M) {
        match to {
            To::One(index) => match self.locate(array, index) {
                None => {}
                Some((_, Place::Here { slot })) => {
                    self.put(array, priority, Item::One { slot, work: Work::Message(message) });
                }
                Some((number, Place::At(element))) => {
                    let head = Head { kind: Kind::One, array: array.0, priority: priority.0, number };
                    self.post(element, array, head, &[], &message);
                }
            },
            To::All => {
                let head = Head { kind: Kind::All, array: array.0, priority: priority.0, number: 0 };
                for element in self.others() {
                    self.post(element, array, head, &[], &message);
                }
                if !self.roster(array).here.is_empty() {
                    self.put(array, priority, Item::From { slot: 0, work: Work::Message(message) });
                }
            }
            To::Section(indices) => {
                let (here, away) = self.split(array, indices);
                for (element, numbers) in away {
                    let number = numbers.len() as u32;
                    let head = Head { kind: Kind::Section, array: array.0, priority: priority.0, number };
                    self.post(element, array, head, &numbers, &message);
                }
                let Some((last, others)) = here.split_last() else { return };
                for slot in others {
                    self.put(array, priority, Item::One { slot: *slot, work: Work::Message(message.clone()) });
                }
                self.put(array, priority, Item::One { slot: *last, work: Work::Message(message) });
            }
        }
    }

    fn locate(&mut self, array: ArrayId, index: &Index) -> Option<(u32, Place)> {
        let roster = &self.rosters[array.0 as usize];
        let found = roster.shape.number(index).and_then(|number| Some((number, roster.place(number)?)));
        if found.is_none() {
            let (name, has) = (roster.name.clone(), roster.shape.in_words());
            self.fail(ChareError::NoSuchChare { array: name, index: *index, has });
        }
        found
    }

    /// The slots of those chares that are here, and the numbers of the others by element.
    fn split(&mut self, array: ArrayId, indices: &[Index]) -> (Vec<u32>, Vec<(Pe, Vec<u32>)>) {
        let (mut here, mut away): (Vec<u32>, Vec<(Pe, u32)>) = Default::default();
        for index in indices {
            match self.locate(array, index) {
                Some((_, Place::Here { slot })) => here.push(slot),
                Some((number, Place::At(element))) => away.push((element, number)),
                None => {}
            }
        }
        away.sort_by_key(|(element, _)| *element);
        let by_element = away.chunk_by(|one, other| one.0 == other.0);
        let away = by_element.map(|all| (all[0].0, all.iter().map(|(_, number)| *number).collect())).collect();
        (here, away)
    }

    fn others(&self) -> impl Iterator<Item = Pe> + use<> {
        let me = self.me;
        self.elements.all().filter(move |element| *element != me)
    }

    /// A message goes to another element, behind these numbers.
    fn post<M: Payload>(&mut self, element: Pe, array: ArrayId, head: Head, numbers: &[u32], message: &M) {
        let any: &mut dyn Any = &mut *self.mails[array.0 as usize];
        let mail: &mut Mail<M> = any.downcast_mut().expect("a proxy knows the type of its array's messages");
        let written = self.outbound.add(element, head, |out| {
            numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
            mail.codec.encode(message, out)
        });
        match written {
            Ok(()) => self.quiescence.counts.sent += 1,
            Err(why) => self.fail(ChareError::Message { array: self.roster(array).name.clone(), why }),
        }
    }

    /// Another element, or this one, is told something.
    fn tell(&mut self, element: Pe, control: Control) {
        if element == self.me {
            if let Err(why) = self.on_control(control) {
                self.fail(why);
            }
            return;
        }
        let is_counted = is_counted(&control);
        let head = Head { kind: Kind::Control, array: 0, priority: 0, number: 0 };
        let written = self.outbound.add(element, head, |out| {
            let bytes =
                postcard::to_extend(&control, std::mem::take(out)).expect("postcard into a vector fails for no type");
            *out = bytes;
            Ok(())
        });
        match written {
            Ok(()) => self.quiescence.counts.sent += u64::from(is_counted),
            Err(why) => self.fail(ChareError::Failed(why)),
        }
    }

    pub(crate) fn contribute(&mut self, array: ArrayId, slot: u32, contribution: Contribution, callback: Callback) {
        let number = self.roster(array).here[slot as usize];
        let reduction = &mut self.reductions[array.0 as usize];
        match reduction.contribute((slot, number), contribution, callback, &self.reducers) {
            Ok(rounds) => {
                let root = self.root(array);
                for (round, partial) in rounds {
                    self.tell(root, Control::Partial { array, round, partial });
                }
            }
            Err(why) => self.fail(ChareError::Reduction { array: self.roster(array).name.clone(), why }),
        }
    }

    /// The element that completes the reductions of an array.
    fn root(&self, array: ArrayId) -> Pe {
        Pe(array.0 % self.elements.count())
    }

    pub(crate) fn await_quiet(&mut self, callback: Callback) {
        self.tell(Pe(0), Control::AwaitQuiet(callback));
    }

    /// At the first element: the program fails if all is quiet and no callback waits for that.
    pub(crate) fn check_stall(&mut self) {
        if let Some(wave) = self.quiescence.check_stall() {
            self.probe(wave);
        }
    }

    /// The program ends, on all elements.
    pub(crate) fn exit(&mut self, value: Value) {
        if self.end.is_none() {
            for element in self.others() {
                self.tell(element, Control::End(value.clone()));
            }
            self.end = Some(value);
        }
    }

    /// Tells all others why this element ends.
    pub(crate) fn tell_failure(&mut self, failure: &ChareError) {
        let (from, why) = match failure {
            ChareError::Elsewhere { element, why } => (*element, why.clone()),
            own => (self.me, own.to_string()),
        };
        for element in self.others() {
            self.tell(element, Control::Fail { from, why: why.clone() });
        }
    }

    /// Nothing waits here. Whether another element was waiting to be told so.
    pub(crate) fn report_idle(&mut self) -> bool {
        let Some(report) = self.quiescence.idle() else { return false };
        self.tell(Pe(0), Control::Report { from: self.me, report });
        true
    }

    pub(crate) fn on_record(&mut self, from: Pe, head: Head, body: &[u8]) -> Result<(), ChareError> {
        let wrong = |why: String| ChareError::Letter { from, why };
        let array = ArrayId(head.array);
        if head.kind == Kind::Control {
            let (control, rest) = postcard::take_from_bytes(body).map_err(|error| wrong(error.to_string()))?;
            if !rest.is_empty() {
                return Err(wrong(format!("{} bytes left over", rest.len())));
            }
            self.quiescence.counts.came += u64::from(is_counted(&control));
            return self.on_control(control);
        }
        self.quiescence.counts.came += 1;
        let unknown =
            || wrong(format!("array {} of {}: each element has to make all arrays", head.array, self.rosters.len()));
        let roster = self.rosters.get(head.array as usize).ok_or_else(unknown)?;
        let slot = |number: u32| match roster.place(number) {
            Some(Place::Here { slot }) => Ok(slot),
            Some(Place::At(_)) | None => Err(wrong(format!(
                "chare {number} of array {} is not here: do all elements place it alike?",
                roster.name
            ))),
        };
        let (slots, message) = match head.kind {
            Kind::One => (vec![slot(head.number)?], body),
            Kind::Section => {
                let (numbers, message) = section(head.number, body).map_err(wrong)?;
                (numbers.map(slot).collect::<Result<_, _>>()?, message)
            }
            Kind::All if roster.here.is_empty() => return Ok(()),
            Kind::All => (Vec::new(), body),
            Kind::Control => unreachable!("it was handled"),
        };
        let slots = if head.kind == Kind::All { Slots::All } else { Slots::Some(&slots) };
        let priority = Priority(head.priority);
        let put = self.mails[head.array as usize].put_bytes(slots, priority, message);
        let count = put.map_err(|why| ChareError::Message { array: self.roster(array).name.clone(), why })?;
        self.wait(array, priority, count);
        Ok(())
    }

    fn on_control(&mut self, control: Control) -> Result<(), ChareError> {
        match control {
            Control::Partial { array, round, partial } => {
                let Some(reduction) = self.reductions.get_mut(array.0 as usize) else {
                    return Err(ChareError::Failed(format!(
                        "a reduction of array {}, which this element has not made",
                        array.0
                    )));
                };
                let roster = &self.rosters[array.0 as usize];
                let complete = reduction.learn(round, partial, roster.shape.len() as u32, &self.reducers);
                let complete = complete.map_err(|why| ChareError::Reduction { array: roster.name.clone(), why })?;
                if let Some(complete) = complete {
                    self.reduced(array, complete);
                }
            }
            Control::Outcome { array, to, tag, value } => self.put_outcome(array, &to, Outcome { tag, value }),
            Control::AwaitQuiet(callback) => {
                if let Some(wave) = self.quiescence.await_quiet(callback) {
                    self.probe(wave);
                }
            }
            Control::Probe { wave } => self.quiescence.asked(wave),
            Control::Report { report, .. } => match self.quiescence.reported(report, self.elements.count()) {
                Verdict::Wait => {}
                Verdict::Ask { wave } => self.probe(wave),
                Verdict::Quiet(callbacks) => {
                    callbacks.into_iter().for_each(|callback| self.call_back(callback, Value::Nothing));
                }
            },
            // Each element that ends tells all others before it closes, so that none takes the close for a failure.
            Control::End(value) => self.exit(value),
            Control::Fail { from, why } => return Err(ChareError::Elsewhere { element: from, why }),
        }
        Ok(())
    }

    fn probe(&mut self, wave: u64) {
        self.elements.clone().all().for_each(|element| self.tell(element, Control::Probe { wave }));
    }

    fn reduced(&mut self, array: ArrayId, complete: Complete) {
        let value = complete.combined.unwrap_or_else(|each| {
            let shape = &self.roster(array).shape;
            Value::Gathered(each.into_iter().map(|(number, value)| (shape.index(number), value)).collect())
        });
        self.call_back(complete.callback, value);
    }

    fn call_back(&mut self, callback: Callback, value: Value) {
        let Callback { goal, tag } = callback;
        match goal {
            Goal::Exit => self.exit(value),
            Goal::Stalled => self.fail(ChareError::Stalled { elements: self.elements.count() }),
            Goal::Chares { array, to } => {
                let elements: Vec<Pe> = match &to {
                    To::One(index) => match self.locate(array, index) {
                        Some((_, Place::At(element))) => vec![element],
                        Some((_, Place::Here { .. })) => vec![self.me],
                        None => return,
                    },
                    To::All => self.elements.all().collect(),
                    To::Section(indices) => {
                        let (here, away) = self.split(array, indices);
                        let own = (!here.is_empty()).then_some(self.me);
                        own.into_iter().chain(away.into_iter().map(|(element, _)| element)).collect()
                    }
                };
                for element in elements {
                    self.tell(element, Control::Outcome { array, to: to.clone(), tag, value: value.clone() });
                }
            }
        }
    }

    fn put_outcome(&mut self, array: ArrayId, to: &To, outcome: Outcome) {
        if array.0 as usize >= self.rosters.len() {
            return self
                .fail(ChareError::Failed(format!("a result for array {}, which this element has not made", array.0)));
        }
        let slots = match to {
            To::One(index) => self.split(array, &[*index]).0,
            To::Section(indices) => self.split(array, indices).0,
            To::All => Vec::new(),
        };
        let slots = match to {
            To::All if self.roster(array).here.is_empty() => return,
            To::All => Slots::All,
            To::One(_) | To::Section(_) => Slots::Some(&slots),
        };
        let count = self.mails[array.0 as usize].put_outcome(slots, outcome);
        self.wait(array, Priority::default(), count);
    }
}

/// Whether a record may give its receiver something to do that the program sees.
fn is_counted(control: &Control) -> bool {
    match control {
        Control::Partial { .. } | Control::Outcome { .. } | Control::AwaitQuiet(_) => true,
        Control::Probe { .. } | Control::Report { .. } | Control::End(_) | Control::Fail { .. } => false,
    }
}
