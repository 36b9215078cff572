//! Tests of a grid without its coordinator: what it returns and what it queues.

use std::sync::{Arc, Mutex};

use gridloom_base::{Machine, Meta};

use super::*;
use crate::environment::tests::two_hosts;
use crate::kernel::{KernelEvent, ScheduledEvent};

/// A machine that returns the effects that it was given, for any input.
struct Scripted(Arc<Mutex<Vec<Effect>>>);

impl Machine for Scripted {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, _: Time, _: Input, effects: &mut Vec<Effect>) {
        effects.append(&mut self.0.lock().unwrap());
    }
}

/// A grid with a server on each of two hosts.
struct Pair {
    environment: Environment,
    grid: Grid,
    nodes: [NodeId; 2],
    effects: [Arc<Mutex<Vec<Effect>>>; 2],
}

impl Pair {
    fn new() -> Pair {
        let (mut environment, mut grid) = (two_hosts(), Grid::new(SimConfig::default()));
        let effects: [Arc<Mutex<Vec<Effect>>>; 2] = Default::default();
        let nodes = [0, 1].map(|number: usize| {
            let (place, script) = ((HostId(number as u32), Role::Server), effects[number].clone());
            grid.add_machine(&mut environment, place, "server", 1, |_, _| Box::new(Scripted(script)))
        });
        Pair { environment, grid, nodes, effects }
    }

    /// Passes an input to a node and performs its effects. Returns the nodes of which a program has to be notified.
    fn handle(&mut self, node: NodeId, input: Input) -> Vec<NodeId> {
        let effects = self.grid.handle(&mut self.environment.kernel, MachineInput::new(node, input));
        let effects = effects.into_iter().flatten();
        effects.filter_map(|effect| self.grid.perform(&mut self.environment, node, effect)).collect()
    }

    fn act(&mut self, number: usize, effect: Effect) -> Vec<NodeId> {
        self.effects[number].lock().unwrap().push(effect);
        self.handle(self.nodes[number], Input::Start)
    }

    /// Handles all queued events before 1 s. Returns the inputs that the nodes get.
    fn run(&mut self) -> Vec<(NodeId, Input)> {
        let mut inputs = Vec::new();
        while self.environment.kernel.next_at().is_some_and(|at| at < Time(1_000_000_000)) {
            let Some(KernelEvent::Due(_, event)) = self.environment.kernel.next() else {
                panic!("no flow was started")
            };
            let input = match event {
                ScheduledEvent::Deliver { node, input } => Some(MachineInput::new(node, *input)),
                ScheduledEvent::Dialled { dialler, address, began } => {
                    self.grid.on_dialled(&mut self.environment, dialler, address, began);
                    None
                }
                ScheduledEvent::Arrive { from, to, connection, parcel } => {
                    self.grid.on_arrive(&mut self.environment, (from, to), connection, parcel)
                }
                ScheduledEvent::Lost { node, peer, connection, why } => {
                    self.grid.on_lost(&mut self.environment, (node, peer), connection, why)
                }
                other => panic!("{other:?}"),
            };
            inputs.extend(input.map(|input| (input.node, input.input)));
            self.grid.check(&self.environment.kernel);
        }
        inputs
    }

    /// Connects the nodes.
    fn connect(&mut self) {
        let address = self.grid.nodes().node(self.nodes[1]).address.clone();
        self.act(0, Effect::Dial { address });
        let inputs = self.run();
        let up: Vec<NodeId> =
            inputs.iter().filter(|(_, input)| matches!(input, Input::PeerUp { .. })).map(|(node, _)| *node).collect();
        assert_eq!(up, [self.nodes[1], self.nodes[0]]);
    }
}

#[test]
fn the_peers_of_a_node_that_ends_lose_it() {
    let mut pair = Pair::new();
    pair.connect();
    let [a, b] = pair.nodes;
    assert!(pair.grid.end(&mut pair.environment, a, "an end"));
    assert!(!pair.grid.end(&mut pair.environment, a, "a second end"));
    let inputs = pair.run();
    assert!(
        matches!(&inputs[..], [(node, Input::PeerLost { peer, why, .. })] if (*node, *peer) == (b, a) && why == "an end"),
        "{inputs:?}"
    );
}

#[test]
fn small_data_arrive_as_one_input_and_a_full_store_refuses_them() {
    let mut pair = Pair::new();
    pair.connect();
    let [a, b] = pair.nodes;
    let datum = DatumId { client: a, serial: 1 };
    let value = StoredValue { meta: Meta::Bytes { size_bytes: 8 }, bytes: None };
    pair.grid.store_value(&mut pair.environment.kernel, a, datum, value);
    pair.grid.fill(&mut pair.environment.kernel, b, 900_000_000);
    pair.act(0, Effect::SendDatum { to: b, datum });
    let inputs = pair.run();
    assert!(matches!(inputs[..], [(_, Input::DatumBroken { no_memory: true, .. })]), "{inputs:?}");
    assert!(pair.grid.nodes().node(b).store.value(datum).is_none());
}

#[test]
fn the_effects_that_follow_the_end_of_a_node_are_not_performed() {
    let mut pair = Pair::new();
    let [a, _] = pair.nodes;
    pair.effects[0].lock().unwrap().push(Effect::Exit { why: "it is done".into() });
    let ended = pair.act(0, Effect::MeasureSpeed);
    assert_eq!(ended, [a]);
    assert!(pair.run().iter().all(|(_, input)| *input == Input::Start), "nothing was measured");
    assert!(pair.handle(a, Input::Start).is_empty());
}

#[test]
fn the_inputs_of_a_paused_node_wait() {
    let mut pair = Pair::new();
    let [a, _] = pair.nodes;
    pair.grid.pause(&mut pair.environment.kernel, a);
    pair.act(0, Effect::MeasureSpeed);
    assert!(pair.grid.resume(&mut pair.environment.kernel, a) && !pair.grid.resume(&mut pair.environment.kernel, a));
    let waited = pair.grid.take_waiting_input(a);
    assert!(matches!(waited, Some(MachineInput { input: Input::Start, .. })));
    assert!(pair.grid.take_waiting_input(a).is_none());
}
