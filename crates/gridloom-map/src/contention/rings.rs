//! Sources by which data that several servers read go round in rings: a candidate beside what lists find.
//!
//! A list reckons with cards as queues, so a card that a late copy waits for looks taken up to then, and the last servers
//! of an exchange look better served over a slow way again. Here each datum crosses from site to site once, and goes
//! round inside a site. If all exchange with all, each card carries the same.
//!
//! Rings differ in their **stride**: in the first, servers have a datum from the one before them, then from the third before them and
//! so on, as long as a stride meets all of them. So few of what comes slowly are passed on between the same two servers, and none of it
//! holds up the others.

use std::collections::BTreeMap;

use super::Choice;
use crate::problem::Problem;

/// Sites by what lies between them, and what the ways into and out of each server carry so far.
struct Rings<'p> {
    problem: &'p Problem,
    /// By server: the first server of its site.
    site_of: Vec<u32>,
    /// By the first server of a site: rings there so far.
    turns: Vec<usize>,
    /// By place, bytes: what comes to it from another site, and what leaves it for one.
    enters: Vec<u64>,
    leaves: Vec<u64>,
}

/// The same choice with data in rings; `None` if nothing is read by several servers that pass it on.
pub(crate) fn in_rings(problem: &Problem, choice: &Choice) -> Option<Choice> {
    let mut readers: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (datum, to) in choice.sources.keys() {
        if problem.passes_on(*datum as usize, *to as usize) {
            readers.entry(*datum).or_default().push(*to);
        }
    }
    readers.retain(|_, places| places.len() > 1);
    if readers.is_empty() {
        return None;
    }
    let places = problem.client() + 1;
    let mut rings = Rings {
        problem,
        site_of: sites(problem),
        turns: vec![0; places],
        enters: vec![0; places],
        leaves: vec![0; places],
    };
    let mut ringed = choice.clone();
    for (datum, places) in readers {
        let maker = problem.data()[datum as usize].producer.map(|task| choice.servers[task as usize]);
        if maker.is_some_and(|maker| problem.is_plain(maker as usize)) {
            continue;
        }
        let holders: Vec<u32> = problem.holders(datum as usize).iter().copied().chain(maker).collect();
        for (to, from) in rings.sources(datum, &holders, &places) {
            ringed.sources.insert((datum, to), from);
        }
    }
    Some(ringed)
}

impl Rings<'_> {
    /// Where each of these places gets a datum from.
    fn sources(&mut self, datum: u32, holders: &[u32], places: &[u32]) -> Vec<(u32, u32)> {
        let mut by_site: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for place in places.iter().filter(|place| !holders.contains(place)) {
            by_site.entry(self.site_of[*place as usize]).or_default().push(*place);
        }
        let mut found = Vec::new();
        for (site, readers) in by_site {
            let is_here = |holder: &&u32| self.site_of.get(**holder as usize) == Some(&site);
            let mut first: Vec<u32> = holders.iter().filter(is_here).copied().collect();
            if first.is_empty() {
                let Some((from, entry)) = self.enter(datum, holders, &readers) else { continue };
                found.push((entry, from));
                first.push(entry);
            }
            let mut ring: Vec<u32> = readers.iter().chain(&first).copied().collect();
            ring.sort_unstable();
            ring.dedup();
            let stride = self.stride(site, ring.len());
            for (at, to) in ring.iter().enumerate().filter(|(_, to)| !first.contains(to)) {
                let from = ring[(at + ring.len() - stride) % ring.len()];
                if self.is_way(from, *to) {
                    found.push((*to, from));
                }
            }
        }
        found
    }

    /// The next of the strides that meet all of so many servers.
    fn stride(&mut self, site: u32, servers: usize) -> usize {
        let strides: Vec<usize> = (1..servers).filter(|stride| is_coprime(*stride, servers)).collect();
        let turn = &mut self.turns[site as usize];
        *turn += 1;
        strides.get((*turn - 1) % strides.len().max(1)).copied().unwrap_or(1)
    }

    /// The way into another site that carries least so far.
    fn enter(&mut self, datum: u32, holders: &[u32], readers: &[u32]) -> Option<(u32, u32)> {
        let entry = *readers.iter().min_by_key(|place| self.enters[**place as usize])?;
        let ways = holders.iter().filter(|from| self.is_way(**from, entry));
        let from = *ways.min_by_key(|from| self.leaves[**from as usize])?;
        let size_bytes = self.problem.data()[datum as usize].size_bytes;
        self.enters[entry as usize] += size_bytes;
        self.leaves[from as usize] += size_bytes;
        Some((from, entry))
    }

    fn is_way(&self, from: u32, to: u32) -> bool {
        self.problem.links_from(from as usize)[to as usize].latency_s.is_finite()
    }
}

fn is_coprime(a: usize, b: usize) -> bool {
    if b == 0 { a == 1 } else { is_coprime(b, a % b) }
}

/// By server: the first of those that it reaches without what several links share.
fn sites(problem: &Problem) -> Vec<u32> {
    let servers = problem.client();
    let mut is_apart = vec![false; servers * servers];
    for (from, to) in problem.bottlenecks().iter().flat_map(|one| &one.pairs) {
        if *from < servers && *to < servers {
            is_apart[from * servers + to] = true;
        }
    }
    let mut site_of: Vec<u32> = (0..servers as u32).collect();
    for server in 0..servers {
        let near = |other: &usize| {
            let is_near = |from: usize, to: usize| {
                !is_apart[from * servers + to] && problem.links_from(from)[to].latency_s.is_finite()
            };
            is_near(server, *other) && is_near(*other, server)
        };
        if let Some(first) = (0..server).find(near) {
            site_of[server] = site_of[first];
        }
    }
    site_of
}

#[cfg(test)]
mod tests {
    use gridloom_base::NodeId;
    use gridloom_perf::{Bottleneck, FunctionModel, GridView, LinkEstimate, ServerView};

    use super::*;
    use crate::contention::{Judge, Lister};
    use crate::{Outline, OutlineDatum, OutlineTask};

    const CLIENT: NodeId = NodeId(0);
    const SIZE_BYTES: u64 = 16 << 20;

    /// Two sites of so many servers. Each server has a datum, and reads all.
    fn exchange(each: usize) -> Problem {
        let count = 2 * each;
        let is_between = |from: usize, to: usize| (from < each) != (to < each);
        let server = |number: usize| ServerView {
            node: NodeId(100 + number as u64),
            name: format!("s{number:03}"),
            address: String::new(),
            slots: 1,
            plain: false,
            memory_bytes: 1 << 40,
            speed_flops: Some(1e9),
            pace: 1.0,
            functions: [("m/f".to_string(), FunctionModel::default())].into(),
            busy_s: vec![0.0],
            release: String::new(),
            protocol: 0,
        };
        let width = |from, to| if is_between(from, to) { 5e7 } else { 1e8 };
        let link = |from, to| Some(LinkEstimate { latency_s: 1e-4, bandwidth: width(from, to) });
        let one_way = |outward: bool| {
            let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
            let pairs = pairs.filter(|(from, to)| is_between(*from, *to) && (*from < each) == outward).collect();
            Bottleneck { pairs, bandwidth: 5e7 }
        };
        let grid = GridView {
            servers: (0..count).map(server).collect(),
            client_links: vec![LinkEstimate { latency_s: 1e-4, bandwidth: 1e8 }; count],
            links: (0..count).map(|from| (0..count).map(|to| link(from, to)).collect()).collect(),
            bottlenecks: [true, false].map(one_way).to_vec(),
        };
        let datum = |number: usize| OutlineDatum {
            size_bytes: SIZE_BYTES,
            producer: None,
            at: vec![NodeId(100 + number as u64)],
            wanted: false,
            name: None,
            method: Default::default(),
        };
        let task = |(reader, datum): (usize, usize)| OutlineTask {
            function: 0,
            work_flops: Some(1e6),
            only: Some(NodeId(100 + reader as u64)),
            inputs: vec![datum as u32],
            outputs: Vec::new(),
        };
        let reads = (0..count).flat_map(|reader| (0..count).map(move |datum| (reader, datum)));
        let functions = vec!["m/f".to_string()];
        let outline = Outline { functions, data: (0..count).map(datum).collect(), tasks: reads.map(task).collect() };
        Problem::new(&outline, &grid, CLIENT).unwrap()
    }

    #[test]
    fn each_datum_crosses_once_and_all_servers_send_as_much() {
        for each in [2, 3, 7, 8] {
            let (problem, count) = (exchange(each), 2 * each);
            let tasks: Vec<u32> = (0..(count * count) as u32).collect();
            let servers: Vec<u32> = tasks.iter().map(|task| task / count as u32).collect();
            let listed = Lister::new(&problem).complete(&tasks, &servers);
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
            // As many rings as there are strides that meet all.
            let strides = (1..each).filter(|stride| is_coprime(*stride, each)).count();
            let most = beside.values().max().unwrap();
            assert!(*most <= count.div_ceil(strides) + 1, "{each}: {most} between two servers, {strides} strides");
            let bound_s = (each as u64 * SIZE_BYTES) as f64 / 5e7;
            let judged_s = Judge::new(&problem).run(&ringed, f64::INFINITY).unwrap().unwrap().makespan_s;
            assert!(judged_s < 1.1 * bound_s, "{each}: {judged_s} s, at least {bound_s} s");
        }
    }

    #[test]
    fn what_few_read_or_nobody_passes_on_stays_as_it_is() {
        let problem = exchange(2);
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
}
