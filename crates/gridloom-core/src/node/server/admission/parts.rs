//! Parts of data: a program gets some rows of an array, and only these are transferred.
//!
//! **Invariant:** a datum stays here as long as one of its parts does, because they share memory.

use std::collections::{BTreeMap, BTreeSet};

use super::{Admission, AdmissionOutput};
use crate::data::Origin;
use crate::graph::Task;
use crate::node::protocol::Effect;
use gridloom_base::{DatumId, Meta, NodeId, TaskError, Time};

/// Data that are parts of other data here.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// The datum of which each is a part.
    wholes: BTreeMap<DatumId, DatumId>,
    /// The same relation, ordered by the whole datum.
    parts: BTreeSet<(DatumId, DatumId)>,
}

impl Parts {
    fn insert(&mut self, part: DatumId, whole: DatumId) {
        self.wholes.insert(part, whole);
        self.parts.insert((whole, part));
    }

    /// Removes a part that is no longer here. Returns the whole datum.
    fn remove(&mut self, part: DatumId) -> Option<DatumId> {
        let whole = self.wholes.remove(&part)?;
        self.parts.remove(&(whole, part));
        Some(whole)
    }

    /// Removes a datum that is no longer here from the list of wholes.
    fn forget_whole(&mut self, whole: DatumId) {
        let none = DatumId { client: NodeId(0), serial: 0 };
        let its = self.parts.range((whole, none)..).take_while(|(of, _)| *of == whole);
        for part in its.map(|(_, part)| *part).collect::<Vec<_>>() {
            self.remove(part);
        }
    }
}

impl Admission {
    /// Makes the task's output a part of the datum that it reads, which is here. Returns the output's description.
    ///
    /// # Errors
    /// [`TaskError::Refused`] if the part exceeds the datum.
    pub(in super::super) fn take_part(
        &mut self,
        now: Time,
        task: &Task,
        from_byte: u64,
        out: &mut Vec<AdmissionOutput>,
    ) -> Result<Vec<(DatumId, Meta)>, TaskError> {
        let (datum, output) = (task.inputs().next().expect("checked when the task was accepted"), &task.outputs[0]);
        let (part, meta) = (output.datum, output.meta.clone());
        let (size_bytes, whole_bytes) = (meta.size_bytes(), self.replicas.actual_bytes(datum));
        if from_byte.checked_add(size_bytes).is_none_or(|end| end > whole_bytes) {
            let why =
                format!("a part of {size_bytes} bytes from byte {from_byte} exceeds its datum of {whole_bytes} bytes");
            let (function, server) = (task.name().to_string(), self.config.name.clone());
            return Err(TaskError::Refused { function, server, why });
        }
        if !self.replicas.is_here(part) {
            out.push(Effect::MakePart { datum, from_byte, part, meta: meta.clone() }.into());
            self.replicas.add_reader(datum, false);
            self.parts.insert(part, datum);
            self.fetches.forget(part);
            self.datum_available(now, part, size_bytes, Origin::Made, out);
        }
        Ok(vec![(part, meta)])
    }

    /// Handles the removal of a datum. Returns the data that were kept only for parts of them.
    pub(in super::super) fn part_dropped(&mut self, now: Time, datum: DatumId) -> Vec<DatumId> {
        let (mut last, mut dropped) = (datum, Vec::new());
        loop {
            self.parts.forget_whole(last);
            match self.parts.remove(last) {
                Some(whole) if self.replicas.remove_reader(whole, now) => last = whole,
                _ => return dropped,
            }
            dropped.push(last);
        }
    }

    pub(super) fn check_parts(&self) -> Result<(), String> {
        let is_wrong =
            |(part, whole): &(&DatumId, &DatumId)| !self.replicas.is_here(**part) || !self.replicas.is_here(**whole);
        match self.parts.wholes.iter().find(is_wrong) {
            Some((part, whole)) => {
                Err(format!("{part} is listed as a part of {whole}, but one of them is not in the store"))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::graph::{Argument, Output as Made, TaskKind};
    use crate::node::server::ServerConfig;
    use crate::node::server::tests::offering_nothing;
    use gridloom_base::TaskId;

    const CLIENT: NodeId = NodeId(7);
    const BYTES: u64 = 2000;

    fn datum(serial: u64) -> DatumId {
        DatumId { client: CLIENT, serial }
    }

    /// Returns a task that takes the first `size_bytes` bytes of datum 1 as datum `part`.
    fn takes(part: u64, size_bytes: u64) -> Task {
        Task {
            id: TaskId { client: CLIENT, serial: part },
            kind: TaskKind::View { from_byte: 0 },
            args: vec![Argument::Datum(datum(1))],
            outputs: vec![Made { datum: datum(part), meta: Meta::Bytes { size_bytes } }],
            work_flops: None,
            options: Default::default(),
        }
    }

    /// A datum is accounted for with more bytes than it has, because it takes a descriptor.
    fn with_a_datum(out: &mut Vec<AdmissionOutput>) -> Admission {
        let config = ServerConfig { memory_bytes: 1 << 20, data_max: 16, ..offering_nothing() };
        let mut admission = Admission::new(Arc::new(config));
        admission.datum_available(Time(0), datum(1), BYTES, Origin::Made, out);
        assert!(admission.size_bytes(datum(1)) > BYTES + 1);
        admission
    }

    #[test]
    fn a_part_does_not_exceed_its_datum() {
        let mut out = Vec::new();
        let mut admission = with_a_datum(&mut out);
        let refused = admission.take_part(Time(0), &takes(2, BYTES + 1), 0, &mut out);
        assert!(matches!(refused, Err(TaskError::Refused { .. })), "{refused:?}");
        let refused = admission.take_part(Time(0), &takes(2, BYTES), 1, &mut out);
        assert!(matches!(refused, Err(TaskError::Refused { .. })), "{refused:?}");
        assert!(admission.take_part(Time(0), &takes(2, BYTES), 0, &mut out).is_ok());
        admission.check().unwrap();
    }

    #[test]
    fn a_datum_is_dropped_with_its_last_part() {
        let mut out = Vec::new();
        let mut admission = with_a_datum(&mut out);
        for part in [2, 3] {
            admission.take_part(Time(0), &takes(part, 10), 0, &mut out).unwrap();
        }
        admission.release(datum(1), &mut out);
        admission.release(datum(2), &mut out);
        assert_eq!(admission.part_dropped(Time(1), datum(2)), []);
        admission.release(datum(3), &mut out);
        assert_eq!(admission.part_dropped(Time(1), datum(3)), [datum(1)]);
        assert!(admission.parts.wholes.is_empty() && admission.parts.parts.is_empty());
        admission.check().unwrap();
    }
}
