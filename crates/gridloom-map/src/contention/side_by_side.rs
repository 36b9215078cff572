//! Tasks side by side on one server: each goes on at a rate that depends on how many run.
//!
//! **Invariant:** between two changes of their number each task gets on by time / factor, of the seconds that it takes alone.

/// Those of one server.
#[derive(Clone, Debug, Default)]
pub struct SideBySide {
    /// In order of their starts.
    running: Vec<Running>,
    /// Tasks that run at a time since `since_s`.
    tasks: u32,
    since_s: f64,
    /// Counts the changes: what was expected before one does not come.
    turn: u32,
    is_changed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    task: u32,
    /// Seconds that it would take alone from `since_s` on.
    left_s: f64,
    /// How much longer it takes.
    factor: f64,
}

impl SideBySide {
    pub fn clear(&mut self) {
        *self = SideBySide { running: std::mem::take(&mut self.running), ..SideBySide::default() };
        self.running.clear();
    }

    /// A task starts, which takes so long alone.
    pub fn start(&mut self, now_s: f64, task: u32, alone_s: f64) {
        self.advance(now_s);
        self.running.push(Running { task, left_s: alone_s, factor: 1.0 });
        self.is_changed = true;
    }

    /// From now on so many tasks run, others than these among them: when the next of these ends, and the turn; `None` if none
    /// runs, or nothing has changed.
    pub fn next(&mut self, now_s: f64, tasks: u32, factor: impl Fn(u32, u32) -> f64) -> Option<(f64, u32)> {
        if !std::mem::take(&mut self.is_changed) && tasks == self.tasks {
            return None;
        }
        self.advance(now_s);
        self.tasks = tasks;
        self.turn += 1;
        self.running.iter_mut().for_each(|one| one.factor = factor(one.task, tasks));
        let first = self.running.iter().map(|one| one.left_s * one.factor).reduce(f64::min)?;
        Some((now_s + first, self.turn))
    }

    /// The task that was to end next has ended.
    pub fn end_first(&mut self) -> u32 {
        let ends_s = |one: &Running| one.left_s * one.factor;
        let all = self.running.iter().enumerate();
        let first = all.min_by(|a, b| ends_s(a.1).total_cmp(&ends_s(b.1))).expect("one runs").0;
        let Running { task, left_s, factor } = self.running.remove(first);
        self.advance(self.since_s + left_s * factor);
        self.is_changed = true;
        task
    }

    pub fn turn(&self) -> u32 {
        self.turn
    }

    fn advance(&mut self, now_s: f64) {
        let passed_s = now_s - self.since_s;
        self.running.iter_mut().for_each(|one| one.left_s = (one.left_s - passed_s / one.factor).max(0.0));
        self.since_s = now_s;
    }
}
