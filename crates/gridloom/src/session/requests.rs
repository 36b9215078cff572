//! Requests of operators and programs for the grid's own state: models, statuses, links, output of functions.

use std::collections::BTreeMap;
use std::time::Duration;

use gridloom_base::{NodeId, TaskId};
use gridloom_core::node::Command;
use gridloom_core::node::message::{DayUsage, LinkUse, OutputPage, ProgramWaits, ServerStatus, UsageQuery};
use gridloom_perf::{LinkReport, ServerView};

use super::{CONNECT_LIMIT, EndTaskAnswers, Session};
use crate::Error;

/// Waits until the models of those servers are known to the agent, and here. Does not wait for servers that are gone.
pub(crate) fn await_models(session: &Session, servers: &[NodeId], limit: Duration) -> Result<(), Error> {
    session.state().directory.begin_models(servers);
    servers.iter().for_each(|server| session.command(Command::CollectModels { server: *server }));
    let known = session.wait(Some(limit), |state| state.directory.has_models(servers).then_some(()));
    let mut state = session.state();
    servers.iter().for_each(|server| state.directory.on_models(*server));
    match known {
        // The measured times are in the call's result; other nodes learn them later.
        Err(Error::TimedOut { .. }) => Ok(()),
        known => known,
    }
}

/// Returns the current status of each server; `None` for one that does not answer within `limit`.
pub(crate) fn statuses(session: &Session, limit: Duration) -> Result<Vec<(ServerView, Option<ServerStatus>)>, Error> {
    let servers = session.servers();
    session.state().directory.begin_statuses();
    let questions = servers.servers.iter().map(|server| Command::Status { server: server.node });
    session.commands(questions.collect());
    let answered = session.wait(Some(limit), |state| state.directory.has_statuses(&servers.servers).then_some(()));
    match answered {
        Ok(()) | Err(Error::TimedOut { .. }) => {}
        Err(error) => return Err(error),
    }
    let mut statuses = session.state().directory.take_statuses();
    Ok(servers.servers.iter().map(|server| (server.clone(), statuses.remove(&server.node))).collect())
}

/// Has servers end tasks. Returns the answers that arrive within `limit`.
pub(crate) fn end_tasks(
    session: &Session,
    tasks: &[(NodeId, TaskId)],
    limit: Duration,
) -> Result<EndTaskAnswers, Error> {
    session.state().directory.take_end_task_answers();
    session.commands(tasks.iter().map(|&(server, task)| Command::EndTask { server, task }).collect());
    let answered = session.wait(Some(limit), |state| state.directory.has_end_task_answers(tasks).then_some(()));
    match answered {
        Ok(()) | Err(Error::TimedOut { .. }) => Ok(session.state().directory.take_end_task_answers()),
        Err(error) => Err(error),
    }
}

/// Returns what the programs of all clients wait for, the longest waits first; an empty list if the agent does not answer
/// within `limit`.
pub(crate) fn waits(session: &Session, limit: Duration) -> Result<Vec<ProgramWaits>, Error> {
    let before = session.state_now().directory.waits_answers();
    session.command(Command::Waits);
    match session.wait(Some(limit), |state| state.directory.waits_after(before)) {
        Err(Error::TimedOut { .. }) => Ok(Vec::new()),
        known => known,
    }
}

/// The usage of users.
#[derive(Clone, PartialEq, Debug)]
pub struct UsageReport {
    /// Usage in order of day and user.
    pub days: Vec<DayUsage>,
    /// Bytes of shared data that each user stores now, in all copies.
    pub stored_bytes: Vec<(String, u64)>,
    /// Bytes that each user has on disks of servers now: durable data, and data that do not fit into memory.
    pub disk_bytes: Vec<(String, u64)>,
    /// Bytes that the data of each user have taken over links of the rules today.
    pub links: Vec<LinkUse>,
}

/// Returns the usage of users on these days.
pub(crate) fn usage(
    session: &Session,
    days: (u32, u32),
    user: Option<String>,
    limit: Duration,
) -> Result<UsageReport, Error> {
    let mut query = UsageQuery { days, user, after: None };
    let mut report =
        UsageReport { days: Vec::new(), stored_bytes: Vec::new(), disk_bytes: Vec::new(), links: Vec::new() };
    loop {
        session.command(Command::Usage(query.clone()));
        let answer = session.wait(Some(limit), |state| state.directory.take_usage(&query));
        let page = match answer {
            Err(Error::TimedOut { limit_seconds }) => {
                return Err(Error::Connect(format!("the agent has not answered within {limit_seconds} s")));
            }
            answer => answer?.map_err(Error::Usage)?,
        };
        report.days.extend(page.entries);
        report.stored_bytes.extend(page.stored_bytes);
        report.disk_bytes.extend(page.disk_bytes);
        report.links.extend(page.links);
        query.after = report.days.last().map(|last| (last.day, last.user.clone()));
        if !page.has_more || query.after.is_none() {
            return Ok(report);
        }
    }
}

/// Returns the agent's knowledge of the links.
pub(crate) fn links(session: &Session) -> Result<Vec<LinkReport>, Error> {
    // An answer that arrived after its thread stopped waiting is not for this request.
    let before = session.state_now().links.answers();
    session.command(Command::Links);
    session.wait(Some(CONNECT_LIMIT), |state| state.links.answer_after(before))
}

/// Takes the output of functions that servers have sent; waits for at least one answer, but no longer than `limit`.
pub(crate) fn take_output(session: &Session, limit: Duration) -> Result<BTreeMap<NodeId, OutputPage>, Error> {
    match session.wait(Some(limit), |state| state.outputs.take()) {
        Err(Error::TimedOut { .. }) => Ok(BTreeMap::new()),
        taken => taken,
    }
}
