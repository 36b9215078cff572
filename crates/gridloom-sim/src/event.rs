//! Events of a simulation, reported as they happen. Invariants are checked from them, without inspecting the whole
//! state after every step.

use std::sync::Arc;

use gridloom_base::{DatumId, NamedDatum, NodeId, TaskId};
use gridloom_core::graph::Task;
use gridloom_core::node::message::{
    CatalogAnswer, CatalogMessage, CatalogToClient, DataMessage, Message, TaskMessage, TaskToClient,
};
use gridloom_core::node::{Command, Effect, Event, Input, NameCommand};

use crate::store::StoredValue;

/// An event of a simulation.
#[derive(Clone, Debug)]
pub enum SimEvent {
    /// A value was put into a store. If the datum was there already, it keeps its value.
    Stored { node: NodeId, datum: DatumId, value: StoredValue },
    /// A datum was removed from a store.
    RemovedFromStore { node: NodeId, datum: DatumId },
    /// A connection is up, in the view of one end.
    Up { node: NodeId, peer: NodeId },
    /// A node received a sign of life.
    SignOfLife { node: NodeId, from: NodeId },
    /// A node sent its heartbeat.
    Heartbeat { node: NodeId },
    /// A node closed a connection.
    HungUp { node: NodeId, peer: NodeId },
    /// A node requests a datum from another.
    FetchSent { node: NodeId, from: NodeId, datum: DatumId },
    /// A node was asked for a datum.
    FetchRequested { node: NodeId, datum: DatumId },
    /// A client was notified that a server cannot get a datum from its source.
    SupplyFailed { node: NodeId },
    /// A client was notified that it will get copies of data, to make room on a server.
    MakeRoom { data: Vec<DatumId> },
    /// A node forwards a datum while still receiving it.
    Forwards,
    /// An interrupted transfer of a datum continues behind the part already received.
    Continues,
    /// A received datum differs from the one sent. `is_lost` is true if the connection is then closed.
    Corrupted { is_lost: bool },
    /// A datum has arrived.
    Arrived { node: NodeId, from: NodeId, datum: DatumId },
    /// A client was notified where to send a datum that it puts under a name.
    Placed { node: NodeId, ask: u64, named: NamedDatum, server: NodeId },
    /// A machine starts or restarts.
    Starts { node: NodeId },
    /// A task starts.
    Started { node: NodeId, task: Arc<Task> },
    /// A started task has ended.
    Ended { node: NodeId, task: TaskId },
    /// A server evicted copies for lack of room.
    Evicted,
    /// The program requests a datum from its client.
    Requests { node: NodeId, datum: DatumId },
    /// The program requests the value stored under a name, whatever datum that is.
    RequestsByName { node: NodeId, ask: u64 },
    /// The catalog has answered a lookup with a datum.
    Found { node: NodeId, ask: u64, datum: DatumId },
    /// The program releases data.
    Released { node: NodeId, data: Vec<DatumId> },
    /// A client reports an event to its program, except purely informational ones.
    Reported { node: NodeId, event: Event },
}

impl SimEvent {
    /// Reports the events that an input implies.
    pub(crate) fn of_input(node: NodeId, input: &Input, mut see: impl FnMut(SimEvent)) {
        match input {
            Input::PeerUp { peer, .. } => see(SimEvent::Up { node, peer: *peer }),
            Input::Received { from, message } => {
                let from = *from;
                see(SimEvent::SignOfLife { node, from });
                match message {
                    Message::Data(DataMessage::Fetch { datum, .. }) => {
                        see(SimEvent::FetchRequested { node, datum: *datum })
                    }
                    Message::Task(TaskMessage::ToClient(TaskToClient::SupplyFailed { .. })) => {
                        see(SimEvent::SupplyFailed { node });
                    }
                    Message::Task(TaskMessage::ToClient(TaskToClient::MakeRoom { data })) => {
                        see(SimEvent::MakeRoom { data: data.clone() });
                    }
                    Message::Catalog(CatalogMessage::ToClient(CatalogToClient::Place {
                        request: ask,
                        named,
                        server,
                        ..
                    })) => {
                        see(SimEvent::Placed { node, ask: *ask, named: named.clone(), server: *server });
                    }
                    Message::Catalog(CatalogMessage::ToClient(CatalogToClient::Answer {
                        request: ask,
                        answer: Ok(CatalogAnswer::Found { named, .. }),
                    })) => see(SimEvent::Found { node, ask: *ask, datum: named.datum }),
                    _ => {}
                }
            }
            Input::DatumArrived { from, datum, .. } => {
                see(SimEvent::SignOfLife { node, from: *from });
                see(SimEvent::Arrived { node, from: *from, datum: *datum });
            }
            Input::Start => see(SimEvent::Starts { node }),
            Input::TaskEnded { task, .. } => see(SimEvent::Ended { node, task: *task }),
            Input::Timer(timer) if timer.is_heartbeat() => see(SimEvent::Heartbeat { node }),
            Input::Command(Command::Get { datum }) => see(SimEvent::Requests { node, datum: *datum }),
            Input::Command(Command::Name { request: ask, command: NameCommand::Await { gets_data: true, .. } }) => {
                see(SimEvent::RequestsByName { node, ask: *ask });
            }
            Input::Command(Command::Release { data }) => see(SimEvent::Released { node, data: data.clone() }),
            Input::Command(Command::Erase { datum }) => see(SimEvent::Released { node, data: vec![*datum] }),
            _ => {}
        }
    }

    /// Reports the events that an effect implies.
    pub(crate) fn of_effect(node: NodeId, effect: &Effect, mut see: impl FnMut(SimEvent)) {
        match effect {
            Effect::Send { to, message: Message::Data(DataMessage::Fetch { datum, .. }) } => {
                see(SimEvent::FetchSent { node, from: *to, datum: *datum });
            }
            Effect::Send { message: Message::Task(TaskMessage::ToClient(TaskToClient::Dropped { .. })), .. } => {
                see(SimEvent::Evicted);
            }
            Effect::DropDatum { datum } => see(SimEvent::RemovedFromStore { node, datum: *datum }),
            Effect::StartTask { task } => see(SimEvent::Started { node, task: task.clone() }),
            Effect::Disconnect { peer } => see(SimEvent::HungUp { node, peer: *peer }),
            Effect::Emit(
                event @ (Event::TaskEnded { .. }
                | Event::DatumAvailable { .. }
                | Event::DatumLost { .. }
                | Event::GroupEnded { .. }
                | Event::NameResult { .. }
                | Event::ServerLost { .. }
                | Event::AgentLost { .. }),
            ) => see(SimEvent::Reported { node, event: event.clone() }),
            _ => {}
        }
    }
}
