//! No chare leaves its site. Within each site, the chares that send to other sites are spread evenly, so that each
//! element has other chares that compute while those wait for remote messages. Then the other chares even out the
//! load.
//!
//! **Known to be wrong** if an element with many remote messages has so much work that its other chares cannot compensate.

use super::even::{Bin, even};
use super::{Balancer, Loads, Pe};

pub(super) const ENTRY: Balancer = Balancer {
    name: "grid-aware",
    about: "like refine within each site, never between sites; spreads the chares that send to other sites evenly",
    source: "G. A. Koenig, L. V. Kalé, IPDPS 2007",
    places,
    cost_ns,
};

/// Weight of all remote messages together when two placements are compared: 1/4 of the work.
const REMOTE_SHARE: u64 = 4;

fn places(loads: &Loads) -> Vec<Pe> {
    let mut places = loads.placement();
    let elements = &loads.elements;
    let mut all: Vec<Pe> = elements.all().collect();
    all.sort_by_key(|element| (elements.site(*element), *element));
    for members in all.chunk_by(|one, other| elements.site(*one) == elements.site(*other)) {
        let here = |at: &Pe| members.iter().position(|member| member == at);
        let of_site = (0..places.len()).filter(|chare| here(&loads.chares[*chare].element).is_some());
        let (border, inner): (Vec<usize>, Vec<usize>) =
            of_site.partition(|chare| loads.chares[*chare].remote_messages > 0);
        let mut spread = |chares: Vec<usize>, bins: &[Bin], weight: &dyn Fn(&super::Load) -> u64| {
            let item = |chare: &usize| {
                let load = &loads.chares[*chare];
                (here(&load.element).expect("one of this site"), weight(load))
            };
            let mut items: Vec<(usize, u64)> = chares.iter().map(item).collect();
            even(bins, &mut items);
            for (chare, (member, _)) in chares.iter().zip(&items) {
                places[*chare] = members[*member];
            }
            items
        };
        let at_border =
            spread(border.clone(), &vec![Bin { fixed: 0, size: 1 }; members.len()], &|load| load.remote_messages);
        let mut bins: Vec<Bin> = members.iter().map(|member| loads.bin(*member)).collect();
        for (chare, (member, _)) in border.iter().zip(at_border) {
            bins[member].fixed += loads.work(&loads.chares[*chare]);
        }
        spread(inner, &bins, &|load| loads.work(load));
    }
    places
}

/// Returns the time of the element with the most work, counting remote messages as work.
fn cost_ns(loads: &Loads, places: &[Pe]) -> u64 {
    let far: u64 = loads.chares.iter().map(|load| load.remote_messages).sum();
    let work: u64 = loads.chares.iter().map(|load| load.busy_ns).sum();
    let of_one_ns = work.checked_div(REMOTE_SHARE * far).unwrap_or(0);
    let mut busy = loads.busy_ns(places);
    for (load, place) in loads.chares.iter().zip(places) {
        busy[place.0 as usize] += load.remote_messages * of_one_ns;
    }
    busy.into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Load, SPEED_ONE};
    use super::*;
    use crate::id::ArrayId;
    use crate::placement::Elements;

    #[test]
    fn no_chare_leaves_its_site_and_those_at_its_border_are_spread() {
        let elements = Arc::new(Elements::new(vec![1, 0, 1, 0, 1]));
        let chare = |number: u32| Load {
            array: ArrayId(0),
            number,
            element: Pe(number % 2),
            busy_ns: 100,
            remote_messages: if number < 12 { 5 } else { 0 },
        };
        let speeds = vec![SPEED_ONE; 5];
        let loads = Loads {
            elements: elements.clone(),
            speeds,
            immovable_ns: vec![0; 5],
            chares: (0..60).map(chare).collect(),
        };
        let places = places(&loads);
        let mut at_border = [0; 5];
        for (load, place) in loads.chares.iter().zip(&places) {
            assert_eq!(elements.site(load.element), elements.site(*place));
            at_border[place.0 as usize] += usize::from(load.remote_messages > 0);
        }
        assert_eq!(at_border, [2, 3, 2, 3, 2]);
        assert_eq!(loads.busy_ns(&places), [1000, 1500, 1000, 1500, 1000]);
        assert!(cost_ns(&loads, &places) < cost_ns(&loads, &loads.placement()));
    }
}
