//! Calls that are to be measured: one at a time, only while nothing else is here, and first to go when something comes.

use super::*;

/// The call under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    task: TaskId,
    /// Other work has come: its time says nothing.
    is_disturbed: bool,
}

impl Server {
    /// Takes a call in if the server is idle.
    pub(super) fn on_calibration(
        &mut self,
        now: Time,
        from: NodeId,
        task: Task,
        supplies: Vec<Supply>,
        out: &mut Vec<Effect>,
    ) {
        if !self.executor.is_empty() {
            let error = self.gave_way(&task.function);
            self.report(now, from, task.id, Err(error), 0, out);
            return;
        }
        self.measured = Some(Measured { task: task.id, is_disturbed: false });
        self.on_tasks(now, from, vec![task], supplies, true, out);
    }

    /// Other work comes. A call that waits for its arguments makes way at once; one that runs may be as good as over: it gets
    /// until the next heartbeat, since another worker in its place takes as long to start.
    pub(super) fn disturb_calibration(&mut self, now: Time, out: &mut Vec<Effect>) {
        let Some(measured) = &mut self.measured else { return };
        measured.is_disturbed = true;
        let id = measured.task;
        match self.executor.get(id).map(|entry| (entry.state, entry.task.function.clone())) {
            Some((State::Running, _)) => {}
            Some((_, function)) => {
                self.measured = None;
                let error = self.gave_way(&function);
                self.give_up(now, id, error, out);
            }
            None => self.measured = None,
        }
    }

    pub(super) fn stop_disturbed_calibration(&mut self, out: &mut Vec<Effect>) {
        if let Some(Measured { task, is_disturbed: true }) = self.measured
            && self.executor.get(task).is_some_and(|entry| entry.state == State::Running)
        {
            out.push(Effect::StopTask { task });
        }
    }

    /// A task has ended: how, if it was to be measured, and whether it was.
    pub(super) fn end_calibration(
        &mut self,
        task: &Task,
        outcome: Result<Vec<(DatumId, Meta)>, TaskError>,
        out: &mut Vec<Effect>,
    ) -> (Result<Vec<(DatumId, Meta)>, TaskError>, bool) {
        let Some(measured) = self.measured.take_if(|measured| measured.task == task.id) else {
            return (outcome, false);
        };
        match outcome {
            Ok(results) if measured.is_disturbed => {
                out.extend(results.into_iter().map(|(datum, _)| Effect::DropDatum { datum }));
                (Err(self.gave_way(&task.function)), false)
            }
            Err(TaskError::Cancelled) if measured.is_disturbed => (Err(self.gave_way(&task.function)), false),
            outcome => (outcome, true),
        }
    }

    fn gave_way(&self, function: &str) -> TaskError {
        TaskError::GaveWay { function: function.into(), server: self.config.name.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: NodeId = NodeId(7);
    const CALIBRATOR: NodeId = NodeId(8);

    fn task(client: NodeId, serial: u64, hash: u64) -> Task {
        let id = TaskId { client, serial };
        let (args, outputs) = (Vec::new(), Vec::new());
        Task {
            id,
            function: "m/f".into(),
            signature_hash: hash,
            args,
            outputs,
            work_flops: Some(1e9),
            only: None,
            object: None,
        }
    }

    /// A server of one slot with both clients, and how it answers.
    struct Test {
        server: Server,
        hash: u64,
        now: u64,
    }

    impl Test {
        fn new() -> Test {
            let signature = crate::idl::parse("Module m; Define f() Calls f();", "t.idl").unwrap().remove(0).signature;
            let hash = signature.hash();
            let mut server = Server::new(offering(signature, 1));
            for peer in [USER, CALIBRATOR] {
                let (name, address) = (String::new(), String::new());
                let up = Input::PeerUp { peer, role: Role::Client, name, address };
                server.handle(Time(0), up, &mut Vec::new());
            }
            Test { server, hash, now: 0 }
        }

        fn handle(&mut self, input: Input) -> Vec<Effect> {
            self.now += 1;
            let mut out = Vec::new();
            self.server.handle(Time(self.now), input, &mut out);
            out
        }

        fn call(&mut self, client: NodeId, serial: u64) -> Vec<Effect> {
            let task = task(client, serial, self.hash);
            let message = Message::Call { task, supplies: Vec::new(), calibrates: client == CALIBRATOR };
            self.handle(Input::Received { from: client, message })
        }

        fn ended(&mut self, client: NodeId, serial: u64, outcome: Result<(), TaskError>) -> Vec<Effect> {
            let outcome = outcome.map(|()| Vec::new());
            self.handle(Input::TaskEnded { task: TaskId { client, serial }, outcome, run_ns: 1_000_000 })
        }

        fn calls_learned(&self) -> u64 {
            self.server.known.get("m/f").map_or(0, |known| known.calls())
        }
    }

    fn reported(out: &[Effect]) -> Option<Result<(), TaskError>> {
        out.iter().find_map(|effect| match effect {
            Effect::Send { message: Message::TasksEnded { reports, .. }, .. } if !reports.is_empty() => {
                Some(reports[0].outcome.clone().map(drop))
            }
            _ => None,
        })
    }

    fn gave_way() -> Option<Result<(), TaskError>> {
        Some(Err(TaskError::GaveWay { function: "m/f".into(), server: "s".into() }))
    }

    #[test]
    fn an_idle_server_measures_and_a_busy_one_does_not() {
        let mut test = Test::new();
        assert_eq!(reported(&test.call(CALIBRATOR, 1)), None);
        // Nor while another is measured.
        assert_eq!(reported(&test.call(CALIBRATOR, 2)), gave_way());
        assert_eq!(reported(&test.ended(CALIBRATOR, 1, Ok(()))), Some(Ok(())));
        assert_eq!(test.calls_learned(), 1);
        test.call(USER, 1);
        assert_eq!(reported(&test.call(CALIBRATOR, 3)), gave_way());
        test.ended(USER, 1, Ok(()));
        assert_eq!((reported(&test.call(CALIBRATOR, 4)), test.calls_learned()), (None, 2));
    }

    #[test]
    fn a_call_that_was_disturbed_is_not_learned_and_stopped_at_the_heartbeat() {
        let mut test = Test::new();
        test.call(CALIBRATOR, 1);
        test.call(USER, 1);
        let out = test.ended(CALIBRATOR, 1, Ok(()));
        assert_eq!((reported(&out), test.calls_learned()), (gave_way(), 0));
        assert!(out.iter().any(|effect| matches!(effect, Effect::StartTask { task } if task.id.client == USER)));
        test.ended(USER, 1, Ok(()));

        test.call(CALIBRATOR, 2);
        let stopped = TaskId { client: CALIBRATOR, serial: 2 };
        let stops = |out: &[Effect]| out.contains(&Effect::StopTask { task: stopped });
        assert!(!stops(&test.handle(Input::Timer(HEARTBEAT))), "it has the server for itself");
        assert!(!stops(&test.call(USER, 2)), "it may be as good as over");
        assert!(stops(&test.handle(Input::Timer(HEARTBEAT))));
        assert_eq!(reported(&test.ended(CALIBRATOR, 2, Err(TaskError::Cancelled))), gave_way());
        assert_eq!(test.calls_learned(), 1, "the user's");
    }

    #[test]
    fn errors_of_the_function_stay_what_they_are() {
        let mut test = Test::new();
        test.call(CALIBRATOR, 1);
        test.call(USER, 1);
        let error = TaskError::Crashed { function: "m/f".into(), server: "s".into(), how: "SIGSEGV".into() };
        assert_eq!(reported(&test.ended(CALIBRATOR, 1, Err(error.clone()))), Some(Err(error)));
    }
}
