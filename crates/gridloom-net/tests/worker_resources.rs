//! Workers leave nothing behind: no descriptor, no process, no memory.
//!
//! This is a single test, because it counts the descriptors of the whole process.

mod common;

use common::*;
use gridloom_base::{Dtype, Meta};
use gridloom_idl::Mode;
use gridloom_idl::expr::Expr;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_thousand_calls_leave_nothing_behind() {
    const N: u64 = 10_000;
    let before = descriptors();
    let n = || Expr::Param(0);
    let definitions = vec![
        native("segfault", vec![]),
        native(
            "copy",
            vec![
                scalar("n", Mode::In, Dtype::Int64),
                array("x", Mode::In, Dtype::Float64, vec![n()]),
                array("y", Mode::Out, Dtype::Float64, vec![n()]),
            ],
        ),
    ];
    let mut bench = Bench::new(2, 4, definitions);
    bench.jobs.prestart();
    let pids = bench.jobs.worker_pids();
    assert_eq!(pids.len(), 2);
    let mut after_ten = 0;
    let mut worker_after_ten = 0;
    let of_worker =
        |pid: rustix::process::Pid| std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).unwrap().count();
    for call in 0..1000 {
        let x = bench.put_doubles(&vec![f64::from(call); N as usize]);
        let Arg::Datum(x_datum) = x else { unreachable!() };
        let task = bench.start("copy", vec![count(N as i64), x], vec![Meta::array(Dtype::Float64, &[N])]);
        let made = bench.wait(&task).unwrap();
        assert_eq!(doubles(bench.store.get(&made[0].0).unwrap().1.bytes())[N as usize - 1], f64::from(call));
        assert!(bench.store.remove(&x_datum) && bench.store.remove(&made[0].0));
        if call == 10 {
            after_ten = descriptors();
            worker_after_ten = of_worker(pids[0]);
        }
    }
    assert_eq!(descriptors(), after_ten, "the server's descriptors do not grow");
    assert_eq!(of_worker(pids[0]), worker_after_ten, "nor do the worker's");
    assert_eq!(bench.store.held_bytes(), 0);
    assert!(bench.store.pool().kept_bytes() <= 4 * 100_000, "the same memory was used again and again");
    for _ in 0..20 {
        assert!(bench.call("segfault", vec![], vec![]).is_err());
    }
    let Bench { jobs, store, epoll, .. } = bench;
    let pids = jobs.worker_pids();
    jobs.shutdown();
    drop((store, epoll));
    assert_eq!(descriptors(), before);
    for pid in pids {
        assert!(!std::path::Path::new(&format!("/proc/{}", pid.as_raw_nonzero())).exists(), "reaped");
    }
}
