//! The three lower bounds of independent tasks.

use crate::testing::{grid, independent};
use gridloom_base::NodeId;
use gridloom_map::parts::{path_bound, work_bound};
use gridloom_map::{Problem, lower_bound};

#[test]
fn total_work_over_total_speed() {
    let problem = Problem::new(&independent(12, 3e9), &grid(&[1e9, 2e9, 3e9]), NodeId(0)).unwrap();
    assert!((work_bound(&problem) - 6.0).abs() < 1e-9);
    assert!((path_bound(&problem, |_| None) - 1.0).abs() < 1e-9);
    assert!((lower_bound(&problem) - 6.0).abs() < 1e-9);
}
