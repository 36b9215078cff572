//! A processing element: its chares, and the scheduler that runs their entry methods.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use gridloom_base::Time;

use super::account::Ran;
use super::array::{AnyArray, Array};
use super::balance::Balancer;
use super::chare::{Chare, Context, Start};
use super::contribution::{Combine, Reducer};
use super::core::Core;
use super::error::ChareError;
use super::id::{ArrayId, Index, Pe};
use super::mail::Mail;
use super::packing::Packing;
use super::placement::{Elements, Misplaced, Placement};
use super::proxy::Proxy;
use super::record::{self, Head, Kind};
use super::reduction::Reduction;
use super::roster::{Place, Roster};
use super::shape::Shape;
use super::value::Value;

/// So many waiting chares are named where a program can never end.
const TOLD_MAX: usize = 8;

/// What came of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A chare of that array has run.
    Ran(ArrayId),
    /// No message waits.
    Idle,
    /// The program has ended.
    Ended,
    /// The element has ended, and the program goes on with another number of them.
    Renewed,
}

/// One of the elements of a program. All of them make the same arrays, in the same order.
pub struct Element {
    pub(crate) core: Core,
    pub(crate) arrays: Vec<Box<dyn AnyArray>>,
}

impl Element {
    /// # Panics
    /// If `me` is none of them.
    pub fn new(me: Pe, elements: Arc<Elements>) -> Element {
        assert!(me.0 < elements.count(), "element {} of {}", me.0, elements.count());
        Element { core: Core::new(me, elements), arrays: Vec::new() }
    }

    pub fn me(&self) -> Pe {
        self.core.me
    }

    pub fn elements(&self) -> &Arc<Elements> {
        &self.core.elements
    }

    /// Makes an array; `make` makes those of its chares that begin on this element. `name` stands in errors and traces.
    ///
    /// # Errors
    /// [`ChareError::NoSuchElement`]; [`ChareError::Message`] if the chares' messages cannot be sent.
    pub fn array<C: Chare>(
        &mut self,
        name: &str,
        shape: Shape,
        placement: &Placement,
        make: impl FnMut(Index) -> C,
    ) -> Result<Proxy<C>, ChareError> {
        self.add_array(name, shape, placement, make, None)
    }

    /// As [`Element::array`]; the chares can move.
    ///
    /// # Errors
    /// As [`Element::array`].
    pub fn migratable_array<C: Chare>(
        &mut self,
        name: &str,
        shape: Shape,
        placement: &Placement,
        make: impl FnMut(Index) -> C,
        packing: Packing<C>,
    ) -> Result<Proxy<C>, ChareError> {
        self.add_array(name, shape, placement, make, Some(packing))
    }

    fn add_array<C: Chare>(
        &mut self,
        name: &str,
        shape: Shape,
        placement: &Placement,
        mut make: impl FnMut(Index) -> C,
        packing: Option<Packing<C>>,
    ) -> Result<Proxy<C>, ChareError> {
        let array = ArrayId(self.arrays.len() as u32);
        let mail = Mail::<C::Message>::new().map_err(|why| ChareError::Message { array: name.into(), why })?;
        let (me, elements) = (self.core.me, self.core.elements.clone());
        let mut roster = Roster::new(name.into(), shape.clone(), packing.is_some());
        let put = |number, element| roster.begin_at(number, element, me);
        let placed = placement.each(&shape, &elements, put);
        let at_border = placed.map_err(|wrong| match wrong {
            Misplaced::Element(index, element) => {
                ChareError::NoSuchElement { array: name.into(), index, element, count: elements.count() }
            }
            Misplaced::Chare(index) => ChareError::NoSuchChare { array: name.into(), index, has: shape.in_words() },
        })?;
        roster.set_border(at_border);
        let chares = roster.natives().iter().map(|number| Some(make(shape.index(*number)))).collect();
        let natives = roster.natives().len() as u32;
        self.core.reductions.push(Reduction::new(natives));
        self.core.rosters.push(roster);
        self.core.mails.push(Box::new(mail));
        self.arrays.push(Box::new(Array { chares, natives, packing }));
        Ok(Proxy::new(array))
    }

    /// Whether that chare exchanges messages with other sites, as its array's placement says.
    pub fn is_at_border(&self, array: ArrayId, index: &Index) -> bool {
        self.core.roster(array).is_at_border(index)
    }

    /// Where that chare is, as far as this element knows; before the first message, where it begins. `None` if the array has none of that index.
    pub fn element_of(&self, array: ArrayId, index: &Index) -> Option<Pe> {
        let roster = self.core.roster(array);
        match roster.place(roster.shape.number(index)?)? {
            Place::Here { .. } => Some(self.core.me),
            Place::At(element) => Some(element),
        }
    }

    /// Makes a reducer of the program known.
    ///
    /// # Panics
    /// Beyond 65,536 of them.
    pub fn reducer(&mut self, combine: Combine) -> Reducer {
        let number = u16::try_from(self.core.reducers.len()).expect("at most 65,536 reducers");
        self.core.reducers.push(combine);
        Reducer::Own(number)
    }

    /// Not more than so many bytes of messages from other elements wait here, beyond one letter and one message of each. Every element is told the same.
    pub fn bound_mailbox(&mut self, bytes: u64) {
        self.core.outbound.credits.bound(bytes);
    }

    /// Has the others check that they were told the same limit. For the owner, once the program has made its arrays.
    pub fn tell_bound(&mut self) {
        self.core.tell_bound();
    }

    /// Bytes of messages from other elements that wait here, and of messages for others that wait here for their credit.
    pub fn waiting_bytes(&self) -> (u64, u64) {
        (self.core.outbound.credits.here(), self.core.outbound.credits.all_unsent())
    }

    /// Runs that on the first element, before any message, if the program does not go on from a checkpoint.
    pub fn start(&mut self, start: impl FnOnce(&mut Context<'_, Start>)) {
        if self.core.me == Pe(0) && !self.core.checkpoints.is_restart {
            start(&mut Context::start(&mut self.core));
        }
    }

    /// Runs the entry method of the next message.
    ///
    /// # Errors
    /// The first thing that went wrong, in an earlier step or in a letter.
    #[inline]
    pub fn step(&mut self) -> Result<Step, ChareError> {
        loop {
            if let Some(failure) = &self.core.ending.failure {
                return Err(match failure {
                    ChareError::Stalled { .. } => self.stalled(),
                    other => other.clone(),
                });
            }
            if self.core.ending.value.is_some() {
                return Ok(Step::Ended);
            }
            if let Some((array, priority)) = self.core.ready.pop() {
                if self.arrays[array.0 as usize].run(&mut self.core, array, priority) {
                    return Ok(Step::Ran(array));
                }
                continue;
            }
            if self.is_renewed() {
                return Ok(Step::Renewed);
            }
            if self.core.ready.parking.held() > 0 {
                return Ok(Step::Idle);
            }
            // What this element reports may be the last that the first element waits for, which is this one perhaps.
            if !self.core.report_idle() {
                return Ok(Step::Idle);
            }
        }
    }

    /// The error of a program that can never end, with what chares of this element wait for.
    pub fn stalled(&self) -> ChareError {
        let of = |(array, chares): (ArrayId, &dyn AnyArray)| {
            let roster = self.core.roster(array);
            let in_words =
                move |(number, waits)| format!("{}{} waits for {waits}", roster.name, roster.shape.index(number));
            chares.waits(&self.core, array).into_iter().map(in_words).collect::<Vec<String>>()
        };
        let arrays = (0..).map(ArrayId).zip(self.arrays.iter().map(Box::as_ref));
        let mut waiting: Vec<String> = arrays.flat_map(of).collect();
        let more = waiting.len().saturating_sub(TOLD_MAX);
        waiting.truncate(TOLD_MAX);
        waiting.extend((more > 0).then(|| format!("and {more} more")));
        let waiting =
            if waiting.is_empty() { String::new() } else { format!(" On this element {}.", waiting.join("; ")) };
        ChareError::Stalled { elements: self.core.elements.count(), waiting }
    }

    /// A letter of another element has come.
    ///
    /// # Errors
    /// If it is not what an element sends.
    pub fn receive(&mut self, from: Pe, letter: &[u8]) -> Result<(), ChareError> {
        let mut rest = letter;
        let wrong = |why| ChareError::Letter { from, why };
        while let Some((head, body)) = record::next(&mut rest).map_err(wrong)? {
            match head.kind {
                Kind::Move => self.on_move(from, head, body)?,
                _ => self.core.on_record(from, head, body)?,
            }
        }
        self.obey();
        Ok(())
    }

    /// Chares go where a balancer has ordered them to.
    fn obey(&mut self) {
        let Some(orders) = self.core.transit.new_orders() else { return };
        for ((array, number), to) in orders {
            if let Some(Place::Here { slot }) = self.core.roster(array).place(number) {
                self.arrays[array.0 as usize].obey(&mut self.core, array, slot, to);
            }
        }
        self.core.tell_obeyed();
    }

    /// Has that balancer move chares from now on. Every element is told so, after its clock was set.
    pub fn set_balancer(&mut self, balancer: &'static Balancer) {
        self.core.set_balancer(balancer);
    }

    /// Whether the element's owner is to [`charge`](Element::charge) what entry methods take, and to [`settle`](Element::settle) it.
    pub fn is_measured(&self) -> bool {
        self.core.balancing.meter.is_some()
    }

    /// The step before took so long.
    pub fn charge(&mut self, ns: u64) {
        if let Some(meter) = &mut self.core.balancing.meter {
            meter.charge(ns);
        }
    }

    /// The step before took so long for so many floating-point operations, which says how fast this element is.
    pub fn charge_work(&mut self, ns: u64, flops: f64) {
        if let Some(meter) = &mut self.core.balancing.meter {
            meter.charge(ns);
            meter.worked(ns, flops);
        }
    }

    /// Only that part of what was charged since the last time was time of this processor.
    pub fn settle(&mut self, part: f64) {
        if let Some(meter) = &mut self.core.balancing.meter {
            meter.settle(part);
        }
    }

    /// When [`Element::balance`] is to be called; never but at the first element.
    pub fn balance_due(&self) -> Option<Time> {
        self.core.balance_due()
    }

    /// Looks whether moving chares pays, if that is due.
    pub fn balance(&mut self) {
        self.core.balance();
        self.obey();
    }

    /// How many chares the balancer has ordered to move. The first element knows.
    pub fn moved(&self) -> u64 {
        self.core.balancing.decision.as_ref().map_or(0, |decision| decision.ordered)
    }

    fn on_move(&mut self, from: Pe, head: Head, body: &[u8]) -> Result<(), ChareError> {
        self.core.quiescence.counts.came += 1;
        self.core.check_array(from, head)?;
        self.arrays[head.array as usize].arrive(&mut self.core, ArrayId(head.array), from, head.number, body)
    }

    /// The next letter that is to go, and where to. What was sent meanwhile to one element shares letters, so its owner takes
    /// them after several steps, or before it waits.
    pub fn take_letter(&mut self) -> Option<(Pe, Vec<u8>)> {
        self.core.outbound.take()
    }

    pub fn has_letters(&self) -> bool {
        !self.core.outbound.is_empty()
    }

    /// What [`Context::now`] tells. Without one the time is 0.
    pub fn set_clock(&mut self, clock: impl Fn() -> Time + 'static) {
        self.core.clock = Rc::new(clock);
    }

    /// The program fails if all is quiet now and no chare waits for that: it can never end then. For the owner of the first element
    /// when that has had nothing to do for long; other elements do nothing.
    pub fn check_stall(&mut self) {
        if self.core.me == Pe(0) {
            self.core.check_stall();
        }
    }

    /// Tells all others why this element ends, so that they do not take it for lost: letters that its owner sends before it ends.
    pub fn tell_failure(&mut self, failure: &ChareError) {
        self.core.tell_failure(failure);
    }

    /// How many messages wait here.
    pub fn waiting(&self) -> usize {
        self.core.ready.len()
    }

    /// Takes the work that entry methods have charged since the last time, floating-point operations.
    pub fn take_charge(&mut self) -> f64 {
        std::mem::take(&mut self.core.account.flops)
    }

    /// From now on [`Element::take_ran`] tells which entry method a step has run, which costs some time in each step.
    pub fn name_entry_methods(&mut self) {
        self.core.account.name();
    }

    /// What the last step has run, if entry methods are named.
    pub fn take_ran(&mut self) -> Option<Ran> {
        self.core.account.take_ran()
    }

    /// The names of the entry methods that have run, by number.
    pub fn entry_methods(&self) -> &[String] {
        &self.core.account.methods
    }

    /// The index of a chare.
    ///
    /// # Panics
    /// If there is none.
    pub fn index_of(&self, array: ArrayId, chare: u32) -> Index {
        self.core.roster(array).shape.index(chare)
    }

    /// The value with which the program ended.
    pub fn end(&self) -> Option<&Value> {
        self.core.ending.value.as_ref()
    }

    /// The name of an array.
    ///
    /// # Panics
    /// If there is none.
    pub fn array_name(&self, array: ArrayId) -> &str {
        &self.core.roster(array).name
    }
}

impl fmt::Debug for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Element").field("me", &self.core.me).field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}
