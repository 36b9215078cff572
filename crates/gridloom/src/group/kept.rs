//! A call by itself whose results stay where they are made: a group of one.

use gridloom_core::base::NodeId;

use super::Submitted;
use crate::{Arg, Error, Function};

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
        let function = server.map_or_else(|| self.clone(), |server| self.clone().bound_to(server));
        let group = self.grid.group("auto");
        let results = group.call_named(&function, args, named)?;
        let task = group.recording().tasks.last().expect("it was recorded just now").id;
        group.launch()?;
        Ok(Submitted::new(&group, task, results))
    }
}
