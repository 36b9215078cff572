//! On which element each chare of an array begins. Every element computes the places of all chares, and all get the same.

mod bisection;
mod communication;
mod graph;

use std::fmt;
use std::sync::Arc;

use graph::Graph;

use super::id::{Index, Pe};
use super::shape::Shape;

/// The processing elements of a program, and the site of each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Elements {
    sites: Vec<u32>,
}

impl Elements {
    /// # Panics
    /// If there is none.
    pub fn new(sites: Vec<u32>) -> Elements {
        assert!(!sites.is_empty(), "a program has at least one processing element");
        Elements { sites }
    }

    /// So many of one site.
    ///
    /// # Panics
    /// If there is none.
    pub fn alike(count: u32) -> Elements {
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

/// A user's own placement.
type Place = Arc<dyn Fn(Index, &Elements) -> Pe + Send + Sync>;

/// Where chares begin.
#[derive(Clone)]
pub enum Placement {
    /// Runs of consecutive numbers: neighbours share elements.
    Blocks,
    /// Consecutive numbers on consecutive elements.
    RoundRobin,
    /// Runs of consecutive numbers to the sites, as many as each has elements; round-robin inside a site. So the chares at the
    /// edge of a site, with far neighbours, are spread over its elements.
    BySite,
    /// By what the chares send one another: pairs, and the bytes that one sends to the other or gets from it.
    ByCommunication(Arc<[(Index, Index, u64)]>),
    /// By a function of the program, which gives the same on every element.
    Custom(Place),
}

/// Why chares cannot be placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Misplaced {
    /// A custom placement gives an element that there is not.
    Element(Index, Pe),
    /// Communication is stated of a chare that there is not.
    Chare(Index),
}

impl Placement {
    /// By a function of the program, which must give the same on every element.
    pub fn custom(place: impl Fn(Index, &Elements) -> Pe + Send + Sync + 'static) -> Placement {
        Placement::Custom(Arc::new(place))
    }

    /// By what the chares send one another. Each edge has two chares, in either order, and the bytes that go between them in a step, or
    /// in as long as you like. Few bytes go between sites, then few between elements; inside a site the chares that send to other sites
    /// are spread evenly. Every element has as many chares as any other, to within one.
    ///
    /// For a mesh of a million chares and 64 elements it takes about 2 s on each. Every element must state the same edges.
    pub fn by_communication(edges: impl IntoIterator<Item = (impl Into<Index>, impl Into<Index>, u64)>) -> Placement {
        let edge = |(one, other, bytes): (_, _, u64)| (Into::into(one), Into::into(other), bytes);
        Placement::ByCommunication(edges.into_iter().map(edge).collect())
    }

    /// Calls `tell` with the element of each chare of that shape, by number. Whether each exchanges messages with other sites, if this
    /// placement knows; else nothing.
    ///
    /// # Errors
    /// A chare or an element that there is not.
    pub(crate) fn each(
        &self,
        shape: &Shape,
        elements: &Elements,
        mut tell: impl FnMut(u32, Pe),
    ) -> Result<Vec<bool>, Misplaced> {
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
                let graph = Graph::of_chares(edges, shape).map_err(Misplaced::Chare)?;
                let (places, at_border) = communication::places(&graph, elements);
                (0..).zip(places).for_each(|(number, element)| tell(number, element));
                return Ok(at_border);
            }
            Placement::Custom(place) => {
                for number in 0..count {
                    let index = shape.index(number);
                    let element = place(index, elements);
                    if element.0 >= number_of {
                        return Err(Misplaced::Element(index, element));
                    }
                    tell(number, element);
                }
            }
        }
        Ok(Vec::new())
    }
}

/// The numbers of one of so many equal shares.
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
        placement.each(&Shape::from(count as usize), &Elements::new(sites.to_vec()), tell).unwrap();
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
    fn an_element_that_there_is_not_is_told() {
        let far = Placement::custom(|_, _| Pe(9));
        let told = far.each(&Shape::from(2), &Elements::alike(2), |_, _| {});
        assert_eq!(told, Err(Misplaced::Element(Index::from(0), Pe(9))));
    }

    #[test]
    fn communication_of_a_chare_that_there_is_not_is_told() {
        let edges = [(0, 1, 100), (1, 2, 100)];
        let told = Placement::by_communication(edges).each(&Shape::from(2), &Elements::alike(2), |_, _| {});
        assert_eq!(told, Err(Misplaced::Chare(Index::from(2))));
    }
}
