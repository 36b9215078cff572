//! Evens out groups of elements first, then the elements within each group, so that few chares leave their group. The
//! groups are the sites. If there is only one site, its elements form groups of about the square root of their number.

use super::even::{Bin, even};
use super::{Balancer, Loads, Pe, longest_ns};

pub(super) const ENTRY: Balancer = Balancer {
    name: "hierarchical",
    about: "like refine, first among sites (or groups of elements), then within each; few chares leave their group",
    source: "G. Zheng, A. Bhatelé, E. Meneses, L. V. Kalé, IJHPCA 25, 2011",
    places,
    cost_ns: longest_ns,
};

fn places(loads: &Loads) -> Vec<Pe> {
    let groups = groups(loads);
    let mut group_of = vec![0; loads.elements.count() as usize];
    for (group, members) in groups.iter().enumerate() {
        members.iter().for_each(|member| group_of[member.0 as usize] = group);
    }
    let bins_of = |members: &[Pe]| -> Vec<Bin> { members.iter().map(|member| loads.bin(*member)).collect() };
    let together = |bins: Vec<Bin>| Bin {
        fixed: bins.iter().map(|bin| bin.fixed).sum(),
        size: bins.iter().map(|bin| bin.size).sum(),
    };
    let bins: Vec<Bin> = groups.iter().map(|members| together(bins_of(members))).collect();
    let group = |at: Pe| group_of[at.0 as usize];
    let mut by_group: Vec<(usize, u64)> =
        loads.chares.iter().map(|load| (group(load.element), loads.work(load))).collect();
    even(&bins, &mut by_group);

    let mut places = loads.placement();
    for (number, members) in groups.iter().enumerate() {
        let bins = bins_of(members);
        let chares: Vec<usize> = (0..places.len()).filter(|chare| by_group[*chare].0 == number).collect();
        // A chare from another group starts at the group's first element.
        let member = |at: &Pe| members.iter().position(|member| member == at).unwrap_or(0);
        let mut items: Vec<(usize, u64)> =
            chares.iter().map(|chare| (member(&places[*chare]), loads.work(&loads.chares[*chare]))).collect();
        even(&bins, &mut items);
        for (chare, (member, _)) in chares.into_iter().zip(items) {
            places[chare] = members[member];
        }
    }
    places
}

fn groups(loads: &Loads) -> Vec<Vec<Pe>> {
    let elements = &loads.elements;
    let mut all: Vec<Pe> = elements.all().collect();
    all.sort_by_key(|element| (elements.site(*element), *element));
    let by_site: Vec<Vec<Pe>> =
        all.chunk_by(|one, other| elements.site(*one) == elements.site(*other)).map(<[Pe]>::to_vec).collect();
    if by_site.len() > 1 {
        return by_site;
    }
    let members = all.len().isqrt().max(1);
    all.chunks(members).map(<[Pe]>::to_vec).collect()
}
