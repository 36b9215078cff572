//! Events of a simulation: facts, as they happen, from which invariants are checked without looking at everything after
//! every step.

use std::sync::Arc;

use gridloom_base::{DatumId, Named, NodeId, TaskId};
use gridloom_core::graph::Task;
use gridloom_core::node::message::{
    CatalogAnswer, CatalogMessage, CatalogToClient, DataMessage, Message, TaskMessage, TaskToClient,
};
use gridloom_core::node::{Command, Effect, Event, Input, NameCommand};

use crate::store::StoredValue;

/// A fact.
#[derive(Clone, Debug)]
pub(crate) enum SimEvent {
    /// A value was put into a store (it stays what it was if the datum was there already).
    Stored { node: NodeId, datum: DatumId, value: StoredValue },
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
    /// A client hears that it is to have copies of data, so that a server has room.
    MakesRoom { data: Vec<DatumId> },
    /// A datum that comes to a node is passed on meanwhile.
    PassesOn,
    /// A datum that broke off is sent on behind what had come.
    GoesOn,
    /// A datum came that is not what was sent; whether the connection is lost.
    Refuses { is_lost: bool },
    /// A datum came.
    Arrived { node: NodeId, from: NodeId, datum: DatumId },
    /// A client hears where a datum is to go that it puts under a name.
    Placed { node: NodeId, ask: u64, named: Named, server: NodeId },
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
    /// The program wants what is found under a name, whatever datum that is.
    WantsFound { node: NodeId, ask: u64 },
    /// The catalog has answered that question with a datum.
    Found { node: NodeId, ask: u64, datum: DatumId },
    /// The program releases data.
    Releases { node: NodeId, data: Vec<DatumId> },
    /// A client tells its program something (but what is only of interest to the curious).
    Told { node: NodeId, event: Event },
}

impl SimEvent {
    /// What of an input is a fact of interest.
    pub(crate) fn of_input(node: NodeId, input: &Input, mut see: impl FnMut(SimEvent)) {
        match input {
            Input::PeerUp { peer, .. } => see(SimEvent::Up { node, peer: *peer }),
            Input::Received { from, message } => {
                let from = *from;
                see(SimEvent::Heard { node, from });
                match message {
                    Message::Data(DataMessage::Fetch { datum, .. }) => see(SimEvent::Asked { node, datum: *datum }),
                    Message::Task(TaskMessage::ToClient(TaskToClient::SupplyFailed { .. })) => {
                        see(SimEvent::SupplyFailed { node });
                    }
                    Message::Task(TaskMessage::ToClient(TaskToClient::MakeRoom { data })) => {
                        see(SimEvent::MakesRoom { data: data.clone() });
                    }
                    Message::Catalog(CatalogMessage::ToClient(CatalogToClient::Place {
                        ask, named, server, ..
                    })) => {
                        see(SimEvent::Placed { node, ask: *ask, named: named.clone(), server: *server });
                    }
                    Message::Catalog(CatalogMessage::ToClient(CatalogToClient::Answer {
                        ask,
                        answer: Ok(CatalogAnswer::Found { named, .. }),
                    })) => see(SimEvent::Found { node, ask: *ask, datum: named.datum }),
                    _ => {}
                }
            }
            Input::DatumArrived { from, datum, .. } => {
                see(SimEvent::Heard { node, from: *from });
                see(SimEvent::Arrived { node, from: *from, datum: *datum });
            }
            Input::Start => see(SimEvent::Begins { node }),
            Input::TaskEnded { task, .. } => see(SimEvent::Ended { node, task: *task }),
            Input::Timer(timer) if timer.is_heartbeat() => see(SimEvent::Beat { node }),
            Input::Command(Command::Get { datum }) => see(SimEvent::Wants { node, datum: *datum }),
            Input::Command(Command::Name { ask, command: NameCommand::Await { brings: true, .. } }) => {
                see(SimEvent::WantsFound { node, ask: *ask });
            }
            Input::Command(Command::Release { data }) => see(SimEvent::Releases { node, data: data.clone() }),
            Input::Command(Command::Erase { datum }) => see(SimEvent::Releases { node, data: vec![*datum] }),
            _ => {}
        }
    }

    /// What of an effect is a fact of interest.
    pub(crate) fn of_effect(node: NodeId, effect: &Effect, mut see: impl FnMut(SimEvent)) {
        match effect {
            Effect::Send { to, message: Message::Data(DataMessage::Fetch { datum, .. }) } => {
                see(SimEvent::Fetches { node, from: *to, datum: *datum });
            }
            Effect::Send { message: Message::Task(TaskMessage::ToClient(TaskToClient::Dropped { .. })), .. } => {
                see(SimEvent::Evicted);
            }
            Effect::DropDatum { datum } => see(SimEvent::Dropped { node, datum: *datum }),
            Effect::StartTask { task } => see(SimEvent::Started { node, task: task.clone() }),
            Effect::HangUp { peer } => see(SimEvent::HungUp { node, peer: *peer }),
            Effect::Emit(
                event @ (Event::TaskEnded { .. }
                | Event::DatumHere { .. }
                | Event::DatumLost { .. }
                | Event::GroupEnded { .. }
                | Event::Named { .. }
                | Event::ServerLost { .. }
                | Event::AgentLost { .. }),
            ) => see(SimEvent::Told { node, event: event.clone() }),
            _ => {}
        }
    }
}
