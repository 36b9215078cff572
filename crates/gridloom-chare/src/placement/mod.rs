//! Initial placement of an array's chares. Every element computes the locations of all chares, with the same result.

mod bisection;
mod communication;
mod graph;

use std::fmt;
use std::sync::Arc;

use graph::Graph;

use super::id::{Index, Pe};
use super::shape::Shape;

/// The processing elements of a program, with the site of each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Elements {
    sites: Vec<u32>,
}

impl Elements {
    /// # Panics
    /// If `sites` is empty.
    pub fn new(sites: Vec<u32>) -> Elements {
        assert!(!sites.is_empty(), "a program has at least one processing element");
        Elements { sites }
    }

    /// Creates `count` elements of one site.
    ///
    /// # Panics
    /// If `count` is 0.
    pub fn single_site(count: u32) -> Elements {
        Elements::new(vec![0; count as usize])
    }

    pub fn count(&self) -> u32 {
        self.sites.len() as u32
    }

    pub fn all(&self) -> impl Iterator<Item = Pe> + use<> {
        (0..self.count()).map(Pe)
    }

    /// # Panics
    /// If there is no such element.
    pub fn site(&self, element: Pe) -> u32 {
        self.sites[element.0 as usize]
    }
}

/// A custom placement function.
type Place = Arc<dyn Fn(Index, &Elements) -> Pe + Send + Sync>;

/// The initial placement of an array's chares.
#[derive(Clone)]
pub enum Placement {
    /// Contiguous blocks of numbers: neighbours share elements.
    Blocks,
    /// Consecutive numbers on consecutive elements.
    RoundRobin,
    /// Contiguous blocks of numbers to the sites, in proportion to their elements; round-robin within a site. So the
    /// chares at the edge of a site, which have remote neighbours, are spread over its elements.
    BySite,
    /// By communication: pairs of chares, and the bytes exchanged between them.
    ByCommunication(Arc<[(Index, Index, u64)]>),
    /// By a function of the program, which must return the same on every element.
    Custom(Place),
}

/// The reason why chares cannot be placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PlacementError {
    /// A custom placement returned an element that does not exist.
    Element(Index, Pe),
    /// The stated communication names a chare that does not exist.
    Chare(Index),
}

impl Placement {
    /// Places chares by a function of the program, which must return the same on every element.
    pub fn custom(place: impl Fn(Index, &Elements) -> Pe + Send + Sync + 'static) -> Placement {
        Placement::Custom(Arc::new(place))
    }

    /// Places chares by their communication. Each edge has two chares, in either order, and the bytes exchanged
    /// between them in a step or any other fixed period. Few bytes cross sites, then few cross elements; within a
    /// site, the chares that send to other sites are spread evenly. Every element gets the same number of chares, to
    /// within one.
    ///
    /// For a mesh of a million chares and 64 elements it takes about 2 s on each element. Every element must state the same edges.
    pub fn by_communication(edges: impl IntoIterator<Item = (impl Into<Index>, impl Into<Index>, u64)>) -> Placement {
        let edge = |(one, other, bytes): (_, _, u64)| (Into::into(one), Into::into(other), bytes);
        Placement::ByCommunication(edges.into_iter().map(edge).collect())
    }

    /// Calls `tell` with the element of each chare of a shape, by number. Returns for each chare whether it exchanges
    /// messages with other sites if this placement knows, otherwise an empty list.
    ///
    /// # Errors
    /// If a chare or an element does not exist.
    pub(crate) fn for_each_chare(
        &self,
        shape: &Shape,
        elements: &Elements,
        mut tell: impl FnMut(u32, Pe),
    ) -> Result<Vec<bool>, PlacementError> {
        let (count, number_of) = (shape.len() as u32, elements.count());
        match self {
            Placement::Blocks => {
                for element in elements.all() {
                    share(count, element.0, number_of).for_each(|number| tell(number, element));
                }
            }
            Placement::RoundRobin => (0..count).for_each(|number| tell(number, Pe(number % number_of))),
            Placement::BySite => {
                let mut by_site: Vec<Pe> = elements.all().collect();
                by_site.sort_by_key(|element| (elements.site(*element), *element));
                let mut first = 0;
                for own in by_site.chunk_by(|one, other| elements.site(*one) == elements.site(*other)) {
                    let (begin, end) = (share(count, first, number_of).start, first + own.len() as u32);
                    let end = share(count, end - 1, number_of).end;
                    (begin..end).for_each(|number| tell(number, own[(number - begin) as usize % own.len()]));
                    first += own.len() as u32;
                }
            }
            Placement::ByCommunication(edges) => {
                let graph = Graph::of_chares(edges, shape).map_err(PlacementError::Chare)?;
                let (places, at_border) = communication::places(&graph, elements);
                (0..).zip(places).for_each(|(number, element)| tell(number, element));
                return Ok(at_border);
            }
            Placement::Custom(place) => {
                for number in 0..count {
                    let index = shape.index(number);
                    let element = place(index, elements);
                    if element.0 >= number_of {
                        return Err(PlacementError::Element(index, element));
                    }
                    tell(number, element);
                }
            }
        }
        Ok(Vec::new())
    }
}

/// Returns the numbers of one of `parts` equal shares.
fn share(count: u32, part: u32, parts: u32) -> std::ops::Range<u32> {
    let begin = |part: u32| (u64::from(count) * u64::from(part) / u64::from(parts)) as u32;
    begin(part)..begin(part + 1)
}

impl fmt::Debug for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Placement::Blocks => "Blocks",
            Placement::RoundRobin => "RoundRobin",
            Placement::BySite => "BySite",
            Placement::ByCommunication(_) => "ByCommunication",
            Placement::Custom(_) => "Custom",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(placement: &Placement, count: u32, sites: &[u32]) -> Vec<u32> {
        let mut places = vec![u32::MAX; count as usize];
        let tell = |number: u32, Pe(pe)| places[number as usize] = pe;
        placement.for_each_chare(&Shape::from(count as usize), &Elements::new(sites.to_vec()), tell).unwrap();
        places
    }

    #[test]
    fn each_chare_has_one_element_and_shares_are_even() {
        let own = Placement::custom(|index, elements| Pe(index[0] as u32 * 5 % elements.count()));
        for placement in [Placement::Blocks, Placement::RoundRobin, Placement::BySite, own] {
            for sites in [&[0][..], &[0, 0, 0], &[0, 1], &[1, 0, 1, 0, 0]] {
                for count in [0, 1, 7, 64, 1000] {
                    let places = placed(&placement, count, sites);
                    let most = count.div_ceil(sites.len() as u32) + 1;
                    for pe in 0..sites.len() as u32 {
                        let own = places.iter().filter(|place| **place == pe).count() as u32;
                        let is_even = own <= most || matches!(placement, Placement::Custom(_));
                        assert!(is_even, "{placement:?} {sites:?}: {own} of {count} on element {pe}");
                    }
                    assert!(places.iter().all(|place| (*place as usize) < sites.len()));
                }
            }
        }
    }

    #[test]
    fn blocks_are_runs_and_sites_are_runs_of_rounds() {
        assert_eq!(placed(&Placement::Blocks, 6, &[0, 0, 0]), [0, 0, 1, 1, 2, 2]);
        assert_eq!(placed(&Placement::RoundRobin, 5, &[0, 0]), [0, 1, 0, 1, 0]);
        assert_eq!(placed(&Placement::BySite, 8, &[0, 0, 1, 1]), [0, 1, 0, 1, 2, 3, 2, 3]);
    }

    #[test]
    fn a_missing_element_is_reported() {
        let far = Placement::custom(|_, _| Pe(9));
        let told = far.for_each_chare(&Shape::from(2), &Elements::single_site(2), |_, _| {});
        assert_eq!(told, Err(PlacementError::Element(Index::from(0), Pe(9))));
    }

    #[test]
    fn communication_of_a_missing_chare_is_reported() {
        let edges = [(0, 1, 100), (1, 2, 100)];
        let told =
            Placement::by_communication(edges).for_each_chare(&Shape::from(2), &Elements::single_site(2), |_, _| {});
        assert_eq!(told, Err(PlacementError::Chare(Index::from(2))));
    }
}
