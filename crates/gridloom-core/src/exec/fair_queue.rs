//! A queue of tasks in which users take turns, and so do the programs of each user: the task of the user, and
//! of that user's program, that has had the fewest turns is next. Among the tasks of one program it is the one with the lowest
//! number. So a user gets no more turns by starting more programs.
//!
//! In the turns of a user, the tasks with the lowest [`Priority`] number are first, whatever their program: only programs that have such tasks
//! take turns then. Turns of users do not depend on priorities, so no user gains on another by them.
//!
//! A new program starts with the turns of the program that was served last, so it is served in the current round and gets
//! no extra turns for the past. If another new program had its first turn in this round, it is served in the next round:
//! a stream of programs with one task each does not stop the others. A program whose queue becomes empty keeps its count
//! for the round, so it gets no second turn by leaving and returning. The same holds for users. This is start-time fair queueing
//! (Goyal, Vin, Cheng, *SIGCOMM* 1996) at two levels, in which a task costs one turn for its program, and one turn divided by the
//! user's weight for its user.
//!
//! A user whose next task may not start yet is passed over ([`FairQueue::first_where`]), and gets no extra turns for that time
//! ([`FairQueue::pass`]).

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::sync::Arc;

use gridloom_base::limits::WEIGHT_MAX;
use gridloom_base::{NodeId, Priority, TaskId};

/// The user and the program to which a task belongs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TaskOwner {
    pub user: Arc<str>,
    pub program: NodeId,
}

/// A position in the order of turns: the number of turns, then the order in which that number was reached.
type Position = (u64, u64);

/// The cost of one turn of a member of weight 1. Divisible enough that the rounding of other costs does not matter.
const TURN: u64 = 1 << 20;

/// Returns the cost of a turn of a user of this weight.
fn cost_of(weight: u32) -> u64 {
    TURN / u64::from(weight.clamp(1, WEIGHT_MAX))
}

/// A member of [`Turns`].
#[derive(Clone, Copy, Debug)]
struct Member {
    position: Position,
    /// It joined after others and has not had a turn yet.
    is_new: bool,
    /// Cost of one turn.
    cost: u64,
}

/// Members that take turns. Turns are counted in units of 1/[`TURN`].
#[derive(Clone, Debug)]
struct Turns<K> {
    members: BTreeMap<K, Member>,
    order: BTreeMap<Position, K>,
    /// Turns of members that have left but were served in this round.
    served: BTreeMap<K, u64>,
    served_by_turns: BTreeSet<(u64, K)>,
    /// Turns of the member that was served last, before that turn.
    round: u64,
    /// Turns with which a new member joins, unless the round has more.
    joins_at: u64,
    next_position: u64,
}

impl<K> Default for Turns<K> {
    fn default() -> Self {
        let (members, order, served, served_by_turns) = Default::default();
        Turns { members, order, served, served_by_turns, round: 0, joins_at: 0, next_position: 0 }
    }
}

impl<K: Ord + Clone> Turns<K> {
    fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    fn first(&self) -> Option<&K> {
        self.order.first_key_value().map(|(_, member)| member)
    }

    /// Adds a member, if it is not one. With `is_last`, all others are served before it. `cost` is that of its turns.
    fn join(&mut self, member: &K, is_last: bool, cost: u64) {
        if self.members.contains_key(member) {
            return;
        }
        let turns =
            self.served.remove(member).inspect(|turns| _ = self.served_by_turns.remove(&(*turns, member.clone())));
        let is_new = turns.is_none() && !self.is_empty();
        let last = self.order.last_key_value().filter(|_| is_last).map_or(0, |((turns, _), _)| *turns);
        self.place(member, turns.unwrap_or(self.joins_at).max(self.round).max(last), is_new, cost);
    }

    fn place(&mut self, member: &K, turns: u64, is_new: bool, cost: u64) {
        let position = (turns, self.next_position);
        self.next_position += 1;
        self.order.insert(position, member.clone());
        self.members.insert(member.clone(), Member { position, is_new, cost });
    }

    fn set_cost(&mut self, member: &K, cost: u64) {
        if let Some(member) = self.members.get_mut(member) {
            member.cost = cost;
        }
    }

    /// Advances a member that could not be served to the current round, so that it gets no extra turns for the past.
    fn pass(&mut self, member: &K) {
        let Some(Member { position, is_new, cost }) = self.members.get(member).copied() else { return };
        if position.0 < self.round {
            self.order.remove(&position);
            self.place(member, self.round, is_new, cost);
        }
    }

    /// Removes a member without counting a turn.
    fn leave(&mut self, member: &K) {
        let Some(Member { position, .. }) = self.members.remove(member) else { return };
        self.order.remove(&position);
        self.keep(member, position.0);
    }

    /// Counts a turn of a member, which then leaves unless it `stays`.
    fn serve(&mut self, member: &K, stays: bool) {
        let Some(Member { position, is_new, cost }) = self.members.remove(member) else { return };
        self.order.remove(&position);
        let turns = position.0;
        self.round = self.round.max(turns);
        if is_new {
            // A whole turn, whatever the weight: in between, each other member has had at least one.
            self.joins_at = self.joins_at.max(turns + TURN);
        }
        match stays {
            true => self.place(member, turns + cost, false, cost),
            false => self.keep(member, turns + cost),
        }
        while self.served_by_turns.first().is_some_and(|(turns, _)| *turns <= self.round) {
            let (_, member) = self.served_by_turns.pop_first().expect("just seen");
            self.served.remove(&member);
        }
    }

    /// Keeps the turns of a member that has left, for as long as the round lasts.
    fn keep(&mut self, member: &K, turns: u64) {
        if turns > self.round {
            self.served.insert(member.clone(), turns);
            self.served_by_turns.insert((turns, member.clone()));
        }
    }
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct FairQueue {
    users: Turns<Arc<str>>,
    /// The programs of each user with tasks of a priority. No map is empty.
    programs: BTreeMap<Arc<str>, BTreeMap<Priority, Turns<NodeId>>>,
    /// Tasks by number; no entry is empty.
    tasks: BTreeMap<(Priority, TaskOwner), BTreeMap<u64, TaskId>>,
    len: usize,
}

/// The place of a task in the queue of its owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    pub(super) priority: Priority,
    /// Orders the tasks of one program that have the same priority.
    pub(super) number: u64,
}

impl FairQueue {
    /// Adds a task of a user of this weight.
    pub(super) fn insert(&mut self, owner: &TaskOwner, weight: u32, place: Place, task: TaskId) {
        self.add(owner, weight, place, task, false);
    }

    /// Adds a task that must not be served next, unless it is the only one. Its place must be behind those of all tasks of its
    /// user: see [`FairQueue::last_priority`].
    pub(super) fn insert_last(&mut self, owner: &TaskOwner, weight: u32, place: Place, task: TaskId) {
        self.add(owner, weight, place, task, true);
    }

    fn add(&mut self, owner: &TaskOwner, weight: u32, place: Place, task: TaskId, is_last: bool) {
        self.users.join(&owner.user, is_last, cost_of(weight));
        let programs = self.programs.entry(owner.user.clone()).or_default();
        programs.entry(place.priority).or_default().join(&owner.program, is_last, TURN);
        let tasks = self.tasks.entry((place.priority, owner.clone())).or_default();
        let is_new = tasks.insert(place.number, task).is_none();
        self.len += usize::from(is_new);
    }

    /// Returns the priority of those tasks of a user that are served last; `None` if the user has no tasks.
    pub(super) fn last_priority(&self, user: &str) -> Option<Priority> {
        self.programs.get(user)?.last_key_value().map(|(priority, _)| *priority)
    }

    /// Sets the weight of a user.
    pub(super) fn set_weight(&mut self, user: &Arc<str>, weight: u32) {
        self.users.set_cost(user, cost_of(weight));
    }

    /// Returns the next task.
    pub(super) fn first(&self) -> Option<TaskId> {
        self.users.first().and_then(|user| self.first_of(user))
    }

    /// Returns the next task of a user.
    pub(super) fn first_of(&self, user: &Arc<str>) -> Option<TaskId> {
        let (priority, programs) = self.programs.get(user)?.first_key_value()?;
        let owner = TaskOwner { user: user.clone(), program: *programs.first()? };
        self.tasks[&(*priority, owner)].first_key_value().map(|(_, task)| *task)
    }

    /// Returns the next task of the first user whose next task `may_start`, and the users before, who are passed over.
    pub(super) fn first_where(&self, may_start: impl Fn(TaskId) -> bool) -> Option<(TaskId, Vec<Arc<str>>)> {
        let mut passed = Vec::new();
        for user in self.users.order.values() {
            let task = self.first_of(user).expect("a user in the queue has tasks");
            if may_start(task) {
                return Some((task, passed));
            }
            passed.push(user.clone());
        }
        None
    }

    /// Returns the users who have tasks, in the order of their turns.
    pub(super) fn users(&self) -> impl Iterator<Item = &Arc<str>> {
        self.users.order.values()
    }

    /// Records that a user was passed over when another one was served.
    pub(super) fn pass(&mut self, user: &Arc<str>) {
        self.users.pass(user);
    }

    /// Removes a task and counts a turn of its program and user. Returns false if the task is not in the queue.
    pub(super) fn serve(&mut self, owner: &TaskOwner, place: Place) -> bool {
        self.take(owner, place, true)
    }

    /// Removes a task without counting a turn. Returns false if the task is not in the queue.
    pub(super) fn remove(&mut self, owner: &TaskOwner, place: Place) -> bool {
        self.take(owner, place, false)
    }

    fn take(&mut self, owner: &TaskOwner, Place { priority, number }: Place, is_served: bool) -> bool {
        let key = (priority, owner.clone());
        let Some(tasks) = self.tasks.get_mut(&key) else { return false };
        if tasks.remove(&number).is_none() {
            return false;
        }
        self.len -= 1;
        let stays = !tasks.is_empty();
        if !stays {
            self.tasks.remove(&key);
        }
        let classes = self.programs.get_mut(&owner.user).expect("it has tasks");
        let programs = classes.get_mut(&priority).expect("it has tasks of this priority");
        match is_served {
            true => programs.serve(&owner.program, stays),
            false if !stays => programs.leave(&owner.program),
            false => {}
        }
        // Once none of the programs has a task, there is nobody left to whom their turns matter.
        if programs.is_empty() {
            classes.remove(&priority);
        }
        let stays = !classes.is_empty();
        if !stays {
            self.programs.remove(&owner.user);
        }
        match is_served {
            true => self.users.serve(&owner.user, stays),
            false if !stays => self.users.leave(&owner.user),
            false => {}
        }
        true
    }

    /// Returns the tasks in the order in which they are served if no other task is added.
    pub(super) fn iter(&self) -> impl Iterator<Item = TaskId> + '_ {
        let (mut users, mut programs) = (self.users.clone(), self.programs.clone());
        let mut tasks: BTreeMap<&(Priority, TaskOwner), Peekable<_>> =
            self.tasks.iter().map(|(key, tasks)| (key, tasks.values().peekable())).collect();
        std::iter::from_fn(move || {
            let user = users.first()?.clone();
            let classes = programs.get_mut(&user)?;
            let mut first = classes.first_entry()?;
            let priority = *first.key();
            let program = *first.get().first()?;
            let of_program = tasks.get_mut(&(priority, TaskOwner { user: user.clone(), program }))?;
            let task = of_program.next()?;
            first.get_mut().serve(&program, of_program.peek().is_some());
            if first.get().is_empty() {
                first.remove();
            }
            users.serve(&user, !classes.is_empty());
            Some(*task)
        })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets all turns if the queue is empty, so that an idle server uses no memory for them.
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

    /// Returns the owner of the tasks of a program. The programs 1 to 99 belong to one user, 101 to 199 to another, and so on.
    /// From 1000 on, the thousands are the weight of the user.
    fn owner(program: u64) -> TaskOwner {
        TaskOwner { user: format!("user {}", program / 100).into(), program: NodeId(program) }
    }

    fn place(number: u64) -> Place {
        Place { priority: Priority::default(), number }
    }

    fn add(queue: &mut FairQueue, program: u64, serials: impl IntoIterator<Item = u64>) {
        add_with(queue, Priority::default(), program, serials);
    }

    fn add_with(queue: &mut FairQueue, priority: Priority, program: u64, serials: impl IntoIterator<Item = u64>) {
        let weight = if program < 1000 { 1 } else { program / 1000 } as u32;
        for number in serials {
            queue.insert(&owner(program), weight, Place { priority, number }, task(program, number));
        }
    }

    /// Serves tasks. Returns their programs.
    fn serve(queue: &mut FairQueue, count: usize) -> Vec<u64> {
        let next = |queue: &mut FairQueue| {
            let task = queue.first().unwrap();
            assert_eq!(queue.iter().next(), Some(task));
            assert!(queue.serve(&owner(task.client.0), place(task.serial)));
            task.client.0
        };
        (0..count).map(|_| next(queue)).collect()
    }

    fn is_forgotten(queue: &FairQueue) -> bool {
        let mut turns = queue.programs.values().flat_map(BTreeMap::values);
        turns.all(|turns| turns.served.is_empty() && turns.served_by_turns.is_empty())
    }

    #[test]
    fn a_user_gets_no_more_turns_by_starting_more_programs() {
        let mut queue = FairQueue::default();
        (1..=9).for_each(|program| add(&mut queue, program, 1..=20));
        add(&mut queue, 101, 200..210);
        let order: Vec<u64> = queue.iter().map(|task| task.client.0).collect();
        assert_eq!(order.len(), 190);
        let served = serve(&mut queue, 20);
        assert_eq!(served, order[..20]);
        assert_eq!(served.iter().filter(|program| **program == 101).count(), 10, "{served:?}");
        // The programs of one user take turns among themselves.
        assert_eq!(serve(&mut queue, 9).into_iter().collect::<BTreeSet<u64>>().len(), 9);
        // A user who returns gets no extra turns for the time without tasks.
        add(&mut queue, 102, 300..310);
        let served = serve(&mut queue, 10);
        assert_eq!(served.iter().filter(|program| **program == 102).count(), 5, "{served:?}");
    }

    #[test]
    fn users_get_turns_by_their_weights() {
        let mut queue = FairQueue::default();
        (3001..3010).for_each(|program| add(&mut queue, program, 1..=40));
        add(&mut queue, 2001, 1..=200);
        add(&mut queue, 101, 1..=100);
        let order: Vec<u64> = queue.iter().map(|task| task.client.0).take(180).collect();
        let served = serve(&mut queue, 180);
        assert_eq!(served, order);
        let count = |thousands: u64| served.iter().filter(|program| **program / 1000 == thousands).count();
        assert_eq!([count(3), count(2), count(0)], [90, 60, 30]);
        // Nobody waits for long: of six turns in a row, each user has their share, give or take one.
        for some in served.windows(6) {
            let count = |thousands: u64| some.iter().filter(|program| **program / 1000 == thousands).count();
            assert!((2..=4).contains(&count(3)) && (1..=3).contains(&count(2)) && count(0) <= 2, "{some:?}");
        }
        // A changed weight applies from the next turn on.
        queue.set_weight(&owner(101).user, 2);
        let served = serve(&mut queue, 70);
        assert_eq!(served.iter().filter(|program| **program == 101).count(), 20, "{served:?}");
    }

    #[test]
    fn heavy_users_that_join_without_end_do_not_stop_another_one() {
        let mut queue = FairQueue::default();
        add(&mut queue, 1, 1..=50);
        let mut served = Vec::new();
        for user in 0..40 {
            let program = 9001 + 100 * (user % 9) + 10_000 * user;
            add(&mut queue, program, [100]);
            served.extend(serve(&mut queue, 1));
        }
        assert!(served.iter().filter(|program| **program == 1).count() >= 7, "{served:?}");
    }

    #[test]
    fn a_user_who_is_passed_over_gets_no_turns_for_that_time() {
        let mut queue = FairQueue::default();
        add(&mut queue, 1, 1..=50);
        add(&mut queue, 101, 100..150);
        for _ in 0..20 {
            let (task, passed) = queue.first_where(|task| task.client == NodeId(101)).unwrap();
            queue.serve(&owner(101), place(task.serial));
            passed.iter().for_each(|user| queue.pass(user));
        }
        let served = serve(&mut queue, 10);
        let count = served.iter().filter(|program| **program == 1).count();
        assert!((5..=6).contains(&count), "{served:?}");
        assert_eq!(queue.first_where(|_| false), None);
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
        assert!(is_forgotten(&queue), "programs that have left are forgotten");
    }

    /// Earlier, each program of a user who had one program at a time was remembered until the server was idle.
    #[test]
    fn programs_of_a_user_one_at_a_time_are_forgotten() {
        let mut queue = FairQueue::default();
        add(&mut queue, 1, 1..=1000);
        for program in 101..200 {
            add(&mut queue, program, [program]);
            serve(&mut queue, 2);
        }
        let turns = queue.programs.values().flat_map(BTreeMap::values);
        let kept: usize = turns.map(|turns| turns.served.len() + turns.members.len()).sum();
        assert_eq!((kept, queue.programs.len()), (1, 1));
        assert!(queue.users.served.len() <= 1);
    }

    #[test]
    fn a_task_put_last_is_behind_those_of_other_programs() {
        let mut queue = FairQueue::default();
        add(&mut queue, 2, [1, 2]);
        add(&mut queue, 3, [3]);
        queue.insert_last(&owner(1), 1, place(4), task(1, 4));
        assert_eq!(serve(&mut queue, 3), [2, 3, 1]);
        assert!(queue.remove(&owner(2), place(2)) && !queue.remove(&owner(2), place(2)) && queue.is_empty());
        queue.rest();
        assert!(is_forgotten(&queue));
    }

    /// Serves all tasks. Returns them as program and number.
    fn serve_all(queue: &mut FairQueue, priority: impl Fn(TaskId) -> Priority) -> Vec<(u64, u64)> {
        let order: Vec<TaskId> = queue.iter().collect();
        for task in &order {
            assert_eq!(queue.first(), Some(*task));
            assert!(queue.serve(&owner(task.client.0), Place { priority: priority(*task), number: task.serial }));
        }
        order.into_iter().map(|task| (task.client.0, task.serial)).collect()
    }

    #[test]
    fn tasks_of_a_higher_priority_are_first_among_all_programs_of_their_user() {
        let mut queue = FairQueue::default();
        let priority = |task: TaskId| match task.serial {
            10.. => Priority(-1),
            5.. => Priority(7),
            _ => Priority::default(),
        };
        add_with(&mut queue, Priority(7), 1, [5]);
        add(&mut queue, 1, [1, 2]);
        add(&mut queue, 2, [3]);
        add_with(&mut queue, Priority(-1), 2, [10, 11]);
        add_with(&mut queue, Priority(-1), 3, [12]);
        assert_eq!(queue.last_priority("user 0"), Some(Priority(7)));
        let order = serve_all(&mut queue, priority);
        assert_eq!(order, [(2, 10), (3, 12), (2, 11), (1, 1), (2, 3), (1, 2), (1, 5)]);
        assert!(queue.is_empty() && queue.programs.is_empty() && queue.tasks.is_empty());
        assert_eq!(queue.last_priority("user 0"), None);
    }

    #[test]
    fn priorities_of_a_user_do_not_change_the_turns_of_others() {
        // The users of the order in which the tasks of two users are served, if those of the first have these priorities.
        let users = |priority: fn(u64) -> Priority| {
            let mut queue = FairQueue::default();
            for serial in 1..=40 {
                add_with(&mut queue, priority(serial), 1 + serial % 3, [serial]);
                add(&mut queue, 101 + serial % 2, [100 + serial]);
            }
            let of = |task: TaskId| if task.serial > 100 { Priority::default() } else { priority(task.serial) };
            serve_all(&mut queue, of).into_iter().map(|(program, _)| program / 100).collect::<Vec<u64>>()
        };
        let plain = users(|_| Priority::default());
        assert_eq!(users(|_| Priority(i32::MIN)), plain);
        assert_eq!(users(|serial| Priority(-(serial as i32))), plain);
        assert_eq!(users(|serial| Priority(serial as i32 % 5)), plain);
    }
}
