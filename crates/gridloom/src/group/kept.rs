//! Single calls whose results stay on the server that computed them. Each is a group of one call.

use gridloom_base::NodeId;

use super::Group;
use crate::Error;
use crate::call::{Arg, Function, IntoArgs, Submitted};

impl Function {
    /// Calls the function without waiting, and leaves its results on the server that computed them. Such results may also be
    /// arguments; a copy is sent from there to the server that runs the call. The call runs on the given server, unless the
    /// server is lost.
    ///
    /// # Errors
    /// If the arguments do not fit, or the server is not in the grid.
    pub fn submit_remote(
        &self,
        server: Option<NodeId>,
        args: impl IntoArgs,
        named: &[(String, Arg)],
    ) -> Result<Submitted, Error> {
        let function = server.map_or_else(|| self.clone(), |server| self.clone().bound_to(server));
        let group = Group::new(self.session(), "auto".into());
        let results = group.call_named(&function, args, named)?.into_vec();
        let task = group.recording().tasks.last().expect("it was recorded just now").id;
        group.launch()?;
        Ok(Submitted::new(self.session(), task, results, &group.recorder.parts))
    }
}
