//! Quotas of bytes over links: how many bytes of one user's data may pass over a link that the rules name on one day, in UTC.
//!
//! ```text
//!  server                                              agent
//!    bytes that it has received today, by user and link ──▶  sums over all servers
//!    ◀── the users who have used up a link today, to all servers
//! ```
//! The receiver of data counts them for the user whose task reads them. A server that is to fetch data over a link that the user has
//! used up refuses the task instead.
//!
//! **Limits:** between two reports of a server, a user can exceed a quota. Data that are sent without a request count, and are not refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Server;
use super::rules::KnownRules;
use crate::node::message::{DataMessage, LinkUse, Message};
use crate::node::protocol::Effect;
use gridloom_base::limits::LINK_USES_MAX;
use gridloom_base::size::size_text;
use gridloom_base::time::{DAY_NS, ns_to_seconds};
use gridloom_base::{DatumId, NodeId, TaskError, TaskId, Time, slice_bytes};

/// Returns the day of a time, counted from 1970-01-01.
fn day_of(now: Time) -> u32 {
    (now.0 / DAY_NS) as u32
}

#[derive(Debug, Default)]
pub(super) struct LinkQuotas {
    /// The names of connected servers, and the hosts of connected programs.
    places: BTreeMap<NodeId, String>,
    /// The day of `received`.
    day: u32,
    /// Bytes received on that day by user and link.
    received: BTreeMap<(Arc<str>, String), u64>,
    is_changed: bool,
    /// The day of `used_up`.
    used_up_on: u32,
    /// Bytes over links that users have used up on that day.
    used_up: BTreeMap<(String, String), u64>,
}

impl LinkQuotas {
    pub(super) fn connected(&mut self, peer: NodeId, place: String) {
        self.places.insert(peer, place);
    }

    pub(super) fn forget(&mut self, peer: NodeId) {
        self.places.remove(&peer);
    }

    fn add(&mut self, now: Time, user: Arc<str>, link: String, bytes: u64) {
        let today = day_of(now);
        if self.day != today {
            self.day = today;
            self.received.clear();
        }
        let key = (user, link);
        if self.received.len() < LINK_USES_MAX || self.received.contains_key(&key) {
            let sum = self.received.entry(key).or_default();
            *sum = sum.saturating_add(bytes);
            self.is_changed = true;
        }
    }

    /// Has all sums reported again: the agent may not know them.
    pub(super) fn repeat(&mut self) {
        self.is_changed = !self.received.is_empty();
    }

    /// Returns the day and the sums for the agent, if they may have changed since the last call.
    pub(super) fn take_report(&mut self) -> Option<(u32, Vec<LinkUse>)> {
        let use_of = |((user, link), bytes): (&(Arc<str>, String), &u64)| LinkUse {
            user: user.to_string(),
            link: link.clone(),
            bytes: *bytes,
        };
        std::mem::take(&mut self.is_changed).then(|| (self.day, self.received.iter().map(use_of).collect()))
    }

    /// Sets the users who have used up links on a day.
    pub(super) fn set_used_up(&mut self, day: u32, uses: Vec<LinkUse>) {
        self.used_up_on = day;
        self.used_up = uses.into_iter().map(|one| ((one.user, one.link), one.bytes)).collect();
    }

    /// Returns the bytes of a user over a link that is used up.
    fn used_up(&self, now: Time, user: &str, link: &str) -> Option<u64> {
        let is_today = self.used_up_on == day_of(now);
        is_today.then(|| self.used_up.get(&(user.to_string(), link.to_string())).copied()).flatten()
    }
}

impl Server {
    /// Returns the links of the rules over which data from a peer arrive.
    fn links_from(&self, peer: NodeId) -> Vec<String> {
        let Some(place) = self.link_quotas.places.get(&peer) else { return Vec::new() };
        let links = self.rules.links().iter().filter(|link| link.joins(place, &self.config.name));
        links.map(|link| link.name.clone()).collect()
    }

    /// Counts data that have arrived, before their tasks are ready.
    pub(super) fn count_over_links(&mut self, now: Time, from: NodeId, datum: DatumId, size_bytes: u64) {
        if self.rules.links().is_empty() {
            return;
        }
        let links = self.links_from(from);
        let reader = self.admission.waiting_on(datum.whole()).first().and_then(|task| self.admission.get(*task));
        let user = match reader {
            Some(entry) => Some(entry.owner.user.clone()),
            None => self.programs.user_of_client(datum.client),
        };
        let Some(user) = user.filter(|user| !user.is_empty()) else { return };
        let bytes = match datum.slice() {
            Some(number) => slice_bytes(size_bytes, number).end - slice_bytes(size_bytes, number).start,
            None => size_bytes,
        };
        links.into_iter().for_each(|link| self.link_quotas.add(now, user.clone(), link, bytes));
    }

    /// Replaces requests for data over links that are used up by errors of the tasks that read the data. `from`: index of the first new
    /// effect.
    pub(super) fn refuse_over_links(&mut self, now: Time, from: usize, out: &mut Vec<Effect>) {
        while !self.link_quotas.used_up.is_empty() {
            let refused = |effect: &Effect| match effect {
                Effect::Send { to, message: Message::Data(DataMessage::Fetch { datum, .. }) } => {
                    self.tasks_over_used_up_links(now, *to, *datum)
                }
                _ => Vec::new(),
            };
            let found = out[from..].iter().map(refused).enumerate().find(|(_, tasks)| !tasks.is_empty());
            let Some((at, tasks)) = found else { return };
            out.remove(from + at);
            tasks.into_iter().for_each(|(task, error)| self.end_with_error(now, task, error, out));
            self.pump(now, out);
        }
    }

    /// Returns the tasks that wait for a datum from a peer, with their errors, if the users of all of them have used up a link to the peer.
    fn tasks_over_used_up_links(&self, now: Time, peer: NodeId, datum: DatumId) -> Vec<(TaskId, TaskError)> {
        let links = self.links_from(peer);
        let error = |task: TaskId| {
            let entry = self.admission.get(task)?;
            let user = &entry.owner.user;
            let (link, used) =
                links.iter().find_map(|link| Some((link, self.link_quotas.used_up(now, user, link)?)))?;
            let why = self.rules.link_used_up(user, link, used, Time((u64::from(day_of(now)) + 1) * DAY_NS).since(now));
            let (function, server) = (entry.task.name().to_string(), self.config.name.clone());
            Some((task, TaskError::QuotaExceeded { function, server, why, is_temporary: false }))
        };
        let tasks = self.admission.waiting_on(datum.whole()).iter().map(|task| error(*task));
        tasks.collect::<Option<Vec<_>>>().unwrap_or_default()
    }
}

impl KnownRules {
    /// Returns why a user cannot receive data over a link.
    fn link_used_up(&self, user: &str, link: &str, used_bytes: u64, left_ns: u64) -> String {
        let allowed = self.allowed_over_link(user, link).map_or_else(|| "less".to_string(), size_text);
        format!(
            "the data of '{user}' took {} over the link '{link}' today, and the rules of the grid allow {allowed} a day; try again in {:.1} h, when \
             the next day begins in UTC, run it where its data are, or ask an administrator of the grid to change its rules",
            size_text(used_bytes),
            ns_to_seconds(left_ns) / 3600.0
        )
    }
}
