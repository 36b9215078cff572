//! Data with several readers, sent in rings.

use std::collections::BTreeMap;

use crate::testing::{Build, CLIENT, grid};
use gridloom_map::Problem;
use gridloom_map::contention::{Choice, ContentionEvaluator, ListScheduler, in_rings};
use gridloom_perf::{Bottleneck, LinkEstimate};

fn is_coprime(a: usize, b: usize) -> bool {
    (2..=a).all(|factor| !a.is_multiple_of(factor) || !b.is_multiple_of(factor))
}

/// Large enough to be forwarded while it is received.
const LARGE_BYTES: u64 = 16 << 20;
const SMALL_BYTES: u64 = 1 << 20;

/// Two sites of `each` servers. Each server has a datum of that size, and reads all.
fn exchange(each: usize, size_bytes: u64) -> Problem {
    let count = 2 * each;
    let is_between = |from: usize, to: usize| (from < each) != (to < each);
    let width = |from, to| if is_between(from, to) { 5e7 } else { 1e8 };
    let link = |from, to| Some(LinkEstimate { latency_s: 1e-4, bandwidth: width(from, to) });
    let one_way = |outward: bool| {
        let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
        let pairs = pairs.filter(|(from, to)| is_between(*from, *to) && (*from < each) == outward).collect();
        Bottleneck { pairs, bandwidth: 5e7 }
    };
    let mut grid = grid(&vec![1e9; count]);
    grid.links = (0..count).map(|from| (0..count).map(|to| link(from, to)).collect()).collect();
    grid.bottlenecks = [true, false].map(one_way).to_vec();
    let mut build = Build::new(1);
    for server in &grid.servers {
        let datum = build.source(size_bytes);
        build.0.data[datum as usize].at = vec![server.node];
    }
    for (server, datum) in grid.servers.iter().flat_map(|server| (0..count as u32).map(move |datum| (server, datum))) {
        build.task(0, 1e6, &[datum], 8);
        build.0.tasks.last_mut().unwrap().bound_to = Some(server.node);
    }
    Problem::new(&build.0, &grid, CLIENT).unwrap()
}

#[test]
fn each_datum_crosses_once_and_all_servers_send_as_much() {
    // Small ones are forwarded when complete, so the last of a ring has them later.
    let sizes = [(LARGE_BYTES, 1.1), (SMALL_BYTES, 2.2)];
    for (each, (size_bytes, times)) in [2, 3, 7, 8].iter().flat_map(|each| sizes.map(|size| (*each, size))) {
        let (problem, count) = (exchange(each, size_bytes), 2 * each);
        let tasks: Vec<u32> = (0..(count * count) as u32).collect();
        let servers: Vec<u32> = tasks.iter().map(|task| task / count as u32).collect();
        let listed = ListScheduler::new(&problem).complete(&tasks, &servers);
        let ringed = in_rings(&problem, &listed).unwrap();
        assert_eq!(ringed.sources.len(), count * (count - 1), "as many copies as there have to be");
        let site = |place: u32| place as usize / each;
        let (mut crossed, mut sent, mut beside) = (BTreeMap::new(), vec![0; count], BTreeMap::new());
        for ((datum, to), from) in &ringed.sources {
            *crossed.entry(datum).or_insert(0) += usize::from(site(*from) != site(*to));
            sent[*from as usize] += 1;
            *beside.entry((from, to)).or_insert(0) += usize::from(site(*from) == site(*to));
        }
        assert!(crossed.len() == count && crossed.values().all(|times| *times == 1), "{crossed:?}");
        let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
        assert!(most - least <= 2, "{each}: {sent:?}");
        // As many rings as there are strides that visit all servers.
        let strides = (1..each).filter(|stride| is_coprime(*stride, each)).count();
        let most = beside.values().max().unwrap();
        assert!(*most <= count.div_ceil(strides) + 1, "{each}: {most} between two servers, {strides} strides");
        let bound_s = (each as u64 * size_bytes) as f64 / 5e7;
        let judge_s =
            |choice| ContentionEvaluator::new(&problem).run(choice, f64::INFINITY).unwrap().unwrap().makespan_s;
        let (listed_s, judged_s) = (judge_s(&listed), judge_s(&ringed));
        assert!(judged_s <= listed_s, "{each}: {judged_s} s in rings, {listed_s} s as listed");
        assert!(judged_s < times * bound_s, "{each}: {judged_s} s, at least {bound_s} s");
    }
}

#[test]
fn data_with_few_readers_or_without_forwarding_keep_their_source() {
    let problem = exchange(2, LARGE_BYTES);
    let choice = |sources: &[((u32, u32), u32)]| Choice {
        servers: (0..16).map(|task| task / 4).collect(),
        order: (0..16).collect(),
        sources: sources.iter().copied().collect(),
    };
    assert_eq!(in_rings(&problem, &choice(&[((0, 1), 0), ((1, 2), 1)])), None, "one reader each");
    assert_eq!(in_rings(&problem, &choice(&[((0, 1), 0), ((0, 4), 0)])), None, "the client passes nothing on");
    let both = in_rings(&problem, &choice(&[((0, 2), 0), ((0, 3), 0)])).unwrap();
    assert_eq!(both.sources, BTreeMap::from([((0, 2), 0), ((0, 3), 2)]));
}
