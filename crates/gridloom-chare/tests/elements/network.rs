//! Elements that run in turns, and the batches between them. A seed decides which element runs, which batch arrives,
//! and which is slow.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use gridloom_base::{SplitMix64, Time};

use gridloom_chare::{ChareError, Element, Elements, Pe, Step, Value};

struct OnItsWay {
    from: Pe,
    to: Pe,
    letter: Vec<u8>,
    /// Many other batches overtake it.
    is_slow: bool,
}

/// How often a slow batch is skipped before it is delivered.
const SLOWNESS: usize = 100;

pub struct Network {
    pub elements: Vec<Element>,
    on_their_way: Vec<OnItsWay>,
    random: SplitMix64,
    ended: Vec<bool>,
    clock: Rc<Cell<Time>>,
    /// Advance of the elements' clock per step. A larger value makes balancers check more often.
    pub tick_ns: u64,
    /// The parts that all elements saved in the last checkpoint.
    pub saved: Vec<Vec<u8>>,
    /// All elements are lost after this checkpoint.
    pub lose_after: Option<u64>,
    /// Set when all elements have ended and the program continues with this number of elements.
    pub renewed: Option<u32>,
    /// The bytes waiting at an element must never exceed this.
    pub mailbox_bytes_max: Option<u64>,
}

impl Network {
    pub fn new(elements: &Arc<Elements>, seed: u64, mut make: impl FnMut(&mut Element)) -> Network {
        let clock = Rc::new(Cell::new(Time(0)));
        let made = elements.all().map(|me| {
            let mut element = Element::new(me, elements.clone());
            let clock = clock.clone();
            element.set_clock(move || clock.get());
            make(&mut element);
            element
        });
        let elements: Vec<Element> = made.collect();
        let (ended, saved) = (vec![false; elements.len()], vec![Vec::new(); elements.len()]);
        Network {
            elements,
            on_their_way: Vec::new(),
            random: SplitMix64::new(seed),
            ended,
            clock,
            tick_ns: 1_000_000,
            saved,
            lose_after: None,
            renewed: None,
            mailbox_bytes_max: None,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }

    /// Runs until all elements have ended. Returns the program's result; nothing if it continues with another number of elements.
    pub fn run(&mut self) -> Result<Value, ChareError> {
        let mut idle = 0;
        while !self.ended.iter().all(|ended| *ended) {
            if !self.on_their_way.is_empty() && self.below(3) == 0 {
                let at = self.below(self.on_their_way.len());
                if !self.on_their_way[at].is_slow || self.below(SLOWNESS) == 0 {
                    let OnItsWay { from, to, letter, .. } = self.on_their_way.swap_remove(at);
                    self.elements[to.0 as usize].receive(from, &letter)?;
                    let here = self.elements[to.0 as usize].waiting_bytes().0;
                    assert!(self.mailbox_bytes_max.is_none_or(|max| here <= max), "{here} bytes wait at {to:?}");
                }
                idle = 0;
            }
            // A program that makes progress must not be reported as stalled.
            if self.below(30) == 0 {
                self.elements[0].check_stall();
            }
            let at = self.below(self.elements.len());
            let step = self.elements[at].step()?;
            let taken_ns = self.below(1000) as u64;
            self.elements[at].charge(taken_ns);
            self.elements[at].settle(0.5);
            self.clock.set(self.clock.get() + self.tick_ns);
            self.elements[0].balance();
            self.ended[at] |= matches!(step, Step::Ended | Step::Resized);
            if let Some((number, bytes)) = self.elements[at].take_part()? {
                self.saved[at] = bytes;
                self.elements[at].saved(number);
            }
            if let Some(number) = self.elements[at].take_complete() {
                if self.lose_after == Some(number) {
                    return Ok(Value::Nothing);
                }
                match self.elements[at].saves_for() {
                    Some(elements) => {
                        self.renewed = Some(elements);
                        self.elements[at].renew();
                    }
                    None => self.elements[at].resume(),
                }
            }
            let is_idle = matches!(step, Step::Idle | Step::Ended | Step::Resized) && self.on_their_way.is_empty();
            // Batches sometimes wait until there are more records.
            if step != Step::Idle && self.below(2) == 0 {
                continue;
            }
            let from = self.elements[at].me();
            while let Some((to, letter)) = self.elements[at].take_batch() {
                let is_slow = self.below(10) == 0;
                self.on_their_way.push(OnItsWay { from, to, letter, is_slow });
                idle = 0;
            }
            idle = if is_idle { idle + 1 } else { 0 };
            assert!(idle < 100 * self.elements.len() + 100, "all elements wait for ever");
        }
        Ok(self.elements[0].end().cloned().unwrap_or_default())
    }
}
