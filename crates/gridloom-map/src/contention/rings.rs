//! Sources that send data with several readers around in rings: a candidate besides the list scheduler's choices.
//!
//! The list scheduler models NICs as queues. So a NIC that waits for a late copy looks busy until then, and the last servers
//! of an exchange seem better served over a slow link again. Here each datum crosses from site to site once, and then goes
//! around inside the site. If all servers exchange data with all others, each NIC carries the same load.
//!
//! Rings differ in their **stride**: servers receive one datum from the server before them, another from the third before them
//! and so on, for every stride that visits all of them. So data that arrive slowly are rarely forwarded between the same two
//! servers, and delay no others there.

use std::collections::BTreeMap;

use super::Choice;
use crate::problem::Problem;

/// Sites, separated by shared bottlenecks, and the load that the links into and out of each server carry so far.
struct Rings<'p> {
    problem: &'p Problem,
    /// First server of each server's site.
    site_of: Vec<u32>,
    /// Number of rings that use a stride, by the first server of the site and the stride.
    use_counts: BTreeMap<(u32, usize), u32>,
    /// Number of rings that end at each place.
    ends: Vec<u32>,
    /// Bytes that each place receives from other sites, and bytes that it sends to them.
    bytes_in: Vec<u64>,
    bytes_out: Vec<u64>,
}

/// Returns the same choice with data sent in rings; `None` if no datum has several readers that forward it.
pub fn in_rings(problem: &Problem, choice: &Choice) -> Option<Choice> {
    let mut readers: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (datum, to) in choice.sources.keys() {
        if problem.may_forward(*datum as usize, *to as usize) {
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
        use_counts: BTreeMap::new(),
        ends: vec![0; places],
        bytes_in: vec![0; places],
        bytes_out: vec![0; places],
    };
    let mut ringed = choice.clone();
    for (datum, places) in readers {
        let maker = problem.data()[datum as usize].producer.map(|task| choice.servers[task as usize]);
        if maker.is_some_and(|maker| problem.is_stateless(maker as usize)) {
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
    /// Returns the place that each of these places receives a datum from.
    fn sources(&mut self, datum: u32, holders: &[u32], places: &[u32]) -> Vec<(u32, u32)> {
        let mut by_site: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for place in places.iter().filter(|place| !holders.contains(place)) {
            by_site.entry(self.site_of[*place as usize]).or_default().push(*place);
        }
        let mut found = Vec::new();
        for (site, readers) in by_site {
            let is_here = |holder: &&u32| self.site_of.get(**holder as usize) == Some(&site);
            let mut entered = None;
            let mut first: Vec<u32> = holders.iter().filter(is_here).copied().collect();
            if first.is_empty() {
                let Some((from, entry)) = self.entry_link(datum, holders, &readers) else { continue };
                entered = Some((entry, from));
                first.push(entry);
            }
            let mut ring: Vec<u32> = readers.iter().chain(&first).copied().collect();
            ring.sort_unstable();
            ring.dedup();
            let stride = self.stride(site, &ring, first[0]);
            let others = ring.iter().enumerate().filter(|(_, to)| !first.contains(to));
            let ways: Vec<(u32, u32)> =
                others.map(|(at, to)| (*to, ring[(at + ring.len() - stride) % ring.len()])).collect();
            // If two of a site cannot talk, all of the site keep their sources: mixed sources could wait for one another.
            if ways.iter().all(|(to, from)| self.is_link(*from, *to)) {
                found.extend(entered);
                found.extend(ways);
            }
        }
        found
    }

    /// Returns a stride that visits all servers of a ring. The last server of a ring sends nothing on, so the strides whose last
    /// server was last least often are preferred, and among these the stride that was used least often.
    fn stride(&mut self, site: u32, ring: &[u32], first: u32) -> usize {
        let at = ring.iter().position(|place| *place == first).unwrap_or(0);
        let last = |stride: usize| ring[(at + ring.len() - stride) % ring.len()];
        let taken = |stride: usize| self.use_counts.get(&(site, stride)).copied().unwrap_or(0);
        let strides = (1..ring.len()).filter(|stride| is_coprime(*stride, ring.len()));
        let stride = strides.min_by_key(|stride| (self.ends[last(*stride) as usize], taken(*stride))).unwrap_or(1);
        self.ends[last(stride) as usize] += 1;
        *self.use_counts.entry((site, stride)).or_default() += 1;
        stride
    }

    /// Returns the link into another site that carries the least so far.
    fn entry_link(&mut self, datum: u32, holders: &[u32], readers: &[u32]) -> Option<(u32, u32)> {
        let entry = *readers.iter().min_by_key(|place| self.bytes_in[**place as usize])?;
        let ways = holders.iter().filter(|from| self.is_link(**from, entry));
        let from = *ways.min_by_key(|from| self.bytes_out[**from as usize])?;
        let size_bytes = self.problem.data()[datum as usize].size_bytes;
        self.bytes_in[entry as usize] += size_bytes;
        self.bytes_out[from as usize] += size_bytes;
        Some((from, entry))
    }

    fn is_link(&self, from: u32, to: u32) -> bool {
        self.problem.links_from(from as usize)[to as usize].latency_s.is_finite()
    }
}

fn is_coprime(a: usize, b: usize) -> bool {
    if b == 0 { a == 1 } else { is_coprime(b, a % b) }
}

/// Returns, for each server, the first server that it reaches without crossing a shared bottleneck.
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
