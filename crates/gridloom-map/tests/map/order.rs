//! Orders of tasks: by layer and by rank.

use crate::testing::{Build, CLIENT, grid};
use gridloom_map::parts::*;
use gridloom_map::*;

#[test]
fn tasks_come_layer_by_layer() {
    let mut build = Build::new(1);
    let source = build.source(8);
    let first = build.task(0, 1.0, &[source], 8);
    let long = build.task(0, 1.0, &[first], 8);
    let last = build.task(0, 1.0, &[long], 8);
    let late = build.task(0, 1.0, &[source], 8);
    build.task(0, 1.0, &[first, late, last], 8);
    let problem = Problem::new(&build.done(), &grid(&[1e9]), CLIENT).unwrap();
    let followers = Followers::new(&problem);
    assert_eq!(followers.of(0), [1, 4]);
    assert_eq!(breadth_first(&problem, &followers), [0, 3, 1, 2, 4]);
    assert_eq!(by_rank(&problem, &[1.0, 3.0, 1.0, 1.0, 0.0]), [1, 0, 3, 2, 4]);
}
