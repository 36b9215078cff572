//! Divides a graph into two sides of given sizes with few bytes between them.
//!
//! Vertices have kinds, and each side gets a given number of each kind, so that a rare kind can be spread evenly.
//! Three initial divisions are tried: one in vertex order, and one grown from each of two vertices at the rim. Each is
//! refined, and the best is used. The result depends on the graph only.
//!
//! Sources: growing, G. Karypis, V. Kumar, SIAM J. Sci. Comput. 20(1), 1998, section 3.2; refinement, C. M. Fiduccia,
//! R. M. Mattheyses, DAC 1982.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::graph::Graph;

/// Number of vertex kinds.
pub(super) const KINDS: usize = 2;

/// Number of vertices of each kind.
pub(super) type Counts = [usize; KINDS];

/// Maximum number of passes of a refinement; most graphs need fewer than five.
const PASSES_MAX: usize = 10;
/// Number of moves without an improvement after which a pass ends.
const MOVES_WITHOUT_GAIN_MAX: usize = 1000;

/// A graph to divide.
pub(super) struct Bisection<'a> {
    pub(super) graph: &'a Graph,
    /// The kind of each vertex, below [`KINDS`].
    pub(super) kinds: &'a [usize],
    /// Number of vertices of each kind for the first side.
    pub(super) wanted: Counts,
}

/// Vertices ordered by the gain of moving them. Entries with an outdated gain are skipped.
type Queue = BinaryHeap<(i128, Reverse<u32>)>;

impl Bisection<'_> {
    /// Returns for each vertex whether it belongs to the first side.
    pub(super) fn sides(&self) -> Vec<bool> {
        if self.graph.vertices() == 0 {
            return Vec::new();
        }
        let rim = self.graph.farthest(0);
        let starts = [self.in_order(), self.grown(rim), self.grown(self.graph.farthest(rim))];
        let refined = starts.into_iter().map(|mut sides| {
            while_gaining(|| self.pass(&mut sides));
            sides
        });
        refined.min_by_key(|sides| self.cut(sides)).expect("there are three")
    }

    /// Returns the bytes between the sides, counting each edge twice.
    fn cut(&self, sides: &[bool]) -> u128 {
        let of_vertex = |vertex: u32| {
            let far = self.graph.edges(vertex).iter().filter(|(to, _)| sides[*to as usize] != sides[vertex as usize]);
            far.map(|(_, bytes)| u128::from(*bytes)).sum::<u128>()
        };
        (0..self.graph.vertices()).map(of_vertex).sum()
    }

    fn in_order(&self) -> Vec<bool> {
        let mut left = self.wanted;
        let takes = |kind: &usize| {
            let takes = left[*kind] > 0;
            left[*kind] -= usize::from(takes);
            takes
        };
        self.kinds.iter().map(takes).collect()
    }

    /// Grows the first side from one vertex, repeatedly adding the vertex that leaves the fewest bytes between the sides.
    fn grown(&self, from: u32) -> Vec<bool> {
        let mut sides = vec![false; self.kinds.len()];
        let mut gains: Vec<i128> = (0..self.graph.vertices()).map(|vertex| self.gain(&sides, vertex)).collect();
        let (mut queue, mut left) = (Queue::from([(i128::MAX, Reverse(from))]), self.wanted);
        gains[from as usize] = i128::MAX;
        let mut others = 0..self.graph.vertices();
        while left.iter().any(|left| *left > 0) {
            let next = match queue.pop() {
                Some((gain, Reverse(vertex))) if gain == gains[vertex as usize] => vertex,
                Some(_) => continue,
                // All vertices connected to it are already in.
                None => others.next().expect("there are as many vertices as are wanted"),
            };
            let kind = self.kinds[next as usize];
            if sides[next as usize] || left[kind] == 0 {
                continue;
            }
            sides[next as usize] = true;
            left[kind] -= 1;
            for (to, bytes) in self.graph.edges(next) {
                if !sides[*to as usize] && *to != from {
                    gains[*to as usize] += 2 * i128::from(*bytes);
                    queue.push((gains[*to as usize], Reverse(*to)));
                }
            }
        }
        sides
    }

    /// Returns the reduction of bytes between the sides if the vertex moves.
    fn gain(&self, sides: &[bool], vertex: u32) -> i128 {
        let of_edge = |(to, bytes): &(u32, u64)| match sides[*to as usize] == sides[vertex as usize] {
            true => -i128::from(*bytes),
            false => i128::from(*bytes),
        };
        self.graph.edges(vertex).iter().map(of_edge).sum()
    }

    /// Moves each vertex at most once, best gain first, and returns to the best division seen. Returns true if it is
    /// better than the initial one. In between, the count of each kind may be off by one.
    fn pass(&self, sides: &mut [bool]) -> bool {
        let mut gains: Vec<i128> = (0..self.graph.vertices()).map(|vertex| self.gain(sides, vertex)).collect();
        let mut is_moved = vec![false; sides.len()];
        let mut queues: [[Queue; KINDS]; 2] = Default::default();
        for vertex in 0..self.graph.vertices() {
            let queue = &mut queues[usize::from(sides[vertex as usize])][self.kinds[vertex as usize]];
            queue.push((gains[vertex as usize], Reverse(vertex)));
        }
        let (mut have, mut moved) = (self.wanted, Vec::new());
        let (mut gained, mut best, mut best_moves) = (0, 0, 0);
        while moved.len() - best_moves <= MOVES_WITHOUT_GAIN_MAX {
            let mut next: Option<(i128, Reverse<u32>)> = None;
            for (is_first, queues) in [false, true].into_iter().zip(&mut queues) {
                for (kind, queue) in queues.iter_mut().enumerate() {
                    let may_move =
                        if is_first { have[kind] >= self.wanted[kind] } else { have[kind] <= self.wanted[kind] };
                    if may_move {
                        let is_old = |top: &(i128, Reverse<u32>)| {
                            let vertex = top.1.0 as usize;
                            is_moved[vertex] || gains[vertex] != top.0
                        };
                        while queue.peek().is_some_and(is_old) {
                            queue.pop();
                        }
                        next = next.max(queue.peek().copied());
                    }
                }
            }
            let Some((gain, Reverse(vertex))) = next else { break };
            let side = !sides[vertex as usize];
            sides[vertex as usize] = side;
            is_moved[vertex as usize] = true;
            moved.push(vertex);
            let have_of_kind = &mut have[self.kinds[vertex as usize]];
            *have_of_kind = if side { *have_of_kind + 1 } else { *have_of_kind - 1 };
            gained += gain;
            if gained > best && have == self.wanted {
                (best, best_moves) = (gained, moved.len());
            }
            for (to, bytes) in self.graph.edges(vertex) {
                let at = *to as usize;
                if !is_moved[at] {
                    gains[at] += if sides[at] == side { -2 } else { 2 } * i128::from(*bytes);
                    queues[usize::from(sides[at])][self.kinds[at]].push((gains[at], Reverse(*to)));
                }
            }
        }
        moved[best_moves..].iter().for_each(|vertex| sides[*vertex as usize] ^= true);
        best > 0
    }
}

fn while_gaining(mut pass: impl FnMut() -> bool) {
    for _ in 0..PASSES_MAX {
        if !pass() {
            break;
        }
    }
}
