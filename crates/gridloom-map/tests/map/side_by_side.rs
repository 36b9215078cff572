//! Tasks side by side on a processor in equal shares.

use gridloom_map::parts::ConcurrentTasks;

/// Starts and ends of tasks whose slowdown is the number of running tasks: a processor in equal shares.
#[test]
fn a_processor_in_equal_shares() {
    let equal = |_: u32, tasks: u32| f64::from(tasks);
    let mut beside = ConcurrentTasks::default();
    beside.start(0.0, 7, 2.0);
    assert_eq!(beside.next(0.0, 1, equal), Some((2.0, 1)));
    beside.start(1.0, 8, 3.0);
    // One second of the first is left, at half speed.
    assert_eq!(beside.next(1.0, 2, equal), Some((3.0, 2)));
    assert_eq!(beside.next(1.0, 2, equal), None, "nothing has changed");
    assert_eq!(beside.end_first(), 7);
    assert_eq!(beside.next(3.0, 1, equal), Some((5.0, 3)));
    // Another group's task that ends later.
    assert_eq!(beside.next(4.0, 2, equal), Some((6.0, 4)));
    assert_eq!((beside.end_first(), beside.next(6.0, 1, equal)), (8, None));
}
