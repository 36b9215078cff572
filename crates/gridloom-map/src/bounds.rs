//! Lower bounds on the makespan of any plan, by the same cost models. Each task is assumed to run alone on its server.
//!
//! There are three bounds; the largest counts.
//! 1. **Critical path**: each task starts as soon as its predecessors have ended, on the server that would end it first if it
//!    had that server to itself. Communication counts only at the ends of the path: a source must leave a place that
//!    holds it, and a wanted result must reach the client, each over the best link available.
//! 2. **Work**: let p(t, s) be the seconds of task t on server s and m(s) its slots. A plan of length T has, for any
//!    weights y(s) ≥ 0, Σ_t min_s y(s) p(t, s) ≤ Σ_s y(s) · (work on s) ≤ T · Σ_s y(s) m(s). With y(s) the speed of s
//!    this is total work over total speed when times are work / speed, and it stays valid when they are not. (The dual
//!    of the linear program for unrelated machines; Lenstra, Shmoys, Tardos, *Math. Programming* 46, 1990.)
//! 3. **Work, equal weights**: the same with y(s) = 1, better if few servers can run most tasks.
//!
//! The time to send all bytes over the client's link one after another is not a bound here, since schedules are free of
//! contention.

use super::problem::Problem;

/// Lower bound on the makespan, seconds.
pub fn lower_bound(problem: &Problem) -> f64 {
    critical_path(problem, |_| None).max(work(problem))
}

/// Lower bound on the end of everything, given the end times of the tasks for which `ended` returns one. This is bound 1.
pub fn critical_path(problem: &Problem, ended: impl Fn(usize) -> Option<f64>) -> f64 {
    let client = problem.client();
    let mut seconds = vec![0.0; client];
    // For each datum, the earliest start of a task that uses it at another place.
    let mut there_s: Vec<f64> = (0..problem.data().len()).map(|datum| leaving_seconds(problem, datum)).collect();
    let mut bound_s = 0.0f64;
    for task in 0..problem.task_count() {
        let end_s = ended(task).unwrap_or_else(|| {
            let ready_s = problem.inputs(task).iter().fold(0.0f64, |ready, input| ready.max(there_s[*input as usize]));
            problem.alone_seconds_by_server(task, &mut seconds);
            let ends =
                seconds.iter().zip(problem.servers()).map(|(seconds, server)| server.busy_s[0].max(ready_s) + seconds);
            ends.fold(f64::INFINITY, f64::min)
        });
        problem.outputs(task).iter().for_each(|output| there_s[*output as usize] = end_s);
        bound_s = bound_s.max(end_s);
    }
    for (datum, facts) in problem.data().iter().enumerate() {
        let at_client = problem.holders(datum).contains(&(client as u32));
        if facts.wanted && !at_client {
            let home_s = (0..client).map(|server| problem.link_seconds(server, client, facts.size_bytes));
            bound_s = bound_s.max(there_s[datum] + home_s.fold(f64::INFINITY, f64::min));
        }
    }
    bound_s
}

/// Minimum time until a source is at any server: 0 if one holds it, else the time over the client's best link.
fn leaving_seconds(problem: &Problem, datum: usize) -> f64 {
    let client = problem.client();
    if problem.holders(datum) != [client as u32] {
        return 0.0;
    }
    let size_bytes = problem.data()[datum].size_bytes;
    (0..client).map(|server| problem.link_seconds(client, server, size_bytes)).fold(f64::INFINITY, f64::min)
}

/// Bounds 2 and 3.
pub fn work(problem: &Problem) -> f64 {
    let servers = problem.servers().len();
    let mut seconds = vec![0.0; servers];
    let speeds = speeds(problem);
    let mut equal_s = 0.0;
    for task in 0..problem.task_count() {
        problem.alone_seconds_by_server(task, &mut seconds);
        equal_s += seconds.iter().copied().fold(f64::INFINITY, f64::min);
    }
    let slots = |server: &usize| f64::from(problem.servers()[*server].slots);
    let useful: Vec<usize> = (0..servers).filter(|server| speeds[*server] > 0.0).collect();
    if useful.is_empty() {
        return 0.0;
    }
    let mut weighted_s = 0.0;
    for task in 0..problem.task_count() {
        problem.alone_seconds_by_server(task, &mut seconds);
        let weighted = useful.iter().map(|server| speeds[*server] * seconds[*server]);
        let least = weighted.fold(f64::INFINITY, f64::min);
        weighted_s += if least.is_finite() { least } else { 0.0 };
    }
    let by_speed_s = weighted_s / useful.iter().map(|server| speeds[*server] * slots(server)).sum::<f64>();
    by_speed_s.max(equal_s / useful.iter().map(slots).sum::<f64>())
}

/// For each server, its speed relative to the fastest one for each task, averaged over the tasks that it can run.
pub(super) fn speeds(problem: &Problem) -> Vec<f64> {
    let servers = problem.servers().len();
    let mut seconds = vec![0.0; servers];
    let (mut slower, mut runs) = (vec![0.0; servers], vec![0u64; servers]);
    for task in 0..problem.task_count() {
        problem.alone_seconds_by_server(task, &mut seconds);
        let fastest = seconds.iter().copied().fold(f64::INFINITY, f64::min);
        for server in (0..servers).filter(|server| seconds[*server].is_finite() && fastest > 0.0) {
            slower[server] += seconds[server] / fastest;
            runs[server] += 1;
        }
    }
    let speed = |server: usize| if runs[server] == 0 { 0.0 } else { runs[server] as f64 / slower[server] };
    (0..servers).map(speed).collect()
}
