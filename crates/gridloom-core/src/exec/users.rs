//! The tasks of each user, counted against the rules of the grid.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::entry::{State, TaskEntry, lent_slots};
use gridloom_base::{Quota, Rules};

/// The users who have tasks here.
#[derive(Clone, Debug)]
pub(super) struct Users {
    slots: u32,
    rules: Arc<Rules>,
    users: BTreeMap<Arc<str>, UserTasks>,
}

/// The limits of a user, and the counts of the user's tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct UserTasks {
    weight: u32,
    /// Slots that the user's tasks may occupy, at most those of the server.
    slots_max: u32,
    /// The part of the store that the user's data may take.
    memory: Option<Quota>,
    /// Number of tasks in each state.
    held: u64,
    waiting: u64,
    ready: u64,
    running: u64,
    asking: u32,
    calling: u64,
    /// Slots of running tasks.
    slots: u32,
    /// Slots of gangs that wait for calls of their own: only nested calls may use them.
    lent: u32,
}

/// The tasks of a user, for decisions about the user's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserLoad {
    /// True if a task runs, or is ready to.
    pub is_busy: bool,
    /// Tasks that were admitted and have not ended.
    pub admitted: u64,
    /// Tasks that have begun and wait for answers to callbacks or for their own calls.
    pub paused: u64,
}

impl Users {
    pub(super) fn new(slots: u32) -> Users {
        Users { slots, rules: Arc::default(), users: BTreeMap::new() }
    }

    fn limits(rules: &Rules, slots: u32, user: &str) -> UserTasks {
        let rules = rules.of(user);
        let slots_max = rules.slots.map_or(slots, |quota| slots_of(quota, slots));
        UserTasks {
            weight: rules.weight,
            slots_max,
            memory: rules.memory,
            held: 0,
            waiting: 0,
            ready: 0,
            running: 0,
            asking: 0,
            calling: 0,
            slots: 0,
            lent: 0,
        }
    }

    pub(super) fn set_rules(&mut self, rules: Arc<Rules>) {
        self.rules = rules;
        for (name, user) in &mut self.users {
            let UserTasks { weight, slots_max, memory, .. } = Users::limits(&self.rules, self.slots, name);
            (user.weight, user.slots_max, user.memory) = (weight, slots_max, memory);
        }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.users.keys()
    }

    pub(super) fn weight(&self, user: &str) -> u32 {
        match self.users.get(user) {
            Some(user) => user.weight,
            None => Users::limits(&self.rules, self.slots, user).weight,
        }
    }

    /// Returns the part of the store that the data of a user with tasks may take; `None` without a quota.
    pub(super) fn memory(&self, user: &str) -> Option<Quota> {
        self.users.get(user).and_then(|user| user.memory)
    }

    pub(super) fn have_memory_quotas(&self) -> bool {
        self.users.values().any(|user| user.memory.is_some())
    }

    pub(super) fn load(&self, user: &str) -> UserLoad {
        self.users.get(user).map_or(UserLoad { is_busy: false, admitted: 0, paused: 0 }, UserTasks::load)
    }

    pub(super) fn slots_max(&self, user: &str) -> u32 {
        match self.users.get(user) {
            Some(user) => user.slots_max,
            None => Users::limits(&self.rules, self.slots, user).slots_max,
        }
    }

    /// True if the rules allow the user fewer slots than the server has.
    pub(super) fn is_limited(&self, user: &str) -> bool {
        self.users.get(user).is_some_and(|user| user.slots_max < self.slots)
    }

    /// Returns the number of tasks that run.
    pub(super) fn running(&self, user: &str) -> u32 {
        self.users.get(user).map_or(0, |user| user.running as u32)
    }

    /// Returns the number of tasks that wait for answers to callbacks.
    pub(super) fn asking(&self, user: &str) -> u32 {
        self.users.get(user).map_or(0, |user| user.asking)
    }

    /// Returns the number of tasks that have not begun.
    pub(super) fn waiting(&self, user: &str) -> u64 {
        self.users.get(user).map_or(0, |user| user.held + user.waiting + user.ready)
    }

    /// True if the rules allow a ready task its slots now.
    pub(super) fn may_start(&self, entry: &TaskEntry) -> bool {
        let Some(user) = self.users.get(&entry.owner.user) else { return true };
        if user.slots_max >= self.slots {
            return true;
        }
        // As for the slots of the server: tasks leave at most as many slots as there are, and a gang does not wait for them.
        let gang = entry.task.options.gang;
        let left_over = if gang > 0 { 0 } else { user.asking.saturating_sub(user.slots_max) };
        let lent = if entry.is_nested() { 0 } else { user.lent };
        user.slots + lent + left_over + gang.max(1) <= user.slots_max
    }

    /// Counts a new task.
    pub(super) fn add(&mut self, user: &Arc<str>) {
        if !self.users.contains_key(user) {
            self.users.insert(user.clone(), Users::limits(&self.rules, self.slots, user));
        }
        let user = self.users.get_mut(user).expect("added above");
        user.held += 1;
    }

    /// Records that a task that takes `gang` slots at once, or one if it is 0, has changed its state.
    pub(super) fn change(&mut self, user: &str, gang: u32, from: State, to: State) {
        let user = self.users.get_mut(user).expect("it has a task");
        user.subtract(gang, from);
        user.add(gang, to);
    }

    /// Records that a task is gone.
    pub(super) fn remove(&mut self, user: &str, gang: u32, state: State) {
        let counted = self.users.get_mut(user).expect("it has a task");
        counted.subtract(gang, state);
        if counted.is_idle() {
            self.users.remove(user);
        }
    }

    /// Checks the counts.
    ///
    /// # Errors
    /// The count that is wrong.
    pub(super) fn check<'a>(&self, tasks: impl Iterator<Item = &'a TaskEntry>) -> Result<(), String> {
        let mut counted: BTreeMap<Arc<str>, UserTasks> = BTreeMap::new();
        for entry in tasks {
            let limits = || Users::limits(&self.rules, self.slots, &entry.owner.user);
            let user = counted.entry(entry.owner.user.clone()).or_insert_with(limits);
            user.add(entry.task.options.gang, entry.state);
        }
        if counted != self.users {
            return Err(format!("the users have {counted:?}, and {:?} is recorded", self.users));
        }
        Ok(())
    }
}

impl UserTasks {
    fn is_idle(&self) -> bool {
        let UserTasks { held, waiting, ready, running, asking, calling, .. } = *self;
        held + waiting + ready + running + u64::from(asking) + calling == 0
    }

    fn load(&self) -> UserLoad {
        let UserTasks { waiting, ready, running, asking, calling, .. } = *self;
        let paused = u64::from(asking) + calling;
        UserLoad { is_busy: running + ready > 0, admitted: waiting + ready + running + paused, paused }
    }

    fn add(&mut self, gang: u32, state: State) {
        self.lent += lent_slots(state, gang);
        match state {
            State::Held => self.held += 1,
            State::Waiting => self.waiting += 1,
            State::Ready => self.ready += 1,
            State::Running => {
                self.running += 1;
                self.slots += gang.max(1);
            }
            State::AwaitingCallback => self.asking += 1,
            State::AwaitingCalls => self.calling += 1,
        }
    }

    fn subtract(&mut self, gang: u32, state: State) {
        self.lent -= lent_slots(state, gang);
        match state {
            State::Held => self.held -= 1,
            State::Waiting => self.waiting -= 1,
            State::Ready => self.ready -= 1,
            State::Running => {
                self.running -= 1;
                self.slots -= gang.max(1);
            }
            State::AwaitingCallback => self.asking -= 1,
            State::AwaitingCalls => self.calling -= 1,
        }
    }
}

/// Returns the quota of a server with that many slots.
fn slots_of(quota: Quota, slots: u32) -> u32 {
    quota.of(u64::from(slots)).min(u64::from(slots)) as u32
}
