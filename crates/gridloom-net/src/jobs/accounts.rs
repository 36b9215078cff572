//! The Unix accounts of users of the grid. Looking one up may take long or never end, for example if a directory server does not answer. So
//! threads do it, with a time limit, while the event loop goes on; calls of that user wait meanwhile.
//!
//! Results are kept, so that a user without an account costs one lookup in [`MISSING_KEPT`], however many calls there are.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::epoll::{EventData, EventFlags};
use rustix::event::{EventfdFlags, epoll, eventfd};

use super::{RunAs, SystemUserError, SystemUsers};
use crate::threads;

/// Maximum number of results that are kept. The least recently used one is removed for another.
const KEPT_MAX: usize = 4096;
/// Time for which it is kept that there is no account.
const MISSING_KEPT: Duration = Duration::from_secs(60);
/// Time for which it is kept that the directory of accounts has not answered.
const FAULT_KEPT: Duration = Duration::from_secs(5);
/// Maximum number of threads.
const THREADS_MAX: usize = 4;
/// Maximum number of users whose accounts are being looked up, or wait for it.
const LOOKUPS_MAX: usize = 256;

type Found = Result<RunAs, SystemUserError>;
/// A user, and what a lookup has found.
type Lookup = (Box<str>, Found);
/// Looks up an account.
type Find = dyn Fn(&str) -> Found + Send + Sync;

/// The account of a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Account {
    /// `None` is the user of this process; an error says why there is none, with the remedy.
    Known(Result<Option<Arc<RunAs>>, String>),
    /// It is being looked up.
    Awaited,
}

/// The accounts of the users of a server.
pub(super) struct Accounts {
    users: SystemUsers,
    find: Arc<Find>,
    kept: BTreeMap<Box<str>, Kept>,
    /// The users in `kept` by their last use.
    by_use: BTreeMap<u64, Box<str>>,
    uses: u64,
    /// Users whose accounts are being looked up, or wait for it.
    awaited: BTreeSet<Box<str>>,
    queue: VecDeque<Box<str>>,
    threads: usize,
    results: (Sender<Lookup>, Receiver<Lookup>),
    /// Becomes readable with each result. It exists from the first lookup on.
    wake: Option<Arc<OwnedFd>>,
    is_watched: bool,
}

/// A result.
struct Kept {
    account: Result<Option<Arc<RunAs>>, String>,
    until: Option<Instant>,
    last_use: u64,
}

impl Accounts {
    pub(super) fn new(users: SystemUsers) -> Accounts {
        Accounts::with(users, Arc::new(RunAs::named))
    }

    fn with(users: SystemUsers, find: Arc<Find>) -> Accounts {
        let (kept, by_use, awaited, queue) = Default::default();
        let results = channel();
        Accounts {
            users,
            find,
            kept,
            by_use,
            uses: 0,
            awaited,
            queue,
            threads: 0,
            results,
            wake: None,
            is_watched: false,
        }
    }

    /// Returns the account of a user, or starts to look it up.
    pub(super) fn of(&mut self, user: &str, now: Instant) -> Account {
        if let Some(known) = self.users.known(user) {
            return Account::Known(known);
        }
        if self.awaited.contains(user) {
            return Account::Awaited;
        }
        if let Some(kept) = self.kept.get_mut(user) {
            if kept.until.is_none_or(|until| now < until) {
                self.uses += 1;
                let before = std::mem::replace(&mut kept.last_use, self.uses);
                let user = self.by_use.remove(&before).expect("each result has a last use");
                self.by_use.insert(self.uses, user);
                return Account::Known(kept.account.clone());
            }
            self.forget(user);
        }
        if self.awaited.len() >= LOOKUPS_MAX {
            return Account::Known(Err(format!(
                "the account of '{user}' cannot be looked up now: this server looks up {LOOKUPS_MAX} accounts at a time, which is the limit; \
                 try again later"
            )));
        }
        self.awaited.insert(user.into());
        self.queue.push_back(user.into());
        self.start_next();
        Account::Awaited
    }

    /// Starts lookups as long as there are threads for them.
    fn start_next(&mut self) {
        while self.threads < THREADS_MAX
            && let Some(user) = self.queue.pop_front()
        {
            self.threads += 1;
            if let Err(error) = self.start(&user) {
                let _ = self.results.0.send((user, Err(SystemUserError::NoTool(error.to_string()))));
                self.wake.iter().for_each(|wake| signal(wake));
            }
        }
    }

    fn start(&mut self, user: &str) -> io::Result<()> {
        if self.wake.is_none() {
            self.wake = Some(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?));
        }
        let wake = self.wake.clone().expect("it was created above");
        let (find, found, user) = (self.find.clone(), self.results.0.clone(), Box::<str>::from(user));
        let look_up = move || {
            let account = find(&user);
            // Fails if the server has ended.
            let _ = found.send((user, account));
            signal(&wake);
        };
        threads::spawn(thread::Builder::new().name("accounts".into()), look_up).map(drop)
    }

    /// Returns the users whose accounts have been looked up since the last call.
    pub(super) fn take_found(&mut self, now: Instant) -> Vec<Box<str>> {
        if let Some(wake) = &self.wake {
            // Fails if nothing was signalled.
            let _ = rustix::io::read(wake, &mut [0; 8]);
        }
        let mut users = Vec::new();
        while let Ok((user, found)) = self.results.1.try_recv() {
            self.threads -= 1;
            self.awaited.remove(&user);
            let until = match &found {
                Ok(_) => None,
                Err(SystemUserError::Unknown) => Some(now + MISSING_KEPT),
                Err(_) => Some(now + FAULT_KEPT),
            };
            self.keep(&user, self.users.found(&user, found), until);
            users.push(user);
        }
        self.start_next();
        users
    }

    fn keep(&mut self, user: &str, account: Result<Option<Arc<RunAs>>, String>, until: Option<Instant>) {
        if self.kept.len() >= KEPT_MAX
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.kept.remove(&oldest);
        }
        self.uses += 1;
        self.by_use.insert(self.uses, user.into());
        self.kept.insert(user.into(), Kept { account, until, last_use: self.uses });
    }

    fn forget(&mut self, user: &str) {
        if let Some(kept) = self.kept.remove(user) {
            self.by_use.remove(&kept.last_use);
        }
    }

    /// Adds the descriptor that becomes readable with each result to an epoll, once there is one.
    ///
    /// # Errors
    /// If the epoll rejects it.
    pub(super) fn register_with(&mut self, epoll: BorrowedFd<'_>, data: u64) -> io::Result<()> {
        if let Some(wake) = self.wake.as_ref().filter(|_| !self.is_watched) {
            epoll::add(epoll, wake.as_fd(), EventData::new_u64(data), EventFlags::IN)?;
            self.is_watched = true;
        }
        Ok(())
    }
}

fn signal(wake: &OwnedFd) {
    // Fails only if the counter is at its maximum, and then the descriptor is readable.
    let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::jobs::UserMapping;

    fn run_as(name: &str) -> RunAs {
        RunAs { name: name.into(), user: 1001, group: 1001, home: "/".into() }
    }

    /// Accounts of the same names, with the lookups that have begun, and a sender of their results in the order of the requests.
    struct Directory {
        accounts: Accounts,
        asked: Receiver<String>,
        answers: Sender<Found>,
    }

    fn directory() -> Directory {
        let named = [("carol".to_string(), Arc::new(run_as("carol_sys")))].into();
        let users = SystemUsers::PerUser(UserMapping { named, same_names: true, others: None });
        let ((asks, asked), (answers, answer)) = (channel(), channel());
        let (asks, answer) = (Mutex::new(asks), Mutex::new(answer));
        let find = move |user: &str| {
            // Lookups end one after the other.
            let answer = answer.lock().unwrap();
            asks.lock().unwrap().send(user.to_string()).unwrap();
            answer.recv().unwrap()
        };
        Directory { accounts: Accounts::with(users, Arc::new(find)), asked, answers }
    }

    impl Directory {
        /// Ends the next lookup, and waits for its result as the event loop does.
        fn answer(&mut self, found: Found, now: Instant) -> Vec<Box<str>> {
            self.answers.send(found).unwrap();
            let wake = self.accounts.wake.clone().unwrap();
            let mut watched = [rustix::event::PollFd::new(&wake, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut watched, None).unwrap();
            self.accounts.take_found(now)
        }
    }

    #[test]
    fn accounts_are_looked_up_while_others_are_known_and_missing_ones_are_kept_for_a_while() {
        let (mut directory, now) = (directory(), Instant::now());
        assert_eq!(directory.accounts.of("anna", now), Account::Awaited);
        assert_eq!(directory.accounts.of("anna", now), Account::Awaited);
        let carol = Account::Known(Ok(Some(Arc::new(run_as("carol_sys")))));
        assert_eq!(directory.accounts.of("carol", now), carol);
        assert_eq!(directory.answer(Ok(run_as("anna")), now), vec![Box::<str>::from("anna")]);
        let anna = Account::Known(Ok(Some(Arc::new(run_as("anna")))));
        assert_eq!(directory.accounts.of("anna", now + 100 * MISSING_KEPT), anna);
        assert_eq!(directory.asked.try_iter().collect::<Vec<_>>(), ["anna"]);

        for (user, error, kept, why) in [
            ("bert", SystemUserError::Unknown, MISSING_KEPT, "has no account 'bert'"),
            ("dora", SystemUserError::NoAnswer("late".into()), FAULT_KEPT, "try again later"),
        ] {
            assert_eq!(directory.accounts.of(user, now), Account::Awaited);
            directory.answer(Err(error), now);
            let Account::Known(Err(text)) = directory.accounts.of(user, now + kept / 2) else { panic!("{why}") };
            assert!(text.contains(why), "{text}");
            assert_eq!(directory.asked.try_iter().collect::<Vec<_>>(), [user]);
            assert_eq!(directory.accounts.of(user, now + kept), Account::Awaited);
            directory.answer(Err(SystemUserError::Unknown), now + kept);
            assert_eq!(directory.asked.try_iter().count(), 1);
        }
    }

    #[test]
    fn the_numbers_of_lookups_and_of_kept_results_are_bounded() {
        let (mut directory, now) = (directory(), Instant::now());
        let user = |number: usize| format!("user {number}");
        for number in 0..LOOKUPS_MAX {
            assert_eq!(directory.accounts.of(&user(number), now), Account::Awaited);
        }
        assert!(directory.accounts.threads <= THREADS_MAX);
        let Account::Known(Err(text)) = directory.accounts.of("one more", now) else { panic!("there is a limit") };
        assert!(text.contains("'one more'") && text.contains("256 accounts at a time"), "{text}");
        let mut found = 0;
        while found < LOOKUPS_MAX {
            found += directory.answer(Err(SystemUserError::Unknown), now).len();
        }
        assert_eq!((directory.accounts.awaited.len(), directory.accounts.threads), (0, 0));
        for number in (0..LOOKUPS_MAX).filter(|number| *number != 7) {
            assert_ne!(directory.accounts.of(&user(number), now), Account::Awaited);
        }
        for number in LOOKUPS_MAX..KEPT_MAX + 1 {
            directory.accounts.keep(&user(number), Ok(None), None);
        }
        let is_kept = |number| directory.accounts.kept.contains_key(&*user(number));
        assert_eq!([6, 7, 8].map(is_kept), [true, false, true], "the least recently used one is removed");
        assert_eq!((directory.accounts.kept.len(), directory.accounts.by_use.len()), (KEPT_MAX, KEPT_MAX));
    }
}
