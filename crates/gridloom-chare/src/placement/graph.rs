//! The communication between chares as an undirected graph.

use super::super::id::Index;
use super::super::shape::Shape;

/// For each vertex, its neighbours and the bytes exchanged with them.
#[derive(Debug)]
pub(super) struct Graph {
    /// Start of each vertex's edges; one more entry at the end.
    first: Vec<usize>,
    edges: Vec<(u32, u64)>,
}

impl Graph {
    /// Creates the graph of an array's chares, by their numbers.
    ///
    /// # Errors
    /// Returns the first index that the array does not have.
    pub(super) fn of_chares(edges: &[(Index, Index, u64)], shape: &Shape) -> Result<Graph, Index> {
        let number = |index: &Index| shape.number(index).ok_or(*index);
        let edges = edges.iter().map(|(one, other, bytes)| Ok((number(one)?, number(other)?, *bytes)));
        Ok(Graph::new(shape.len(), &edges.collect::<Result<Vec<_>, Index>>()?))
    }

    /// Creates a graph with `vertices` vertices. Edges from a vertex to itself are ignored.
    fn new(vertices: usize, edges: &[(u32, u32, u64)]) -> Graph {
        let both = |(one, other, bytes): &(u32, u32, u64)| [(*one, *other, *bytes), (*other, *one, *bytes)];
        let mut all: Vec<(u32, u32, u64)> = edges.iter().filter(|edge| edge.0 != edge.1).flat_map(both).collect();
        all.sort_unstable();
        let mut first = vec![0; vertices + 1];
        all.iter().for_each(|(from, ..)| first[*from as usize + 1] += 1);
        (0..vertices).for_each(|vertex| first[vertex + 1] += first[vertex]);
        Graph { first, edges: all.into_iter().map(|(_, to, bytes)| (to, bytes)).collect() }
    }

    /// Returns the subgraph of these vertices, renumbered in this order. `numbers` must hold `u32::MAX` for each
    /// vertex, and does so again afterwards.
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

    /// Returns the neighbours of a vertex and the bytes exchanged with them.
    pub(super) fn edges(&self, vertex: u32) -> &[(u32, u64)] {
        &self.edges[self.first[vertex as usize]..self.first[vertex as usize + 1]]
    }

    /// Returns the last vertex that a breadth-first search reaches from `from`.
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
