//! Items that the program has dropped. They are released with the next command, so that dropping never blocks.

use std::sync::{Mutex, MutexGuard};

use gridloom_base::{DatumId, GroupId};
use gridloom_core::node::{Command, NameCommand};

/// Items that the program has dropped.
#[derive(Default)]
pub(crate) struct Dropped(Mutex<Items>);

#[derive(Default)]
struct Items {
    /// Data of dropped handles.
    data: Vec<DatumId>,
    /// Declared groups with plans for which no more calls are made.
    plans: Vec<GroupId>,
    /// Groups that the program can no longer query; forgotten when the next group runs.
    groups: Vec<GroupId>,
    /// Requests about names.
    requests: Vec<u64>,
}

impl Dropped {
    pub(crate) fn add_datum(&self, datum: DatumId) {
        self.items().data.push(datum);
    }

    /// Adds a declared group for which no more calls are made, and the values that only its calls read.
    pub(crate) fn add_plan(&self, group: GroupId, values: Vec<DatumId>) {
        let mut items = self.items();
        items.plans.push(group);
        items.data.extend(values);
    }

    pub(crate) fn add_group(&self, group: GroupId) {
        self.items().groups.push(group);
    }

    /// Adds a request about a name that nobody waits for any more.
    pub(crate) fn add_request(&self, request: u64) {
        self.items().requests.push(request);
    }

    /// True if there are data or requests to release.
    pub(crate) fn has_any(&self) -> bool {
        let items = self.items();
        !items.data.is_empty() || !items.requests.is_empty()
    }

    /// Takes the groups.
    pub(crate) fn take_groups(&self) -> Vec<GroupId> {
        std::mem::take(&mut self.items().groups)
    }

    /// Takes everything else, as commands for the client's machine.
    pub(crate) fn take_commands(&self) -> Vec<Command> {
        let (data, plans, requests) = {
            let mut items = self.items();
            let Items { data, plans, requests, .. } = &mut *items;
            (std::mem::take(data), std::mem::take(plans), std::mem::take(requests))
        };
        let mut all: Vec<Command> = plans.into_iter().map(|group| Command::EndPlan { group }).collect();
        if !data.is_empty() {
            all.push(Command::Release { data });
        }
        all.extend(requests.into_iter().map(|request| Command::Name { request, command: NameCommand::CancelWait }));
        all
    }

    fn items(&self) -> MutexGuard<'_, Items> {
        self.0.lock().expect("no panic while held")
    }
}
