//! Runs an element: its entry methods in line, and between them what its connections bring and take.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridloom_base::time::SECOND_NS;
use gridloom_base::{Time, say};
use gridloom_chare::balance::Balancer;
use gridloom_chare::{ChareError, Element, Step, Value};
use gridloom_net::jobs::processor_time;
use gridloom_process::ProcessWorld;

use super::kept::{Kept, Origin};
use super::links::{Early, Links};
use super::memory::is_loss;
use super::places::Places;
use super::run::Program;
use super::timeline::{Timeline, monotonic_ns};
use crate::Error;

/// Entry methods run for about so long before the connections are looked at, which costs a microsecond.
const SLICE: Duration = Duration::from_micros(50);
/// Once a slice has taken so long, what it sends to other elements does not wait for its end: they may compute meanwhile. Shorter, each
/// letter would hold fewer messages.
const LINGER: Duration = Duration::from_micros(1);
/// Most entry methods of a slice.
const SLICE_STEPS_MAX: u32 = 4096;
/// An element with nothing to do for so long asks whether any other has.
const STALL_NS: u64 = SECOND_NS;

/// Runs the program's only element.
pub(super) fn alone(program: &Program<'_>) -> Result<Value, Error> {
    let places = Places { number: 0, elements: vec![(String::new(), 0)], ..Places::default() };
    let mut element = Element::new(places.me(), Arc::new(places.elements()));
    let began = (Instant::now(), std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default());
    element.set_clock(move || Time((began.1 + began.0.elapsed()).as_nanos() as u64));
    program(&mut element)?;
    loop {
        match element.step()? {
            Step::Ran(_) => {}
            Step::Idle => return Err(element.stalled().into()),
            Step::Ended => return Ok(element.end().cloned().unwrap_or_default()),
        }
    }
}

/// Runs one of several elements: the value with which the program ended, and how many chares the load balancer moved.
pub(super) fn one_of(
    world: &mut dyn ProcessWorld,
    places: Places,
    program: &Program<'_>,
) -> Result<(Value, u64), Error> {
    let mut kept = Kept::of(&places)?;
    if !world.is_simulated() {
        places.check_connections()?;
    }
    world.listen(places.port(places.me()))?;
    let mut early = Early::new();
    loop {
        let mut element = Element::new(places.me(), Arc::new(places.elements()));
        let mut links = Links::new(places.in_epoch(kept.epoch()), kept.epoch(), early);
        let outcome = links.connect(world, || kept.may_come());
        let outcome = outcome.and_then(|()| run(world, &mut element, &mut links, &places, &mut kept, program));
        if let (Err(why), Kept::Memory(memory)) = (&outcome, &mut kept)
            && is_loss(why)
        {
            let begins_again = memory.begin_again(world)?;
            if (begins_again || element.end().is_some())
                && let Some(timeline) = links.timeline.take()
                && let Err(error) = timeline.leave(&element)
            {
                // What is lost of the timeline is no reason to lose the run.
                say!("gridloom: {error}");
            }
            match begins_again {
                true => {
                    early = links.close(world);
                    continue;
                }
                // All others know the value too.
                false if element.end().is_some() => {
                    return Ok((element.end().cloned().unwrap_or_default(), element.moved()));
                }
                false => {}
            }
        }
        match &outcome {
            Ok(()) => {}
            Err(Error::Chares(failure)) => element.tell_failure(failure),
            Err(other) => element.tell_failure(&ChareError::Failed(other.to_string())),
        }
        // If the connections fail now, the first error is the one to tell.
        let finished = links.finish(world, &mut element);
        let left = links.timeline.take().map_or(Ok(()), |timeline| timeline.leave(&element));
        outcome.and(finished).and(left)?;
        return Ok((element.end().cloned().unwrap_or_default(), element.moved()));
    }
}

/// Makes the arrays of an element that is connected with all others, and runs it to its end.
fn run(
    world: &mut dyn ProcessWorld,
    element: &mut Element,
    links: &mut Links,
    places: &Places,
    kept: &mut Kept,
    program: &Program<'_>,
) -> Result<(), Error> {
    let clock = Rc::new(Cell::new(world.now()));
    let began = (Instant::now(), world.now());
    match world.is_simulated() {
        true => element.set_clock({
            let clock = clock.clone();
            move || clock.get()
        }),
        false => element.set_clock(move || began.1 + began.0.elapsed().as_nanos() as u64),
    }
    if links.timeline.is_some() {
        element.name_entry_methods();
    }
    let from = kept.from(world, links, places)?;
    if !matches!(from, Origin::Beginning) {
        element.expect_restart();
    }
    program(element)?;
    element.tell_bound();
    if let Some(name) = &places.balance {
        element.set_balancer(Balancer::named(name).map_err(Error::Input)?);
    }
    kept.begin(world, links, element, &from)?;
    let on_step = |world: &mut dyn ProcessWorld| clock.set(world.now());
    drive(world, element, links, kept, on_step)?;
    kept.end(world, links, element)
}

/// Runs entry methods until the program has ended.
fn drive(
    world: &mut dyn ProcessWorld,
    element: &mut Element,
    links: &mut Links,
    kept: &mut Kept,
    on_step: impl Fn(&mut dyn ProcessWorld),
) -> Result<(), Error> {
    let mut slice = Slice { steps: 1 };
    let mut active_at = world.now();
    loop {
        links.deliver(world, element)?;
        on_step(world);
        element.balance();
        let ran = match world.is_simulated() {
            true => simulated_step(world, element)?,
            false => slice.run(element, links.timeline.as_mut())?,
        };
        kept.run(world, links, element)?;
        // A checkpoint that is complete calls back.
        let ran = if element.waiting() > 0 && matches!(ran, Ran::All { .. }) { Ran::Enough } else { ran };
        links.post(world, element)?;
        let now = world.now();
        let until = match ran {
            Ran::Ended => return Ok(()),
            Ran::Enough => {
                active_at = now;
                Some(Time(0))
            }
            Ran::All { any } => {
                if any {
                    active_at = now;
                }
                let stall = (element.me().0 == 0).then_some(active_at + STALL_NS);
                links.next_due(now).into_iter().chain(stall).chain(element.balance_due()).min()
            }
        };
        let idle_ns = (until != Some(Time(0)) && links.timeline.is_some()).then(monotonic_ns);
        let mut incoming = world.receive(until)?;
        if let (Some(began_ns), Some(timeline)) = (idle_ns, &mut links.timeline) {
            timeline.idled(began_ns);
        }
        if incoming.is_none() && world.now() >= active_at + STALL_NS {
            active_at = world.now();
            element.check_stall();
        }
        while let Some(came) = incoming {
            links.on_incoming(world, came)?;
            incoming = world.arrived()?;
        }
    }
}

/// What came of some steps.
enum Ran {
    /// There may be more to run.
    Enough,
    /// Nothing waits; whether anything has run before.
    All {
        any: bool,
    },
    Ended,
}

/// How many entry methods run between two looks at the connections: as many as take [`SLICE`].
struct Slice {
    steps: u32,
}

impl Slice {
    fn run(&mut self, element: &mut Element, mut timeline: Option<&mut Timeline>) -> Result<Ran, ChareError> {
        let (is_measured, is_observed) = (element.is_measured(), element.is_measured() || timeline.is_some());
        let processor = if is_measured { processor_time() } else { Duration::ZERO };
        let began = Instant::now();
        let (mut last, mut ran, mut is_whole) = (began, Ran::Enough, true);
        let mut last_ns = if timeline.is_some() { monotonic_ns() } else { 0 };
        for step in 0..self.steps {
            match element.step()? {
                Step::Ran(_) if is_observed => {
                    if let Some(timeline) = &mut timeline {
                        last_ns = timeline.ran(last_ns, element.take_ran());
                    }
                    if is_measured {
                        let now = Instant::now();
                        element.charge((now - last).as_nanos() as u64);
                        last = now;
                    }
                }
                Step::Ran(_) => {}
                Step::Idle => {
                    ran = Ran::All { any: step > 0 };
                    break;
                }
                Step::Ended => return Ok(Ran::Ended),
            }
            if element.has_letters() && began.elapsed() >= LINGER {
                is_whole = false;
                break;
            }
        }
        if is_measured && last > began {
            // Other programs may have had the processor meanwhile.
            let own = processor_time().saturating_sub(processor);
            element.settle((own.as_secs_f64() / (last - began).as_secs_f64()).min(1.0));
        }
        if matches!(ran, Ran::Enough) && is_whole {
            self.fit(began.elapsed());
        }
        Ok(ran)
    }

    fn fit(&mut self, taken: Duration) {
        if taken < SLICE / 2 {
            self.steps = (self.steps * 2).min(SLICE_STEPS_MAX);
        } else if taken > SLICE {
            self.steps = (self.steps / 2).max(1);
        }
    }
}

/// Runs one entry method, and lets its time pass in simulation.
fn simulated_step(world: &mut dyn ProcessWorld, element: &mut Element) -> Result<Ran, Error> {
    let began = processor_time();
    let array = match element.step()? {
        Step::Ran(array) => array,
        Step::Idle => return Ok(Ran::All { any: false }),
        Step::Ended => return Ok(Ran::Ended),
    };
    let taken = processor_time().saturating_sub(began);
    let at = world.now();
    let flops = match element.take_charge() {
        flops if flops > 0.0 => {
            world.compute(flops)?;
            flops
        }
        _ => world.computed(element.array_name(array), taken.as_nanos() as u64)?,
    };
    element.charge_work(world.now().0 - at.0, flops);
    element.settle(1.0);
    Ok(Ran::Enough)
}
