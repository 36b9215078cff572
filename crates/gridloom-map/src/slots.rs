//! Free times of a server: the timeline of its slots, and the search for the earliest gap that holds a task.
//!
//! A server with m slots is kept as a step function of time (the number of slots in use) and the list of its **gaps**, the
//! times during which at least one slot is free. A task fits wherever it lies within one gap: intervals of which no more
//! than m overlap anywhere can always be distributed over m slots, so slots need no names.
//!
//! **Invariants:** gaps are disjoint and ascending; outside of them, and before `tail`, all slots are in use; from `tail`
//! on, at least one slot is always free.
//!
//! The search must not visit every task placed so far. Gaps are stored in blocks of at most [`BLOCK_GAPS_MAX`] that know their
//! longest gap. The search finds the first block by bisection and skips blocks without a gap that is long enough. The
//! most common cases, a task that is ready after the tail or longer than any gap, need no search at all.

use std::collections::BTreeMap;

/// Maximum number of gaps in a block before it is split: about the square root of the number of gaps in a long plan.
const BLOCK_GAPS_MAX: usize = 64;

/// Timeline of one server.
#[derive(Clone, Debug)]
pub struct Slots {
    capacity: u32,
    /// Number of slots in use from each time until the next. Keys are the bits of non-negative times, so they are
    /// ordered. Not kept for a single slot, which the gaps describe completely.
    taken: BTreeMap<u64, u32>,
    gaps: Gaps,
}

impl Slots {
    /// Creates a server with slots that are free from these times on.
    pub fn new(busy_s: &[f64]) -> Slots {
        let mut slots = Slots { capacity: busy_s.len() as u32, taken: BTreeMap::new(), gaps: Gaps::default() };
        for busy in busy_s {
            slots.take(0.0, *busy);
        }
        slots
    }

    /// Returns the earliest start, not before `ready_s`, of a task of that length. With `insertion`, the task may also
    /// be put between tasks that are already placed.
    pub fn fit(&self, ready_s: f64, seconds: f64, insertion: bool) -> f64 {
        if insertion { self.gaps.first_fit(ready_s, seconds) } else { ready_s.max(self.gaps.tail_s) }
    }

    /// Takes a slot during an interval that [`Slots::fit`] found. With a single slot, even an interval of length zero
    /// splits its gap: no later interval can contain it.
    pub fn take(&mut self, start_s: f64, end_s: f64) {
        if self.capacity == 1 {
            return self.gaps.cut(start_s, end_s);
        }
        if end_s <= start_s {
            return;
        }
        self.add_step(start_s);
        self.add_step(end_s);
        let end = end_s.to_bits();
        let mut full_from = None;
        let mut full = Vec::new();
        for (time, taken) in self.taken.range_mut(start_s.to_bits()..end) {
            *taken += 1;
            assert!(*taken <= self.capacity, "a slot was taken where none is free");
            match (full_from, *taken == self.capacity) {
                (None, true) => full_from = Some(*time),
                (Some(from), false) => {
                    full.push((f64::from_bits(from), f64::from_bits(*time)));
                    full_from = None;
                }
                (None, false) | (Some(_), true) => {}
            }
        }
        full.extend(full_from.map(|from| (f64::from_bits(from), end_s)));
        for (from, to) in full {
            self.gaps.cut(from, to);
        }
    }

    /// Adds a step at that time.
    fn add_step(&mut self, time_s: f64) {
        let before = self.taken.range(..=time_s.to_bits()).next_back().map_or(0, |(_, taken)| *taken);
        self.taken.entry(time_s.to_bits()).or_insert(before);
    }
}

#[derive(Clone, Debug, Default)]
struct Gaps {
    blocks: Vec<Block>,
    /// Upper bound on the length of any gap before the tail.
    longest_s: f64,
    tail_s: f64,
}

#[derive(Clone, Debug)]
struct Block {
    /// Start and end, ascending; never empty.
    gaps: Vec<(f64, f64)>,
    longest_s: f64,
    /// End of the last gap, stored here so that the search for a block does not read the gaps.
    end_s: f64,
}

impl Block {
    fn new(gaps: Vec<(f64, f64)>) -> Block {
        let longest_s = gaps.iter().fold(0.0, |longest: f64, (start, end)| longest.max(end - start));
        let end_s = gaps.last().expect("a block is never empty").1;
        Block { gaps, longest_s, end_s }
    }
}

impl Gaps {
    fn first_fit(&self, ready_s: f64, seconds: f64) -> f64 {
        if ready_s >= self.tail_s || seconds > self.longest_s {
            return ready_s.max(self.tail_s);
        }
        let first = self.first_ending(ready_s + seconds);
        for block in self.blocks[first..].iter().filter(|block| block.longest_s >= seconds) {
            let from = block.gaps.partition_point(|gap| gap.1 < ready_s + seconds);
            let fits = |(start, end): &&(f64, f64)| start.max(ready_s) + seconds <= *end;
            if let Some((start, _)) = block.gaps[from..].iter().find(fits) {
                return start.max(ready_s);
            }
        }
        self.tail_s
    }

    /// Returns the first block that ends at that time or later. Tasks are mostly placed near the end, so the search
    /// gallops backwards from there: with a million tasks, a bisection that starts in the middle waits for memory at
    /// each step.
    fn first_ending(&self, time_s: f64) -> usize {
        let (mut first, mut step) = (self.blocks.len(), 1);
        while first > 0 {
            let before = first.saturating_sub(step);
            if self.blocks[before].end_s < time_s {
                let between = &self.blocks[before + 1..first];
                return before + 1 + between.partition_point(|block| block.end_s < time_s);
            }
            (first, step) = (before, 2 * step);
        }
        0
    }

    /// Removes an interval that lies within one gap or after the tail.
    fn cut(&mut self, start_s: f64, end_s: f64) {
        if start_s >= self.tail_s {
            if start_s > self.tail_s {
                self.push((self.tail_s, start_s));
            }
            self.tail_s = end_s;
            return;
        }
        let at = self.first_ending(end_s);
        let block = &mut self.blocks[at];
        let within = block.gaps.partition_point(|gap| gap.1 < end_s);
        let (gap_start, gap_end) = block.gaps[within];
        assert!(gap_start <= start_s, "an interval was taken that is not free");
        let left = (gap_start < start_s).then_some((gap_start, start_s));
        let right = (end_s < gap_end).then_some((end_s, gap_end));
        block.gaps.splice(within..=within, left.into_iter().chain(right));
        self.update_block(at);
    }

    /// Adds a gap after all others.
    fn push(&mut self, gap: (f64, f64)) {
        self.longest_s = self.longest_s.max(gap.1 - gap.0);
        match self.blocks.last_mut() {
            Some(block) if block.gaps.len() < BLOCK_GAPS_MAX => {
                block.gaps.push(gap);
                block.longest_s = block.longest_s.max(gap.1 - gap.0);
                block.end_s = gap.1;
            }
            _ => self.blocks.push(Block::new(vec![gap])),
        }
    }

    /// Updates a block after its gaps have changed; splits it if it is too long.
    fn update_block(&mut self, at: usize) {
        let mut gaps = std::mem::take(&mut self.blocks[at].gaps);
        let was_longest = self.blocks[at].longest_s >= self.longest_s;
        let second = (gaps.len() > BLOCK_GAPS_MAX).then(|| Block::new(gaps.split_off(BLOCK_GAPS_MAX / 2)));
        let first = (!gaps.is_empty()).then(|| Block::new(gaps));
        self.blocks.splice(at..=at, first.into_iter().chain(second));
        if was_longest {
            self.longest_s = self.blocks.iter().fold(0.0, |longest, block| block.longest_s.max(longest));
        }
    }
}
