//! Reasons why opening a connection failed. The connecting side reports the reason as text. These are the beginnings
//! of the texts, by which a node decides what to do next.

/// The host name cannot be resolved.
pub const UNRESOLVED: &str = "the name cannot be resolved";
/// The host refuses the connection: no program listens on the port.
pub const NOT_LISTENING: &str = "no program listens there";
/// The host does not answer.
pub const NO_ANSWER: &str = "no answer";
/// A program listens on the port, but its answer does not follow Gridloom's protocol.
pub const NOT_A_NODE: &str = "the program that answers there is not a Gridloom node";
/// A program listens on the port, but does not answer: it may be slow or stopped, or expect another protocol.
pub const SILENT: &str = "a program listens there, but does not answer";
/// A program accepted the connection, and closed it before it answered.
pub const CLOSED: &str = "the program that listens there closed the connection before it answered";
/// The node refuses the connection: it belongs to another grid or has another version, or the node tried to connect to itself.
pub const REFUSED: &str = "refused: ";
/// The node was connected before.
pub const DISCONNECTED: &str = "the connection was lost";

/// The certificate of one of the two nodes has been revoked.
pub const REVOKED: &str = "certificate revoked: ";

/// The node has no file descriptor for the connection.
pub const NO_DESCRIPTORS: &str = "the node has no free file descriptors";

/// True if a retry cannot help, because the settings of the two nodes do not match.
pub fn is_permanent(why: &str) -> bool {
    is_revoked(why) || why.contains(REFUSED) && !why.contains(NO_DESCRIPTORS)
}

/// True if the certificate of one of the two nodes has been revoked.
pub fn is_revoked(why: &str) -> bool {
    why.contains(REVOKED)
}

/// True if the node may only be slow or overloaded.
pub fn may_recover(why: &str) -> bool {
    why.starts_with(SILENT)
}

/// Returns the remedy for an agent that cannot be reached, as the end of a sentence.
pub fn agent_remedy(why: &str) -> &'static str {
    let is = |kinds: &[&str]| kinds.iter().any(|kind| why.starts_with(kind));
    match () {
        () if is_revoked(why) => {
            "; ask the administrator of the grid for a new certificate, and start this program again"
        }
        () if is(&[NOT_LISTENING, DISCONNECTED]) => "; start one with 'gridloom agent', or connect to another",
        () if is(&[UNRESOLVED, NO_ANSWER, NOT_A_NODE]) => {
            "; check the address, HOST:PORT as 'gridloom agent' prints it"
        }
        () if is(&[SILENT, CLOSED]) => {
            "; if that is the agent, it is overloaded, stopped or shutting down: check its log and its process on that host; \
             otherwise check the address, HOST:PORT as 'gridloom agent' prints it"
        }
        () => "",
    }
}
