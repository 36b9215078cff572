//! The user and the host behind a node.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::NAME_BYTES_MAX;
use crate::{EscapedLine, NodeId, Pattern, truncated};

/// The user of a node with their rights, as its certificate states them, and its host, as the node states it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The name in the certificate: a user's, or that of an agent or server.
    pub user: String,
    /// True for an administrator, who may cancel the calls of other users.
    pub is_administrator: bool,
    /// True if the node may be a function that a server runs. It acts for the programs whose calls the server runs.
    pub is_functions: bool,
    /// True if these functions act for the user only, with the user's rights.
    pub is_for_user: bool,
    /// Functions that the user may call, or the server may offer.
    pub functions: Vec<Pattern>,
    /// Name of the machine; empty if unknown.
    pub host: String,
}

/// The module of the functions that run code of the program, with the slash.
pub(crate) const CODE_MODULE: &str = "python/";

/// True if a function, `module/function`, runs code that its program sends.
pub fn is_sent_code(function: &str) -> bool {
    function.starts_with(CODE_MODULE)
}

impl Default for Origin {
    /// A user without a name, who may call every function.
    fn default() -> Origin {
        let functions = vec![Pattern::all(), Pattern::of_code()];
        let (user, host) = Default::default();
        Origin { user, is_administrator: false, is_functions: false, is_for_user: false, functions, host }
    }
}

impl Origin {
    /// True if the user may call a function, `module/function`. The pattern `*` does not include the functions that run code of
    /// the program, except for administrators.
    pub fn may_call(&self, function: &str) -> bool {
        let is_plain = self.may_change_all() || !function.starts_with(CODE_MODULE);
        self.functions.iter().any(|one| one.matches(function) && (is_plain || one.as_str().starts_with(CODE_MODULE)))
    }

    /// True if a server with this certificate may offer a function, `module/function`.
    pub fn may_offer(&self, function: &str) -> bool {
        self.functions.iter().any(|one| one.matches(function))
    }

    /// True for functions that act for all programs that call them, whoever their users are.
    pub fn acts_for_all(&self) -> bool {
        self.is_functions && !self.is_for_user
    }

    /// True if the rules of the grid may refuse calls of this user. Functions act for the programs that call them.
    pub fn is_refused_by_rules(&self) -> bool {
        !self.may_change_all()
    }

    /// True if this user may cancel calls of the other, and change or delete the other's data. Functions may do so for the
    /// programs that call them.
    pub fn may_change(&self, owner: &str) -> bool {
        self.may_change_all() || self.user == owner
    }

    /// True if [`Origin::may_change`] is true for all users.
    pub fn may_change_all(&self) -> bool {
        self.is_administrator || self.acts_for_all()
    }

    /// Returns the program with this name, for display.
    pub fn program(&self, client: NodeId, name: &str) -> Program {
        let short = |text: &str| truncated(text, NAME_BYTES_MAX).to_string();
        Program { client, user: self.user.clone(), host: short(&self.host), name: short(name) }
    }
}

/// A program that uses the grid, for display. Only its user is certified.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Program {
    pub client: NodeId,
    pub user: String,
    pub host: String,
    /// The file that runs, such as `train.py`.
    pub name: String,
}

impl fmt::Display for Program {
    /// Writes `anna: train.py on laptop`, without the parts that are unknown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Program { client, user, host, name } = self;
        if !user.is_empty() {
            write!(f, "{}: ", EscapedLine(user))?;
        }
        match name.is_empty() {
            true => write!(f, "{client}")?,
            false => write!(f, "{}", EscapedLine(name))?,
        }
        if host.is_empty() { Ok(()) } else { write!(f, " on {}", EscapedLine(host)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_changes_what_is_their_own_and_an_administrator_everything() {
        let anna = Origin { user: "anna".into(), ..Origin::default() };
        assert!(anna.may_change("anna") && !anna.may_change("bert"));
        assert!(Origin { is_administrator: true, ..anna.clone() }.may_change("bert"));
        let functions = Origin { is_functions: true, ..anna };
        assert!(functions.may_change("bert"));
        let of_anna = Origin { is_for_user: true, ..functions };
        assert!(!of_anna.may_change("bert") && of_anna.may_change("anna") && of_anna.is_refused_by_rules());
    }

    #[test]
    fn a_user_calls_the_functions_of_the_certificate() {
        let some = Origin { functions: vec!["linalg/*".parse().unwrap()], ..Origin::default() };
        assert!(some.may_call("linalg/dgemm") && !some.may_call("fft/c2c"));
        assert!(Origin::default().may_call("fft/c2c") && Origin::default().may_call("python/run"));
        // Code of a program's own is a right that has to be given.
        let all = Origin { functions: vec![Pattern::all()], ..Origin::default() };
        assert!(all.may_call("fft/c2c") && !all.may_call("python/run"));
        assert!(Origin { is_administrator: true, ..all.clone() }.may_call("python/run"));
        assert!(Origin { is_functions: true, ..all }.may_call("python/run"));
        assert!(!Origin { is_administrator: true, ..some }.may_call("python/run"));
    }

    #[test]
    fn a_program_is_shown_with_user_and_host_on_one_line() {
        let origin = Origin { user: "anna".into(), host: "lap\ntop".into(), ..Origin::default() };
        assert_eq!(origin.program(NodeId(1), "train.py").to_string(), r"anna: train.py on lap\ntop");
        assert_eq!(Origin::default().program(NodeId(1), "").to_string(), NodeId(1).to_string());
        let long = origin.program(NodeId(1), &"\u{e9}".repeat(1000)).name;
        assert!(long.len() <= NAME_BYTES_MAX && long.len() > NAME_BYTES_MAX - 2);
    }
}
