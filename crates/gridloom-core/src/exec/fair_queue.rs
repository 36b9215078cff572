//! A queue of tasks in which programs take turns: the task of the program that has had the fewest turns is next, and
//! among the tasks of one program the one with the lowest number.
//!
//! A new program starts with the turns of the program that was served last, so it is served in the current round and gets
//! no extra turns for the past. If another new program had its first turn in this round, it is served in the next round:
//! a stream of programs with one task each does not stop the others. A program whose queue becomes empty keeps its count
//! for the round, so it gets no second turn by leaving and returning. This is start-time fair queueing (Goyal, Vin, Cheng,
//! *SIGCOMM* 1996) in which each task costs
//! one.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::{NodeId, TaskId};

/// The position of a program: the number of its turns, then the order in which programs reached that number.
type Position = (u64, u64);

#[derive(Clone, Debug, Default)]
struct Waiting {
    /// Tasks by number; never empty.
    tasks: BTreeMap<u64, TaskId>,
    position: Position,
    /// True until its first turn, if it has joined others.
    is_new: bool,
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct FairQueue {
    programs: BTreeMap<NodeId, Waiting>,
    order: BTreeMap<Position, NodeId>,
    /// Turns of programs that have no task in the queue but were served in this round.
    served: BTreeMap<NodeId, u64>,
    served_by_turns: BTreeSet<(u64, NodeId)>,
    /// Turns of the program that was served last, before that turn.
    round: u64,
    /// Turns with which a new program joins, unless the round has more.
    joins_at: u64,
    next_position: u64,
    len: usize,
}

impl FairQueue {
    /// Adds a task of a program.
    pub(super) fn insert(&mut self, program: NodeId, number: u64, task: TaskId) {
        if !self.programs.contains_key(&program) {
            let turns =
                self.served.remove(&program).inspect(|turns| _ = self.served_by_turns.remove(&(*turns, program)));
            let is_new = turns.is_none() && !self.is_empty();
            self.place(program, turns.unwrap_or(self.joins_at).max(self.round), BTreeMap::new(), is_new);
        }
        let waiting = self.programs.get_mut(&program).expect("placed above");
        self.len += usize::from(waiting.tasks.insert(number, task).is_none());
    }

    /// Adds a task that must not be served next, unless it is the only one. Its number must be the highest of its program.
    pub(super) fn insert_last(&mut self, program: NodeId, number: u64, task: TaskId) {
        let is_alone = !self.programs.contains_key(&program);
        let last = self.order.last_key_value().map(|((turns, _), _)| *turns);
        self.insert(program, number, task);
        if let (true, Some(turns)) = (is_alone, last) {
            let Waiting { tasks, position, is_new } = self.programs.remove(&program).expect("inserted above");
            self.order.remove(&position);
            self.place(program, position.0.max(turns), tasks, is_new);
        }
    }

    fn place(&mut self, program: NodeId, turns: u64, tasks: BTreeMap<u64, TaskId>, is_new: bool) {
        let position = (turns, self.next_position);
        self.next_position += 1;
        self.order.insert(position, program);
        self.programs.insert(program, Waiting { tasks, position, is_new });
    }

    /// Returns the next task.
    pub(super) fn first(&self) -> Option<TaskId> {
        let (_, program) = self.order.first_key_value()?;
        self.programs[program].tasks.first_key_value().map(|(_, task)| *task)
    }

    /// Removes a task and counts a turn of its program. Returns false if the task is not in the queue.
    pub(super) fn serve(&mut self, program: NodeId, number: u64) -> bool {
        self.take(program, number, 1)
    }

    /// Removes a task without counting a turn. Returns false if the task is not in the queue.
    pub(super) fn remove(&mut self, program: NodeId, number: u64) -> bool {
        self.take(program, number, 0)
    }

    fn take(&mut self, program: NodeId, number: u64, turn: u64) -> bool {
        let Some(waiting) = self.programs.get_mut(&program) else { return false };
        if waiting.tasks.remove(&number).is_none() {
            return false;
        }
        self.len -= 1;
        let turns = waiting.position.0;
        if turn == 0 && !waiting.tasks.is_empty() {
            return true;
        }
        let Waiting { tasks, position, is_new } = self.programs.remove(&program).expect("found above");
        self.order.remove(&position);
        if turn > 0 {
            self.round = self.round.max(turns);
            if is_new {
                self.joins_at = self.joins_at.max(turns + 1);
            }
        }
        if !tasks.is_empty() {
            self.place(program, turns + turn, tasks, false);
        } else if turns + turn > self.round {
            self.served.insert(program, turns + turn);
            self.served_by_turns.insert((turns + turn, program));
        }
        while let Some((turns, program)) =
            self.served_by_turns.first().copied().filter(|(turns, _)| *turns <= self.round)
        {
            self.served_by_turns.remove(&(turns, program));
            self.served.remove(&program);
        }
        true
    }

    /// Returns the tasks in the order in which they are served if no other task is added.
    pub(super) fn iter(&self) -> impl Iterator<Item = TaskId> + '_ {
        let mut order: BTreeMap<Position, _> =
            self.order.iter().map(|(position, program)| (*position, self.programs[program].tasks.values())).collect();
        let mut next_position = self.next_position;
        std::iter::from_fn(move || {
            loop {
                let ((turns, _), mut tasks) = order.pop_first()?;
                if let Some(task) = tasks.next() {
                    order.insert((turns + 1, next_position), tasks);
                    next_position += 1;
                    return Some(*task);
                }
            }
        })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets the turns of all programs if the queue is empty, so that an idle server uses no memory for them.
    pub(super) fn rest(&mut self) {
        if self.is_empty() {
            *self = FairQueue::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(program: u64, serial: u64) -> TaskId {
        TaskId { client: NodeId(program), serial }
    }

    fn add(queue: &mut FairQueue, program: u64, serials: impl IntoIterator<Item = u64>) {
        serials.into_iter().for_each(|serial| queue.insert(NodeId(program), serial, task(program, serial)));
    }

    /// Serves tasks. Returns their programs.
    fn serve(queue: &mut FairQueue, count: usize) -> Vec<u64> {
        let next = |queue: &mut FairQueue| {
            let task = queue.first().unwrap();
            assert_eq!(queue.iter().next(), Some(task));
            assert!(queue.serve(task.client, task.serial));
            task.client.0
        };
        (0..count).map(|_| next(queue)).collect()
    }

    #[test]
    fn programs_take_turns_and_a_new_one_is_next() {
        let mut queue = FairQueue::default();
        add(&mut queue, 1, 1..=300);
        assert_eq!(serve(&mut queue, 3), [1, 1, 1]);
        add(&mut queue, 2, 301..=303);
        let order: Vec<u64> = queue.iter().map(|task| task.client.0).take(7).collect();
        assert_eq!(order, [2, 1, 2, 1, 2, 1, 1]);
        assert_eq!(serve(&mut queue, 7), order);
        assert_eq!(queue.first(), Some(task(1, 8)), "a program's own tasks keep their order");
    }

    #[test]
    fn a_program_that_returns_gets_no_second_turn_in_a_round() {
        let mut queue = FairQueue::default();
        add(&mut queue, 1, 1..=9);
        let mut served = Vec::new();
        for serial in 10..14 {
            add(&mut queue, 2, [serial]);
            served.extend(serve(&mut queue, 2));
        }
        assert_eq!(served, [1, 2, 1, 2, 1, 2, 1, 2]);
        // The program gets no extra turns for the time without tasks.
        serve(&mut queue, 3);
        add(&mut queue, 2, 20..25);
        assert_eq!(serve(&mut queue, 3), [2, 1, 2]);
    }

    #[test]
    fn programs_that_join_without_end_do_not_stop_another_one() {
        let mut queue = FairQueue::default();
        add(&mut queue, 1, 1..=50);
        add(&mut queue, 2, [100]);
        let mut served = Vec::new();
        for program in 3..43 {
            add(&mut queue, program, [100 + program]);
            served.extend(serve(&mut queue, 1));
        }
        assert_eq!(served[..10], [1, 2, 3, 4, 1, 5, 6, 7, 8, 1]);
        assert_eq!(served.iter().filter(|program| **program == 1).count(), 7, "{served:?}");
        assert!(queue.served.is_empty() && queue.served_by_turns.is_empty(), "programs that have left are forgotten");
    }

    #[test]
    fn a_task_put_last_is_behind_those_of_other_programs() {
        let mut queue = FairQueue::default();
        add(&mut queue, 2, [1, 2]);
        add(&mut queue, 3, [3]);
        queue.insert_last(NodeId(1), 4, task(1, 4));
        assert_eq!(serve(&mut queue, 3), [2, 3, 1]);
        assert!(queue.remove(NodeId(2), 2) && !queue.remove(NodeId(2), 2) && queue.is_empty());
        queue.rest();
        assert!(queue.served.is_empty() && queue.served_by_turns.is_empty());
    }
}
