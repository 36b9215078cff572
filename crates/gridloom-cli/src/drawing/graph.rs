//! Layout of boxes that are joined by lines.
//!
//! Boxes that form a chain are put in a row. Others are placed by stress majorization, so that distances in the
//! drawing approximate distances along the lines. It minimizes `Σ (|xᵢ - xⱼ| - dᵢⱼ)² / dᵢⱼ²`, starting from a circle,
//! and then turns the drawing so that it is wide rather than high. Source: Gansner, Koren, North, "Graph Drawing by
//! Stress Majorization", 2004. Boxes that overlap after this are pushed apart. Nothing is random: the same graph gives
//! the same drawing.

use super::block::shelves;

/// A position, or a width and a height.
type Point = (f64, f64);

const GAP: f64 = 26.0;
/// Gap between boxes of a graph along its lines, in pixels.
const LINE: f64 = 44.0;
const ROUNDS: usize = 300;
const PUSHES_MAX: usize = 600;

/// Returns the upper left corners of boxes of those sizes, and the total size.
pub fn places(sizes: &[Point], edges: &[(usize, usize)]) -> (Vec<Point>, Point) {
    let neighbours = neighbours(sizes.len(), edges);
    let parts = components(&neighbours);
    let drawn: Vec<(Vec<Point>, Point)> = parts.iter().map(|part| component(part, sizes, &neighbours)).collect();
    let extents: Vec<Point> = drawn.iter().map(|(_, extent)| *extent).collect();
    let area: f64 = extents.iter().map(|(w, h)| (w + GAP) * (h + GAP)).sum();
    let widest = extents.iter().map(|(w, _)| *w).fold(0.0, f64::max);
    let (corners, size) = shelves(&extents, (area * 2.0).sqrt().max(widest), GAP);
    let mut places = vec![(0.0, 0.0); sizes.len()];
    for ((part, (inside, _)), (x, y)) in parts.iter().zip(&drawn).zip(corners) {
        for (vertex, place) in part.iter().zip(inside) {
            places[*vertex] = (x + place.0, y + place.1);
        }
    }
    (places, size)
}

/// Returns the vertices in their order from left to right, if they form a chain.
pub fn chain(count: usize, edges: &[(usize, usize)]) -> Option<Vec<usize>> {
    let neighbours = neighbours(count, edges);
    let mut parts = components(&neighbours);
    let part = if parts.len() == 1 { parts.pop() } else { None };
    part.filter(|part| is_chain(part, &neighbours))
}

fn is_chain(part: &[usize], neighbours: &[Vec<usize>]) -> bool {
    let edges: usize = part.iter().map(|vertex| neighbours[*vertex].len()).sum::<usize>() / 2;
    edges + 1 == part.len() && part.iter().all(|vertex| neighbours[*vertex].len() <= 2)
}

/// Returns the vertex at which three or more chains meet, and the chains from there outwards, if they make up the whole graph.
pub fn chains_around_hub(count: usize, edges: &[(usize, usize)]) -> Option<(usize, Vec<Vec<usize>>)> {
    let neighbours = neighbours(count, edges);
    let mut hubs = (0..count).filter(|vertex| neighbours[*vertex].len() > 2);
    let hub = hubs.next().filter(|_| hubs.next().is_none())?;
    let mut chains = Vec::new();
    for first in &neighbours[hub] {
        let mut chain = vec![hub, *first];
        while let Some(next) = neighbours[chain[chain.len() - 1]].iter().find(|next| **next != chain[chain.len() - 2]) {
            if *next == hub {
                return None;
            }
            chain.push(*next);
        }
        chain.remove(0);
        chains.push(chain);
    }
    let all: usize = chains.iter().map(Vec::len).sum();
    (all + 1 == count).then(|| {
        // In the order of the members, which are at the ends.
        chains.sort_by_key(|chain| chain[chain.len() - 1]);
        (hub, chains)
    })
}

fn neighbours(count: usize, edges: &[(usize, usize)]) -> Vec<Vec<usize>> {
    let mut neighbours = vec![Vec::new(); count];
    for &(a, b) in edges.iter().filter(|(a, b)| a != b) {
        if !neighbours[a].contains(&b) {
            neighbours[a].push(b);
            neighbours[b].push(a);
        }
    }
    neighbours
}

/// Returns the connected components, each in the order of a walk that begins at an end, if there is one.
fn components(neighbours: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut seen = vec![false; neighbours.len()];
    let mut parts = Vec::new();
    let mut starts: Vec<usize> = (0..neighbours.len()).collect();
    starts.sort_by_key(|vertex| (neighbours[*vertex].len() > 1, *vertex));
    for start in starts {
        let (mut part, mut open) = (Vec::new(), vec![start]);
        while let Some(vertex) = open.pop() {
            if !std::mem::replace(&mut seen[vertex], true) {
                part.push(vertex);
                open.extend(neighbours[vertex].iter().rev().filter(|next| !seen[**next]));
            }
        }
        if !part.is_empty() {
            parts.push(part);
        }
    }
    parts
}

fn component(part: &[usize], sizes: &[Point], neighbours: &[Vec<usize>]) -> (Vec<Point>, Point) {
    let size = |at: usize| sizes[part[at]];
    let mut centres = if is_chain(part, neighbours) {
        row(part.len(), size)
    } else {
        let mut centres = stress(part, sizes, neighbours);
        turn(&mut centres);
        centres
    };
    part_overlaps(&mut centres, size);
    let left = (0..part.len()).map(|at| centres[at].0 - size(at).0 / 2.0).fold(f64::MAX, f64::min);
    let top = (0..part.len()).map(|at| centres[at].1 - size(at).1 / 2.0).fold(f64::MAX, f64::min);
    let corner = |at: usize| (centres[at].0 - size(at).0 / 2.0 - left, centres[at].1 - size(at).1 / 2.0 - top);
    let corners: Vec<Point> = (0..part.len()).map(corner).collect();
    let right = (0..part.len()).map(|at| corners[at].0 + size(at).0).fold(0.0, f64::max);
    let bottom = (0..part.len()).map(|at| corners[at].1 + size(at).1).fold(0.0, f64::max);
    (corners, (right, bottom))
}

/// Places boxes side by side.
fn row(count: usize, size: impl Fn(usize) -> Point) -> Vec<Point> {
    let mut x = 0.0;
    let place = |at: usize| {
        let centre = x + size(at).0 / 2.0;
        x += size(at).0 + GAP;
        (centre, 0.0)
    };
    (0..count).map(place).collect()
}

fn stress(part: &[usize], sizes: &[Point], neighbours: &[Vec<usize>]) -> Vec<Point> {
    let n = part.len();
    let reach = |vertex: usize| (sizes[vertex].0 + sizes[vertex].1) / 4.0;
    let mut distance = vec![f64::MAX; n * n];
    for (a, vertex) in part.iter().enumerate() {
        distance[a * n + a] = 0.0;
        for next in &neighbours[*vertex] {
            let b = part.iter().position(|other| other == next).unwrap_or(a);
            distance[a * n + b] = reach(*vertex) + reach(*next) + LINE;
        }
    }
    for through in 0..n {
        for a in 0..n {
            for b in 0..n {
                let around = distance[a * n + through] + distance[through * n + b];
                distance[a * n + b] = distance[a * n + b].min(around);
            }
        }
    }
    let radius = distance.iter().copied().fold(0.0, f64::max) / 2.0;
    let angle = |at: usize| at as f64 / n as f64 * std::f64::consts::TAU;
    let mut places: Vec<Point> = (0..n).map(|at| (radius * angle(at).cos(), radius * angle(at).sin())).collect();
    for _ in 0..ROUNDS {
        for a in 0..n {
            let (mut x, mut y, mut weights) = (0.0, 0.0, 0.0);
            for b in (0..n).filter(|b| *b != a) {
                let aim = distance[a * n + b].max(1.0);
                let (dx, dy) = (places[a].0 - places[b].0, places[a].1 - places[b].1);
                let apart = (dx * dx + dy * dy).sqrt().max(1e-3);
                let weight = 1.0 / (aim * aim);
                x += weight * (places[b].0 + aim * dx / apart);
                y += weight * (places[b].1 + aim * dy / apart);
                weights += weight;
            }
            if weights > 0.0 {
                places[a] = (x / weights, y / weights);
            }
        }
    }
    places
}

/// Turns the longest extent (the first principal axis) to the horizontal.
fn turn(places: &mut [Point]) {
    let n = places.len() as f64;
    let (mx, my) = places.iter().fold((0.0, 0.0), |(x, y), place| (x + place.0 / n, y + place.1 / n));
    let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
    for (x, y) in places.iter() {
        xx += (x - mx) * (x - mx);
        xy += (x - mx) * (y - my);
        yy += (y - my) * (y - my);
    }
    let angle = 0.5 * (2.0 * xy).atan2(xx - yy);
    let (sin, cos) = angle.sin_cos();
    for place in places.iter_mut() {
        let (x, y) = (place.0 - mx, place.1 - my);
        *place = (cos * x + sin * y, cos * y - sin * x);
    }
}

/// Pushes boxes apart that are closer than the gap, each pair in the direction in which the shift is shorter.
pub fn part_overlaps(centres: &mut [Point], size: impl Fn(usize) -> Point) {
    for _ in 0..PUSHES_MAX {
        let mut is_clear = true;
        for a in 0..centres.len() {
            for b in a + 1..centres.len() {
                let (sa, sb) = (size(a), size(b));
                let (dx, dy) = (centres[b].0 - centres[a].0, centres[b].1 - centres[a].1);
                let over_x = (sa.0 + sb.0) / 2.0 + GAP / 2.0 - dx.abs();
                let over_y = (sa.1 + sb.1) / 2.0 + GAP / 2.0 - dy.abs();
                if over_x <= 0.01 || over_y <= 0.01 {
                    continue;
                }
                is_clear = false;
                if over_x < over_y {
                    let push = over_x / 2.0 * if dx < 0.0 { -1.0 } else { 1.0 };
                    centres[a].0 -= push;
                    centres[b].0 += push;
                } else {
                    let push = over_y / 2.0 * if dy < 0.0 { -1.0 } else { 1.0 };
                    centres[a].1 -= push;
                    centres[b].1 += push;
                }
            }
        }
        if is_clear {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn must_not_overlap(places: &[Point], sizes: &[Point]) {
        for a in 0..places.len() {
            for b in a + 1..places.len() {
                let apart_x = places[a].0 + sizes[a].0 <= places[b].0 || places[b].0 + sizes[b].0 <= places[a].0;
                let apart_y = places[a].1 + sizes[a].1 <= places[b].1 || places[b].1 + sizes[b].1 <= places[a].1;
                assert!(apart_x || apart_y, "boxes {a} and {b} overlap: {:?} {:?}", places[a], places[b]);
            }
        }
    }

    #[test]
    fn a_chain_stands_in_a_row() {
        let sizes = [(100.0, 50.0), (40.0, 20.0), (100.0, 70.0)];
        let (places, size) = places(&sizes, &[(0, 1), (1, 2)]);
        assert!(places[0].0 < places[1].0 && places[1].0 < places[2].0);
        assert_eq!(size.1, 70.0);
        must_not_overlap(&places, &sizes);
    }

    #[test]
    fn chains_that_meet_are_found() {
        let edges = [(0, 4), (4, 1), (4, 2), (2, 3)];
        assert_eq!(chains_around_hub(5, &edges), Some((4, vec![vec![0], vec![1], vec![2, 3]])));
        assert_eq!(chains_around_hub(5, &[(0, 4), (4, 1), (4, 2), (2, 3), (3, 1)]), None);
        assert_eq!(chains_around_hub(6, &edges), None);
        assert_eq!(chains_around_hub(3, &[(0, 1), (1, 2)]), None);
    }

    #[test]
    fn boxes_of_any_graph_do_not_overlap() {
        for n in [4usize, 9, 30, 60] {
            let sizes: Vec<Point> = (0..n).map(|at| (60.0 + 20.0 * (at % 5) as f64, 40.0)).collect();
            let edges: Vec<(usize, usize)> = (1..n).flat_map(|at| [(at, at / 2), (at, at * 7 % n)]).collect();
            let (found, extent) = places(&sizes, &edges);
            must_not_overlap(&found, &sizes);
            assert!(found.iter().zip(&sizes).all(|(place, size)| {
                place.0 >= 0.0
                    && place.1 >= 0.0
                    && place.0 + size.0 <= extent.0 + 0.1
                    && place.1 + size.1 <= extent.1 + 0.1
            }));
            assert_eq!(places(&sizes, &edges).0, found);
        }
    }
}
