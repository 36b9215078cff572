//! Tests of chares with waiting methods next to other entry methods, moves, a balancer and checkpoints. The results
//! must equal those of a serial loop. Each message is received once, even if it is kept while its chare moves, or is
//! saved and restored elsewhere.
//!
//! `GRIDLOOM_SEEDS=20000 cargo test --release -p gridloom-chare waits` runs more seeds; `GRIDLOOM_SEED=7` runs one of them.

use std::cell::Cell;
use std::sync::Arc;

use gridloom_base::SplitMix64;
use gridloom_chare::balance::BALANCERS;
use gridloom_chare::{
    AsyncContext, Callback, Chare, Context, Contribution, Element, Elements, Migrate, Packing, Pe, Placement, ReplyTo,
    Value,
};
use gridloom_derive::Message;
use serde::{Deserialize, Serialize};

use super::network::Network;

const SIZE: i32 = 8;
/// Number of stages. A checkpoint follows every second one.
const STAGES: u32 = 4;
const STEPS: u32 = 3;
/// Number of notes of each chare in each stage.
const NOTES: u32 = 2;
const POKES_LEFT: u32 = 5;
/// The tag of the notification that all chares are saved.
const SAVED: u32 = 1;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(crate = "gridloom_layout")]
enum Ask {
    Stage {
        stage: u32,
    },
    Edge {
        step: u32,
        from_left: bool,
        value: u64,
    },
    /// Kept until all stages are done.
    Note {
        of: u64,
    },
    /// Changes a number of its receiver immediately, and is passed on.
    Poke {
        of: u64,
        left: u32,
    },
    /// Asks for the receiver's index.
    Question {
        to: ReplyTo,
    },
}

#[derive(Clone, Default, Serialize, Deserialize)]
struct Kept {
    value: u64,
    pokes: u64,
    next_stage: u32,
    waits: bool,
}

struct Node {
    kept: Kept,
    /// Moves after one of this many pokes, and after each stage; never if 0.
    moves_in: u64,
}

impl Migrate for Node {
    type State = Kept;

    fn pack(&self) -> Kept {
        assert!(!self.kept.waits, "a chare that waits is packed");
        self.kept.clone()
    }
}

thread_local! {
    /// Pokes that ran while a method waited, moves requested by chares, and moves by balancers.
    static POKED: Cell<u64> = const { Cell::new(0) };
    static MOVED: Cell<u64> = const { Cell::new(0) };
    static BALANCED: Cell<u64> = const { Cell::new(0) };
}

fn mix(of: u64, with: u64) -> u64 {
    SplitMix64::new(of.rotate_left(17) ^ with).next_u64()
}

fn beside(index: i32, by: i32) -> i32 {
    (index + by).rem_euclid(SIZE)
}

/// Returns the receiver of a note or a poke.
fn receiver(of: u64) -> i32 {
    (of % SIZE as u64) as i32
}

fn note(stage: u32, index: i32, number: u32) -> u64 {
    mix(u64::from(stage), mix(index as u64, u64::from(number)))
}

fn first_poke(stage: u32, index: i32) -> u64 {
    mix(1 << 40 | u64::from(stage), index as u64)
}

fn notes() -> impl Iterator<Item = u64> {
    (0..STAGES)
        .flat_map(|stage| (0..SIZE).flat_map(move |index| (0..NOTES).map(move |number| note(stage, index, number))))
}

fn notes_for(index: i32) -> impl Iterator<Item = u64> {
    notes().filter(move |of| receiver(*of) == index)
}

/// Returns the expected final state of each chare: its value, its pokes, its notes.
fn model() -> Vec<[u64; 3]> {
    let mut values: Vec<u64> = (0..SIZE as u64).collect();
    for _ in 0..STAGES * STEPS {
        let of = |index| values[index as usize];
        let next = |index| mix(mix(of(index), of(beside(index, 1))), of(beside(index, -1)));
        values = (0..SIZE).map(next).collect();
    }
    let mut pokes = [0_u64; SIZE as usize];
    for (stage, index) in (0..STAGES).flat_map(|stage| (0..SIZE).map(move |index| (stage, index))) {
        let (mut of, mut at) = (first_poke(stage, index), index);
        for _ in 0..=POKES_LEFT {
            pokes[at as usize] = pokes[at as usize].wrapping_add(of);
            of = mix(of, 3);
            at = receiver(of);
        }
    }
    let noted = |index| notes_for(index).fold(0, u64::wrapping_add);
    (0..SIZE).map(|index| [values[index as usize], pokes[index as usize], noted(index)]).collect()
}

impl Chare for Node {
    type Message = Ask;

    fn entry(&mut self, ask: Ask, cx: &mut Context<'_, Node>) {
        match ask {
            Ask::Stage { stage } => {
                self.kept.waits = true;
                cx.spawn(move |cx| Node::stage(cx, stage));
            }
            Ask::Question { to } => cx.call_back(to, i64::from(cx.index()[0])),
            Ask::Poke { of, left } => {
                self.kept.pokes = self.kept.pokes.wrapping_add(of);
                POKED.set(POKED.get() + u64::from(self.kept.waits));
                if left > 0 {
                    let next = mix(of, 3);
                    cx.send(cx.array().at(receiver(next)), Ask::Poke { of: next, left: left - 1 });
                }
                if !self.kept.waits && self.moves_in > 0 && (of >> 8).is_multiple_of(self.moves_in) {
                    MOVED.set(MOVED.get() + 1);
                    cx.migrate_to(Pe((of >> 20) as u32 % cx.elements().count()));
                }
            }
            edge_or_note => cx.keep(edge_or_note),
        }
    }

    fn on_result(&mut self, tag: u32, _: Value, cx: &mut Context<'_, Node>) {
        assert_eq!((tag, self.kept.waits), (SAVED, false));
        self.kept.waits = true;
        match self.kept.next_stage {
            STAGES => cx.spawn(Node::collect),
            stage => cx.spawn(move |cx| Node::stage(cx, stage)),
        }
    }
}

impl Node {
    async fn stage(cx: AsyncContext<Node>, stage: u32) {
        let (own, array) = (cx.index()[0], cx.array());
        for number in 0..NOTES {
            let of = note(stage, own, number);
            cx.send(array.at(receiver(of)), Ask::Note { of });
        }
        cx.send(array.at(own), Ask::Poke { of: first_poke(stage, own), left: POKES_LEFT });
        // Each stage opens its own channels.
        let channels = (cx.channel(array.at(beside(own, 1))), cx.channel(array.at(beside(own, -1))));
        for step in stage * STEPS..(stage + 1) * STEPS {
            let value = cx.with(|node| node.kept.value);
            cx.send(array.at(beside(own, 1)), Ask::Edge { step, from_left: true, value });
            cx.send(array.at(beside(own, -1)), Ask::Edge { step, from_left: false, value });
            let right = Node::edge(&cx, step, false).await;
            let left = Node::edge(&cx, step, true).await;
            cx.with(|node| node.kept.value = mix(mix(value, right), left));
            channels.0.send(i64::from(step));
            assert_eq!(channels.1.receive().await, i64::from(step).into());
        }
        let answer = cx.reply();
        cx.send(array.at(beside(own, 3)), Ask::Question { to: answer.to() });
        assert_eq!(answer.await, i64::from(beside(own, 3)).into());
        // No method waits for this answer, which may arrive after the chare has moved.
        cx.send(array.at(beside(own, 2)), Ask::Question { to: cx.reply().to() });
        let sum = cx.all_reduce(Contribution::sum(i64::from(own))).await;
        assert_eq!(sum, i64::from(SIZE * (SIZE - 1) / 2).into());
        let moves_in = cx.with(|node| {
            (node.kept.next_stage, node.kept.waits) = (stage + 1, false);
            node.moves_in
        });
        match stage % 2 {
            0 => cx.send(array.at(own), Ask::Stage { stage: stage + 1 }),
            _ if own == 0 => cx.checkpoint(Callback::to(array.all()).tagged(SAVED)),
            _ => {}
        }
        if moves_in > 0 {
            MOVED.set(MOVED.get() + 1);
            cx.migrate_to(Pe(first_poke(stage, own) as u32 % cx.elements().count()));
        }
    }

    async fn edge(cx: &AsyncContext<Node>, now: u32, left: bool) -> u64 {
        let fits =
            move |ask: &Ask| matches!(ask, Ask::Edge { step, from_left, .. } if (*step, *from_left) == (now, left));
        match cx.receive_if(fits).await {
            Ask::Edge { value, .. } => value,
            other => unreachable!("{other:?} does not fit"),
        }
    }

    async fn collect(cx: AsyncContext<Node>) {
        let mut noted = 0_u64;
        for _ in notes_for(cx.index()[0]) {
            let Ask::Note { of } = cx.receive().await else { unreachable!("each edge was received") };
            noted = noted.wrapping_add(of);
        }
        let told = cx.with(|node| {
            node.kept.waits = false;
            [node.kept.value, node.kept.pokes, noted]
        });
        cx.contribute(Contribution::gather(told.map(|number| number as i64).to_vec()), Callback::exit());
    }
}

/// Creates a program, which restarts from `saved` if given.
fn network(seed: u64, saved: Option<&[Vec<u8>]>) -> Network {
    let mut random = SplitMix64::new(seed);
    let elements = Arc::new(Elements::single_site(1 + random.below(5) as u32));
    let moves_in = [0, 1, 3][random.below(3) as usize];
    let placement = [Placement::Blocks, Placement::RoundRobin][random.below(2) as usize].clone();
    let balancer = BALANCERS.get(random.below(2 * BALANCERS.len() as u64) as usize);
    let bound = [None, None, Some(1), Some(300)][random.below(4) as usize];
    let make = |element: &mut Element| {
        if saved.is_some() {
            element.set_restarted();
        }
        if let Some(bound) = bound {
            element.limit_mailbox(bound);
        }
        let new = |index: gridloom_chare::Index| {
            let kept = Kept { value: index[0] as u64, waits: true, ..Kept::default() };
            Node { kept, moves_in }
        };
        let packing = Packing::of_state(move |_, kept| Node { kept, moves_in });
        let nodes = element.migratable_array("nodes", (SIZE as usize).into(), &placement, new, packing).unwrap();
        element.spawn(nodes, |cx| Node::stage(cx, 0));
        if let Some(balancer) = balancer {
            element.set_balancer(balancer);
        }
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

fn check(value: &Value, seed: u64) {
    let Value::Gathered(all) = value else { panic!("{value:?}") };
    let told: Vec<Value> = all.iter().map(|(_, value)| value.clone()).collect();
    let expected = model().into_iter().map(|numbers| Value::Integers(numbers.map(|number| number as i64).to_vec()));
    assert_eq!(told, expected.collect::<Vec<Value>>(), "seed {seed}");
}

fn try_seed(seed: u64) {
    let mut whole = network(seed, None);
    check(&whole.run().unwrap(), seed);
    BALANCED.set(BALANCED.get() + whole.elements[0].moved());
    let mut lost = network(seed, None);
    lost.lose_after = Some(seed % u64::from(STAGES / 2));
    assert_eq!(lost.run(), Ok(Value::Nothing), "it is lost, seed {seed}");
    let mut again = network(seed + 1, Some(&lost.saved));
    check(&again.run().unwrap(), seed);
}

#[test]
fn methods_wait_beside_others_and_what_they_wait_for_goes_along() {
    let set = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match set("GRIDLOOM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..set("GRIDLOOM_SEEDS").unwrap_or(500),
    };
    for seed in seeds {
        let told = std::panic::catch_unwind(|| try_seed(seed));
        assert!(told.is_ok(), "seed {seed}: GRIDLOOM_SEED={seed} cargo test --release -p gridloom-chare waits");
    }
    let reached = [POKED.get(), MOVED.get(), BALANCED.get()];
    assert!(reached.iter().all(|count| *count > 0) || set("GRIDLOOM_SEED").is_some(), "{reached:?}");
}
