//! Tests that programs that are lost after a checkpoint, and restart from it on another number of elements, end as if
//! nothing was lost.

use std::sync::Arc;

use gridloom_base::SplitMix64;
use gridloom_chare::balance::BALANCERS;
use gridloom_chare::{
    Callback, Chare, Context, Contribution, Element, Elements, Migrate, Packing, Pe, Placement, Proxy, Value,
};
use gridloom_derive::Message;

use super::network::Network;

#[derive(Clone, Message)]
#[message(crate = "gridloom_layout")]
enum Ask {
    Pass { left: u32, of: u64 },
    Begin,
}

const SIZE: usize = 20;
/// Number of stages of a program; a checkpoint follows each.
const STAGES: u64 = 4;

const QUIET: u32 = 0;
const SAVED: u32 = 1;
const COUNTED: u32 = 2;

/// Passes messages on. Its state depends on all of them, but not on their order.
struct Walker {
    stage: u64,
    sum: u64,
    sizes: Sizes,
}

/// For each stage, the number of elements with which the program continues after it; 0 for no change.
pub type Sizes = [u32; STAGES as usize];

impl Migrate for Walker {
    type State = (u64, u64);

    fn pack(&self) -> (u64, u64) {
        (self.stage, self.sum)
    }
}

impl Chare for Walker {
    type Message = Ask;

    fn entry(&mut self, message: Ask, cx: &mut Context<'_, Walker>) {
        let own = cx.index()[0] as u64;
        let Ask::Pass { left, of } = message else { return self.begin(cx) };
        let mut random = SplitMix64::new(of ^ (own << 40));
        self.sum = self.sum.wrapping_add(random.next_u64());
        if left > 0 {
            let to = cx.array().at(random.below(SIZE as u64) as usize);
            cx.send(to, Ask::Pass { left: left - 1, of: random.next_u64() });
        }
        if random.below(3) == 0 {
            cx.migrate_to(Pe(random.below(u64::from(cx.elements().count())) as u32));
        }
    }

    fn on_result(&mut self, tag: u32, value: Value, cx: &mut Context<'_, Walker>) {
        match tag {
            QUIET => cx.checkpoint(Callback::to(cx.array().all()).tagged(SAVED)),
            COUNTED => {
                assert_eq!(value, (SIZE as i64).into());
                self.sum = self.sum.wrapping_add(1);
            }
            _ if self.stage < STAGES => self.begin(cx),
            _ => cx.contribute(Contribution::gather(vec![self.sum as i64]), Callback::exit()),
        }
    }
}

impl Walker {
    fn begin(&mut self, cx: &mut Context<'_, Walker>) {
        let own = cx.index()[0] as u64;
        // After the second stage, some chares have contributed to a round and others have not. The partial round is saved.
        let rounds = match (self.stage, own % 2) {
            (1, 1) => 0,
            (2, 1) => 2,
            _ => 1,
        };
        for _ in 0..rounds {
            cx.contribute(Contribution::sum(1), Callback::to(cx.array().at(1)).tagged(COUNTED));
        }
        cx.send(cx.this(), Ask::Pass { left: 6, of: (self.stage << 20) | own });
        if own == 0 {
            cx.when_quiet(Callback::to(cx.this()).tagged(QUIET));
        }
        let size = self.sizes[self.stage as usize];
        if size > 0 && own == self.stage {
            cx.resize(size);
        }
        self.stage += 1;
    }
}

/// Creates the program's array and sends its first messages.
pub fn make_walkers(element: &mut Element, seed: u64, sizes: Sizes) {
    let walker = move |(stage, sum)| Walker { stage, sum, sizes };
    let packing = Packing::of_state(move |_, state| walker(state));
    let placement = &[Placement::Blocks, Placement::RoundRobin][seed as usize % 2];
    let walkers: Proxy<Walker> =
        element.migratable_array("walkers", SIZE.into(), placement, |_| walker((0, 0)), packing).unwrap();
    element.start(|cx| cx.send(walkers.all(), Ask::Begin));
}

/// Returns the program's result if no element is lost.
pub fn walkers_end_with() -> Value {
    network(1, 0, None).run().unwrap()
}

/// Creates a program on `count` elements, which restarts from `saved` if given.
fn network(count: u32, seed: u64, saved: Option<&[Vec<u8>]>) -> Network {
    let elements = Arc::new(Elements::single_site(count));
    let make = |element: &mut Element| {
        if saved.is_some() {
            element.set_restarted();
        }
        make_walkers(element, seed, Sizes::default());
        element.set_balancer(&BALANCERS[seed as usize % BALANCERS.len()]);
        element.keep_checkpoints(1, 0);
        if let Some(saved) = saved {
            element.restore(saved).unwrap();
            if element.me() == Pe(0) {
                element.resume();
            }
        }
    };
    let mut network = Network::new(&elements, seed, make);
    network.tick_ns = 50_000_000;
    network
}

#[test]
fn a_program_that_continues_from_a_checkpoint_ends_as_one_that_was_not_lost() {
    let expected = network(1, 0, None).run().unwrap();
    for seed in 0..1000 {
        let mut random = SplitMix64::new(seed);
        let mut count = || 1 + random.below(5) as u32;
        let mut lost = network(count(), seed, None);
        lost.lose_after = Some(seed % STAGES);
        assert_eq!(lost.run(), Ok(Value::Nothing), "it is lost, seed {seed}");
        let mut again = network(count(), seed + 1, Some(&lost.saved));
        assert_eq!(again.run().as_ref(), Ok(&expected), "seed {seed}");
    }
}

#[test]
fn what_was_not_saved_by_these_arrays_is_refused() {
    let mut lost = network(2, 0, None);
    lost.lose_after = Some(0);
    lost.run().unwrap();
    let mut other = Element::new(Pe(0), Arc::new(Elements::single_site(1)));
    let refused = |element: &mut Element, saved: &[Vec<u8>]| element.restore(saved).unwrap_err().to_string();
    assert!(refused(&mut other, &lost.saved).contains("1 arrays were saved, but the program has 0"));
    let packing = Packing::of_state(|_, (stage, sum)| Walker { stage, sum, sizes: Sizes::default() });
    let walker = |_| Walker { stage: 0, sum: 0, sizes: Sizes::default() };
    other.migratable_array("walkers", SIZE.into(), &Placement::Blocks, walker, packing).unwrap();
    assert!(refused(&mut other, &lost.saved[1..]).contains(" of 20 chares of this element were saved"));
    assert!(refused(&mut other, &[vec![1, 2, 3]]).contains("cannot be restored"));
}

#[test]
fn an_array_that_is_not_migratable_cannot_be_saved() {
    let mut element = Element::new(Pe(0), Arc::new(Elements::single_site(1)));
    let walker = |_| Walker { stage: 0, sum: 0, sizes: Sizes::default() };
    let walkers = element.array("walkers", 3.into(), &Placement::Blocks, walker).unwrap();
    element.keep_checkpoints(1, 0);
    element.start(|cx| cx.checkpoint(Callback::to(walkers.at(0))));
    while element.step().is_ok_and(|step| step != gridloom_chare::Step::Idle) {}
    let why = "chare (0) of array walkers cannot be saved: its array is not migratable";
    assert_eq!(element.take_part().unwrap_err().to_string(), why);
}
