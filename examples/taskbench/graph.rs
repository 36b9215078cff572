//! The graphs of Task Bench: a number of points, a number of steps, and a pattern that defines the inputs of each task among the
//! outputs of the step before.
//!
//! | pattern | points at step `t` | inputs of task `(t, i)`: the outputs at step `t - 1` of |
//! |---|---|---|
//! | `none` | all | no point |
//! | `stencil` | all | `i - 1`, `i`, `i + 1` |
//! | `tree` | the first `2^t` | `i / 2`, rounded down |
//! | `fft` | all | `i - d`, `i`, `i + d` with `d = 2^((t - 1) mod log2(width))`, the logarithm rounded up |
//! | `all-to-all` | all | all points |
//!
//! Points outside the graph are omitted. Source: E. Slaughter et al., *Task Bench: A Parameterized Benchmark for
//! Evaluating Parallel
//! Runtime Performance*, SC 2020, table 2.

use std::collections::VecDeque;

/// The inputs of tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    None,
    Stencil,
    Tree,
    Fft,
    AllToAll,
}

/// Patterns by name.
pub const PATTERNS: [(&str, Pattern); 5] = [
    ("none", Pattern::None),
    ("stencil", Pattern::Stencil),
    ("tree", Pattern::Tree),
    ("fft", Pattern::Fft),
    ("all-to-all", Pattern::AllToAll),
];

/// Maximum number of points: a task's inputs are stored as bits of one word.
pub const WIDTH_MAX: u32 = 128;

/// A pattern over a number of points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Graph {
    pub pattern: Pattern,
    pub width: u32,
}

/// Points at equal distances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Points {
    first: u32,
    stride: u32,
    count: u32,
}

impl Points {
    const NONE: Points = Points { first: 0, stride: 1, count: 0 };

    /// `at - stride`, `at`, `at + stride`, without points outside the graph.
    fn around(at: u32, stride: u32, width: u32) -> Points {
        let first = if at >= stride { at - stride } else { at };
        let last = if at + stride < width { at + stride } else { at };
        Points { first, stride, count: (last - first) / stride + 1 }
    }

    pub fn len(self) -> u32 {
        self.count
    }

    pub fn each(self) -> impl Iterator<Item = u32> {
        (0..self.count).map(move |number| self.first + number * self.stride)
    }

    /// Index of that point.
    fn position(self, point: u32) -> Option<u32> {
        let distance = point.checked_sub(self.first)?;
        let number = distance / self.stride;
        (distance % self.stride == 0 && number < self.count).then_some(number)
    }
}

impl Graph {
    /// Number of points with a task at that step.
    pub fn width_at(self, step: u32) -> u32 {
        match self.pattern {
            Pattern::Tree => 1_u32.checked_shl(step).map_or(self.width, |width| width.min(self.width)),
            Pattern::None | Pattern::Stencil | Pattern::Fft | Pattern::AllToAll => self.width,
        }
    }

    /// The first step at which that point has a task.
    pub fn first_step(self, at: u32) -> u32 {
        match self.pattern {
            Pattern::Tree => u32::BITS - at.leading_zeros(),
            Pattern::None | Pattern::Stencil | Pattern::Fft | Pattern::AllToAll => 0,
        }
    }

    /// The points whose outputs of the step before are inputs of that point's task.
    pub fn inputs(self, step: u32, at: u32) -> Points {
        match self.pattern {
            _ if step == 0 => Points::NONE,
            Pattern::None => Points::NONE,
            Pattern::Tree => Points { first: at / 2, stride: 1, count: 1 },
            Pattern::Stencil | Pattern::Fft | Pattern::AllToAll => self.partners(step, at),
        }
    }

    /// The points whose tasks take that output at the next step.
    pub fn outputs(self, step: u32, at: u32) -> Points {
        match self.pattern {
            Pattern::None => Points::NONE,
            Pattern::Tree => {
                Points { first: 2 * at, stride: 1, count: self.width_at(step + 1).saturating_sub(2 * at).min(2) }
            }
            Pattern::Stencil | Pattern::Fft | Pattern::AllToAll => self.partners(step + 1, at),
        }
    }

    /// Points that take one another's outputs.
    fn partners(self, step: u32, at: u32) -> Points {
        match self.pattern {
            Pattern::AllToAll => Points { first: 0, stride: 1, count: self.width },
            Pattern::Fft => {
                let rounds = (u32::BITS - (self.width - 1).leading_zeros()).max(1);
                Points::around(at, 1 << ((step - 1) % rounds), self.width)
            }
            Pattern::None | Pattern::Stencil | Pattern::Tree => Points::around(at, 1, self.width),
        }
    }

    /// Number of tasks in that many steps, and total number of their inputs.
    pub fn totals(self, steps: u32) -> (u64, u64) {
        let inputs = |step: u32| (0..self.width_at(step)).map(|at| u64::from(self.inputs(step, at).len())).sum::<u64>();
        (0..steps).fold((0, 0), |(tasks, all), step| (tasks + u64::from(self.width_at(step)), all + inputs(step)))
    }
}

/// The inputs of a point's next tasks. A point may be many steps behind those whose outputs it takes.
///
/// **Promise:** a task is ready when each of its inputs has arrived once, and never with any other input.
pub struct Inputs {
    graph: Graph,
    at: u32,
    /// The step of the next task.
    pub step: u32,
    /// By step, from that one on: the inputs that have arrived.
    there: VecDeque<u128>,
}

impl Inputs {
    pub fn new(graph: Graph, at: u32) -> Inputs {
        Inputs { graph, at, step: graph.first_step(at), there: VecDeque::new() }
    }

    /// Adds the output of a task.
    ///
    /// # Errors
    /// If no task that has yet to run takes it, or it had arrived already.
    pub fn take(&mut self, step: u32, point: u32) -> Result<(), String> {
        let mine = step + 1;
        let wrong =
            |why| format!("task {mine} of point {} got the output of point {point} at step {step}: {why}", self.at);
        let ahead = mine.checked_sub(self.step).ok_or_else(|| wrong("it has run without it"))? as usize;
        let number = self.graph.inputs(mine, self.at).position(point).ok_or_else(|| wrong("it takes no such input"))?;
        if self.there.len() <= ahead {
            self.there.resize(ahead + 1, 0);
        }
        if self.there[ahead] & (1 << number) != 0 {
            return Err(wrong("it has it already"));
        }
        self.there[ahead] |= 1 << number;
        Ok(())
    }

    /// Advances to the next task if all inputs of the present one have arrived; returns whether they had.
    pub fn next(&mut self) -> bool {
        let there = self.there.front().copied().unwrap_or(0);
        if there.count_ones() < self.graph.inputs(self.step, self.at).len() {
            return false;
        }
        self.there.pop_front();
        self.step += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graphs() -> impl Iterator<Item = Graph> {
        let widths = (1..=17).chain([64, 100, WIDTH_MAX]);
        widths.flat_map(|width| PATTERNS.map(|(_, pattern)| Graph { pattern, width }))
    }

    fn points(of: Points) -> Vec<u32> {
        of.each().collect()
    }

    #[test]
    fn outputs_go_where_they_are_inputs_and_nowhere_else() {
        for graph in graphs() {
            for step in 0..10 {
                let (now, next) = (graph.width_at(step), graph.width_at(step + 1));
                for at in 0..now {
                    let taken = (0..next).filter(|other| points(graph.inputs(step + 1, *other)).contains(&at));
                    assert_eq!(points(graph.outputs(step, at)), taken.collect::<Vec<u32>>(), "{graph:?}, {step}, {at}");
                }
            }
        }
    }

    #[test]
    fn the_patterns_are_those_of_task_bench() {
        let of = |pattern, step, at| points(Graph { pattern, width: 8 }.inputs(step, at));
        assert!(of(Pattern::None, 3, 3).is_empty());
        assert_eq!([of(Pattern::Stencil, 1, 0), of(Pattern::Stencil, 9, 4)], [vec![0, 1], vec![3, 4, 5]]);
        assert_eq!([of(Pattern::Tree, 2, 3), of(Pattern::Tree, 9, 6)], [vec![1], vec![3]]);
        let fft = [of(Pattern::Fft, 1, 4), of(Pattern::Fft, 2, 4), of(Pattern::Fft, 3, 4), of(Pattern::Fft, 4, 4)];
        assert_eq!(fft, [vec![3, 4, 5], vec![2, 4, 6], vec![0, 4], vec![3, 4, 5]]);
        assert_eq!(of(Pattern::AllToAll, 1, 4), [0, 1, 2, 3, 4, 5, 6, 7]);
        let tree = Graph { pattern: Pattern::Tree, width: 6 };
        assert_eq!([0, 1, 2, 3].map(|step| tree.width_at(step)), [1, 2, 4, 6]);
        assert_eq!([0, 1, 2, 3, 4, 5].map(|at| tree.first_step(at)), [0, 1, 2, 2, 3, 3]);
        assert_eq!(tree.totals(4), (1 + 2 + 4 + 6, 2 + 4 + 6));
    }

    #[test]
    fn a_task_is_ready_when_each_input_has_arrived_once() {
        for graph in graphs() {
            for at in 0..graph.width {
                let mut inputs = Inputs::new(graph, at);
                let first = inputs.step;
                for step in first..first + 5 {
                    let due = points(graph.inputs(step, at));
                    for (number, point) in due.iter().rev().enumerate() {
                        assert!(!inputs.next(), "{graph:?}, {step}, {at}: {number} of {} inputs", due.len());
                        inputs.take(step - 1, *point).unwrap();
                    }
                    assert!(inputs.next(), "{graph:?}, {step}, {at}");
                }
            }
        }
    }

    #[test]
    fn a_wrong_input_is_an_error() {
        let mut inputs = Inputs::new(Graph { pattern: Pattern::Stencil, width: 8 }, 4);
        assert!(inputs.next(), "the first task takes nothing");
        inputs.take(0, 3).unwrap();
        inputs.take(1, 3).unwrap();
        let got = "task 1 of point 4 got the output of point";
        assert_eq!(inputs.take(0, 3).unwrap_err(), format!("{got} 3 at step 0: it has it already"));
        assert_eq!(inputs.take(0, 6).unwrap_err(), format!("{got} 6 at step 0: it takes no such input"));
        inputs.take(0, 4).unwrap();
        assert!(!inputs.next());
        inputs.take(0, 5).unwrap();
        assert!(inputs.next());
        assert_eq!(inputs.take(0, 5).unwrap_err(), format!("{got} 5 at step 0: it has run without it"));
    }
}
