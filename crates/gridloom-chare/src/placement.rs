//! On which element each chare of an array begins.

use std::fmt;
use std::sync::Arc;

use super::id::{Index, Pe};

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
    /// By a function of the program, which gives the same on every element.
    Custom(Place),
}

impl Placement {
    /// By a function of the program, which must give the same on every element.
    pub fn custom(place: impl Fn(Index, &Elements) -> Pe + Send + Sync + 'static) -> Placement {
        Placement::Custom(Arc::new(place))
    }

    /// Calls `tell` with the element of each of so many chares, in the order of their numbers. `index` gives their indices.
    ///
    /// # Errors
    /// A custom placement's element that there is not, and the index.
    pub(crate) fn each(
        &self,
        count: u32,
        elements: &Elements,
        index: impl Fn(u32) -> Index,
        mut tell: impl FnMut(u32, Pe),
    ) -> Result<(), (Index, Pe)> {
        let number_of = elements.count();
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
            Placement::Custom(place) => {
                for number in 0..count {
                    let index = index(number);
                    let element = place(index, elements);
                    if element.0 >= number_of {
                        return Err((index, element));
                    }
                    tell(number, element);
                }
            }
        }
        Ok(())
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
            Placement::Custom(_) => "Custom",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(placement: &Placement, count: u32, sites: &[u32]) -> Vec<u32> {
        let mut places = vec![u32::MAX; count as usize];
        let index = |number| Index::from(number as i32);
        placement
            .each(count, &Elements::new(sites.to_vec()), index, |number, Pe(pe)| places[number as usize] = pe)
            .unwrap();
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
        let told = far.each(2, &Elements::alike(2), |number| Index::from(number as i32), |_, _| {});
        assert_eq!(told, Err((Index::from(0), Pe(9))));
    }
}
