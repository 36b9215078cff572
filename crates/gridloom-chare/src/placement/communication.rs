//! Places chares by their communication: minimizes bytes between sites, then between elements.
//!
//! The chares are divided among the sites in proportion to their elements. Within a site they are divided among its
//! elements, with those that communicate with other sites spread evenly, so that each element has other chares that
//! compute while those wait for remote messages. Both divisions halve the set of elements recursively. Every chare
//! counts as the same work, and all connections between sites as equal.
//!
//! **Known to be wrong** if chares have unequal work, which load balancers handle, and for three or more sites of
//! which some are close to each other.

use super::super::id::Pe;
use super::Elements;
use super::bisection::{Bisection, Counts, KINDS};
use super::graph::Graph;

/// Returns the element of each chare, and whether the chare has edges to other sites.
pub(super) fn places(graph: &Graph, elements: &Elements) -> (Vec<Pe>, Vec<bool>) {
    let mut by_site: Vec<Pe> = elements.all().collect();
    by_site.sort_by_key(|element| (elements.site(*element), *element));
    let sites: Vec<&[Pe]> = by_site.chunk_by(|one, other| elements.site(*one) == elements.site(*other)).collect();
    let count = graph.vertices() as usize;
    let mut division = Division { graph, kinds: vec![INNER; count], numbers: vec![u32::MAX; count] };
    let sizes: Vec<usize> = sites.iter().map(|members| members.len()).collect();
    let mut of_sites = Vec::new();
    division.divide((0..graph.vertices()).collect(), &sizes, &mut |chares| of_sites.push(chares));
    let mut site_of = vec![0; count];
    for (site, chares) in of_sites.iter().enumerate() {
        chares.iter().for_each(|chare| site_of[*chare as usize] = site);
    }
    for chare in 0..graph.vertices() {
        if graph.edges(chare).iter().any(|(to, _)| site_of[*to as usize] != site_of[chare as usize]) {
            division.kinds[chare as usize] = AT_BORDER;
        }
    }
    let mut places = vec![Pe(0); count];
    for (members, chares) in sites.into_iter().zip(of_sites) {
        let mut element = members.iter();
        division.divide(chares, &vec![1; members.len()], &mut |chares| {
            let element = element.next().expect("a part for each element");
            chares.iter().for_each(|chare| places[*chare as usize] = *element);
        });
    }
    (places, division.kinds.iter().map(|kind| *kind == AT_BORDER).collect())
}

/// Chare kinds: those with edges to other sites, and those without.
const INNER: usize = 0;
const AT_BORDER: usize = 1;

/// A recursive division of chares into parts.
struct Division<'a> {
    graph: &'a Graph,
    kinds: Vec<usize>,
    /// Scratch space for [`Graph::part`].
    numbers: Vec<u32>,
}

impl Division<'_> {
    /// Calls `tell` with the chares of each part, in order. The parts are proportional to the sizes, to within one
    /// chare, both in total and for each kind.
    fn divide(&mut self, chares: Vec<u32>, sizes: &[usize], tell: &mut impl FnMut(Vec<u32>)) {
        if sizes.len() == 1 {
            return tell(chares);
        }
        let (first, second) = sizes.split_at(sizes.len() / 2);
        let (part, all) = (first.iter().sum::<usize>(), sizes.iter().sum::<usize>());
        let share = |count: usize| count * part / all;
        let kinds: Vec<usize> = chares.iter().map(|chare| self.kinds[*chare as usize]).collect();
        let at_border = share(kinds.iter().filter(|kind| **kind == AT_BORDER).count());
        let mut wanted: Counts = [0; KINDS];
        wanted[AT_BORDER] = at_border;
        wanted[INNER] = share(chares.len()) - at_border;
        let graph = self.graph.part(&chares, &mut self.numbers);
        let sides = Bisection { graph: &graph, kinds: &kinds, wanted }.sides();
        let of_side =
            |side: bool| chares.iter().zip(&sides).filter(move |(_, is)| **is == side).map(|(chare, _)| *chare);
        let (one, other) = (of_side(true).collect(), of_side(false).collect());
        self.divide(one, first, tell);
        self.divide(other, second, tell);
    }
}

#[cfg(test)]
mod tests {
    use gridloom_base::SplitMix64;

    use super::super::super::id::Index;
    use super::super::super::shape::Shape;
    use super::super::Placement;
    use super::*;

    type Edges = Vec<(Index, Index, u64)>;

    fn placed(placement: &Placement, shape: &Shape, sites: &[u32]) -> Vec<Pe> {
        let mut places = vec![Pe(u32::MAX); shape.len()];
        let tell = |number: u32, element| places[number as usize] = element;
        placement.for_each_chare(shape, &Elements::new(sites.to_vec()), tell).unwrap();
        places
    }

    /// Returns the edges of a mesh; `index` numbers its chares.
    fn mesh(rows: i32, columns: i32, bytes: u64, index: impl Fn(i32, i32) -> Index) -> Edges {
        let mut edges = Vec::new();
        for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
            let here = index(row, column);
            edges.extend((row + 1 < rows).then(|| (here, index(row + 1, column), bytes)));
            edges.extend((column + 1 < columns).then(|| (here, index(row, column + 1), bytes)));
        }
        edges
    }

    /// Returns the bytes between chares whose elements have different keys.
    fn cut<K: PartialEq>(edges: &Edges, shape: &Shape, key: impl Fn(u32) -> K) -> u64 {
        let number = |index: &Index| shape.number(index).unwrap();
        edges.iter().filter(|(one, other, _)| key(number(one)) != key(number(other))).map(|(.., bytes)| bytes).sum()
    }

    fn counts(of: impl Iterator<Item = Pe>, elements: usize) -> Vec<usize> {
        let mut counts = vec![0; elements];
        of.for_each(|element| counts[element.0 as usize] += 1);
        counts
    }

    #[test]
    fn a_mesh_with_numbers_at_random_is_cut_in_two_where_it_is_narrow() {
        let mut random = SplitMix64::new(7);
        let mut numbers: Vec<i32> = (0..8 * 16).collect();
        for at in (1..numbers.len()).rev() {
            numbers.swap(at, random.below(at as u64 + 1) as usize);
        }
        let edges = mesh(16, 8, 100, |row, column| numbers[(row * 8 + column) as usize].into());
        let (shape, sites) = (Shape::from(128), [0, 1, 0, 1, 0, 1, 0, 1]);
        let places = placed(&Placement::by_communication(edges.clone()), &shape, &sites);
        assert_eq!(cut(&edges, &shape, |number| sites[places[number as usize].0 as usize]), 800, "eight edges");
        assert_eq!(counts(places.iter().copied(), 8), [16; 8]);
        let at_border = edges.iter().flat_map(|(one, other, _)| {
            let [one, other] = [one, other].map(|index| places[shape.number(index).unwrap() as usize]);
            (sites[one.0 as usize] != sites[other.0 as usize]).then_some([one, other]).into_iter().flatten()
        });
        let at_border: Vec<Pe> = at_border.collect();
        assert_eq!(
            counts(at_border.iter().copied(), 8),
            [2; 8],
            "eight chares at the border of each site, on its four elements"
        );
        let graph = Graph::of_chares(&edges, &shape).unwrap();
        let (_, told) = super::places(&graph, &Elements::new(sites.to_vec()));
        assert_eq!(told.iter().filter(|is| **is).count(), at_border.len());
    }

    #[test]
    fn a_heavy_edge_stays_inside_a_site() {
        // A ring of eight with two light edges: the sites are separated at these.
        let edges: Edges =
            (0..8).map(|at| (at.into(), ((at + 1) % 8).into(), if at % 4 == 3 { 1 } else { 1000 })).collect();
        let shape = Shape::from(8);
        let places = placed(&Placement::by_communication(edges.clone()), &shape, &[0, 1]);
        assert_eq!(cut(&edges, &shape, |number| places[number as usize]), 2);
    }

    #[test]
    fn any_graph_is_divided_evenly_and_cut_no_more_than_by_blocks() {
        for seed in 0..300 {
            let mut random = SplitMix64::new(seed);
            let count = random.below(120) as usize;
            let number = |random: &mut SplitMix64| Index::from(random.below(count as u64) as i32);
            let edges: Edges = match count {
                0 => Edges::new(),
                _ => (0..random.below(400))
                    .map(|_| {
                        (number(&mut random), number(&mut random), [1, 1000, u64::MAX >> 12][random.below(3) as usize])
                    })
                    .collect(),
            };
            let sites: Vec<u32> = (0..1 + random.below(9)).map(|_| random.below(3) as u32).collect();
            let (shape, placement) = (Shape::from(count), Placement::by_communication(edges.clone()));
            let places = placed(&placement, &shape, &sites);
            assert_eq!(places, placed(&placement, &shape, &sites), "seed {seed}");
            let counts = counts(places.iter().copied(), sites.len());
            let (most, least) = (counts.iter().max().unwrap(), counts.iter().min().unwrap());
            assert!(most - least <= 1, "seed {seed}: {counts:?}");
            if sites.len() == 2 {
                let blocks = placed(&Placement::Blocks, &shape, &[0, 1]);
                let [own, of_blocks] =
                    [&places, &blocks].map(|places| cut(&edges, &shape, |number| places[number as usize]));
                // Either both elements are in one site and no chare is at a border, or each site has one element. So
                // the chares can be divided as blocks are.
                assert!(own <= of_blocks, "seed {seed}: {own}, blocks {of_blocks}");
            }
        }
    }
}
