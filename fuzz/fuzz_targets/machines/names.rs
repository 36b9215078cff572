//! Messages of peers about names and shared data, made of data that the machine has named.

use gridloom_base::{DatumId, METHODS, NameError, NamedDatum, NodeId, TaskError, TaskId};
use gridloom_core::graph::{Argument, Task, TaskKind};
use gridloom_core::node::message::{
    CatalogAnswer, CatalogToClient, CatalogToServer, ClientToCatalog, ServerToCatalog, StoredVersion, Supply,
    SupplyFault, TaskReport, TaskTimes, TaskToClient, TaskToServer, TransferReport,
};
use gridloom_core::node::{Message, Role};

use super::{AGENT, MachineRun, Node, SELF, meta};

impl MachineRun {
    pub(super) fn named(&self, byte: u8) -> NamedDatum {
        let made_up = || NamedDatum {
            datum: DatumId { client: NodeId::CATALOG, serial: u64::from(byte % 4) },
            name: ["a", "b", ""][usize::from(byte) % 3].into(),
            version: u64::from(byte),
            meta: meta(),
            replicas: u16::from(byte % 4),
            is_durable: byte & 16 != 0,
            method: METHODS[usize::from(byte) % METHODS.len()].method,
            put_by: None,
            readers: Default::default(),
        };
        self.shared.iter().rev().nth(usize::from(byte) % 8).cloned().unwrap_or_else(made_up)
    }

    /// Builds a peer's message about names or shared data.
    pub(super) fn about_names(&mut self, peer: NodeId, role: Role, kind: u8, which: u8) -> Message {
        let named = self.named(which);
        let (datum, name) = (named.datum, named.name.clone());
        let request = u64::from(which % 8);
        if self.shared.len() < 64 && !self.shared.contains(&named) {
            self.shared.push(named.clone());
        }
        match (&self.node, role) {
            (Node::Agent(_), Role::Server) => match kind % 6 {
                0 => ServerToCatalog::Stored { datum, client: NodeId(3 + u64::from(which % 2)) }.into(),
                1 => ServerToCatalog::StoredVersions { data: vec![StoredVersion { named, is_current: which % 4 < 2 }] }
                    .into(),
                2 => ServerToCatalog::HasCopies { data: vec![datum] }.into(),
                3 => TaskToClient::Dropped { data: vec![datum] }.into(),
                4 => {
                    let (from, fault) = (NodeId(u64::from(which % 6)), SupplyFault::Gone);
                    TaskToClient::SupplyFailed { datum, from, fault, why: "so".into() }.into()
                }
                _ => {
                    let report = TransferReport { datum, from: AGENT, to: peer, size_bytes: 8, run_ns: 0, age_ns: 0 };
                    TaskToClient::TasksEnded { reports: Vec::new(), transfers: vec![report], other_tasks: 0 }.into()
                }
            },
            (Node::Agent(_), _) => match kind % 10 {
                0 | 1 => {
                    let earlier_attempt = Some(datum).filter(|_| which >= 128);
                    ClientToCatalog::Put {
                        request,
                        name,
                        meta: meta(),
                        replaces: kind % 2 == 0,
                        replicas: u16::from(which % 4),
                        is_durable: which & 16 != 0,
                        method: METHODS[usize::from(which) % METHODS.len()].method,
                        made_by: None,
                        holders: Vec::new(),
                        earlier_attempt,
                        refused: Vec::new(),
                    }
                    .into()
                }
                2 => ClientToCatalog::Find { request, name, waits: which >= 128 }.into(),
                3 => ClientToCatalog::CancelRequest { request, name }.into(),
                4 => ClientToCatalog::Delete { request, name }.into(),
                5 => ClientToCatalog::List { request, prefix: name, after: String::new() }.into(),
                6 if which >= 128 => ClientToCatalog::Explain { request, name, after: Some(peer) }.into(),
                6 => ClientToCatalog::Locate { datum }.into(),
                7 => ClientToCatalog::Release { datum, times: u64::from(which) }.into(),
                8 => ClientToCatalog::Reads { data: vec![(datum, u64::from(which)), (datum, 1)] }.into(),
                _ => ClientToCatalog::Withdraw { datum }.into(),
            },
            (Node::Server(_), Role::Agent) => match kind % 4 {
                0 => CatalogToServer::Expect { named, client: NodeId(3 + u64::from(which % 2)) }.into(),
                1 => CatalogToServer::Superseded { datum }.into(),
                2 => CatalogToServer::Lost { datum, why: "so".into() }.into(),
                _ => TaskToServer::Release { data: vec![datum] }.into(),
            },
            (Node::Server(_), _) => {
                let own = DatumId { client: peer, serial: u64::from(kind % 4) };
                let read = if kind >= 128 { datum } else { own };
                let supply = Supply::direct(read, meta(), peer, String::new(), 1);
                let task = Task {
                    id: TaskId { client: peer, serial: u64::from(kind) },
                    kind: TaskKind::Publish(Box::new(named)),
                    args: vec![Argument::Datum(read)],
                    outputs: Vec::new(),
                    work_flops: None,
                    options: Default::default(),
                };
                TaskToServer::RunTasks { tasks: vec![task], supplies: vec![supply] }.into()
            }
            (Node::Client(_), Role::Agent) => {
                let holders = vec![(NodeId(5), "p5:1".to_string())];
                match kind % 8 {
                    0 | 1 => {
                        CatalogToClient::Place { request, named, server: NodeId(5), address: "p5:1".into() }.into()
                    }
                    2 => CatalogToClient::Located { datum, holders, why: String::new() }.into(),
                    3 => CatalogToClient::Located { datum, holders: Vec::new(), why: "so".into() }.into(),
                    4 => CatalogToClient::Answer { request, answer: Ok(CatalogAnswer::Put) }.into(),
                    5 => {
                        CatalogToClient::Answer { request, answer: Ok(CatalogAnswer::Found { named, holders }) }.into()
                    }
                    6 => {
                        CatalogToClient::Answer { request, answer: Err(NameError::Unknown { name, near: Vec::new() }) }
                            .into()
                    }
                    _ => {
                        let error = NameError::NotStored { name, server: "p5".into(), why: "so".into() };
                        CatalogToClient::Answer { request, answer: Err(error) }.into()
                    }
                }
            }
            (Node::Client(_), _) => {
                let task = self.program.tasks.iter().rev().nth(usize::from(which) % 8).copied();
                let task = task.unwrap_or(TaskId { client: SELF, serial: 0 });
                let outcome = if kind % 2 == 0 { Ok(Vec::new()) } else { Err(TaskError::Cancelled) };
                let reports = vec![TaskReport { task, outcome, timing: TaskTimes { run_ns: 1, age_ns: 0 } }];
                TaskToClient::TasksEnded { reports, transfers: Vec::new(), other_tasks: 0 }.into()
            }
        }
    }
}
