//! A processing element: its chares, and the scheduler that runs their entry methods.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use gridloom_base::Time;

use super::array::{AnyArray, Array};
use super::balance::Balancer;
use super::chare::{Chare, Context, Start};
use super::contribution::{Combine, Reducer};
use super::core::Core;
use super::error::ChareError;
use super::id::{ArrayId, Index, Pe};
use super::location_table::{Location, LocationTable};
use super::mail::Mail;
use super::packing::Packing;
use super::placement::{Elements, Placement, PlacementError};
use super::proxy::Proxy;
use super::record::{self, Kind, RecordHeader};
use super::reduction::Reduction;
use super::shape::Shape;
use super::step_report::EntryMethodRun;
use super::value::Value;

/// Maximum number of waiting chares named in the error of a program that can never end.
const STALLED_CHARES_MAX: usize = 8;

/// The result of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A chare of that array has run.
    Ran(ArrayId),
    /// No message is waiting.
    Idle,
    /// The program has ended.
    Ended,
    /// The element has ended, and the program continues with another number of elements.
    Resized,
}

/// One of the elements of a program. All of them create the same arrays in the same order.
pub struct Element {
    pub(crate) core: Core,
    pub(crate) arrays: Vec<Box<dyn AnyArray>>,
}

impl Element {
    /// # Panics
    /// Panics if `me` is not one of the elements.
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

    /// Creates an array. `make` creates the chares that begin on this element. `name` is used in errors and traces.
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

    /// Like [`Element::array`], but the chares can move.
    ///
    /// # Errors
    /// See [`Element::array`].
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
        let mut roster = LocationTable::new(name.into(), shape.clone(), packing.is_some());
        let put = |number, element| roster.begin_at(number, element, me);
        let placed = placement.for_each_chare(&shape, &elements, put);
        let at_border = placed.map_err(|wrong| match wrong {
            PlacementError::Element(index, element) => {
                ChareError::NoSuchElement { array: name.into(), index, element, count: elements.count() }
            }
            PlacementError::Chare(index) => {
                ChareError::NoSuchChare { array: name.into(), index, has: shape.in_words() }
            }
        })?;
        roster.set_border(at_border);
        let chares = roster.natives().iter().map(|number| Some(make(shape.index(*number)))).collect();
        let natives = roster.natives().len() as u32;
        self.core.reductions.push(Reduction::new(natives));
        self.core.rosters.push(roster);
        self.core.mails.push(Box::new(mail));
        self.arrays.push(Box::new(Array { chares, initial_count: natives, packing }));
        Ok(Proxy::new(array))
    }

    /// Reports whether a chare exchanges messages with other sites, according to its array's placement.
    pub fn is_at_border(&self, array: ArrayId, index: &Index) -> bool {
        self.core.roster(array).is_at_border(index)
    }

    /// Returns the element of a chare as far as this element knows; before the first message, the one where it begins.
    /// `None` if the array has no such index.
    pub fn element_of(&self, array: ArrayId, index: &Index) -> Option<Pe> {
        let roster = self.core.roster(array);
        match roster.location(roster.shape.number(index)?)? {
            Location::Here { .. } => Some(self.core.me),
            Location::At(element) => Some(element),
        }
    }

    /// Registers a user-defined reducer.
    ///
    /// # Panics
    /// Panics beyond 65,536 reducers.
    pub fn reducer(&mut self, combine: Combine) -> Reducer {
        let number = u16::try_from(self.core.reducers.len()).expect("at most 65,536 reducers");
        self.core.reducers.push(combine);
        Reducer::Own(number)
    }

    /// Limits the bytes of messages from other elements that wait here, plus one batch and one message of each. Set
    /// the same limit on every element.
    pub fn limit_mailbox(&mut self, bytes: u64) {
        self.core.outbound.credits.bound(bytes);
    }

    /// Makes the other elements check that they have the same limit. The owner calls this once the program has created its arrays.
    pub fn announce_mailbox_bound(&mut self) {
        self.core.announce_mailbox_bound();
    }

    /// Returns the bytes of messages from other elements that wait here, and of messages for others that wait here for credit.
    pub fn waiting_bytes(&self) -> (u64, u64) {
        (self.core.outbound.credits.here(), self.core.outbound.credits.all_unsent())
    }

    /// Runs `start` on the first element, before any message, unless the program was restarted from a checkpoint.
    pub fn start(&mut self, start: impl FnOnce(&mut Context<'_, Start>)) {
        if self.core.me == Pe(0) && !self.core.checkpoints.is_restarted() {
            start(&mut Context::start(&mut self.core));
        }
    }

    /// Runs the entry method of the next message.
    ///
    /// # Errors
    /// Returns the first error, from an earlier step or from a received batch.
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
            if self.is_resized() {
                return Ok(Step::Resized);
            }
            if self.core.ready.parking.held() > 0 {
                return Ok(Step::Idle);
            }
            // This element's report may be the last that the first element waits for, and this may be the first element.
            if !self.core.report_idle() {
                return Ok(Step::Idle);
            }
        }
    }

    /// Returns the error of a program that can never end, with what the chares of this element wait for.
    pub fn stalled(&self) -> ChareError {
        let of = |(array, chares): (ArrayId, &dyn AnyArray)| {
            let roster = self.core.roster(array);
            let in_words =
                move |(number, waits)| format!("{}{} waits for {waits}", roster.name, roster.shape.index(number));
            chares.waits(&self.core, array).into_iter().map(in_words).collect::<Vec<String>>()
        };
        let arrays = (0..).map(ArrayId).zip(self.arrays.iter().map(Box::as_ref));
        let mut waiting: Vec<String> = arrays.flat_map(of).collect();
        let more = waiting.len().saturating_sub(STALLED_CHARES_MAX);
        waiting.truncate(STALLED_CHARES_MAX);
        waiting.extend((more > 0).then(|| format!("and {more} more")));
        let waiting =
            if waiting.is_empty() { String::new() } else { format!(" On this element {}.", waiting.join("; ")) };
        ChareError::Stalled { elements: self.core.elements.count(), waiting }
    }

    /// Handles a batch from another element.
    ///
    /// # Errors
    /// Returns an error if an element could not have sent it.
    pub fn receive(&mut self, from: Pe, letter: &[u8]) -> Result<(), ChareError> {
        let mut rest = letter;
        let wrong = |why| ChareError::Batch { from, why };
        while let Some((head, body)) = record::next(&mut rest).map_err(wrong)? {
            match head.kind {
                Kind::Move => self.on_move(from, head, body)?,
                _ => self.core.on_record(from, head, body)?,
            }
        }
        self.carry_out_orders();
        Ok(())
    }

    /// Moves chares as a balancer has ordered.
    fn carry_out_orders(&mut self) {
        let Some(orders) = self.core.transit.new_orders() else { return };
        for ((array, number), to) in orders {
            if let Some(Location::Here { slot }) = self.core.roster(array).location(number) {
                self.arrays[array.0 as usize].migrate(&mut self.core, array, slot, to);
            }
        }
        self.core.tell_obeyed();
    }

    /// Lets a balancer move chares from now on. Call it on every element, after setting its clock.
    pub fn set_balancer(&mut self, balancer: &'static Balancer) {
        self.core.set_balancer(balancer);
    }

    /// Reports whether the owner must call [`charge`](Element::charge) for entry methods and [`settle`](Element::settle).
    pub fn is_measured(&self) -> bool {
        self.core.balancing.meter.is_some()
    }

    /// Records the time of the previous step.
    pub fn charge(&mut self, ns: u64) {
        if let Some(meter) = &mut self.core.balancing.meter {
            meter.charge(ns);
        }
    }

    /// Records the time and the floating-point operations of the previous step, from which this element's speed is computed.
    pub fn charge_work(&mut self, ns: u64, flops: f64) {
        if let Some(meter) = &mut self.core.balancing.meter {
            meter.charge(ns);
            meter.worked(ns, flops);
        }
    }

    /// Scales the time charged since the last call by `part`, the fraction that was spent on this processor.
    pub fn settle(&mut self, part: f64) {
        if let Some(meter) = &mut self.core.balancing.meter {
            meter.settle(part);
        }
    }

    /// Returns when to call [`Element::balance`]; always `None` except on the first element.
    pub fn balance_due(&self) -> Option<Time> {
        self.core.balance_due()
    }

    /// Checks whether moving chares pays off, if that is due.
    pub fn balance(&mut self) {
        self.core.balance();
        self.carry_out_orders();
    }

    /// Returns the number of chares that the balancer has ordered to move. Only the first element knows it.
    pub fn moved(&self) -> u64 {
        self.core.balancing.decision.as_ref().map_or(0, |decision| decision.ordered)
    }

    fn on_move(&mut self, from: Pe, head: RecordHeader, body: &[u8]) -> Result<(), ChareError> {
        self.core.quiescence.counts.received += 1;
        self.core.check_array(from, head)?;
        self.arrays[head.array as usize].arrive(&mut self.core, ArrayId(head.array), from, head.number, body)
    }

    /// Takes the next batch to send, with its destination. Messages to one element share a batch, so the owner takes
    /// batches after several steps, or before it waits.
    pub fn take_batch(&mut self) -> Option<(Pe, Vec<u8>)> {
        self.core.outbound.take()
    }

    pub fn has_letters(&self) -> bool {
        !self.core.outbound.is_empty()
    }

    /// Sets the clock for [`Context::now`]. Without one, the time is 0.
    pub fn set_clock(&mut self, clock: impl Fn() -> Time + 'static) {
        self.core.clock = Rc::new(clock);
    }

    /// Fails the program if it is quiet now and no chare waits for that, because it can then never end. The owner of
    /// the first element calls this after a long idle time. On other elements it does nothing.
    pub fn check_stall(&mut self) {
        if self.core.me == Pe(0) {
            self.core.check_stall();
        }
    }

    /// Notifies all other elements why this element ends, so that they do not consider it lost. The owner must send
    /// these batches before it ends.
    pub fn broadcast_failure(&mut self, failure: &ChareError) {
        self.core.broadcast_failure(failure);
    }

    /// Returns the number of messages that wait here.
    pub fn waiting(&self) -> usize {
        self.core.ready.len()
    }

    /// Returns the work that entry methods have charged since the last call, in floating-point operations.
    pub fn take_charged_flops(&mut self) -> f64 {
        std::mem::take(&mut self.core.account.flops)
    }

    /// Makes [`Element::take_entry_method`] report the entry method of each step from now on, which costs some time per step.
    pub fn name_entry_methods(&mut self) {
        self.core.account.name();
    }

    /// Returns the entry method that the last step ran, if entry methods are named.
    pub fn take_entry_method(&mut self) -> Option<EntryMethodRun> {
        self.core.account.take_ran()
    }

    /// Returns the names of the entry methods that have run, by number.
    pub fn entry_methods(&self) -> &[String] {
        &self.core.account.methods
    }

    /// Returns the index of a chare.
    ///
    /// # Panics
    /// Panics if there is no such chare.
    pub fn index_of(&self, array: ArrayId, chare: u32) -> Index {
        self.core.roster(array).shape.index(chare)
    }

    /// Returns the value with which the program ended.
    pub fn end(&self) -> Option<&Value> {
        self.core.ending.value.as_ref()
    }

    /// Returns the name of an array.
    ///
    /// # Panics
    /// Panics if there is no such array.
    pub fn array_name(&self, array: ArrayId) -> &str {
        &self.core.roster(array).name
    }
}

impl fmt::Debug for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Element").field("me", &self.core.me).field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}
