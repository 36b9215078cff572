use super::*;
use crate::graph::{Argument, Output, Source, TaskKind};

const CLIENT: NodeId = NodeId(9);
const SERVER: NodeId = NodeId(2);
const OTHER: NodeId = NodeId(3);
const GROUP: GroupId = GroupId { client: CLIENT, serial: 1 };

fn datum(serial: u64) -> DatumId {
    DatumId { client: CLIENT, serial }
}

fn id(serial: u64) -> TaskId {
    TaskId { client: CLIENT, serial }
}

fn meta() -> Meta {
    Meta::scalar(gridloom_base::Dtype::Float64)
}

/// Returns a task that reads and produces those data.
fn task(serial: u64, inputs: &[u64], outputs: &[u64]) -> Task {
    let args = inputs.iter().map(|serial| Argument::Datum(datum(*serial))).collect();
    let outputs = outputs.iter().map(|serial| Output { datum: datum(*serial), meta: meta() }).collect();
    let kind = TaskKind::call("m/f", 0);
    Task { id: id(serial), kind, args, outputs, work_flops: None, options: Default::default() }
}

/// A graph, checked after each step.
struct Test {
    graph: TaskGraph,
}

impl Test {
    /// Creates a graph of one group. The program has put the data `sources`.
    fn new(sources: &[u64], tasks: Vec<Task>) -> Test {
        let sources = sources.iter().map(|serial| (datum(*serial), Source { meta: meta(), at: Vec::new() }));
        let group = Group { id: GROUP, tasks, sources: sources.collect(), wanted: Vec::new() };
        let mut graph = TaskGraph::new(CLIENT);
        graph.add(group);
        graph.check();
        Test { graph }
    }

    /// Datum 1 is put, task 1 makes 2 of it, and task 2 makes 3 of that.
    fn chain() -> Test {
        Test::new(&[1], vec![task(1, &[1], &[2]), task(2, &[2], &[3])])
    }

    fn send(&mut self, serial: u64, server: NodeId) {
        assert!(self.graph.sent(id(serial), server), "it waits to be sent");
        self.graph.check();
    }

    /// The task ends at its server, which keeps its results. Returns the tasks that are ready now.
    fn end(&mut self, serial: u64) -> Vec<TaskId> {
        let run = self.graph.task(id(serial)).expect("it is remembered");
        let server = run.server().expect("it was sent");
        let results: Vec<(DatumId, Meta)> = run.task().outputs.iter().map(|it| (it.datum, meta())).collect();
        let (task, group) = self.graph.done(id(serial), server, &results, false).expect("it is remembered");
        let ready = task.outputs.iter().flat_map(|output| self.graph.made(output.datum)).collect();
        self.reads_no_more(&task, group);
        ready
    }

    fn fail(&mut self, serial: u64, error: &TaskError) -> Option<NodeId> {
        let FailedTask { task, group, server } = self.graph.failed(id(serial), error).expect("it has not ended");
        for output in &task.outputs {
            self.graph.lost(output.datum, error);
        }
        self.reads_no_more(&task, group);
        server
    }

    fn reads_no_more(&mut self, task: &Task, group: GroupId) {
        let inputs: BTreeSet<DatumId> = task.inputs().collect();
        self.graph.ended(&inputs, group);
        self.graph.check();
    }

    fn release(&mut self, serial: u64) -> Vec<Unneeded> {
        self.graph.released(datum(serial), false);
        self.tidy(serial)
    }

    fn tidy(&mut self, serial: u64) -> Vec<Unneeded> {
        let unneeded = self.graph.tidy(datum(serial));
        self.graph.check();
        unneeded
    }

    fn lose(&mut self, server: NodeId) -> ServerLoss {
        let loss = self.graph.server_lost(&LostServer { node: server, name: "s".into(), why: "gone".into() });
        self.graph.check();
        loss
    }
}

#[test]
fn a_task_is_ready_when_its_last_input_is_made() {
    let mut test = Test::new(&[], vec![task(1, &[], &[1]), task(2, &[], &[2]), task(3, &[1, 2, 1], &[3])]);
    [1, 2, 3].into_iter().for_each(|serial| test.send(serial, SERVER));
    assert!(test.graph.task(id(3)).unwrap().awaits_inputs());
    assert_eq!(test.end(1), []);
    assert_eq!(test.end(2), [id(3)]);
    assert!(!test.graph.task(id(3)).unwrap().awaits_inputs());
}

#[test]
fn a_task_is_sent_once_until_its_server_returns_it() {
    let mut test = Test::chain();
    test.send(1, SERVER);
    assert!(!test.graph.sent(id(1), OTHER) && !test.graph.returned(id(1), OTHER));
    test.graph.fetch_begun(datum(2), SERVER);
    assert!(test.graph.returned(id(1), SERVER));
    assert_eq!(test.graph.datum(datum(2)).unwrap().sender(), None, "the server will not produce it");
    assert_eq!(test.graph.unmapped(GROUP), [id(1), id(2)]);
    test.send(1, OTHER);
    assert_eq!(test.graph.at_servers(GROUP), BTreeMap::from([(OTHER, vec![id(1)])]));
}

#[test]
fn a_result_is_kept_for_its_readers_and_then_dropped_with_its_task() {
    let mut test = Test::chain();
    [1, 2].into_iter().for_each(|serial| test.send(serial, SERVER));
    assert_eq!(test.release(2), [], "task 2 reads it");
    assert_eq!(test.release(1), [], "task 1 may have to run again");
    test.end(1);
    assert_eq!(test.tidy(1), []);
    test.end(2);
    // The program holds datum 3, whose loss would make all tasks run again. Copies between are not needed until then.
    assert_eq!(test.tidy(2), [Unneeded::Copy(datum(2), SERVER)]);
    assert_eq!(test.graph.len(), (2, 3));
    test.graph.arrived(datum(3), &meta(), None);
    let forgotten = test.tidy(3);
    assert!(forgotten.contains(&Unneeded::OwnCopy(datum(1))) && forgotten.contains(&Unneeded::Group(GROUP)));
    assert_eq!(test.graph.len(), (0, 1), "only the result is left");
    assert_eq!(
        test.release(3),
        [Unneeded::Copy(datum(3), SERVER), Unneeded::OwnCopy(datum(3)), Unneeded::Datum(datum(3))]
    );
    assert_eq!((test.graph.len(), test.graph.groups().count()), ((0, 0), 0));
}

#[test]
fn a_lost_server_stops_its_tasks_and_loses_its_copies() {
    let mut test = Test::chain();
    test.send(1, SERVER);
    test.end(1);
    test.send(2, SERVER);
    let loss = test.lose(SERVER);
    assert_eq!((&loss.stopped, &loss.again), (&vec![id(2)], &vec![id(2)]));
    assert!(loss.hopeless.is_empty());
    assert_eq!(test.graph.gone(), [datum(2)], "task 2 must read it again");
    assert_eq!(test.graph.restarted(id(1)), [datum(1)]);
    test.graph.check();
    assert_eq!(test.graph.unmapped(GROUP), [id(1), id(2)]);
    assert_eq!(test.graph.task(id(1)).unwrap().lost_with().unwrap().node, SERVER);
}

#[test]
fn a_task_that_is_lost_too_often_is_hopeless() {
    let mut test = Test::chain();
    for _ in 1..TASK_ATTEMPTS_MAX {
        test.send(1, SERVER);
        assert_eq!(test.lose(SERVER).again, [id(1)]);
    }
    test.send(1, SERVER);
    assert_eq!(test.lose(SERVER).hopeless, [id(1)]);
}

#[test]
fn a_task_bound_to_an_absent_server_can_run_nowhere_else() {
    let mut bound = task(1, &[], &[1]);
    let object = gridloom_base::ObjectId { client: CLIENT, serial: 1 };
    bound.kind = TaskKind::method("m/c.f", object, 0);
    bound.options.bound_to = Some(SERVER);
    let mut test = Test::new(&[], vec![bound]);
    let loss = test.lose(SERVER);
    assert_eq!((loss.hopeless, loss.unplanned), (vec![id(1)], BTreeSet::from([GROUP])));
}

#[test]
fn a_failed_task_is_forgotten_when_its_results_are_released() {
    let mut test = Test::chain();
    test.send(1, SERVER);
    let error = TaskError::Cancelled;
    assert_eq!((test.fail(1, &error), test.fail(2, &error)), (Some(SERVER), None));
    assert!(test.graph.failed(id(1), &error).is_none(), "it has ended");
    assert_eq!(test.graph.requested(datum(3)), Availability::Lost(error));
    [1, 2, 3].into_iter().for_each(|serial| _ = test.release(serial));
    assert_eq!((test.graph.len(), test.graph.groups().count()), ((0, 0), 0));
}

#[test]
fn the_last_copy_is_not_abandoned() {
    let mut test = Test::new(&[1], Vec::new());
    assert_eq!(test.graph.give_up(datum(1), CLIENT), None);
    test.graph.copy_added(datum(1), SERVER);
    assert_eq!(test.graph.give_up(datum(1), OTHER), None);
    assert_eq!(test.graph.give_up(datum(1), CLIENT), Some(Unneeded::OwnCopy(datum(1))));
    assert_eq!(test.graph.give_up(datum(1), SERVER), None);
    assert!(test.graph.copy_removed(datum(1), SERVER), "none is left");
}

#[test]
fn an_erased_datum_is_lost_with_its_last_reader() {
    let mut test = Test::chain();
    test.graph.released(datum(1), true);
    assert_eq!(test.tidy(1), [], "task 1 reads it");
    test.send(1, SERVER);
    test.end(1);
    assert_eq!(test.tidy(1), [Unneeded::OwnCopy(datum(1))]);
    assert!(test.graph.datum(datum(1)).unwrap().error().is_some());
}

#[test]
fn a_client_that_waits_for_a_lost_datum_is_notified_once() {
    let mut test = Test::chain();
    assert_eq!(test.graph.requested(datum(2)), Availability::Awaited);
    test.graph.requested_by(datum(2), OTHER);
    assert!(test.graph.is_requested(datum(2)));
    let waiters = test.graph.lost(datum(2), &TaskError::Cancelled);
    assert!(waiters.program && waiters.servers == BTreeSet::from([OTHER]));
    assert!(!test.graph.is_requested(datum(2)) && !test.graph.answered(datum(2)));
}

#[test]
fn a_part_of_a_group_is_known_once_its_inputs_have_a_location() {
    let mut test = Test::chain();
    assert!(test.graph.part(GROUP, &[id(2)]).is_none(), "datum 2 will be made nobody knows where");
    assert_eq!(test.graph.part(GROUP, &[id(1), id(2)]).unwrap().sources[&datum(1)].at, [CLIENT]);
    test.send(1, SERVER);
    assert_eq!(test.graph.part(GROUP, &[id(2)]).unwrap().sources[&datum(2)].at, [SERVER]);
    test.end(1);
    test.lose(SERVER);
    assert_eq!(test.graph.inputs_without_location(&[id(2)]), [datum(2)]);
}
