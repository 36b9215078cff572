//! The rules of the grid, as the agent has sent them last. They refuse calls that the certificate of a user permits, and
//! limit what a user occupies here.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Server, line};
use crate::graph::{Task, TaskKind};
use crate::node::protocol::Effect;
use gridloom_base::size::size_text;
use gridloom_base::{Level, NamedDatum, NodeId, Pattern, Rules, RulesLink, TaskError, TaskId, Time, UserRules};

/// Maximum number of users whose rules are remembered.
const REMEMBERED_MAX: usize = 1024;

/// Maximum number of patterns that an error lists.
const PATTERNS_SHOWN_MAX: usize = 8;

/// The remedy of each error.
const ASK: &str = "ask an administrator of the grid to change its rules";

#[derive(Debug, Default)]
pub(super) struct KnownRules {
    rules: Arc<Rules>,
    /// The rules of some users.
    of_users: BTreeMap<String, Arc<UserRules>>,
    of_nobody: Arc<UserRules>,
}

impl KnownRules {
    fn replace(&mut self, rules: Arc<Rules>) {
        self.rules = rules;
        self.of_users.clear();
    }

    pub(super) fn are_set(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Returns the links with quotas.
    pub(super) fn links(&self) -> &[RulesLink] {
        &self.rules.links
    }

    pub(super) fn allowed_over_link(&self, user: &str, link: &str) -> Option<u64> {
        self.rules.allowed_over_link(user, link)
    }

    /// Returns the rules for a user.
    pub(super) fn of(&mut self, user: &str) -> Arc<UserRules> {
        if user.is_empty() || self.rules.is_empty() {
            return self.of_nobody.clone();
        }
        if let Some(known) = self.of_users.get(user) {
            return known.clone();
        }
        if self.of_users.len() >= REMEMBERED_MAX {
            self.of_users.clear();
        }
        let rules = Arc::new(self.rules.of(user));
        self.of_users.insert(user.to_string(), rules.clone());
        rules
    }
}

impl Server {
    /// Returns the bytes that are on disk here by user, durable data included.
    pub(super) fn disk_bytes(&self) -> BTreeMap<String, u64> {
        let mut bytes = self.shared.durable_bytes().clone();
        for (user, moved) in self.admission.on_disk() {
            let of_user = bytes.entry(user.to_string()).or_default();
            *of_user = of_user.saturating_add(moved);
        }
        bytes
    }

    /// Has the world apply changed quotas of disk.
    pub(super) fn limit_disk(&mut self, out: &mut Vec<Effect>) {
        for (owner, bytes) in self.shared.take_changed_durable_bytes() {
            self.admission.set_durable(owner, bytes);
        }
        out.extend(self.admission.take_disk_limits().map(|limits| Effect::LimitDisk { limits }));
    }

    /// Refuses durable data beyond the quota of disk of their owner.
    pub(super) fn check_durable(&mut self, task: &Task, named: &NamedDatum) -> Result<(), TaskError> {
        let owner = named.owner();
        let Some(quota) = self.rules.of(&owner).disk else { return Ok(()) };
        let (limit, size_bytes) = (quota.of(self.config.memory_bytes), named.meta.size_bytes());
        let taken = self.disk_bytes().get(&*owner).copied().unwrap_or(0);
        if taken.saturating_add(size_bytes) <= limit {
            return Ok(());
        }
        let text = format!(
            "it takes {}, the data of '{owner}' already take {} of the server's disk, and the rules of the grid allow {}; delete durable data that are \
             no longer needed, put it as data that are not durable, or {ASK}",
            size_text(size_bytes),
            size_text(taken),
            size_text(limit)
        );
        Err(self.quota_exceeded(task, false, text))
    }

    /// Replaces the rules. They apply to new calls at once, and quotas and weights to those that are here, too.
    pub(super) fn set_rules(&mut self, now: Time, rules: Rules, out: &mut Vec<Effect>) {
        if rules == *self.rules.rules {
            return;
        }
        out.push(line(Level::Info, "the agent has sent new rules of the grid").into());
        let rules = Arc::new(rules);
        self.rules.replace(rules.clone());
        self.admission.set_rules(rules);
        let waiting = self.admission.tasks().filter(|entry| !entry.state.has_begun());
        let too_large =
            waiting.filter_map(|entry| Some((entry.task.id, self.check_gang(&entry.task, &entry.owner.user).err()?)));
        let too_large: Vec<(TaskId, TaskError)> = too_large.collect();
        too_large.into_iter().for_each(|(id, error)| self.end_with_error(now, id, error, out));
        self.pump(now, out);
    }

    /// Refuses a call that the rules do not permit the sender's user.
    pub(super) fn check_permitted(&mut self, from: NodeId, task: &Task) -> Result<(), TaskError> {
        let (TaskKind::Call { .. } | TaskKind::Method { .. }, Some(origin)) = (&task.kind, self.programs.origin(from))
        else {
            return Ok(());
        };
        let rules = self.rules.of(&origin.user);
        if !origin.is_refused_by_rules() || rules.may_call(task.name()) {
            return Ok(());
        }
        let (function, server) = (task.name().to_string(), self.config.name.clone());
        let user = &origin.user;
        let permitted = match &rules.functions {
            Some(functions) if !Pattern::of_code().matches(&function) => listed(functions),
            _ => "no functions that a program sends (run-code)".to_string(),
        };
        Err(TaskError::NotPermitted {
            function,
            server,
            why: format!("the rules of the grid permit '{user}' to call {permitted}; {ASK}"),
        })
    }

    /// Refuses a call beyond the quotas of its user.
    pub(super) fn check_quotas(&mut self, task: &Task) -> Result<(), TaskError> {
        if !matches!(task.kind, TaskKind::Call { .. } | TaskKind::Method { .. })
            || self.admission.get(task.id).is_some()
        {
            return Ok(());
        }
        let user = self.programs.user_of(task);
        self.check_gang(task, &user)?;
        let waiting = self.admission.waiting_of(&user);
        // A function that waits for its own calls would wait for ever, or fail.
        let is_nested = self.programs.origin(task.id.client).is_some_and(|origin| origin.is_functions);
        match self.rules.of(&user).queue.filter(|_| !is_nested) {
            Some(limit) if waiting >= limit => Err(self.quota_exceeded(
                task,
                true,
                format!(
                    "{waiting} calls of '{user}' wait there, and the rules of the grid allow {limit}; make fewer calls at a time, or {ASK}"
                ),
            )),
            _ => Ok(()),
        }
    }

    fn check_gang(&self, task: &Task, user: &str) -> Result<(), TaskError> {
        let (wanted, slots) = (task.options.gang, self.admission.slots_of(user));
        if wanted <= slots {
            return Ok(());
        }
        let text = format!(
            "it requests {wanted} slots at once, and the rules of the grid allow '{user}' {slots} of the {} slots of this server; request \
             fewer, or {ASK}",
            self.config.slots
        );
        Err(self.quota_exceeded(task, false, text))
    }

    fn quota_exceeded(&self, task: &Task, is_temporary: bool, why: String) -> TaskError {
        TaskError::QuotaExceeded { function: task.name().into(), server: self.config.name.clone(), why, is_temporary }
    }
}

/// Lists patterns for an error.
pub(super) fn listed(functions: &[Pattern]) -> String {
    match functions {
        [] => "no functions".to_string(),
        [first, .., last] if functions.len() > PATTERNS_SHOWN_MAX => {
            format!("{first} to {last}, {} patterns", functions.len())
        }
        some => some.iter().map(Pattern::as_str).collect::<Vec<_>>().join(", "),
    }
}
