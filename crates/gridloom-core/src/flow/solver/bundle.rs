//! Where all those that a constraint holds back are users besides: what a change of its level has to tell.
//!
//! In one stretch of memory, made anew when a level changes after other users than before are held back: hundreds of
//! users have their elements in as many places.

/// Of one constraint: others, and how much of each is taken for one more unit of level.
#[derive(Clone, Debug, Default)]
pub(super) struct Bundle {
    others: Vec<u32>,
    quotas: Vec<f64>,
}

impl Bundle {
    /// Empties it.
    pub(super) fn clear(&mut self) {
        self.others.clear();
        self.quotas.clear();
    }

    /// Adds an element of a user that is held back; `place` is where the other stands if it was named before, and is set.
    pub(super) fn push(&mut self, other: u32, quota: f64, place: &mut u32) {
        if self.others.get(*place as usize) == Some(&other) {
            self.quotas[*place as usize] += quota;
        } else {
            *place = self.others.len() as u32;
            self.others.push(other);
            self.quotas.push(quota);
        }
    }

    /// All, each other once.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, f64)> {
        self.others.iter().copied().zip(self.quotas.iter().copied())
    }
}
