//! What chares send one another, as a graph without directions.

use super::super::id::Index;
use super::super::shape::Shape;

/// For each vertex, the others that it has edges to, and the bytes.
#[derive(Debug)]
pub(super) struct Graph {
    /// Where the edges of each vertex begin; one more at the end.
    first: Vec<usize>,
    edges: Vec<(u32, u64)>,
}

impl Graph {
    /// Of the chares of an array, by their numbers.
    ///
    /// # Errors
    /// The first index that the array does not have.
    pub(super) fn of_chares(edges: &[(Index, Index, u64)], shape: &Shape) -> Result<Graph, Index> {
        let number = |index: &Index| shape.number(index).ok_or(*index);
        let edges = edges.iter().map(|(one, other, bytes)| Ok((number(one)?, number(other)?, *bytes)));
        Ok(Graph::new(shape.len(), &edges.collect::<Result<Vec<_>, Index>>()?))
    }

    /// Of so many vertices. An edge from a vertex to itself does not count.
    fn new(vertices: usize, edges: &[(u32, u32, u64)]) -> Graph {
        let both = |(one, other, bytes): &(u32, u32, u64)| [(*one, *other, *bytes), (*other, *one, *bytes)];
        let mut all: Vec<(u32, u32, u64)> = edges.iter().filter(|edge| edge.0 != edge.1).flat_map(both).collect();
        all.sort_unstable();
        let mut first = vec![0; vertices + 1];
        all.iter().for_each(|(from, ..)| first[*from as usize + 1] += 1);
        (0..vertices).for_each(|vertex| first[vertex + 1] += first[vertex]);
        Graph { first, edges: all.into_iter().map(|(_, to, bytes)| (to, bytes)).collect() }
    }

    /// The part with these vertices, which are numbered anew in this order. `numbers` holds `u32::MAX` for each vertex, before and
    /// after.
    pub(super) fn part(&self, vertices: &[u32], numbers: &mut [u32]) -> Graph {
        (0..).zip(vertices).for_each(|(number, vertex)| numbers[*vertex as usize] = number);
        let (mut first, mut edges) = (vec![0], Vec::new());
        for vertex in vertices {
            let inside = |(to, bytes): &(u32, u64)| (numbers[*to as usize], *bytes);
            edges.extend(self.edges(*vertex).iter().map(inside).filter(|(to, _)| *to != u32::MAX));
            first.push(edges.len());
        }
        vertices.iter().for_each(|vertex| numbers[*vertex as usize] = u32::MAX);
        Graph { first, edges }
    }

    pub(super) fn vertices(&self) -> u32 {
        self.first.len() as u32 - 1
    }

    /// The vertices to which this one has edges, and the bytes.
    pub(super) fn edges(&self, vertex: u32) -> &[(u32, u64)] {
        &self.edges[self.first[vertex as usize]..self.first[vertex as usize + 1]]
    }

    /// The last vertex that a search in breadth reaches from this one.
    pub(super) fn farthest(&self, from: u32) -> u32 {
        let mut is_seen = vec![false; self.vertices() as usize];
        is_seen[from as usize] = true;
        let (mut reached, mut next) = (vec![from], 0);
        while let Some(vertex) = reached.get(next).copied() {
            next += 1;
            for (to, _) in self.edges(vertex) {
                if !std::mem::replace(&mut is_seen[*to as usize], true) {
                    reached.push(*to);
                }
            }
        }
        reached.pop().unwrap_or(from)
    }
}
