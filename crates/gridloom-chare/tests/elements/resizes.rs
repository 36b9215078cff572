//! Tests that programs that change their number of elements end as those that do not.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use gridloom_base::SplitMix64;
use gridloom_chare::balance::BALANCERS;
use gridloom_chare::{Callback, ChareError, Element, Elements, Pe, Placement, ResizePolicy, Step, Value};

use gridloom_derive::Message;

use super::checkpoints::{Sizes, make_walkers, walkers_end_with};
use super::network::Network;

const ELEMENTS_MAX: u32 = 5;

/// The number of elements to which the program is asked to change.
pub struct Asked(pub Rc<Cell<Option<u32>>>);

impl ResizePolicy for Asked {
    fn requested(&mut self) -> Option<u32> {
        self.0.get()
    }

    fn check(&self, elements: u32) -> Result<(), String> {
        if elements <= ELEMENTS_MAX { Ok(()) } else { Err(format!("at most {ELEMENTS_MAX}")) }
    }

    fn refuse(&mut self, elements: u32, why: &str) {
        panic!("{elements} elements: {why}");
    }
}

/// Returns the program's result and the number of resizes. If `loses`, one run is lost after a checkpoint and restarts from it.
fn run(seed: u64, sizes: Sizes, loses: bool) -> (Value, u32) {
    let (mut count, mut saved, mut resized) = (1 + seed as u32 % ELEMENTS_MAX, None::<Vec<Vec<u8>>>, 0);
    let mut lose_after = loses.then_some(seed % 3);
    loop {
        let elements = Arc::new(Elements::single_site(count));
        let next = if saved.is_some() { 10 } else { 0 };
        let mut network = Network::new(&elements, seed, |element| {
            if saved.is_some() {
                element.set_restarted();
            }
            make_walkers(element, seed, sizes);
            element.set_balancer(&BALANCERS[seed as usize % BALANCERS.len()]);
            element.keep_checkpoints(1, next);
            element.set_resize_policy(Box::new(Asked(Rc::default())));
            if let Some(saved) = &saved {
                element.restore(saved).unwrap();
                if element.me() == Pe(0) {
                    element.resume();
                }
            }
        });
        network.tick_ns = 50_000_000;
        network.lose_after = lose_after.take();
        let value = network.run().unwrap();
        match network.renewed {
            Some(elements) => (count, resized) = (elements, resized + 1),
            None if value != Value::Nothing => return (value, resized),
            None => {}
        }
        saved = Some(network.saved);
    }
}

#[test]
fn a_program_that_grows_and_shrinks_ends_as_one_that_does_not() {
    let (expected, mut resized) = (walkers_end_with(), 0);
    let seeds = std::env::var("GRIDLOOM_SEEDS").map_or(1000, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        let mut random = SplitMix64::new(seed);
        let sizes = std::array::from_fn(|_| random.below(u64::from(ELEMENTS_MAX) + 1) as u32);
        let (value, times) = run(seed, sizes, seed % 2 == 1);
        assert_eq!(value, expected, "seed {seed}, {sizes:?}");
        resized += u64::from(times);
    }
    assert!(resized > seeds, "{resized} changes of the number in {seeds} runs");
}

/// Records the refused requests.
struct Refused(Rc<RefCell<Vec<String>>>);

impl ResizePolicy for Refused {
    fn requested(&mut self) -> Option<u32> {
        Some(2)
    }

    fn check(&self, elements: u32) -> Result<(), String> {
        if elements <= ELEMENTS_MAX { Ok(()) } else { Err(format!("at most {ELEMENTS_MAX}")) }
    }

    fn refuse(&mut self, elements: u32, why: &str) {
        self.0.borrow_mut().push(format!("{elements}: {why}"));
    }
}

/// Creates the only element of a program, with migratable or fixed chares.
fn element(is_migratable: bool) -> Element {
    let mut element = Element::new(Pe(0), Arc::new(Elements::single_site(1)));
    if is_migratable {
        make_walkers(&mut element, 0, Sizes::default());
    } else {
        let members = element.array("members", 1.into(), &Placement::Blocks, |_| Member).unwrap();
        element.start(|cx| cx.checkpoint(Callback::to(members.at(0))));
    }
    element
}

#[derive(Clone, Message)]
#[message(crate = "gridloom_layout")]
struct Nothing {
    number: u64,
}

struct Member;

impl gridloom_chare::Chare for Member {
    type Message = Nothing;

    fn entry(&mut self, _: Nothing, _: &mut gridloom_chare::Context<'_, Member>) {}

    fn on_result(&mut self, _: u32, _: Value, cx: &mut gridloom_chare::Context<'_, Member>) {
        cx.exit(7);
    }
}

fn end(element: &mut Element) -> Result<Value, ChareError> {
    while element.step()? != Step::Ended {}
    Ok(element.end().cloned().unwrap())
}

#[test]
fn an_invalid_resize_from_outside_is_refused_and_the_program_continues() {
    let told = Rc::default();
    let mut element = element(false);
    element.set_resize_policy(Box::new(Refused(Rc::clone(&told))));
    assert_eq!(end(&mut element), Ok(7.into()));
    let why = "2: array members is not migratable, so its chares cannot move to other elements: make it a migratable \
    array, not a group";
    assert_eq!(*told.borrow(), [why]);
}

#[test]
fn an_invalid_resize_by_the_program_ends_it() {
    let wrong = |is_migratable: bool, has_owner: bool, elements: u32| {
        let mut element = element(is_migratable);
        if has_owner {
            element.set_resize_policy(Box::new(Asked(Rc::default())));
        }
        element.start(|cx| cx.resize(elements));
        let why = end(&mut element).unwrap_err().to_string();
        why.strip_prefix(&format!("the program cannot continue with {elements} elements: ")).unwrap().to_string()
    };
    assert_eq!(wrong(true, true, 0), "at least one element is needed");
    assert_eq!(wrong(true, true, 6), "at most 5");
    assert!(wrong(true, false, 2).starts_with("this run has a fixed number of elements; 'gridloom chares run"));
    assert!(wrong(false, true, 2).starts_with("array members is not migratable"));
}
