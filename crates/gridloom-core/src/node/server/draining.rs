//! Draining: a server that is to exit without loss takes no calls that other servers can take, finishes its tasks, and
//! exits when no program needs its data.
//!
//! The agent is notified and maps onto other servers. Plans that were made before may still send tasks for a short
//! time, so the server waits for one heartbeat, and checks at each heartbeat whether it can exit. Shared data that it
//! keeps delay the exit, unless they are durable.

use super::{Server, line};
use crate::node::protocol::Effect;
use gridloom_base::limits::HEARTBEAT_NS;
use gridloom_base::{Level, Time};

/// The exit reason of a drained server.
pub const DRAINED: &str = "drained";

impl Server {
    pub(super) fn drain(&mut self, now: Time, out: &mut Vec<Effect>) {
        let (tasks, bytes) = self.load();
        let text = format!("draining: {tasks} tasks and {bytes} bytes of data are left");
        out.push(line(Level::Info, text).into());
        self.registering.drain(now, out);
        self.report_accounts(now, out);
    }

    pub(super) fn end_if_drained(&mut self, now: Time, out: &mut Vec<Effect>) {
        let is_due = self.registering.drains_since().is_some_and(|since| now.since(since) >= HEARTBEAT_NS);
        if is_due && self.is_done() {
            self.report_accounts(now, out);
            out.push(Effect::Exit { why: DRAINED.into() });
        }
    }

    /// True if no program would miss anything.
    fn is_done(&self) -> bool {
        let is_put = self.shared.expected() == 0 && self.shared.durable.len() == 0;
        let is_idle = self.admission.is_empty() && self.objects.len() == 0;
        is_idle && is_put && !self.admission.data().any(|datum| self.shared.would_be_missed(datum))
    }
}

#[cfg(test)]
mod tests {
    use gridloom_base::dial::ConnectionFault;
    use gridloom_base::{DatumId, Dtype, Machine, Meta, Method, NamedDatum, NodeId};

    use super::*;
    use crate::graph::{Argument, Output, Task};
    use crate::node::message::{CatalogToServer, DirectoryMessage, DirectoryToAgent, Supply, TaskToServer};
    use crate::node::server::ServerConfig;
    use crate::node::server::tests::{CLIENT, is_up, offering_nothing, task, with_client};
    use crate::node::{Command, Input, Message, Role, ServerTimer};

    const AGENT: NodeId = NodeId(2);

    fn after(server: &mut Server, beats: u64, input: Input) -> Vec<Effect> {
        let mut out = Vec::new();
        server.handle(Time(beats * HEARTBEAT_NS), input, &mut out);
        out
    }

    fn ends(server: &mut Server, beats: u64) -> bool {
        let out = after(server, beats, Input::Timer(ServerTimer::Heartbeat.into()));
        out.iter().any(|effect| matches!(effect, Effect::Exit { why } if why == DRAINED))
    }

    fn notifies_agent(out: &[Effect]) -> bool {
        let drains = Message::Directory(DirectoryMessage::ToAgent(DirectoryToAgent::Draining));
        out.iter().any(|effect| matches!(effect, Effect::Send { to: AGENT, message } if *message == drains))
    }

    #[test]
    fn an_idle_server_exits_a_heartbeat_after_a_drain_only() {
        let (mut server, _) = with_client("Module m; Define f() Calls f();");
        assert!(!ends(&mut server, 5));
        after(&mut server, 6, Input::Command(Command::Drain));
        assert!(!ends(&mut server, 6) && ends(&mut server, 7));
    }

    #[test]
    fn tasks_are_finished_and_results_stay_until_released() {
        let (mut server, hash) = with_client("Module m; Define f(IN int n, OUT double c[n]) Calls f(n, c);");
        let datum = DatumId { client: CLIENT, serial: 9 };
        let outputs = vec![Output { datum, meta: Meta::array(Dtype::Float64, &[8]) }];
        let args = vec![Argument::Inline { meta: Meta::scalar(Dtype::Int32), bytes: 8_i32.to_ne_bytes().to_vec() }];
        let task = Task { args, outputs, ..task(CLIENT, 1, hash) };
        let id = task.id;
        after(&mut server, 1, Input::Command(Command::Drain));
        let message = TaskToServer::RunTasks { tasks: vec![task], supplies: Vec::new() }.into();
        let out = after(&mut server, 1, Input::Received { from: CLIENT, message });
        assert!(out.iter().any(|effect| matches!(effect, Effect::StartTask { .. })), "{out:?}");
        assert!(!ends(&mut server, 3), "a task runs");
        after(
            &mut server,
            4,
            Input::TaskEnded { task: id, outcome: Ok(vec![(datum, Meta::array(Dtype::Float64, &[8]))]), run_ns: 1 },
        );
        assert!(!ends(&mut server, 5), "its result is needed");
        let message = TaskToServer::Release { data: vec![datum] }.into();
        after(&mut server, 6, Input::Received { from: CLIENT, message });
        assert!(ends(&mut server, 7));
    }

    /// Returns a version of a shared datum of 2,000 bytes.
    fn version(serial: u64, is_durable: bool) -> NamedDatum {
        NamedDatum {
            datum: DatumId::shared(serial),
            name: "mesh".into(),
            version: 1,
            meta: Meta::array(Dtype::Float64, &[250]),
            replicas: 1,
            is_durable,
            method: Method::Auto,
            put_by: None,
            readers: Default::default(),
        }
    }

    #[test]
    fn superseded_durable_data_delay_the_exit() {
        for (is_durable, is_former, holds_back) in [(true, false, false), (true, true, true), (false, false, true)] {
            let named = version(1, is_durable);
            // Each datum takes a descriptor, and counts as a sixteenth of the store.
            let (data_max, durable) = (16, Some(vec![named.clone()]));
            let config = ServerConfig { agent: "agent".into(), data_max, durable, ..offering_nothing() };
            let mut server = Server::new(config);
            after(&mut server, 0, Input::Start);
            after(&mut server, 0, is_up(AGENT, Role::Agent, "agent"));
            if is_former {
                let message = CatalogToServer::Superseded { datum: named.datum }.into();
                after(&mut server, 0, Input::Received { from: AGENT, message });
            }
            after(&mut server, 1, Input::Command(Command::Drain));
            assert_eq!(ends(&mut server, 2), !holds_back, "{is_durable} {is_former}");
        }
    }

    #[test]
    fn a_copy_of_another_servers_datum_does_not_delay_the_exit() {
        let text = "Module m; Define f(IN int n, IN double a[n]) Calls f(n, a);";
        let (mut server, hash) = with_client(text);
        let (holder, named) = (NodeId(9), version(1, false));
        after(&mut server, 0, is_up(holder, Role::Server, "holder"));
        let n = Argument::Inline { meta: Meta::scalar(Dtype::Int32), bytes: 250_i32.to_ne_bytes().to_vec() };
        let task = Task { args: vec![n, Argument::Datum(named.datum)], ..task(CLIENT, 1, hash) };
        let id = task.id;
        let supplies = vec![Supply::direct(named.datum, named.meta.clone(), holder, "holder".into(), 1)];
        let message = TaskToServer::RunTasks { tasks: vec![task], supplies }.into();
        after(&mut server, 1, Input::Received { from: CLIENT, message });
        let (datum, meta) = (named.datum, named.meta);
        let out = after(&mut server, 1, Input::DatumArrived { from: holder, datum, meta, duration_ns: 1 });
        assert!(out.iter().any(|effect| matches!(effect, Effect::StartTask { .. })), "{out:?}");
        after(&mut server, 1, Input::Command(Command::Drain));
        assert!(!ends(&mut server, 2), "a task runs");
        after(&mut server, 3, Input::TaskEnded { task: id, outcome: Ok(Vec::new()), run_ns: 1 });
        assert!(server.load().1 > 0, "other tasks may read it here");
        assert!(ends(&mut server, 4));
    }

    #[test]
    fn an_agent_that_connects_later_is_notified() {
        let (mut server, _) = with_client("Module m; Define f() Calls f();");
        let up = || is_up(AGENT, Role::Agent, "");
        assert!(!notifies_agent(&after(&mut server, 1, up())));
        assert!(notifies_agent(&after(&mut server, 1, Input::Command(Command::Drain))));
        after(
            &mut server,
            2,
            Input::PeerLost { peer: AGENT, fault: ConnectionFault::Disconnected, why: "gone".into() },
        );
        assert!(notifies_agent(&after(&mut server, 3, up())));
    }
}
