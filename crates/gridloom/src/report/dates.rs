//! Computes consistent dates of measured tasks and transfers.
//!
//! A server measures with its own clock how long a task or transfer takes. The end is measured with the client's clock:
//! the arrival of the report, minus the time for which the server reports to have delayed it. So durations are right,
//! and ends can only be late, by the transmission time of the report. The dates computed here are the latest ones that
//! contradict nothing.
//!
//! **Invariants:**
//! - No end moves later. Durations stay, unless a start would precede everything that was measured.
//! - A task starts when all its inputs are on its server, a transfer when its sender has the datum.
//! - Tasks of a server end in the order of its reports.
//! - A server runs no more tasks at a time than it has slots. If tasks overlap for longer than a report can be late,
//!   they stay as measured:
//!   one of them left its slot while it waited for calls of its own or for its program.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use gridloom_base::{DatumId, NodeId};

/// Reports are seldom later than this.
const REPORT_DELAY_NS: i64 = 100_000_000;

/// A task or a transfer as measured; nanoseconds from the start of the group.
#[derive(Clone, Debug)]
pub(super) struct Measured<'a> {
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) what: Activity<'a>,
}

#[derive(Clone, Debug)]
pub(super) enum Activity<'a> {
    Task {
        server: NodeId,
        reads: &'a [DatumId],
        made: Vec<DatumId>,
    },
    Transfer {
        datum: DatumId,
        from: NodeId,
        to: NodeId,
    },
    /// It ended without having run.
    Nothing,
}

/// Returns the start and end of each task and transfer.
pub(super) fn consistent(all: &[Measured<'_>], slots: &BTreeMap<NodeId, u32>) -> Vec<(i64, i64)> {
    let mut by_end: Vec<usize> = (0..all.len()).collect();
    by_end.sort_by_key(|at| (all[*at].end_ns, *at));
    let order = Order::of(all, &by_end);
    let first_ns = all.iter().map(|one| one.start_ns).min().unwrap_or(0).min(0);
    let mut servers: BTreeMap<NodeId, Slots> =
        slots.iter().map(|(server, count)| (*server, Slots::new(*count))).collect();
    let mut dates: Vec<Option<(i64, i64)>> = vec![None; all.len()];
    let mut latest_end_ns: Vec<i64> = all.iter().map(|one| one.end_ns).collect();
    let mut followers = order.followers();
    // From the last to the first; each one when all its successors have their dates.
    let mut ready: BinaryHeap<(i64, usize)> =
        (0..all.len()).filter(|at| followers[*at] == 0).map(|at| (latest_end_ns[at], at)).collect();
    // Data that were lost and made again may seem to form a cycle; then the last of the remaining ones goes first.
    while let Some(at) = ready.pop().map(|(_, at)| at).or_else(|| by_end.pop()) {
        if dates[at].is_some() {
            continue;
        }
        let one = &all[at];
        let mut end_ns = latest_end_ns[at];
        if let Activity::Task { server, .. } = &one.what
            && one.start_ns < one.end_ns
            && let Some(slots) = servers.get_mut(server)
        {
            end_ns = slots.take(one, end_ns);
        }
        let start_ns = (end_ns - (one.end_ns - one.start_ns)).max(first_ns);
        dates[at] = Some((start_ns, end_ns.max(first_ns)));
        for (before, bound_ns) in order.before(at, start_ns, end_ns) {
            latest_end_ns[before] = latest_end_ns[before].min(bound_ns);
            followers[before] -= 1;
            if followers[before] == 0 {
                ready.push((latest_end_ns[before], before));
            }
        }
    }
    dates.into_iter().map(|date| date.expect("each was given one")).collect()
}

/// Constraints on the order of tasks and transfers.
struct Order {
    /// The predecessors that must end before each starts: results of others, and arrived data.
    needs: Vec<Vec<usize>>,
    /// The one that its server reported before it.
    reported: Vec<Option<usize>>,
}

impl Order {
    fn of(all: &[Measured<'_>], by_end: &[usize]) -> Order {
        let providers = providers(all, by_end);
        let mut last: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut order = Order { needs: vec![Vec::new(); all.len()], reported: vec![None; all.len()] };
        for &at in by_end {
            let one = &all[at];
            let needed = |datum: DatumId, place: NodeId| providers.get(&(datum, place)).copied();
            let mut needs: Vec<usize> = match &one.what {
                Activity::Task { server, reads, .. } => {
                    reads.iter().filter_map(|datum| needed(*datum, *server)).collect()
                }
                Activity::Transfer { datum, from, .. } => needed(*datum, *from).into_iter().collect(),
                Activity::Nothing => Vec::new(),
            };
            needs.sort_unstable();
            needs.dedup();
            needs.retain(|before| *before != at);
            order.needs[at] = needs;
            if let Activity::Task { server, .. } = &one.what {
                order.reported[at] = last.insert(*server, at);
            }
        }
        order
    }

    /// Number of successors of each.
    fn followers(&self) -> Vec<usize> {
        let mut counts = vec![0; self.needs.len()];
        self.needs.iter().flatten().chain(self.reported.iter().flatten()).for_each(|before| counts[*before] += 1);
        counts
    }

    /// The predecessors of one, with the time by which each must have ended.
    fn before(&self, at: usize, start_ns: i64, end_ns: i64) -> impl Iterator<Item = (usize, i64)> {
        let needs = self.needs[at].iter().map(move |before| (*before, start_ns));
        needs.chain(self.reported[at].map(|before| (before, end_ns)))
    }
}

/// The task or transfer that first provided each datum at each node.
fn providers(all: &[Measured<'_>], by_end: &[usize]) -> BTreeMap<(DatumId, NodeId), usize> {
    let mut providers: BTreeMap<(DatumId, NodeId), usize> = BTreeMap::new();
    let mut made_here: BTreeSet<DatumId> = BTreeSet::new();
    for at in by_end {
        match &all[*at].what {
            Activity::Task { server, made, .. } => {
                made_here.extend(made);
                for datum in made {
                    providers.entry((*datum, *server)).or_insert(*at);
                }
            }
            Activity::Transfer { datum, to, .. } => {
                providers.entry((*datum, *to)).or_insert(*at);
            }
            Activity::Nothing => {}
        }
    }
    // If no task here made a datum, its first sender had it before.
    let mut sent: BTreeSet<DatumId> = BTreeSet::new();
    for at in by_end {
        if let Activity::Transfer { datum, from, .. } = &all[*at].what
            && !made_here.contains(datum)
            && sent.insert(*datum)
        {
            providers.remove(&(*datum, *from));
        }
    }
    providers
}

/// The slots of a server, filled from the last task to the first.
struct Slots {
    /// For each slot, the start of its following task: as computed, and as measured.
    next: Vec<(i64, i64)>,
}

impl Slots {
    fn new(count: u32) -> Slots {
        Slots { next: vec![(i64::MAX, i64::MAX); count as usize] }
    }

    /// Assigns a slot to a task that ends at `latest_end_ns` or before, and returns its end there.
    fn take(&mut self, task: &Measured<'_>, latest_end_ns: i64) -> i64 {
        // The slot with the least idle time, or else the one that moves the task the least.
        let free = self.next.iter_mut().filter(|(start_ns, _)| *start_ns >= latest_end_ns).min();
        let next = match free {
            Some(next) => next,
            None => match self.next.iter_mut().max() {
                Some(next) if task.end_ns - next.1 <= REPORT_DELAY_NS => next,
                _ => return latest_end_ns,
            },
        };
        let end_ns = latest_end_ns.min(next.0);
        *next = (end_ns - (task.end_ns - task.start_ns), task.start_ns);
        end_ns
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SERVERS: u64 = 3;
    const CLIENT: NodeId = NodeId(9);

    fn datum(serial: usize) -> DatumId {
        DatumId { client: CLIENT, serial: serial as u64 }
    }

    /// A call: server, duration, delay of its report, and its inputs as distances to earlier calls.
    type Call = (u64, i64, i64, Vec<usize>);

    fn calls() -> impl Strategy<Value = Vec<Call>> {
        let call = (0..SERVERS, 1..2_000_000_i64, 0..REPORT_DELAY_NS, prop::collection::vec(1..20_usize, 0..3));
        prop::collection::vec(call, 1..80)
    }

    /// Simulates a run in which call `n` makes datum `n` and transfers take 0.3 ms. Returns tasks and transfers as reported, with
    /// their true starts.
    fn reported(
        calls: &[Call],
        reads: &[Vec<DatumId>],
        slots: usize,
    ) -> Vec<(Activity<'static>, i64, i64, i64, usize)> {
        let (mut free, mut told) = (vec![vec![0; slots]; SERVERS as usize], vec![0; SERVERS as usize]);
        let mut there: BTreeMap<(DatumId, NodeId), i64> = BTreeMap::new();
        let mut all = Vec::new();
        for (number, (server, run_ns, late_ns, _)) in calls.iter().enumerate() {
            let (at, place) = (*server as usize, NodeId(*server));
            let mut ready_ns = 0;
            for read in &reads[number] {
                let arrived_ns = there.get(&(*read, place)).copied().unwrap_or_else(|| {
                    let maker = NodeId(calls[read.serial as usize].0);
                    let sent_ns = there[&(*read, maker)];
                    let what = Activity::Transfer { datum: *read, from: maker, to: place };
                    all.push((what, sent_ns, sent_ns + 300_000, sent_ns + 300_000 + late_ns / 2, usize::MAX));
                    sent_ns + 300_000
                });
                there.insert((*read, place), arrived_ns);
                ready_ns = ready_ns.max(arrived_ns);
            }
            // Tasks of a server end in order here, so that its reports are ordered.
            let slot = (0..slots).min_by_key(|slot| free[at][*slot]).unwrap();
            let start_ns = ready_ns.max(free[at][slot]).max(free[at].iter().max().unwrap() - run_ns);
            free[at][slot] = start_ns + run_ns;
            told[at] = told[at].max(start_ns + run_ns + late_ns);
            let what = Activity::Task { server: place, reads: &[], made: vec![datum(number)] };
            all.push((what, start_ns, start_ns + run_ns, told[at], number));
            there.insert((datum(number), place), start_ns + run_ns);
        }
        all.sort_by_key(|(_, _, _, told_ns, number)| (*told_ns, *number));
        all
    }

    proptest! {
        #[test]
        fn late_reports_give_a_course_that_can_have_been(calls in calls(), slots in 1..4_usize) {
            let known = |number: usize, back: &usize| number.checked_sub(*back).map(datum);
            let reads: Vec<Vec<DatumId>> =
                calls.iter().enumerate().map(|(n, call)| call.3.iter().filter_map(|b| known(n, b)).collect()).collect();
            let course = reported(&calls, &reads, slots);
            let all: Vec<Measured> = course.iter().map(|(what, start_ns, end_ns, told_ns, number)| Measured {
                start_ns: told_ns - (end_ns - start_ns),
                end_ns: *told_ns,
                what: match what {
                    Activity::Task { server, made, .. } => {
                        Activity::Task { server: *server, reads: &reads[*number], made: made.clone() }
                    }
                    other => other.clone(),
                },
            }).collect();
            let of_servers = (0..SERVERS).map(|server| (NodeId(server), slots as u32)).collect();
            let dates = consistent(&all, &of_servers);
            let mut there: BTreeMap<(DatumId, NodeId), i64> = BTreeMap::new();
            let mut turns: BTreeMap<NodeId, Vec<(i64, i32)>> = BTreeMap::new();
            for (one, (start_ns, end_ns)) in all.iter().zip(&dates) {
                prop_assert!(*start_ns >= 0 && *end_ns <= one.end_ns);
                prop_assert_eq!(end_ns - start_ns, one.end_ns - one.start_ns, "durations stay");
                match &one.what {
                    Activity::Task { server, made, .. } => {
                        there.extend(made.iter().map(|datum| ((*datum, *server), *end_ns)));
                        turns.entry(*server).or_default().extend([(*start_ns, 1), (*end_ns, -1)]);
                    }
                    Activity::Transfer { datum, to, .. } => drop(there.insert((*datum, *to), *end_ns)),
                    Activity::Nothing => {}
                }
            }
            for (one, (start_ns, _)) in all.iter().zip(&dates) {
                match &one.what {
                    Activity::Task { server, reads, .. } => {
                        prop_assert!(reads.iter().all(|datum| there[&(*datum, *server)] <= *start_ns));
                    }
                    Activity::Transfer { datum, from, .. } => prop_assert!(there[&(*datum, *from)] <= *start_ns),
                    Activity::Nothing => {}
                }
            }
            for turns in turns.values_mut() {
                turns.sort_unstable();
                let mut running = 0;
                for (_, change) in turns {
                    running += *change;
                    prop_assert!(running <= slots as i32, "more tasks than slots");
                }
            }
        }
    }

    fn task(start_ns: i64, end_ns: i64) -> Measured<'static> {
        Measured { start_ns, end_ns, what: Activity::Task { server: NodeId(0), reads: &[], made: Vec::new() } }
    }

    #[test]
    fn a_task_that_left_its_slot_is_not_moved() {
        const S: i64 = 1_000_000_000;
        let (inner, outer) = (task(S, 2 * S), task(0, 3 * S));
        assert_eq!(consistent(&[inner, outer], &BTreeMap::from([(NodeId(0), 1)])), [(S, 2 * S), (0, 3 * S)]);
    }

    #[test]
    fn a_datum_that_was_made_again_is_no_circle() {
        let moved = |from: u64, to: u64, end_ns: i64| Measured {
            start_ns: end_ns - 1,
            end_ns,
            what: Activity::Transfer { datum: datum(1), from: NodeId(from), to: NodeId(to) },
        };
        let dates = consistent(&[moved(0, 1, 5), moved(1, 0, 7), moved(0, 1, 9)], &BTreeMap::new());
        assert_eq!(dates, [(4, 5), (6, 7), (8, 9)]);
    }
}
