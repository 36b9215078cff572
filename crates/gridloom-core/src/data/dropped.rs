//! The most recently dropped data: a request for one of them is refused at once.

use std::collections::{BTreeSet, VecDeque};

use gridloom_base::DatumId;
use gridloom_base::limits::DROPPED_REMEMBERED;

#[derive(Clone, Debug, Default)]
pub(super) struct Dropped {
    data: BTreeSet<DatumId>,
    /// The same data in the order in which they are forgotten.
    order: VecDeque<DatumId>,
}

impl Dropped {
    pub(super) fn contains(&self, datum: DatumId) -> bool {
        self.data.contains(&datum)
    }

    pub(super) fn remember(&mut self, datum: DatumId) {
        if self.data.insert(datum) {
            self.order.push_back(datum);
            if self.order.len() > DROPPED_REMEMBERED {
                let oldest = self.order.pop_front().expect("just pushed");
                self.data.remove(&oldest);
            }
        }
    }

    pub(super) fn forget(&mut self, datum: DatumId) {
        if self.data.remove(&datum) {
            self.order.retain(|known| *known != datum);
        }
    }
}
