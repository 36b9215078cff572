//! Passes messages of peers to the part of the client that handles them.

use super::{Category, Client, LogLine, send};
use crate::node::message::{
    CatalogMessage, DataMessage, DirectoryMessage, DirectoryToClient, LinkMessage, LinkToProber, MapMessage,
    MapToClient, Message, TaskMessage, TaskToClient,
};
use crate::node::protocol::{Effect, Event};
use gridloom_base::{DatumId, Level, NodeId, Time};

impl Client {
    pub(super) fn on_message(&mut self, now: Time, from: NodeId, message: Message, out: &mut Vec<Effect>) {
        match message {
            Message::Link(LinkMessage::Ping { token }) => send(out, from, LinkMessage::Pong { token }),
            Message::Link(LinkMessage::Pong { token }) => self.on_pong(now, from, token, out),
            Message::Link(LinkMessage::ToProber(LinkToProber::ProbeArrived { size_bytes })) => {
                self.on_probe_arrived(now, from, size_bytes, out);
            }
            Message::Link(LinkMessage::ToProber(LinkToProber::Turn { to, is_needed })) => {
                self.on_turn(now, to, is_needed, out);
            }
            Message::Directory(DirectoryMessage::ToClient(message)) => {
                self.on_directory_message(now, from, message, out)
            }
            Message::Map(MapMessage::ToClient(message)) => self.on_map_message(now, message, out),
            Message::Task(TaskMessage::ToClient(message)) => self.on_task_message(now, from, message, out),
            Message::Data(message) => self.on_data_message(now, from, message, out),
            Message::Catalog(CatalogMessage::ToClient(message)) if self.contacts.agent() == Some(from) => {
                self.on_catalog_message(now, message, out);
            }
            Message::Link(LinkMessage::ToAgent(_))
            | Message::Directory(DirectoryMessage::ToAgent(_) | DirectoryMessage::ToServer(_))
            | Message::Map(MapMessage::ToAgent(_))
            | Message::Task(TaskMessage::ToServer(_))
            | Message::Catalog(_) => {
                let text = "a peer sent a message that clients do not handle";
                out.push(LogLine::new(Level::Warning, Category::Client, text).peer(from).into());
            }
        }
    }

    fn on_directory_message(&mut self, now: Time, from: NodeId, message: DirectoryToClient, out: &mut Vec<Effect>) {
        match message {
            DirectoryToClient::Update(news) => self.on_directory(now, news, out),
            DirectoryToClient::LinksKnown { links } => out.push(Effect::Emit(Event::Links { links })),
            DirectoryToClient::WaitsKnown { programs } => out.push(Effect::Emit(Event::Waits { programs })),
            DirectoryToClient::UsageKnown { query, answer } => {
                out.push(Effect::Emit(Event::Usage { query, answer }));
            }
            DirectoryToClient::Status { status } => out.push(Effect::Emit(Event::Status { server: from, status })),
            DirectoryToClient::EndTaskAnswered { task, answer } => {
                out.push(Effect::Emit(Event::EndTaskAnswered { server: from, task, answer }));
            }
            DirectoryToClient::Output(output) => out.push(Effect::Emit(Event::Output { server: from, output })),
            DirectoryToClient::ModelsKnown { server } => out.push(Effect::Emit(Event::ModelsKnown { server })),
        }
    }

    fn on_map_message(&mut self, now: Time, message: MapToClient, out: &mut Vec<Effect>) {
        match message {
            MapToClient::GroupMapped { group, round, plan, addresses, seen } if self.plans.is_current(group, round) => {
                for (server, address) in addresses {
                    self.contacts.learn_address(server, address);
                }
                self.on_mapped(now, group, plan, seen, out);
            }
            MapToClient::GroupNotMapped { group, round, why } if self.plans.is_current(group, round) => {
                self.not_mapped(now, group, why, out);
            }
            // The group was cancelled, or mapped again since.
            MapToClient::GroupMapped { .. } | MapToClient::GroupNotMapped { .. } => {}
            MapToClient::Stale { group, why } => self.on_stale(now, group, &why, out),
        }
    }

    fn on_task_message(&mut self, now: Time, from: NodeId, message: TaskToClient, out: &mut Vec<Effect>) {
        match message {
            TaskToClient::TasksEnded { reports, transfers, other_tasks: others } => {
                let slots = self.directory.grid.server(from).map_or(1, |at| self.directory.grid.servers[at].slots);
                self.queues.others(now, from, slots, others);
                for report in transfers {
                    self.on_transfer_report(now, report, out);
                }
                for report in reports {
                    if self.calls.get(report.task).is_some() {
                        self.on_call_report(now, from, report, out);
                    } else {
                        self.on_task_report(now, from, report, out);
                    }
                }
            }
            TaskToClient::MakeRoom { data } => self.on_make_room(from, data, out),
            TaskToClient::OtherTasksRunning { elapsed_ns } => self.queues.set_others_elapsed(now, from, &elapsed_ns),
            TaskToClient::CallsBack(call) => {
                if self.calls.get(call.task).is_some_and(|known| known.server == from) {
                    out.push(Effect::Emit(Event::CallsBack { server: from, call }));
                }
            }
            TaskToClient::Paused { task, waits } => {
                if self.label_at(task, from).is_some() {
                    // A task that waits for a slot there gets this one's.
                    self.queues.remove(now, task);
                    self.backlog.paused(task, waits);
                }
            }
            TaskToClient::CallOutput(said) => {
                if let Some(function) = self.label_at(said.task, from) {
                    let (server, function) = (self.contacts.name_of(from), function.to_string());
                    out.push(Effect::Emit(Event::CallOutput { server, function, said }));
                }
            }
            TaskToClient::Recalled { group: None, tasks, running } => {
                self.on_tasks_returned(now, from, &tasks, &running, out);
            }
            TaskToClient::Recalled { group: Some(group), tasks, running } => {
                self.on_recalled(now, from, group, &tasks, &running, out);
            }
            TaskToClient::Dropped { data } => self.on_dropped(from, &data, out),
            TaskToClient::SupplyFailed { datum, from: source, fault, why } => {
                self.on_supply_failed(now, from, datum, source, fault, &why, out);
            }
        }
    }

    fn on_data_message(&mut self, now: Time, from: NodeId, message: DataMessage, out: &mut Vec<Effect>) {
        match message {
            DataMessage::Fetch { datum, .. } => self.on_fetch(now, from, datum, out),
            DataMessage::FetchRefused { datum, why } => {
                if self.graph.fetch_ended(datum, from) {
                    self.graph.copy_removed(datum, from);
                    self.recover_datum(now, datum, &why, out);
                }
            }
        }
    }

    fn on_fetch(&mut self, now: Time, from: NodeId, datum: DatumId, out: &mut Vec<Effect>) {
        if datum.is_shared() {
            let why = "it belongs to no client".into();
            return send(out, from, DataMessage::FetchRefused { datum, why });
        }
        if let Some(of) = self.supplies.copies.get(datum) {
            return self.on_fetch_copy(now, datum, of, out);
        }
        if self.is_here(datum) {
            out.push(Effect::SendDatum { to: from, datum });
            return;
        }
        let Some(run) = self.graph.datum(datum) else {
            return send(out, from, DataMessage::FetchRefused { datum, why: "the client has released it".into() });
        };
        if let Some(error) = run.error() {
            return send(out, from, DataMessage::FetchRefused { datum, why: error.to_string() });
        }
        self.graph.requested_by(datum, from);
        self.recover_datum(now, datum, "no server holds it any more", out);
    }
}
