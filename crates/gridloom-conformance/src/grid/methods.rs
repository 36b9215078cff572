//! Sends shared data to several servers by each transfer method.

use gridloom_base::{DatumId, GroupId, Meta, Method};
use gridloom_core::node::message::CatalogAnswer;
use gridloom_core::node::{NameCommand, World};

use super::test_grid::TestGrid;
use super::{Case, LARGE_ELEMENTS};

pub(super) const CASES: &[Case] = &[
    ("a datum is sent to servers in slices", |world| to_others(world, Method::Swarm)),
    ("a datum is sent to servers through a storage", |world| to_others(world, Method::Storage)),
    ("slices that a killed server should forward are fetched from elsewhere", |world| one_killed(world, Method::Swarm)),
    ("a storage serves the remaining servers when one is killed", |world| one_killed(world, Method::Storage)),
];

const SERVERS: u32 = 5;

/// Puts a datum on one server and has all servers fetch it. Also returns the place of the first server.
fn to_all(stage: &mut TestGrid<'_>, method: Method) -> ((DatumId, Meta), usize, Vec<GroupId>) {
    let array = stage.array_of(LARGE_ELEMENTS);
    let meta = array.1.clone();
    let command = stage.put_command_of(array, "mesh", (false, 1, method));
    assert_eq!(stage.named(command), Ok(CatalogAnswer::Put));
    let found = stage.named(NameCommand::Find { name: "mesh".into(), waits: false });
    let Ok(CatalogAnswer::Found { named, holders }) = found else { panic!("{found:?}") };
    let (mesh, holder) = (named.datum, holders[0].0);
    let holder = (0..SERVERS as usize).find(|place| stage.node_of(*place) == holder).expect("it is one of them");
    let to = |place: u32| {
        let task = stage.copying(mesh);
        stage.follow(task, place as usize, (mesh, meta.clone()), None)
    };
    let groups = (0..SERVERS).map(to).collect();
    ((mesh, meta), holder, groups)
}

/// Each remaining server doubles the datum it received.
fn doubled(stage: &mut TestGrid<'_>, (mesh, meta): &(DatumId, Meta), places: impl Iterator<Item = usize>) {
    for place in places {
        let mut task = stage.task("double_all", &[LARGE_ELEMENTS as i32], &[*mesh], 1);
        task.outputs[0].meta = meta.clone();
        let y = task.outputs[0].datum;
        let group = stage.follow(task, place, (*mesh, meta.clone()), None);
        stage.group_end(group);
        stage.expect(y, |i| 2.0 * i);
    }
}

fn to_others(world: &mut dyn World, method: Method) {
    let mut stage = TestGrid::new(world, SERVERS);
    let (mesh, _, groups) = to_all(&mut stage, method);
    groups.into_iter().for_each(|group| stage.group_end(group));
    assert!(stage.ended.values().all(|report| report.outcome.is_ok()), "{:?}", stage.ended);
    doubled(&mut stage, &mesh, 0..SERVERS as usize);
}

fn one_killed(world: &mut dyn World, method: Method) {
    let mut stage = TestGrid::new(world, SERVERS);
    let (mesh, holder, groups) = to_all(&mut stage, method);
    let killed = (0..SERVERS as usize).find(|place| *place != holder).expect("there are more");
    stage.world.kill(stage.servers[killed]);
    let others = || (0..SERVERS as usize).filter(|place| *place != killed);
    others().for_each(|place| stage.group_end(groups[place]));
    doubled(&mut stage, &mesh, others());
}
