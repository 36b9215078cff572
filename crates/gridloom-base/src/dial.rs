//! Why a dial failed. The dialling side reports the reason as text. These are the beginnings of its sentences, by which
//! a node decides what to do next.

/// The name cannot be resolved.
pub const UNRESOLVED: &str = "the name cannot be resolved";
/// The host answers that nothing is there.
pub const NOBODY_LISTENS: &str = "nobody listens there";
/// Nothing came back.
pub const NO_ANSWER: &str = "no answer";
/// A program listens there, but does not speak Gridloom's protocol.
pub const NO_NODE: &str = "what answers there is no Gridloom node";
/// A node of a grid listens and does not let this one in: another secret, another version, the node itself.
pub const REFUSED: &str = "refused: ";
/// It was connected before.
pub const GONE: &str = "it was connected and is gone";

/// Whether trying again cannot help: what stands against it are the settings of the two.
pub fn is_lasting(why: &str) -> bool {
    why.contains(REFUSED)
}

/// What to do about an agent that cannot be had, as the end of a sentence.
pub fn agent_remedy(why: &str) -> &'static str {
    let is = |kinds: &[&str]| kinds.iter().any(|kind| why.starts_with(kind));
    match () {
        () if is(&[NOBODY_LISTENS, GONE]) => "; start one with 'gridloom agent', or connect to another",
        () if is(&[UNRESOLVED, NO_ANSWER, NO_NODE]) => "; check the address, HOST:PORT as 'gridloom agent' prints it",
        () => "",
    }
}
