//! Tori: grids of hosts whose ends are joined, of any number of dimensions.
//!
//! Parameters `d1,d2,…`: number of hosts in each dimension; positions count along the first dimension first. In each
//! dimension, each host has a link to the next host, and the last host to the first: `ID_link_from_A_to_B` (`_UP` from
//! A to B, `_DOWN` back), by positions.
//!
//! Each host may have a limiter, a link that every route through the host crosses, including routes that start or end there.
//!
//! A route goes through one dimension after another, in the shorter direction. If both are equally long, it goes up,
//! except from position `size / 2` to position 0.
//!
//! Source: dimension-order routing (Dally and Seitz, "Deadlock-Free Message Routing in Multiprocessor Interconnection
//! Networks", 1987), with the choices of SimGrid 4.1. The names of links are Gridloom's.

use super::leaves::{Leaves, LinkFactory};
use crate::element::{ELEMENTS_MAX, LinkId};
use crate::error::PlatformError;

/// Maximum number of dimensions; more than a handful are mistakes.
const DIMENSIONS_MAX: usize = 16;

#[derive(Clone, Debug)]
pub(crate) struct Torus {
    pub(crate) sizes: Vec<usize>,
    pub(crate) leaves: Leaves,
    /// Each host's link to the next host in a dimension and the link back, indexed by host and dimension.
    pub(crate) links: Vec<(LinkId, LinkId)>,
}

impl Torus {
    /// Creates the links of that many hosts; `id` is the cluster's.
    pub(crate) fn build(
        sizes: Vec<usize>,
        leaves: Leaves,
        hosts: usize,
        id: &str,
        cabling: &mut dyn LinkFactory,
    ) -> Result<Torus, PlatformError> {
        let mut links = Vec::with_capacity(hosts * sizes.len());
        for at in 0..hosts {
            let mut stride = 1;
            for size in &sizes {
                let next = neighbour(at, stride, *size, 1);
                let name = match next == at {
                    true => format!("{id}_link_from_{at}_to_itself_{}", links.len() % sizes.len()),
                    false => format!("{id}_link_from_{at}_to_{next}"),
                };
                links.push(cabling.cable(&name, 1)?);
                stride *= size;
            }
        }
        Ok(Torus { sizes, leaves, links })
    }

    /// Returns the links between two hosts, by position.
    pub(crate) fn route(&self, from: usize, to: usize) -> Vec<LinkId> {
        let (mut links, mut at, mut stride) = (Vec::new(), from, 1);
        for (dimension, &size) in self.sizes.iter().enumerate() {
            let (start, end) = (from / stride % size, to / stride % size);
            let half = size / 2;
            let goes_up = if end > start { end - start <= half } else { start > half && end + size - start <= half };
            while at / stride % size != end {
                links.extend(self.leaves.limiter(at));
                if goes_up {
                    links.push(self.links[at * self.sizes.len() + dimension].0);
                    at = neighbour(at, stride, size, 1);
                } else {
                    at = neighbour(at, stride, size, size - 1);
                    links.push(self.links[at * self.sizes.len() + dimension].1);
                }
            }
            stride *= size;
        }
        links.extend(self.leaves.limiter(to));
        links
    }
}

/// The position `steps` steps up in the dimension of that stride and size.
fn neighbour(at: usize, stride: usize, size: usize, steps: usize) -> usize {
    let coordinate = at / stride % size;
    at - coordinate * stride + (coordinate + steps) % size * stride
}

/// Parses the number of hosts in each dimension.
pub(crate) fn parse(parameters: &str, hosts: usize) -> Result<Vec<usize>, String> {
    let wrong = |why: &str| format!("topo_parameters '{parameters}' {why}");
    let sizes: Option<Vec<usize>> = parameters.split(',').map(|word| word.trim().parse().ok()).collect();
    let sizes = sizes.filter(|sizes| !sizes.contains(&0));
    let sizes = sizes.ok_or_else(|| wrong("must be numbers above 0, as in '4,4,2': the hosts in each dimension"))?;
    if sizes.len() > DIMENSIONS_MAX {
        return Err(wrong(&format!("must have at most {DIMENSIONS_MAX} dimensions")));
    }
    match sizes.iter().try_fold(1usize, |product, size| product.checked_mul(*size)) {
        Some(product) if product == hosts => {}
        Some(product) => return Err(wrong(&format!("need {product} hosts, but there are {hosts}"))),
        None => return Err(wrong(&format!("need too many hosts, but there are {hosts}"))),
    }
    if hosts * sizes.len() > ELEMENTS_MAX / 2 {
        return Err(wrong("make too many links"));
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn torus(sizes: &[usize]) -> Torus {
        let hosts: usize = sizes.iter().product();
        let link = |number: usize| (LinkId(2 * number as u32), LinkId(2 * number as u32 + 1));
        let links = (0..hosts * sizes.len()).map(link).collect();
        Torus { sizes: sizes.to_vec(), leaves: Leaves::default(), links }
    }

    #[test]
    fn a_ring_is_gone_round_the_shorter_way() {
        let ring = torus(&[5]);
        let way = |from, to| ring.route(from, to).iter().map(|link| link.0).collect::<Vec<u32>>();
        assert_eq!(way(0, 2), [0, 2]);
        assert_eq!(way(0, 3), [9, 7]);
        assert_eq!(way(4, 1), [8, 0]);
        assert!(way(3, 3).is_empty());
    }

    proptest! {
        /// Every route is connected, ends at its destination, and is as long as the sum of the distances in all
        /// dimensions.
        #[test]
        fn ways_lead_there_and_are_shortest(
            sizes in prop::collection::vec(1usize..6, 1..4), from in 0usize..1000, to in 0usize..1000,
        ) {
            let torus = torus(&sizes);
            let hosts: usize = sizes.iter().product();
            let (from, to) = (from % hosts, to % hosts);
            let (mut at, mut shortest, mut stride) = (from, 0, 1);
            for size in &sizes {
                let apart = (from / stride % size).abs_diff(to / stride % size);
                shortest += apart.min(size - apart);
                stride *= size;
            }
            let way = torus.route(from, to);
            prop_assert_eq!(way.len(), shortest);
            for link in way {
                let (host, dimension) = (link.0 as usize / 2 / sizes.len(), link.0 as usize / 2 % sizes.len());
                let next = neighbour(host, sizes[..dimension].iter().product(), sizes[dimension], 1);
                let (start, end) = if link.0 % 2 == 0 { (host, next) } else { (next, host) };
                prop_assert_eq!(start, at);
                at = end;
            }
            prop_assert_eq!(at, to);
        }
    }
}
