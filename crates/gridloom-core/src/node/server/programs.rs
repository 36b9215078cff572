//! The programs that are connected: who they belong to, and what their users may do.

use std::collections::BTreeMap;
use std::sync::Arc;

use gridloom_base::{NameKind, NodeId, Origin, Program};

use crate::graph::Task;

/// The connected clients.
#[derive(Debug, Default)]
pub(super) struct Programs {
    clients: BTreeMap<NodeId, Connected>,
    /// Users of tasks that no connected client has made.
    nobody: Arc<str>,
}

#[derive(Debug)]
struct Connected {
    origin: Origin,
    user: Arc<str>,
    program: Program,
}

impl Programs {
    pub(super) fn connected(&mut self, client: NodeId, name: &str, origin: Origin) {
        let (program, user) = (origin.program(client, name), origin.user.as_str().into());
        self.clients.insert(client, Connected { origin, user, program });
    }

    pub(super) fn forget(&mut self, client: NodeId) {
        self.clients.remove(&client);
    }

    pub(super) fn origin(&self, client: NodeId) -> Option<&Origin> {
        self.clients.get(&client).map(|client| &client.origin)
    }

    /// True if calls of a client may count as calls of a program: functions call for the programs that call them, and the
    /// programs of one user for each other. Functions of one user do not call for a program of which another user is known.
    pub(super) fn may_call_for(&self, client: NodeId, program: NodeId) -> bool {
        let user = |client| self.origin(client).map(|origin| &origin.user);
        let is_functions = self
            .origin(client)
            .is_some_and(|origin| origin.acts_for_all() || origin.is_functions && self.origin(program).is_none());
        client == program || is_functions || user(client).is_some_and(|own| user(program) == Some(own))
    }

    /// Returns the program that made a task. The program of a nested call need not be connected here; then it is the function
    /// that made the call.
    pub(super) fn of(&self, task: &Task) -> Option<&Program> {
        let client = self.clients.get(&task.program()).or_else(|| self.clients.get(&task.id.client));
        client.map(|client| &client.program)
    }

    /// Returns the user to whom a task belongs: the user of its client, or the one that a function states. Empty for tasks
    /// of the catalog.
    pub(super) fn user_of(&self, task: &Task) -> Arc<str> {
        let Some(client) = self.clients.get(&task.id.client) else { return self.nobody.clone() };
        // Users of simulations have no name.
        let is_valid = |user: &str| user.is_empty() || NameKind::User.check(user).is_ok();
        match &task.options.user {
            Some(user) if client.origin.acts_for_all() && is_valid(user) => Arc::from(&**user),
            _ => client.user.clone(),
        }
    }

    /// Returns a connected program.
    pub(super) fn program(&self, client: NodeId) -> Option<&Program> {
        self.clients.get(&client).map(|client| &client.program)
    }

    /// Returns the user of a connected program; `None` for functions, which run here.
    pub(super) fn user_of_client(&self, client: NodeId) -> Option<Arc<str>> {
        self.clients.get(&client).filter(|client| !client.origin.is_functions).map(|client| client.user.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_functions_and_programs_of_the_same_user_call_for_a_program() {
        let user = |name: &str| Origin { user: name.into(), ..Origin::default() };
        let functions = Origin { is_functions: true, ..user("functions of s1") };
        let mut programs = Programs::default();
        let of = [user("anna"), user("anna"), user("bert"), functions];
        let [anna, again, bert, function] = [1, 2, 3, 4].map(NodeId);
        for (client, origin) in [anna, again, bert, function].into_iter().zip(of) {
            programs.connected(client, "train.py", origin);
        }
        let elsewhere = NodeId(5);
        assert!(programs.may_call_for(anna, anna) && programs.may_call_for(again, anna));
        assert!(programs.may_call_for(function, anna) && programs.may_call_for(function, elsewhere));
        assert!(!programs.may_call_for(bert, anna) && !programs.may_call_for(bert, elsewhere));
        let (of_anna, of_bert) = (NodeId(6), NodeId(7));
        for (client, name) in [(of_anna, "anna"), (of_bert, "bert")] {
            programs.connected(client, "f", Origin { is_functions: true, is_for_user: true, ..user(name) });
        }
        assert!(programs.may_call_for(of_anna, anna) && programs.may_call_for(of_anna, elsewhere));
        assert!(!programs.may_call_for(of_bert, anna));
        programs.forget(anna);
        assert!(!programs.may_call_for(again, anna), "its user is unknown now");
    }
}
