//! A call by itself whose results stay where they are made: a group of one.

use gridloom_core::base::NodeId;
use gridloom_core::map::{MapError, Problem, Schedule};

use super::Submitted;
use crate::{Arg, Error, Function, Mapping};

impl Function {
    /// Calls it without waiting, and leaves its results where they are made; arguments may be such results, too, of which a copy
    /// goes from there to where it runs. On that server, if one is named, unless that is lost.
    ///
    /// # Errors
    /// If the arguments do not fit, or the server is not in the grid.
    pub fn submit_kept(
        &self,
        server: Option<NodeId>,
        args: &[Arg],
        named: &[(String, Arg)],
    ) -> Result<Submitted, Error> {
        let mapping = server.map_or_else(|| "auto".into(), bound);
        let group = self.grid.group(mapping);
        let results = group.call_named(self, args, named)?;
        let task = group.recording().tasks.last().expect("it was recorded just now").id;
        group.launch()?;
        Ok(Submitted::new(&group, task, results))
    }
}

/// On that server and no other.
fn bound(server: NodeId) -> Mapping {
    let mapping = Mapping::own("bound", move |problem: &Problem| {
        let why = "it was lost just now".to_string();
        let lost = || MapError::BadEstimate { subject: format!("server {server}"), why };
        let place = problem.place(server).ok_or_else(lost)?;
        let mut schedule = Schedule::new(problem);
        (0..problem.task_count()).for_each(|task| schedule.place(task, place));
        Ok(schedule.finish())
    });
    // It takes no time, and needs no thread of its own.
    mapping.map_timeout(None)
}
