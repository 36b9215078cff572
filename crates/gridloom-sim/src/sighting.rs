//! What a watcher of a simulation sees: facts, as they happen, from which invariants are checked without looking at
//! everything after every step.

use std::sync::Arc;

use gridloom_core::base::{DatumId, NodeId, TaskId, Time};
use gridloom_core::graph::Task;
use gridloom_core::node::{Command, Effect, Event, Input, Message, TimerId};

use crate::store::Value;

/// A fact.
#[derive(Clone, Debug)]
pub(crate) enum Sighting {
    /// A value was put into a store (it stays what it was if the datum was there already).
    Stored { node: NodeId, datum: DatumId, value: Value },
    /// A datum left a store.
    Dropped { node: NodeId, datum: DatumId },
    /// A connection stands, in the view of one end.
    Up { node: NodeId, peer: NodeId },
    /// A sign of life.
    Heard { node: NodeId, from: NodeId },
    /// A node's heartbeat.
    Beat { node: NodeId },
    /// A node closes a connection.
    HungUp { node: NodeId, peer: NodeId },
    /// A node asks another for a datum.
    Fetches { node: NodeId, from: NodeId, datum: DatumId },
    /// A node is asked for a datum.
    Asked { node: NodeId, datum: DatumId },
    /// A client hears that a server cannot have a datum from where it was to come.
    SupplyFailed { node: NodeId },
    /// A datum came.
    Arrived { node: NodeId, from: NodeId, datum: DatumId },
    /// A machine begins, or begins anew.
    Begins { node: NodeId },
    /// A task starts.
    Started { node: NodeId, task: Arc<Task> },
    /// A task that has started ends.
    Ended { node: NodeId, task: TaskId },
    /// A server gave up copies for lack of room.
    Evicted,
    /// The program asks its client for a datum.
    Wants { node: NodeId, datum: DatumId },
    /// The program releases data.
    Releases { data: Vec<DatumId> },
    /// A client tells its program something (but what is only of interest to the curious).
    Told { node: NodeId, event: Event },
}

/// The heartbeat's timer, of all machines.
const HEARTBEAT: TimerId = TimerId(0);

impl Sighting {
    /// What of an input is a fact of interest.
    pub(crate) fn of_input(node: NodeId, input: &Input, mut see: impl FnMut(Sighting)) {
        match input {
            Input::PeerUp { peer, .. } => see(Sighting::Up { node, peer: *peer }),
            Input::Received { from, message } => {
                let from = *from;
                see(Sighting::Heard { node, from });
                match message {
                    Message::Fetch { datum } => see(Sighting::Asked { node, datum: *datum }),
                    Message::SupplyFailed { .. } => see(Sighting::SupplyFailed { node }),
                    _ => {}
                }
            }
            Input::DatumArrived { from, datum, .. } => {
                see(Sighting::Heard { node, from: *from });
                see(Sighting::Arrived { node, from: *from, datum: *datum });
            }
            Input::Start => see(Sighting::Begins { node }),
            Input::TaskEnded { task, .. } => see(Sighting::Ended { node, task: *task }),
            Input::Timer(HEARTBEAT) => see(Sighting::Beat { node }),
            Input::Command(Command::Get { datum }) => see(Sighting::Wants { node, datum: *datum }),
            Input::Command(Command::Release { data }) => see(Sighting::Releases { data: data.clone() }),
            Input::Command(Command::Erase { datum }) => see(Sighting::Releases { data: vec![*datum] }),
            _ => {}
        }
    }

    /// What of an effect is a fact of interest.
    pub(crate) fn of_effect(node: NodeId, effect: &Effect, mut see: impl FnMut(Sighting)) {
        match effect {
            Effect::Send { to, message: Message::Fetch { datum } } => {
                see(Sighting::Fetches { node, from: *to, datum: *datum });
            }
            Effect::Send { message: Message::Dropped { .. }, .. } => see(Sighting::Evicted),
            Effect::DropDatum { datum } => see(Sighting::Dropped { node, datum: *datum }),
            Effect::StartTask { task } => see(Sighting::Started { node, task: task.clone() }),
            Effect::HangUp { peer } => see(Sighting::HungUp { node, peer: *peer }),
            Effect::Emit(
                event @ (Event::TaskEnded { .. }
                | Event::DatumHere { .. }
                | Event::DatumLost { .. }
                | Event::GroupEnded { .. }
                | Event::ServerLost { .. }
                | Event::AgentLost { .. }),
            ) => see(Sighting::Told { node, event: event.clone() }),
            _ => {}
        }
    }
}

/// Facts not yet looked at, with their times.
pub(crate) type Sightings = Vec<(Time, Sighting)>;
