//! Tasks: taken in, ended, cancelled, and reported to their clients.

use crate::graph::Argument;
use crate::idl::Given;

use super::*;

impl Server {
    pub(super) fn on_tasks(
        &mut self,
        now: Time,
        from: NodeId,
        tasks: Vec<Task>,
        supplies: Vec<Supply>,
        is_call: bool,
        out: &mut Vec<Effect>,
    ) {
        for task in tasks {
            let checked = self.check(from, &task).and_then(|()| self.check_object(&task, is_call));
            if let Err(error) = checked {
                self.report(now, from, task.id, Err(error), 0, out);
                continue;
            }
            let (id, object) = (task.id, task.object);
            if !self.executor.add(Arc::new(task), is_call) {
                // A number that was given twice: nothing is made for it.
                object.into_iter().for_each(|object| self.not_made(object, id));
            }
        }
        for Supply { datum, meta, from: source, address } in supplies {
            if datum.client == from && self.executor.reads(datum) && !self.replicas.is_known(datum) {
                let size_bytes = meta.checked_size_bytes().unwrap_or(u64::MAX);
                let comes_unasked = is_call && size_bytes <= EAGER_BYTES_MAX;
                let awaited =
                    Awaited { from: source, address, size_bytes, asked: false, of_call: is_call, comes_unasked };
                self.awaited.insert(datum, awaited);
            }
        }
        self.pump(now, out);
    }

    fn check(&self, from: NodeId, task: &Task) -> Result<(), TaskError> {
        let function = task.function.clone();
        let server = self.config.name.clone();
        let refused =
            |why: &str| TaskError::Refused { function: function.clone(), server: server.clone(), why: why.into() };
        if task.id.client != from || task.outputs.iter().any(|output| output.datum.client != from) {
            return Err(refused("it bears another client's name"));
        }
        match self.functions.get(&task.function) {
            _ if task.is_placement() => {
                let takes_data = task.args.iter().all(|arg| matches!(arg, Argument::Datum(_)));
                if takes_data && task.outputs.is_empty() { Ok(()) } else { Err(refused("only data can be placed")) }
            }
            None => Err(TaskError::NoSuchFunction { function, near: String::new() }),
            Some(hash) if *hash != task.signature_hash => {
                Err(refused("its signature has changed; ask the agent for it again (reconnect)"))
            }
            Some(_) => {
                let signature = self.config.functions.iter().find(|s| s.name == task.function);
                let signature = signature.expect("the hashes were made from these");
                let given = task.args.iter().map(|arg| match arg {
                    Argument::Inline { meta, bytes } => Some(Given { meta, bytes }),
                    Argument::Datum(_) => None,
                });
                let fits = signature.check_call(given, task.outputs.iter().map(|output| &output.meta));
                fits.map_err(|error| refused(&error.reason(&signature.name)))
            }
        }
    }

    pub(super) fn on_task_ended(
        &mut self,
        now: Time,
        id: TaskId,
        outcome: Result<Vec<(DatumId, Meta)>, TaskError>,
        run_ns: u64,
        out: &mut Vec<Effect>,
    ) {
        let tasks = self.running.ended(now, id);
        let Some(entry) = self.executor.remove(id) else { return };
        self.wait_no_more(&entry.task);
        self.last_progress = now;
        let task = entry.task;
        let client = id.client;
        let client_is_here = self.members.is_up(client);
        let (outcome, is_measured) = self.end_calibration(&task, outcome, out);
        let mut dropped = Vec::new();
        match &outcome {
            Ok(results) => {
                self.learn(now, &task, run_ns, tasks, is_measured, out);
                for (datum, meta) in results {
                    self.awaited.remove(datum);
                    if entry.is_call || !client_is_here {
                        if client_is_here {
                            out.push(Effect::SendDatum { to: client, datum: *datum });
                        }
                        self.replicas.discard(*datum);
                        out.push(Effect::DropDatum { datum: *datum });
                    } else if !self.replicas.is_known(*datum) && !self.replicas.fits(meta.size_bytes()) {
                        // A copy of it was here, and was given back while its task ran again for another result.
                        let waiting = self.replicas.refuse(*datum);
                        out.extend(waiting.into_iter().map(|to| Effect::SendDatum { to, datum: *datum }));
                        out.push(Effect::DropDatum { datum: *datum });
                        dropped.push(*datum);
                    } else {
                        self.datum_here(now, *datum, meta.size_bytes(), Origin::Made, out);
                    }
                }
            }
            Err(_) => {
                self.ask_elsewhere(now, &task, out);
                for output in &task.outputs {
                    self.will_not_be_made(now, output.datum, out);
                }
            }
        }
        let lost = self.after_method(&task, &outcome, out);
        let inputs: BTreeSet<DatumId> = task.inputs().collect();
        for datum in inputs {
            let done = self.replicas.remove_reader(datum, now);
            if done || (entry.is_call && self.replicas.release(datum)) {
                out.push(Effect::DropDatum { datum });
            }
        }
        if client_is_here {
            self.report(now, client, id, outcome, run_ns, out);
            if !dropped.is_empty() {
                send(out, client, Message::Dropped { data: dropped });
            }
        }
        if let Some(object) = lost {
            self.object_lost(now, object, out);
        }
        self.pump(now, out);
    }

    /// A task makes nothing here: tasks that waited for its results are let in anew, and ask for them then. They may be
    /// elsewhere, if it ran again for another of its results.
    fn ask_elsewhere(&mut self, now: Time, task: &Task, out: &mut Vec<Effect>) {
        for output in &task.outputs {
            let (readers, _) = self.executor.waiting_for(output.datum);
            self.hold_back(now, readers, out);
        }
    }

    fn will_not_be_made(&mut self, now: Time, datum: DatumId, out: &mut Vec<Effect>) {
        for peer in self.replicas.refuse(datum) {
            let why = format!("the task that makes it failed on server '{}'", self.config.name);
            send(out, peer, Message::FetchRefused { datum, why });
        }
        self.replicas.unreserve(datum, now);
    }

    pub(super) fn cancel(&mut self, now: Time, id: TaskId, out: &mut Vec<Effect>) {
        let Some(state) = self.executor.get(id).map(|entry| entry.state) else {
            return self.made_for_nobody(now, id, out);
        };
        if state == State::Running {
            out.push(Effect::StopTask { task: id });
            return;
        }
        self.give_up(now, id, TaskError::Cancelled, out);
    }

    /// Gives tasks back that do not run, and says which, and for how long the others have run.
    pub(super) fn recall(&mut self, now: Time, from: NodeId, group: GroupId, tasks: &[TaskId], out: &mut Vec<Effect>) {
        let (mut recalled, mut running) = (Vec::new(), Vec::new());
        for id in tasks.iter().filter(|id| id.client == from) {
            match self.executor.get(*id) {
                None => {}
                Some(entry) if entry.state == State::Running => running.push((*id, self.running.elapsed_ns(now, *id))),
                Some(_) => recalled.push(*id),
            }
        }
        // Copies that came for them stay, and have to be known.
        self.report_transfers(now, from, out);
        // Before anything else: whoever hears that a result will not be made here shall know why.
        send(out, from, Message::Recalled { group, tasks: recalled.clone(), running });
        // Tasks of other groups stay.
        let tasks = recalled.iter().filter_map(|id| self.executor.get(*id)).map(|entry| entry.task.clone());
        for task in tasks.collect::<Vec<_>>() {
            self.ask_elsewhere(now, &task, out);
        }
        recalled.into_iter().for_each(|id| self.take_back(now, id, out));
        self.pump(now, out);
    }

    /// Ends a task that does not run.
    pub(super) fn give_up(&mut self, now: Time, id: TaskId, error: TaskError, out: &mut Vec<Effect>) {
        let Some(entry) = self.executor.get(id) else { return };
        let task = entry.task.clone();
        self.ask_elsewhere(now, &task, out);
        self.take_back(now, id, out);
        self.report(now, id.client, id, Err(error), 0, out);
        self.method_given_up(now, &task, out);
    }

    /// Forgets a task that does not run.
    fn take_back(&mut self, now: Time, id: TaskId, out: &mut Vec<Effect>) {
        let Some(entry) = self.executor.remove(id) else { return };
        self.wait_no_more(&entry.task);
        if entry.is_call {
            for datum in entry.task.inputs() {
                if self.replicas.release(datum) {
                    out.push(Effect::DropDatum { datum });
                }
            }
        }
        for output in &entry.task.outputs {
            self.will_not_be_made(now, output.datum, out);
        }
        if entry.state != State::Held {
            let inputs: BTreeSet<DatumId> = entry.task.inputs().collect();
            for datum in inputs {
                if self.replicas.remove_reader(datum, now) {
                    out.push(Effect::DropDatum { datum });
                }
                if !self.executor.waits_for(datum) && !self.executor.makes(datum) {
                    self.replicas.unreserve(datum, now);
                }
            }
        }
    }

    pub(super) fn report(
        &mut self,
        now: Time,
        client: NodeId,
        task: TaskId,
        outcome: Result<Vec<(DatumId, Meta)>, TaskError>,
        run_ns: u64,
        out: &mut Vec<Effect>,
    ) {
        let transfers = self.take_transfers(now, client);
        let report = TaskReport { task, outcome, timing: Timing { run_ns, age_ns: 0 } };
        send(out, client, Message::TasksEnded { reports: vec![report], transfers });
    }

    /// Says at once what has come here for a client, so that it is not heard after the news that it was dropped.
    pub(super) fn report_transfers(&mut self, now: Time, client: NodeId, out: &mut Vec<Effect>) {
        let transfers = self.take_transfers(now, client);
        if !transfers.is_empty() {
            send(out, client, Message::TasksEnded { reports: Vec::new(), transfers });
        }
    }

    fn take_transfers(&mut self, now: Time, client: NodeId) -> Vec<TransferReport> {
        let transfers = self.transfers.remove(&client).unwrap_or_default();
        let aged = transfers.into_iter().map(|(report, at)| TransferReport { age_ns: now.since(at), ..report });
        aged.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Dtype;
    use crate::graph::Output;
    use crate::idl::parse;

    const CLIENT: NodeId = NodeId(7);

    #[test]
    fn a_task_whose_arrays_do_not_fit_its_sizes_is_refused_and_the_next_one_runs() {
        let text = "Module m; Define f(IN int n, IN int k, IN double a[n*k], OUT double c[n]) Calls f(n, k, a, c);";
        let signature = parse(text, "t.idl").unwrap().remove(0).signature;
        let hash = signature.hash();
        let mut server = Server::new(offering(signature, 2));
        let mut out = Vec::new();
        let up = Input::PeerUp { peer: CLIENT, role: Role::Client, name: "c".into(), address: String::new() };
        server.handle(Time(0), up, &mut out);
        let mut outcome = |serial, array: u64, result: u64| {
            let int =
                |value: i32| Argument::Inline { meta: Meta::scalar(Dtype::Int32), bytes: value.to_ne_bytes().to_vec() };
            let float64 = |extent| Meta::array(Dtype::Float64, &[extent]);
            let bytes = vec![0; 8 * array as usize];
            let task = Task {
                id: TaskId { client: CLIENT, serial },
                function: "m/f".into(),
                signature_hash: hash,
                args: vec![int(3), int(4), Argument::Inline { meta: float64(array), bytes }],
                outputs: vec![Output { datum: DatumId { client: CLIENT, serial }, meta: float64(result) }],
                work_flops: None,
                only: None,
                object: None,
            };
            let mut out = Vec::new();
            let message = Message::RunTasks { tasks: vec![task], supplies: Vec::new() };
            server.handle(Time(serial), Input::Received { from: CLIENT, message }, &mut out);
            let refusal = out.iter().find_map(|effect| match effect {
                Effect::Send { message: Message::TasksEnded { reports, .. }, .. } => Some(reports[0].outcome.clone()),
                _ => None,
            });
            (refusal, out.iter().any(|effect| matches!(effect, Effect::StartTask { .. })))
        };
        for (array, result, why) in [
            (11, 3, "argument 'a' has shape [11], expected [n*k] = [12] (n = 3 as given, k = 4 as given)"),
            (12, 2, "argument 'c' has shape [2], expected [n] = [3] (n = 3 as given)"),
        ] {
            let (function, server) = ("m/f".to_string(), "s".to_string());
            let refused = TaskError::Refused { function, server, why: why.into() };
            assert_eq!(outcome(array, array, result), (Some(Err(refused)), false));
        }
        assert_eq!(outcome(20, 12, 3), (None, true));
    }

    /// A task runs again for one of its results; a copy of the other is elsewhere, where its reader here has it from when the
    /// task is cancelled.
    #[test]
    fn who_waits_for_a_result_of_a_cancelled_task_asks_elsewhere() {
        let text = "Module m; Define f(IN double x[n], IN int n, OUT double y[n]) Calls f(x, n, y);";
        let signature = parse(text, "t.idl").unwrap().remove(0).signature;
        let hash = signature.hash();
        let mut server = Server::new(offering(signature, 2));
        let mut out = Vec::new();
        let up = Input::PeerUp { peer: CLIENT, role: Role::Client, name: "c".into(), address: String::new() };
        server.handle(Time(0), up, &mut out);
        let datum = |serial| DatumId { client: CLIENT, serial };
        let id = |serial| TaskId { client: CLIENT, serial };
        let meta = || Meta::array(Dtype::Float64, &[3]);
        let task = |serial, x: Argument| Task {
            id: id(serial),
            function: "m/f".into(),
            signature_hash: hash,
            args: vec![x, Argument::Inline { meta: Meta::scalar(Dtype::Int32), bytes: 3i32.to_ne_bytes().to_vec() }],
            outputs: vec![Output { datum: datum(serial), meta: meta() }],
            work_flops: None,
            only: None,
            object: None,
        };
        let maker = task(1, Argument::Inline { meta: meta(), bytes: vec![0; 24] });
        let reader = task(2, Argument::Datum(datum(1)));
        let supply = Supply { datum: datum(1), meta: meta(), from: CLIENT, address: String::new() };
        let inputs = [
            Input::Received { from: CLIENT, message: Message::RunTasks { tasks: vec![maker], supplies: Vec::new() } },
            Input::Received {
                from: CLIENT,
                message: Message::RunTasks { tasks: vec![reader], supplies: vec![supply] },
            },
            Input::Received { from: CLIENT, message: Message::Cancel { tasks: vec![id(1)] } },
        ];
        for input in inputs {
            server.handle(Time(1), input, &mut out);
        }
        // Its owner names the place.
        let asks = |effect: &Effect| match effect {
            Effect::Send { to: CLIENT, message: Message::SupplyFailed { datum, .. } } => datum.serial == 1,
            _ => false,
        };
        assert!(out.iter().any(|effect| matches!(effect, Effect::StopTask { .. })) && !out.iter().any(asks));
        out.clear();
        let ended = Input::TaskEnded { task: id(1), outcome: Err(TaskError::Cancelled), run_ns: 1 };
        server.handle(Time(2), ended, &mut out);
        assert!(out.iter().any(asks), "{out:?}");
    }
}
