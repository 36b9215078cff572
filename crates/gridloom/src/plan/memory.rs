//! The memory that the client needs for the values of a plan's group, compared with that of plain GridRPC.
//!
//! The client needs memory for its own arguments from beginning to end, and for a result from the start of the call that makes it
//! to its last use: the last call that reads it, or the end if the program wants it. In a plan, only results that are sent to the client
//! count: those that the program wants, and those of stateless servers. Call by call, all results count, and data that
//! servers hold, too.
//!
//! **Assumptions.** Tasks run one after another in their order. A result that replaces an argument (`INOUT`) needs memory of its own
//! until it is complete. Sizes are those of the plan. The program's own arrays that no call uses are not known.
//!
//! Source of the comparison: Brady and others, *SmartGridRPC*, UCD-CSI-2009-10. Results that stay on servers need no
//! memory of the client, which would page otherwise.

use std::fmt;

use gridloom_map::{MapperInput, Outline};
use serde::Serialize;

use super::record::{PlanRecord, bytes};

/// The memory that the client needs for the values of a group: its arguments and the results that return to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct ClientMemory {
    /// The most that it needs at a time with the plan, bytes.
    pub needed_bytes: u64,
    /// The most that it would need if the calls were made one by one and all their results were returned, bytes.
    pub call_by_call_bytes: u64,
    /// Memory that the client could use when the plan was made: the memory of its simulated host, or that available to its
    /// process; `None` if it is not known.
    pub available_bytes: Option<u64>,
}

impl ClientMemory {
    /// True if the client needs more than it can use.
    pub fn is_exceeded(&self) -> bool {
        self.available_bytes.is_some_and(|available| self.needed_bytes > available)
    }
}

impl fmt::Display for ClientMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (needed, call_by_call) = (bytes(self.needed_bytes), bytes(self.call_by_call_bytes));
        writeln!(f, "memory of the client: {needed}, call by call {call_by_call}")?;
        match self.available_bytes.filter(|_| self.is_exceeded()) {
            Some(available) => writeln!(f, "warning: the client can use only {} of memory", bytes(available)),
            None => Ok(()),
        }
    }
}

impl PlanRecord {
    /// Returns the memory that the client needs; `None` if the basis of the plan is not known (a plan of a
    /// [`Report`](crate::Report)).
    pub fn client_memory(&self) -> Option<ClientMemory> {
        let basis = self.basis.as_deref()?;
        // A basis that was read from a file may be inconsistent.
        self.problem(basis).ok()?;
        let MapperInput { client, outline, grid } = &*basis.mapper_input;
        let stateless = |server: &str| grid.servers.iter().any(|known| known.name == server && known.stateless);
        let returns = |datum: usize| {
            let datum = &outline.data[datum];
            let is_from_stateless =
                |task: u32| self.tasks.get(task as usize).is_some_and(|task| stateless(&task.server));
            datum.wanted || datum.producer.is_some_and(is_from_stateless)
        };
        let own = |datum: usize| outline.data[datum].at.contains(client);
        let calls: Vec<u32> = (0..outline.tasks.len() as u32).collect();
        Some(ClientMemory {
            needed_bytes: peak_bytes(outline, &self.order(), own, returns),
            call_by_call_bytes: peak_bytes(outline, &calls, |_| true, |_| true),
            available_bytes: self.client_memory_bytes,
        })
    }
}

/// Returns the most bytes that the client holds at a time, if tasks run one by one in that order. `holds` is true for the data from
/// before the group that it holds, and `returns` for the results that are sent to it.
fn peak_bytes(outline: &Outline, order: &[u32], holds: impl Fn(usize) -> bool, returns: impl Fn(usize) -> bool) -> u64 {
    let mut readers = vec![0_usize; outline.data.len()];
    for input in outline.tasks.iter().flat_map(|task| &task.inputs) {
        readers[*input as usize] += 1;
    }
    let size = |datum: usize| outline.data[datum].size_bytes;
    let is_made = |datum: usize| outline.data[datum].producer.is_some();
    let sources = (0..outline.data.len()).filter(|datum| !is_made(*datum) && holds(*datum));
    let mut held: u64 = sources.map(size).fold(0, u64::saturating_add);
    let mut peak = held;
    for task in order {
        let task = &outline.tasks[*task as usize];
        let made = || task.outputs.iter().map(|datum| *datum as usize).filter(|datum| returns(*datum));
        held = made().map(size).fold(held, u64::saturating_add);
        peak = peak.max(held);
        let read = task.inputs.iter().map(|datum| *datum as usize);
        read.clone().for_each(|datum| readers[datum] -= 1);
        let released = read.filter(|datum| is_made(*datum) && returns(*datum)).chain(made());
        let released = released.filter(|datum| readers[*datum] == 0 && !outline.data[*datum].wanted);
        held = released.map(size).fold(held, u64::saturating_sub);
    }
    peak
}

#[cfg(test)]
mod tests {
    use gridloom_base::NodeId;
    use gridloom_map::{OutlineDatum, OutlineTask};

    use super::*;

    fn datum(size_bytes: u64, producer: Option<u32>, wanted: bool) -> OutlineDatum {
        let at = if producer.is_none() { vec![NodeId(1)] } else { Vec::new() };
        OutlineDatum { size_bytes, producer, at, wanted, name: None, method: Default::default() }
    }

    fn task(inputs: &[u32], outputs: &[u32]) -> OutlineTask {
        let (inputs, outputs) = (inputs.to_vec(), outputs.to_vec());
        OutlineTask { function: 0, work_flops: None, bound_to: None, inputs, outputs }
    }

    #[test]
    fn intermediate_results_count_from_their_call_to_their_last_use() {
        // A chain: 100 bytes become 10, then 20, then 40, which the program wants. The first task also makes 5 that nobody reads.
        let outline = Outline {
            functions: vec!["m/f".into()],
            tasks: vec![task(&[0], &[1, 4]), task(&[1], &[2]), task(&[2], &[3])],
            data: vec![
                datum(100, None, false),
                datum(10, Some(0), false),
                datum(20, Some(1), false),
                datum(40, Some(2), true),
                datum(5, Some(0), false),
            ],
        };
        let wanted = |datum: usize| outline.data[datum].wanted;
        assert_eq!(peak_bytes(&outline, &[0, 1, 2], |_| true, |_| true), 100 + 20 + 40);
        assert_eq!(peak_bytes(&outline, &[0, 1, 2], |_| true, wanted), 100 + 40);
        assert_eq!(peak_bytes(&outline, &[0, 1, 2], |_| false, wanted), 40);
        assert_eq!(peak_bytes(&Outline::default(), &[], |_| true, |_| true), 0);
    }

    #[test]
    fn memory_that_is_not_known_is_not_exceeded() {
        let memory = |available_bytes| ClientMemory { needed_bytes: 10, call_by_call_bytes: 20, available_bytes };
        assert!(!memory(None).is_exceeded() && !memory(Some(10)).is_exceeded() && memory(Some(9)).is_exceeded());
    }
}
