//! A server that is to end without loss: it takes no calls that other servers can take, finishes what it has, and ends when no program
//! needs anything that is here.
//!
//! The agent hears of it and maps onto others. Plans that were made before may still send tasks for a short time: so the server waits for a
//! heartbeat, and looks once a heartbeat whether it can end. Shared data hold it back, unless they are durable.

use super::{Server, line};
use crate::node::protocol::Effect;
use gridloom_base::limits::HEARTBEAT_NS;
use gridloom_base::{Level, Time};

/// Why a server ends that was drained.
pub const DRAINED: &str = "drained";

impl Server {
    pub(super) fn drain(&mut self, now: Time, out: &mut Vec<Effect>) {
        let (tasks, bytes) = self.load();
        let text = format!("drained: {tasks} tasks and {bytes} bytes of data are left");
        out.push(line(Level::Info, text).into());
        self.registering.drain(now, out);
    }

    pub(super) fn end_if_drained(&self, now: Time, out: &mut Vec<Effect>) {
        let is_due = self.registering.drains_since().is_some_and(|since| now.since(since) >= HEARTBEAT_NS);
        if is_due && self.is_done() {
            out.push(Effect::Exit { why: DRAINED.into() });
        }
    }

    /// Whether no program would miss anything.
    fn is_done(&self) -> bool {
        let (tasks, bytes) = self.load();
        let is_put = self.shared.expected() == 0 && self.shared.durable.len() == 0;
        tasks == 0 && self.objects.len() == 0 && is_put && bytes <= self.shared.durable_bytes()
    }
}

#[cfg(test)]
mod tests {
    use gridloom_base::{DatumId, Dtype, Machine, Meta, NodeId};

    use super::*;
    use crate::graph::{Argument, Output, Task};
    use crate::node::message::{DirectoryMessage, DirectoryToAgent, TaskToServer};
    use crate::node::server::tests::{CLIENT, task, with_client};
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

    fn tells_agent(out: &[Effect]) -> bool {
        let drains = Message::Directory(DirectoryMessage::ToAgent(DirectoryToAgent::Drains));
        out.iter().any(|effect| matches!(effect, Effect::Send { to: AGENT, message } if *message == drains))
    }

    #[test]
    fn an_idle_server_ends_after_a_heartbeat_and_not_by_itself() {
        let (mut server, _) = with_client("Module m; Define f() Calls f();");
        assert!(!ends(&mut server, 5));
        after(&mut server, 6, Input::Command(Command::Drain));
        assert!(!ends(&mut server, 6) && ends(&mut server, 7));
    }

    #[test]
    fn what_was_sent_is_finished_and_results_stay_until_they_are_released() {
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

    #[test]
    fn an_agent_hears_of_it_also_if_it_comes_later() {
        let (mut server, _) = with_client("Module m; Define f() Calls f();");
        let up = || Input::PeerUp { peer: AGENT, role: Role::Agent, name: "agent".into(), address: String::new() };
        assert!(!tells_agent(&after(&mut server, 1, up())));
        assert!(tells_agent(&after(&mut server, 1, Input::Command(Command::Drain))));
        after(&mut server, 2, Input::PeerLost { peer: AGENT, why: "gone".into() });
        assert!(tells_agent(&after(&mut server, 3, up())));
    }
}
