//! Outstanding puts, gets and waits of shared data, until the program has finished them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridloom::{BegunGet, BegunPut, BegunWait};
use gridloom_base::TaskId;
use gridloom_net::worker::nested;

use super::code::{Failed, GRPC_INVALID_SESSION_ID, Outcome};

/// An outstanding operation.
pub(crate) enum Request {
    /// A put under that name. With `is_for_all`, all servers should get the data.
    Put {
        name: String,
        begun: BegunPut,
        is_for_all: bool,
    },
    /// Its bytes are written to that address of the program, if their number is right.
    Get {
        name: String,
        begun: BegunGet,
        address: usize,
        size_bytes: usize,
    },
    Wait(BegunWait),
}

/// Requests that are not finished, by their numbers.
#[derive(Default)]
pub(crate) struct Requests(Mutex<Table>);

#[derive(Default)]
struct Table {
    last: usize,
    /// Each with the call of a server that started it, if any.
    all: BTreeMap<usize, (Option<TaskId>, Arc<Request>)>,
}

impl Requests {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request with a number above 0. Drops requests of calls that have ended in this process.
    pub(crate) fn add(&self, request: Request) -> usize {
        let task = nested::puts_as();
        let (number, ended) = {
            let mut table = self.lock();
            let (stay, ended) = std::mem::take(&mut table.all).into_iter().partition(|(_, (of, _))| *of == task);
            table.all = stay;
            table.last += 1;
            let number = table.last;
            table.all.insert(number, (task, Arc::new(request)));
            (number, ended)
        };
        // Dropped outside of the lock.
        drop::<BTreeMap<_, _>>(ended);
        number
    }

    pub(crate) fn known(&self, number: usize) -> Outcome<Arc<Request>> {
        self.lock().all.get(&number).map(|(_, request)| request.clone()).ok_or_else(no_request)
    }

    /// Fails if another thread has finished it.
    pub(crate) fn remove(&self, number: usize) -> Outcome<()> {
        let removed = self.lock().all.remove(&number);
        removed.map(drop).ok_or_else(no_request)
    }

    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut self.lock().all);
        // Dropped outside of the lock.
        drop(all);
    }
}

fn no_request() -> Failed {
    Failed::new(GRPC_INVALID_SESSION_ID, "this is not a request for shared data, or it is finished")
}
