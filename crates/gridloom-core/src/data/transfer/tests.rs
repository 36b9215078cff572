use super::*;
use gridloom_base::SLICES;

const SIZE: u64 = 64 << 20;

fn all(_: NodeId) -> bool {
    true
}

fn equal(_: NodeId, _: NodeId) -> LinkEstimate {
    LinkEstimate { bandwidth: 12.5e6, latency_s: 1e-4 }
}

fn reader<'a>(server: NodeId, holders: &'a [NodeId], shares_storage: &'a dyn Fn(NodeId) -> bool) -> Reader<'a> {
    let (now_s, size_bytes, beside, sends_others) = (0.0, SIZE, &[], &|_| 0);
    Reader {
        now_s,
        server,
        size_bytes,
        holders,
        other_slices: beside,
        sends_others,
        is_usable: &all,
        shares_storage,
        way: &equal,
    }
}

/// Hosts at two sites: those with even numbers and those with odd ones. The link between the sites is ten times as
/// slow.
fn sites(a: NodeId, b: NodeId) -> LinkEstimate {
    let bandwidth = if a.0 % 2 == b.0 % 2 { 12.5e6 } else { 1.25e6 };
    LinkEstimate { bandwidth, latency_s: 1e-4 }
}

fn candidates(
    spread: &DatumTransfers,
    (now_s, server, size_bytes): (f64, NodeId, u64),
    holders: &[NodeId],
    is_usable: impl Fn(NodeId) -> bool,
    way: impl Fn(NodeId, NodeId) -> LinkEstimate,
) -> Vec<Candidate> {
    let (shares_storage, is_usable, way) = (&|_| false, &is_usable, &way);
    let reader = Reader {
        now_s,
        server,
        size_bytes,
        holders,
        other_slices: &[],
        sends_others: &|_| 0,
        is_usable,
        shares_storage,
        way,
    };
    spread.candidates(Method::Tree, &reader)
}

impl DatumTransfers {
    /// Has a server fetch it.
    fn choose(
        &mut self,
        now_s: f64,
        server: NodeId,
        size_bytes: u64,
        holders: &[NodeId],
        is_usable: impl Fn(NodeId) -> bool,
        way: impl Fn(NodeId, NodeId) -> LinkEstimate,
    ) -> Option<Source> {
        self.ended(server);
        let source = candidates(self, (now_s, server, size_bytes), holders, is_usable, way).first()?.source;
        self.begin(server, source);
        Some(source)
    }
}

#[test]
fn of_sources_alike_the_one_is_taken_that_sends_the_fewest_other_data() {
    let holders = [NodeId(1), NodeId(2), NodeId(3)];
    let taken = |sends_others: &dyn Fn(NodeId) -> u32| {
        let candidates = DatumTransfers::default()
            .candidates(Method::Tree, &Reader { sends_others, ..reader(NodeId(9), &holders, &|_| false) });
        candidates.iter().map(|one| (one.source.node.0, one.verdict)).collect::<Vec<_>>()
    };
    use Verdict::*;
    assert_eq!(taken(&|_| 0), [(1, Taken), (2, NotBest), (3, NotBest)]);
    assert_eq!(taken(&|node| u32::from(node.0 != 2)), [(2, Taken), (1, Busier), (3, Busier)]);
    // Sends of this datum count first, because they certainly delay it.
    let mut spread = DatumTransfers::default();
    spread.begin(NodeId(8), Source { node: NodeId(2), hops: 1, end_s: 9.0 });
    let busy =
        Reader { sends_others: &|node| if node.0 == 2 { 0 } else { 5 }, ..reader(NodeId(9), &holders, &|_| false) };
    assert_eq!(spread.candidates(Method::Tree, &busy)[0].source.node, NodeId(1));
}

fn spread(size_bytes: u64, readers: u64, way: fn(NodeId, NodeId) -> LinkEstimate) -> Vec<Source> {
    let mut spread = DatumTransfers::default();
    (2..readers + 2)
        .map(|reader| spread.choose(0.0, NodeId(reader), size_bytes, &[NodeId(1)], all, way).unwrap())
        .collect()
}

#[test]
fn each_source_has_a_verdict() {
    // 2 sends it to 8 and 4 to 6. The link from 1 is narrow, those from 9 and 11 are longer, and that from 12 is the
    // longest.
    let mut spread = DatumTransfers::default();
    let holders = [1, 2, 4, 9, 11, 12].map(NodeId);
    for (server, node, end_s) in [(6, 4, 100.0), (8, 2, 5.0)] {
        spread.begin(NodeId(server), Source { node: NodeId(node), hops: 1, end_s });
    }
    let way = |from: NodeId, _| LinkEstimate {
        bandwidth: if from == NodeId(1) { 6e6 } else { 12.5e6 },
        latency_s: [0.3, 1.0, 1.3][usize::from(from.0 >= 9) + usize::from(from.0 >= 12)],
    };
    let candidates = candidates(&spread, (0.0, NodeId(10), 10 << 20), &holders, all, way);
    let verdicts: Vec<(u64, Verdict)> = candidates.iter().map(|one| (one.source.node.0, one.verdict)).collect();
    let expected = [
        (9, Verdict::Taken),
        (11, Verdict::NotBest),
        (2, Verdict::Busier),
        (4, Verdict::Busier),
        (1, Verdict::Narrower),
        (12, Verdict::Farther),
        (8, Verdict::Later),
        (6, Verdict::Later),
    ];
    assert_eq!(verdicts, expected);
}

#[test]
fn on_equal_links_a_large_datum_goes_along_a_chain() {
    let sources = spread(SIZE, 16, equal);
    assert_eq!(sources.iter().map(|source| source.node.0).collect::<Vec<_>>(), (1..=16).collect::<Vec<_>>());
    let alone_s = SIZE as f64 / 12.5e6;
    assert!(sources.last().unwrap().end_s < 1.25 * alone_s);
}

#[test]
fn a_small_datum_goes_along_a_tree() {
    let sources = spread(1 << 19, 15, equal);
    assert_eq!(sources.iter().map(|source| source.hops).max(), Some(4));
    let alone_s = f64::from(1 << 19) / 12.5e6;
    assert!(sources.iter().map(|source| source.end_s).fold(0.0, f64::max) < 5.1 * alone_s);
}

#[test]
fn a_slow_link_is_crossed_once() {
    let sources = spread(SIZE, 15, sites);
    let crossings = (2..).zip(&sources).filter(|(reader, source)| reader % 2 != source.node.0 % 2).count();
    assert_eq!(crossings, 1);
}

#[test]
fn a_link_of_about_half_the_width_is_crossed_once() {
    // As measured: the link between the sites has 6.25 MB/s.
    let measured = |a: NodeId, b: NodeId| LinkEstimate {
        bandwidth: if a.0 % 2 == b.0 % 2 { 11.9e6 } else { 6.4e6 },
        latency_s: if a.0 % 2 == b.0 % 2 { 2e-4 } else { 1e-2 },
    };
    let sources = spread(SIZE, 15, measured);
    let crossings = (2..).zip(&sources).filter(|(reader, source)| reader % 2 != source.node.0 % 2).count();
    assert_eq!(crossings, 1);
}

/// As measured during other transfers: links within a site look narrower than the one between sites.
fn disturbed(a: NodeId, b: NodeId) -> LinkEstimate {
    let is_one_site = a.0 % 2 == b.0 % 2;
    LinkEstimate {
        bandwidth: if is_one_site { 5.2e6 } else { 6.4e6 },
        latency_s: if is_one_site { 2e-4 } else { 1e-2 },
    }
}

#[test]
fn a_long_link_is_crossed_once_though_it_looks_wider() {
    for size_bytes in [16 << 20, SIZE] {
        let sources = spread(size_bytes, 15, disturbed);
        let crossings = (2..).zip(&sources).filter(|(reader, source)| reader % 2 != source.node.0 % 2).count();
        assert_eq!(crossings, 1);
    }
    for slice in slices(Method::Swarm, 16, &[NodeId(2)], disturbed).unwrap() {
        assert_eq!(slice.pairs().filter(|(from, to)| from.0 % 2 != to.0 % 2).count(), 1);
    }
}

#[test]
fn a_far_source_is_taken_if_it_is_much_earlier() {
    let way = |from: NodeId, _| match from.0 {
        1 => LinkEstimate { bandwidth: 1e6, latency_s: 1e-4 },
        _ => LinkEstimate { bandwidth: 12.5e6, latency_s: 1e-2 },
    };
    let found = candidates(&DatumTransfers::default(), (0.0, NodeId(9), SIZE), &[NodeId(1), NodeId(2)], all, way);
    assert_eq!(found.iter().map(|one| one.source.node.0).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn no_circle_closes_when_a_source_fails() {
    let mut spread = DatumTransfers::default();
    for reader in 2..5 {
        spread.choose(0.0, NodeId(reader), SIZE, &[NodeId(1)], all, equal);
    }
    // 2 got it from 1, 3 from 2, 4 from 3.
    let again = spread.choose(1.0, NodeId(2), SIZE, &[NodeId(1)], |node| node != NodeId(1), equal);
    assert_eq!(again, None, "all others are behind it");
    spread.choose(1.0, NodeId(2), SIZE, &[NodeId(1)], all, equal).unwrap();
    let again = spread.choose(1.0, NodeId(3), SIZE, &[NodeId(1)], |node| node != NodeId(2), equal).unwrap();
    assert_eq!((again.node, again.hops), (NodeId(1), 1));
    spread.ended(NodeId(2));
    assert_eq!(spread.choose(1.0, NodeId(9), SIZE, &[], all, equal).unwrap().node, NodeId(4));
    assert_eq!(DatumTransfers::default().choose(1.0, NodeId(9), SIZE, &[], all, equal), None);
}

#[test]
fn direct_takes_those_that_have_it() {
    let mut spread = DatumTransfers::default();
    for server in [2, 3, 4].map(NodeId) {
        let reader = reader(server, &[NodeId(1)], &|_| false);
        let candidates = spread.candidates(Method::Direct, &reader);
        assert_eq!(candidates.iter().map(|one| one.source.node.0).collect::<Vec<_>>(), [1]);
        spread.begin(server, candidates[0].source);
    }
}

#[test]
fn one_file_of_a_storage_serves_all_that_share_it() {
    let mut spread = DatumTransfers::default();
    let (holders, shares) = ([NodeId(1), NodeId(2), NodeId(3)], |node| node != NodeId(1));
    for server in [4, 5, 6].map(NodeId) {
        let candidates = spread.candidates(Method::Storage, &reader(server, &holders, &shares));
        assert_eq!(candidates.iter().map(|one| one.source.node.0).collect::<Vec<_>>(), [2]);
        spread.begin(server, candidates[0].source);
    }
    // A server without a shared storage fetches it from any server, including those that are still receiving it.
    let candidates = spread.candidates(Method::Storage, &reader(NodeId(7), &holders, &|_| false));
    assert_eq!(candidates.len(), 6);
}

const WIDE: fn(NodeId, NodeId) -> LinkEstimate = |_, _| LinkEstimate { bandwidth: 125e6, latency_s: 2e-4 };

fn slices(
    method: Method,
    readers: u64,
    holders: &[NodeId],
    way: fn(NodeId, NodeId) -> LinkEstimate,
) -> Option<[DatumTransfers; SLICES]> {
    let readers: Vec<NodeId> = (100..readers + 100).map(NodeId).collect();
    Batch { now_s: 0.0, size_bytes: SIZE, holders, readers: &readers, way: &way }.in_slices(method)
}

/// Returns the time at which all servers have it.
fn end_s(spread: &DatumTransfers) -> f64 {
    spread.sources.values().map(|source| source.end_s).fold(0.0, f64::max)
}

/// Returns the number of sends of each slice by each node.
fn sends(slices: &[DatumTransfers; SLICES]) -> BTreeMap<NodeId, [u32; SLICES]> {
    let mut sends: BTreeMap<NodeId, [u32; SLICES]> = BTreeMap::new();
    for (number, slice) in slices.iter().enumerate() {
        slice.pairs().for_each(|(from, _)| sends.entry(from).or_default()[number] += 1);
    }
    sends
}

#[test]
fn in_a_swarm_each_card_sends_no_more_than_the_datum() {
    for readers in [2, 3, 7, 16, 100, 1000] {
        let slices = slices(Method::Swarm, readers, &[NodeId(1)], WIDE).unwrap();
        for (node, sends) in sends(&slices) {
            assert!(sends.iter().sum::<u32>() <= 2, "{node} of {readers}: {sends:?}");
        }
        let alone_s = SIZE as f64 / 125e6;
        for slice in &slices {
            assert_eq!(slice.pairs().count() as u64, readers);
            assert!(end_s(slice) < 1.1 * alone_s, "{readers}: {}", end_s(slice) / alone_s);
            let deepest = slice.sources.values().map(|source| source.hops).max().unwrap();
            assert!(f64::from(deepest) <= (readers as f64).log2() + 2.0, "{readers}: {deepest} sends");
            // There is no cycle.
            slice.sources.keys().for_each(|node| assert!(!slice.is_behind(*node, *node)));
        }
    }
}

#[test]
fn two_holders_send_a_slice_each() {
    let slices = slices(Method::Swarm, 1, &[NodeId(1), NodeId(2)], WIDE).unwrap();
    assert_eq!(
        sends(&slices).into_iter().map(|(node, sends)| (node.0, sends)).collect::<Vec<_>>(),
        [(1, [1, 0]), (2, [0, 1])]
    );
}

#[test]
fn a_slow_link_is_crossed_by_each_slice_once() {
    for slice in slices(Method::Swarm, 16, &[NodeId(2)], sites).unwrap() {
        assert_eq!(slice.pairs().filter(|(from, to)| from.0 % 2 != to.0 % 2).count(), 1);
    }
}

#[test]
fn auto_takes_a_swarm_for_many_readers_alone() {
    let is_sliced = |readers| slices(Method::Auto, readers, &[NodeId(1)], WIDE).is_some();
    assert_eq!([2, 8, 64, 256].map(is_sliced), [false, false, true, true]);
    // Data that are too small to be forwarded while they are received go in rounds, and two rounds of halves are
    // shorter.
    let readers: Vec<NodeId> = (100..116).map(NodeId).collect();
    let small = Batch { now_s: 0.0, size_bytes: 1 << 20, holders: &[NodeId(1)], readers: &readers, way: &WIDE };
    assert!(small.in_slices(Method::Auto).is_some());
    assert!(slices(Method::Swarm, 1, &[NodeId(1)], WIDE).is_none(), "one reader has one source");
    assert!(slices(Method::Tree, 64, &[NodeId(1)], WIDE).is_none());
}
