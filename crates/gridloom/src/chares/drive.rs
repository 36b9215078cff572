//! Runs an element: its entry methods, one after another, and between them its connections.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridloom_base::time::SECOND_NS;
use gridloom_base::{Time, stderr_line};
use gridloom_chare::balance::Balancer;
use gridloom_chare::{ChareError, Element, Pe, Step, Value};
use gridloom_net::processor_clock::processor_time;
use gridloom_process::ProcessWorld;

use super::checkpoint_store::CheckpointStore;
use super::checkpoints::Origin;
use super::links::{Early, Links};
use super::membership::Membership;
use super::memory::is_loss;
use super::placement::{ElementPlacement, check_connections};
use super::run_folder::Generation;
use super::timeline::{Timeline, monotonic_ns};
use crate::Error;

/// Approximate time for which entry methods run before the connections are polled, which costs a microsecond.
const SLICE: Duration = Duration::from_micros(50);
/// Once a slice has taken this long, its messages to other elements are sent without waiting for its end, so that those
/// elements can compute meanwhile. With a shorter time, batches would hold fewer messages.
const LINGER: Duration = Duration::from_micros(1);
/// Maximum number of entry methods in a slice.
const SLICE_STEPS_MAX: u32 = 4096;
/// An element that has been idle for this long asks whether any other has work.
const STALL_NS: u64 = SECOND_NS;

/// Makes the arrays of an element.
pub(super) type Program<'a> = dyn Fn(&mut Element) -> Result<(), Error> + 'a;

/// Runs the program's only element.
pub(super) fn alone(program: &Program<'_>) -> Result<Value, Error> {
    let places = ElementPlacement { number: 0, elements: vec![(String::new(), 0)], ..ElementPlacement::default() };
    let mut element = Element::new(places.me(), Arc::new(places.elements()));
    let began = (Instant::now(), std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default());
    element.set_clock(move || Time((began.1 + began.0.elapsed()).as_nanos() as u64));
    program(&mut element)?;
    loop {
        match element.step()? {
            Step::Ran(_) => {}
            Step::Idle => return Err(element.stalled().into()),
            // A single element never changes the number of elements.
            Step::Ended | Step::Resized => return Ok(element.end().cloned().unwrap_or_default()),
        }
    }
}

/// How an element ended.
pub(super) enum ElementEnd {
    /// The program has ended with that value; the load balancer has moved `moved` chares.
    Ended { value: Value, moved: u64 },
    /// The program continues without this element.
    Left,
}

/// Runs one of several elements, for as long as it is part of the program.
pub(super) fn one_of(
    world: &mut dyn ProcessWorld,
    places: ElementPlacement,
    course: &Membership,
    program: &Program<'_>,
) -> Result<ElementEnd, Error> {
    let me = places.me();
    let mut generation = course.first(&places)?;
    let mut kept = CheckpointStore::new(&places.in_generation(&generation), course, &generation)?;
    world.listen(places.port(me))?;
    let (mut early, mut moved, mut renewed_at) = (Early::new(), 0, None);
    loop {
        let now =
            Surroundings { places: &places.in_generation(&generation), all: &places, course, generation: &generation };
        let mut element = Element::new(me, Arc::new(now.places.elements()));
        let mut links = Links::new(now.places.clone(), generation.epoch, early);
        let outcome = links.connect(world, || course.may_still_connect(generation.epoch));
        let outcome =
            outcome.and_then(|()| run(world, &mut element, &mut links, &mut kept, now, &mut renewed_at, program));
        if element.is_resized() {
            renewed_at = Some((Instant::now(), generation.elements.len()));
            moved += element.moved();
        }
        let next = match &outcome {
            Ok(Outcome::Resized) => {
                links.finish(world, &mut element)?;
                let next = course.await_next(world, generation.epoch)?;
                Some(next.ok_or_else(|| ChareError::Failed(NOT_RESIZED.into()))?)
            }
            Err(why) if is_loss(why) && kept.on_loss() => course.await_next(world, generation.epoch)?,
            // If others have already restarted, all elements have saved.
            Err(why) if is_loss(why) => course.next(generation.epoch)?,
            Ok(Outcome::Ended) | Err(_) => None,
        };
        let has_ended = element.end().is_some();
        let is_lost = matches!(&outcome, Err(why) if is_loss(why));
        if (next.is_some() || (is_lost && has_ended && matches!(kept, CheckpointStore::Memory(_))))
            && let Some(timeline) = links.timeline.take()
            && let Err(error) = timeline.write(&element)
        {
            // A gap in the timeline is no reason to fail the run.
            stderr_line!("gridloom: {error}");
        }
        if let Some(next) = next {
            early = links.close(world);
            if me == Pe(0) && next.elements.len() > generation.elements.len() {
                course.wake(world, &places, generation.elements.len())?;
            }
            let is_new = next.since != generation.since;
            let leaves = next.is_without(me, generation.epoch);
            generation = next;
            if leaves {
                match course.await_return(world, (me, generation.epoch), &mut early)? {
                    Some(next) => generation = next,
                    None => return Ok(ElementEnd::Left),
                }
            }
            if is_new {
                let places = places.in_generation(&generation);
                kept = CheckpointStore::new(&places, course, &generation)?;
                if !world.is_simulated() {
                    // The number of elements changes only where each element is a process.
                    check_connections(std::slice::from_ref(&places))?;
                }
            }
            continue;
        }
        // All other elements know the value too.
        if is_lost && has_ended && matches!(kept, CheckpointStore::Memory(_)) {
            return Ok(ended(&element, moved));
        }
        match &outcome {
            Ok(_) => {}
            Err(Error::Chares(failure)) => element.broadcast_failure(failure),
            Err(other) => element.broadcast_failure(&ChareError::Failed(other.to_string())),
        }
        // If the connections fail now, report the first error.
        let finished = links.finish(world, &mut element);
        let left = links.timeline.take().map_or(Ok(()), |timeline| timeline.write(&element));
        outcome.and(finished).and(left)?;
        if me == Pe(0) {
            course.end_all(world, &places, &generation)?;
        }
        return Ok(ended(&element, moved));
    }
}

/// The error of an element that ended with the others for a change of their number that did not take place.
const NOT_RESIZED: &str = "the elements have ended to continue as a different number of elements, but the command \
     that starts them does not: it has ended, or another element has failed";

fn ended(element: &Element, moved_before: u64) -> ElementEnd {
    ElementEnd::Ended { value: element.end().cloned().unwrap_or_default(), moved: moved_before + element.moved() }
}

/// An element's surroundings: its generation and the other elements.
#[derive(Clone, Copy)]
struct Surroundings<'a> {
    /// The places of this generation.
    places: &'a ElementPlacement,
    /// The places that the element was given when it started.
    all: &'a ElementPlacement,
    course: &'a Membership,
    generation: &'a Generation,
}

/// How the element of a generation ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Together with the program.
    Ended,
    /// The program continues with another number of elements.
    Resized,
}

/// Makes the arrays of an element that is connected to all others, and runs it to its end.
fn run(
    world: &mut dyn ProcessWorld,
    element: &mut Element,
    links: &mut Links,
    kept: &mut CheckpointStore,
    now: Surroundings<'_>,
    renewed_at: &mut Option<(Instant, usize)>,
    program: &Program<'_>,
) -> Result<Outcome, Error> {
    let Surroundings { places, all, course, generation } = now;
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
    let from = kept.origin(world, links, (places, course), generation)?;
    if !matches!(from, Origin::Beginning) {
        element.set_restarted();
    }
    program(element)?;
    element.announce_mailbox_bound();
    if let Some(name) = &places.balance {
        element.set_balancer(Balancer::by_name(name).map_err(Error::Input)?);
    }
    course.let_resize(all, element);
    kept.begin(world, links, element, &from, generation)?;
    if let Some((at, before)) = renewed_at.take()
        && element.me() == Pe(0)
        && !world.is_simulated()
    {
        let (now, ms) = (generation.elements.len(), at.elapsed().as_secs_f64() * 1e3);
        // If an element was lost before the change, the number of elements is the same as before.
        if now != before {
            stderr_line!(
                "gridloom: the program continues with {now} elements instead of {before}, {ms:.1} ms after all had \
                    saved"
            );
        }
    }
    let on_step = |world: &mut dyn ProcessWorld| clock.set(world.now());
    let outcome = drive(world, element, links, kept, now, on_step)?;
    if outcome == Outcome::Ended {
        kept.end(world, links, element)?;
    }
    Ok(outcome)
}

/// Runs entry methods until the program has ended, or continues with another number of elements.
fn drive(
    world: &mut dyn ProcessWorld,
    element: &mut Element,
    links: &mut Links,
    kept: &mut CheckpointStore,
    now: Surroundings<'_>,
    on_step: impl Fn(&mut dyn ProcessWorld),
) -> Result<Outcome, Error> {
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
        kept.run(world, links, element, (now.all, now.course), now.generation)?;
        // When a checkpoint is complete, it calls back or ends the element.
        let goes_on = element.waiting() > 0 || element.is_resized();
        let ran = if goes_on && matches!(ran, SliceResult::Drained { .. }) { SliceResult::More } else { ran };
        links.send_all(world, element)?;
        let at = world.now();
        let until = match ran {
            SliceResult::Ended => return Ok(Outcome::Ended),
            SliceResult::Renewed => return Ok(Outcome::Resized),
            SliceResult::More => {
                active_at = at;
                Some(Time(0))
            }
            SliceResult::Drained { any } => {
                if any {
                    active_at = at;
                }
                let stall = (element.me().0 == 0).then_some(active_at + STALL_NS);
                links.next_due(at).into_iter().chain(stall).chain(element.balance_due()).min()
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
            incoming = world.try_receive()?;
        }
    }
}

/// The result of running some entry methods.
enum SliceResult {
    /// More may be queued.
    More,
    /// The queue is empty; `any` is true if something has run before.
    Drained {
        any: bool,
    },
    Ended,
    Renewed,
}

/// The number of entry methods between two polls of the connections: as many as take [`SLICE`].
struct Slice {
    steps: u32,
}

impl Slice {
    fn run(&mut self, element: &mut Element, mut timeline: Option<&mut Timeline>) -> Result<SliceResult, ChareError> {
        let (is_measured, is_observed) = (element.is_measured(), element.is_measured() || timeline.is_some());
        let processor = if is_measured { processor_time() } else { Duration::ZERO };
        let began = Instant::now();
        let (mut last, mut ran, mut is_whole) = (began, SliceResult::More, true);
        let mut last_ns = if timeline.is_some() { monotonic_ns() } else { 0 };
        for step in 0..self.steps {
            match element.step()? {
                Step::Ran(_) if is_observed => {
                    if let Some(timeline) = &mut timeline {
                        last_ns = timeline.ran(last_ns, element.take_entry_method());
                    }
                    if is_measured {
                        let now = Instant::now();
                        element.charge((now - last).as_nanos() as u64);
                        last = now;
                    }
                }
                Step::Ran(_) => {}
                Step::Idle => {
                    ran = SliceResult::Drained { any: step > 0 };
                    break;
                }
                Step::Ended => return Ok(SliceResult::Ended),
                Step::Resized => return Ok(SliceResult::Renewed),
            }
            if element.has_letters() && began.elapsed() >= LINGER {
                is_whole = false;
                break;
            }
        }
        if is_measured && last > began {
            // Other programs may have used the processor meanwhile.
            let own = processor_time().saturating_sub(processor);
            element.settle((own.as_secs_f64() / (last - began).as_secs_f64()).min(1.0));
        }
        if matches!(ran, SliceResult::More) && is_whole {
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

/// Runs one entry method and, in simulation, advances the time by its duration.
fn simulated_step(world: &mut dyn ProcessWorld, element: &mut Element) -> Result<SliceResult, Error> {
    let began = processor_time();
    let array = match element.step()? {
        Step::Ran(array) => array,
        Step::Idle => return Ok(SliceResult::Drained { any: false }),
        Step::Ended => return Ok(SliceResult::Ended),
        Step::Resized => return Ok(SliceResult::Renewed),
    };
    let taken = processor_time().saturating_sub(began);
    let at = world.now();
    let flops = match element.take_charged_flops() {
        flops if flops > 0.0 => {
            world.account_flops(flops)?;
            flops
        }
        _ => world.account_computed(element.array_name(array), taken.as_nanos() as u64)?,
    };
    element.charge_work(world.now().0 - at.0, flops);
    element.settle(1.0);
    Ok(SliceResult::More)
}
