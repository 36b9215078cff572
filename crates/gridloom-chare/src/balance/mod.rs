//! Load balancers: they compute the best element for each chare from measurements. Each has a file and a line in [`BALANCERS`].
//!
//! A balancer is a pure function: equal loads give equal placements. Its caller decides whether moving pays off, using
//! the balancer's own cost measure.

mod even;
mod greedy;
mod grid_aware;
mod hierarchical;
mod none;
mod refine;

use std::sync::Arc;

use even::Bin;

use super::id::{ArrayId, Pe};
use super::placement::Elements;

/// The measured load of a chare that can move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    pub array: ArrayId,
    /// Number of the chare in its array.
    pub number: u32,
    /// Its current element.
    pub element: Pe,
    /// Time spent in its entry methods.
    pub busy_ns: u64,
    /// Number of messages that it sent to other sites.
    pub remote_messages: u64,
}

/// The measurements of all elements.
#[derive(Clone, Debug)]
pub struct Loads {
    pub elements: Arc<Elements>,
    /// Speed of each element, at least 1; [`SPEED_ONE`] is the mean speed.
    pub speeds: Vec<u64>,
    /// Time by element spent in entry methods of chares that cannot move.
    pub immovable_ns: Vec<u64>,
    pub chares: Vec<Load>,
}

impl Loads {
    /// Returns the current element of each chare.
    pub fn placement(&self) -> Vec<Pe> {
        self.chares.iter().map(|load| load.element).collect()
    }

    /// Returns the work of a chare, in nanoseconds of an element of speed 1: its time times the speed of its element.
    fn work(&self, load: &Load) -> u64 {
        load.busy_ns * self.speeds[load.element.0 as usize]
    }

    /// Returns the work of an element's chares that cannot move.
    fn fixed_work(&self, element: Pe) -> u64 {
        self.immovable_ns[element.0 as usize] * self.speeds[element.0 as usize]
    }

    /// Returns the bin of an element.
    fn bin(&self, element: Pe) -> Bin {
        Bin { fixed: self.fixed_work(element), size: self.speeds[element.0 as usize] }
    }

    /// Returns the busy time of each element if the chares were placed at `places`.
    fn busy_ns(&self, places: &[Pe]) -> Vec<u64> {
        let mut work: Vec<u64> = self.elements.all().map(|element| self.fixed_work(element)).collect();
        for (load, place) in self.chares.iter().zip(places) {
            work[place.0 as usize] += self.work(load);
        }
        work.iter().zip(&self.speeds).map(|(work, speed)| work / speed).collect()
    }
}

/// The mean element speed. Times multiplied by a speed fit 64 bits for all elements there can be.
pub const SPEED_ONE: u64 = 1024;

/// A load balancer with its name and description.
#[derive(Clone, Copy, Debug)]
pub struct Balancer {
    pub name: &'static str,
    pub about: &'static str,
    pub source: &'static str,
    /// Returns the best element for each chare, in the order of [`Loads::chares`].
    pub places: fn(&Loads) -> Vec<Pe>,
    /// Returns the time that a placement would take, nanoseconds.
    pub cost_ns: fn(&Loads, &[Pe]) -> u64,
}

/// All load balancers.
pub const BALANCERS: &[Balancer] = &[none::ENTRY, greedy::ENTRY, refine::ENTRY, hierarchical::ENTRY, grid_aware::ENTRY];

impl Balancer {
    /// # Errors
    /// Returns an error that lists the known names if the name is unknown.
    pub fn by_name(name: &str) -> Result<&'static Balancer, String> {
        BALANCERS.iter().find(|balancer| balancer.name == name).ok_or_else(|| {
            let names: Vec<&str> = BALANCERS.iter().map(|balancer| balancer.name).collect();
            format!("load balancer '{name}' is not known; there are {}", names.join(", "))
        })
    }
}

/// Returns the time of the element with the most work.
fn longest_ns(loads: &Loads, places: &[Pe]) -> u64 {
    loads.busy_ns(places).into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use gridloom_base::SplitMix64;

    use super::*;

    fn random_loads(seed: u64) -> Loads {
        let mut random = SplitMix64::new(seed);
        let sites = (0..1 + random.below(12)).map(|_| random.below(3) as u32).collect();
        let elements = Arc::new(Elements::new(sites));
        let count = u64::from(elements.count());
        let most = [1, 1000, 1_000_000][random.below(3) as usize];
        let chare = |number: u64| Load {
            array: ArrayId(number as u32 % 2),
            number: number as u32,
            element: Pe(random.below(count).min(random.below(count)) as u32),
            busy_ns: random.below(most),
            remote_messages: if random.below(4) == 0 { random.below(50) } else { 0 },
        };
        let chares = (0..SplitMix64::new(!seed).below(200)).map(chare).collect();
        let fixed_ns = (0..count).map(|_| random.below(most)).collect();
        let speeds = (0..count).map(|_| [SPEED_ONE, SPEED_ONE / 2, 3000, 1][random.below(4) as usize]).collect();
        Loads { immovable_ns: fixed_ns, speeds, elements, chares }
    }

    #[test]
    fn every_balancer_places_each_chare_and_does_so_again() {
        for seed in 0..500 {
            let loads = random_loads(seed);
            for balancer in BALANCERS {
                let places = (balancer.places)(&loads);
                assert_eq!(places.len(), loads.chares.len(), "{}, seed {seed}", balancer.name);
                assert!(places.iter().all(|place| place.0 < loads.elements.count()), "{}, seed {seed}", balancer.name);
                assert_eq!(places, (balancer.places)(&loads), "{}, seed {seed}", balancer.name);
                assert!((balancer.cost_ns)(&loads, &places) >= longest_ns(&loads, &places), "{}", balancer.name);
            }
        }
    }

    /// 64 chares on 8 elements of two sites; the first quarter has three times as much work.
    fn skewed() -> Loads {
        let elements = Arc::new(Elements::new(vec![0, 0, 0, 0, 1, 1, 1, 1]));
        let chare = |number: u32| Load {
            array: ArrayId(0),
            number,
            element: Pe(number / 8),
            busy_ns: if number % 32 < 8 { 3000 } else { 1000 },
            remote_messages: if (28..36).contains(&number) { 10 } else { 0 },
        };
        Loads { elements, speeds: vec![SPEED_ONE; 8], immovable_ns: vec![0; 8], chares: (0..64).map(chare).collect() }
    }

    #[test]
    fn a_skewed_load_is_evened_out() {
        let loads = skewed();
        assert_eq!(longest_ns(&loads, &loads.placement()), 24_000);
        for balancer in BALANCERS {
            let longest = longest_ns(&loads, &(balancer.places)(&loads));
            let (least, most) = if balancer.name == "none" { (24_000, 24_000) } else { (12_000, 13_000) };
            assert!((least..=most).contains(&longest), "{}: {longest}", balancer.name);
        }
    }

    #[test]
    fn slow_elements_get_less_to_do() {
        // In each site, two elements are twice as fast as the others and have as many chares, so these chares take
        // half the time there.
        let mut loads = skewed();
        loads.speeds = [1, 2, 1, 2, 1, 2, 1, 2].map(|speed| speed * SPEED_ONE * 2 / 3).to_vec();
        loads.chares.iter_mut().for_each(|load| {
            (load.busy_ns, load.remote_messages) = (if load.element.0 % 2 == 1 { 1000 } else { 2000 }, 0)
        });
        assert_eq!(longest_ns(&loads, &loads.placement()), 16_000);
        for balancer in BALANCERS.iter().filter(|balancer| balancer.name != "none") {
            let places = (balancer.places)(&loads);
            let longest = longest_ns(&loads, &places);
            assert!((10_600..=12_100).contains(&longest), "{}: {longest}", balancer.name);
        }
    }

    #[test]
    fn an_even_load_stays_where_it_is_but_with_greedy() {
        let mut loads = skewed();
        loads.chares.iter_mut().for_each(|load| (load.busy_ns, load.remote_messages) = (1000, 0));
        for balancer in BALANCERS.iter().filter(|balancer| balancer.name != "greedy") {
            assert_eq!((balancer.places)(&loads), loads.placement(), "{}", balancer.name);
        }
    }

    #[test]
    fn an_unknown_name_is_reported_with_the_known_ones() {
        let told = Balancer::by_name("fair").unwrap_err();
        assert_eq!(told, "load balancer 'fair' is not known; there are none, greedy, refine, hierarchical, grid-aware");
    }
}
