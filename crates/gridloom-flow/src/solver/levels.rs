//! A heap of constraints by the level at which they are full. Levels may have risen since they were added.
//!
//! **Invariant:** an entry's key is at most the constraint's level, apart from rounding. Filling only raises levels,
//! so an entry is updated only when it reaches the top.

use super::users::Demand;

/// The heap. The order among equal keys does not matter.
#[derive(Clone, Debug, Default)]
pub(super) struct Levels {
    entries: Vec<(f64, u32)>,
}

impl Levels {
    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Adds an entry without ordering it. Call [`Levels::order`] before removing any entry.
    pub(super) fn append(&mut self, level: f64, constraint: u32) {
        self.entries.push((level, constraint));
    }

    /// Restores the heap order of all entries.
    pub(super) fn order(&mut self) {
        for at in (0..self.entries.len() / 2).rev() {
            self.sink(at);
        }
    }

    pub(super) fn push(&mut self, level: f64, constraint: u32) {
        let mut at = self.entries.len();
        self.entries.push((level, constraint));
        while at > 0 && level < self.entries[(at - 1) / 2].0 {
            self.entries[at] = self.entries[(at - 1) / 2];
            at = (at - 1) / 2;
        }
        self.entries[at] = (level, constraint);
    }

    /// Returns the entry with the lowest key.
    pub(super) fn first(&self) -> Option<(f64, u32)> {
        self.entries.first().copied()
    }

    pub(super) fn pop(&mut self) {
        self.entries.swap_remove(0);
        self.sink(0);
    }

    /// Raises the key of the first entry.
    pub(super) fn raise(&mut self, level: f64) {
        self.entries[0].0 = level;
        self.sink(0);
    }

    fn sink(&mut self, mut at: usize) {
        let Some(&entry) = self.entries.get(at) else { return };
        loop {
            let mut child = 2 * at + 1;
            if child + 1 < self.entries.len() && self.entries[child + 1].0 < self.entries[child].0 {
                child += 1;
            }
            if child >= self.entries.len() || self.entries[child].0 >= entry.0 {
                break;
            }
            self.entries[at] = self.entries[child];
            at = child;
        }
        self.entries[at] = entry;
    }
}

/// The level at which each constraint is full; infinite if it is not full.
#[derive(Clone, Debug)]
pub(super) struct FullLevels {
    /// Levels at the constraint's index plus one, so that [`super::NO_BOTTLENECK`] (0 - 1) maps to the first entry: no limit.
    levels: Vec<f64>,
}

impl Default for FullLevels {
    fn default() -> FullLevels {
        FullLevels { levels: vec![f64::INFINITY] }
    }
}

impl FullLevels {
    /// Adds a constraint that is not full.
    pub(super) fn add(&mut self) {
        self.levels.push(f64::INFINITY);
    }

    pub(super) fn of(&self, constraint: u32) -> f64 {
        self.levels[constraint.wrapping_add(1) as usize]
    }

    pub(super) fn set(&mut self, constraint: u32, level: f64) {
        self.levels[constraint.wrapping_add(1) as usize] = level;
    }

    /// Returns the level that a user has by its limiting constraint and its bound.
    pub(super) fn elsewhere(&self, terms: &Demand) -> f64 {
        let level = self.of(terms.holder);
        if level < terms.ceiling { level } else { terms.ceiling }
    }
}
