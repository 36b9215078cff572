//! Data that get a second identifier here: a datum that a client has put becomes a shared datum.

use std::collections::BTreeSet;

use super::{Admission, AdmissionOutput};
use crate::data::Origin;
use crate::graph::Task;
use crate::node::protocol::Effect;
use gridloom_base::{DatumId, NodeId, TaskError, Time};

impl Admission {
    /// Makes a datum that is here also available as a shared datum. A copy that was sent only for this task becomes
    /// the shared datum, without more memory. Other copies count twice while both exist, because other tasks may rely
    /// on them; if memory is short, they are evicted.
    pub(in super::super) fn name_datum(
        &mut self,
        now: Time,
        task: &Task,
        datum: DatumId,
        (named, size_bytes): (DatumId, u64),
        out: &mut Vec<AdmissionOutput>,
    ) -> Result<(), TaskError> {
        if self.replicas.is_here(named) {
            self.replicas.keep(named);
            return Ok(());
        }
        let is_spare = self.replicas.is_spare_copy(datum) && !self.executor.reads(datum);
        let mut is_taken_over = is_spare && self.replicas.is_for_renaming(datum);
        if !is_taken_over {
            let needed = self.replicas.lacks_bytes(named, size_bytes);
            self.evict(needed, &BTreeSet::from([datum]), out);
            is_taken_over = is_spare && !self.replicas.fits(needed);
            if !is_taken_over && !self.replicas.fits(needed) {
                return Err(self.no_room_for(task).1);
            }
        }
        out.push(Effect::AliasDatum { datum, named }.into());
        if is_taken_over {
            self.replicas.discard(datum);
            out.push(Effect::DropDatum { datum }.into());
            out.push(AdmissionOutput::Evicted(datum));
        }
        self.fetches.forget(named);
        self.datum_available(now, named, size_bytes, Origin::Made, out);
        Ok(())
    }

    /// Returns all data that are here or are awaited.
    pub(in super::super) fn data(&self) -> impl Iterator<Item = DatumId> {
        self.replicas.data()
    }

    /// Returns all shared data that are here, for whatever purpose.
    pub(in super::super) fn shared_here(&self) -> impl Iterator<Item = DatumId> {
        self.replicas.of_client(NodeId::CATALOG).into_iter().filter(|datum| self.replicas.is_here(*datum))
    }

    /// Returns the shared data for which tasks wait here, but which were not requested from any node. Some of them
    /// never had a source, because their client assumed that this server has them.
    pub(in super::super) fn unrequested_shared(&self) -> Vec<DatumId> {
        let is_due = |datum: &DatumId| !self.replicas.is_here(*datum) && self.fetches.is_unrequested(*datum);
        self.replicas.of_client(NodeId::CATALOG).into_iter().filter(is_due).collect()
    }

    /// Asks a new agent for the sources of shared data for which tasks wait here.
    pub(in super::super) fn request_shared_sources(&mut self, out: &mut Vec<AdmissionOutput>) {
        self.unrequested_shared().into_iter().for_each(|datum| self.fetches.request_source(datum, out));
    }
}
