//! Parts of data: a program gets some rows of an array, and only these move.
//!
//! **Invariant:** the whole stays as long as a part of it is here, as they lie in the same memory.

use super::{Admission, Output};
use crate::data::Origin;
use crate::graph::Task;
use crate::node::protocol::Effect;
use gridloom_base::{DatumId, Meta, TaskError, Time};

impl Admission {
    /// The task's output is bytes of the datum that it reads, which is here. Gives its description.
    ///
    /// # Errors
    /// [`TaskError::Refused`] if the datum has not so many bytes.
    pub(in super::super) fn take_part(
        &mut self,
        now: Time,
        task: &Task,
        from_byte: u64,
        out: &mut Vec<Output>,
    ) -> Result<Vec<(DatumId, Meta)>, TaskError> {
        let (datum, output) = (task.inputs().next().expect("checked when the task was taken in"), &task.outputs[0]);
        let (part, meta) = (output.datum, output.meta.clone());
        let (size_bytes, whole_bytes) = (meta.size_bytes(), self.replicas.size_bytes(datum));
        if from_byte.checked_add(size_bytes).is_none_or(|end| end > whole_bytes) {
            let why = format!("{size_bytes} bytes from byte {from_byte} on are to be a part of {whole_bytes} bytes");
            let (function, server) = (task.name().to_string(), self.config.name.clone());
            return Err(TaskError::Refused { function, server, why });
        }
        if !self.replicas.is_here(part) {
            out.push(Effect::TakePart { datum, from_byte, part, meta: meta.clone() }.into());
            self.replicas.add_reader(datum, false);
            self.parts.insert(part, datum);
            self.fetches.forget(part);
            self.datum_here(now, part, size_bytes, Origin::Made, out);
        }
        Ok(vec![(part, meta)])
    }

    /// A datum is here no longer. Gives what was only here for parts of it.
    pub(in super::super) fn part_dropped(&mut self, now: Time, datum: DatumId) -> Vec<DatumId> {
        let (mut last, mut dropped) = (datum, Vec::new());
        loop {
            self.parts.retain(|_, whole| *whole != last);
            match self.parts.remove(&last) {
                Some(whole) if self.replicas.remove_reader(whole, now) => last = whole,
                _ => return dropped,
            }
            dropped.push(last);
        }
    }

    pub(super) fn check_parts(&self) -> Result<(), String> {
        match self.parts.iter().find(|(part, whole)| !self.replicas.is_here(**part) || !self.replicas.is_here(**whole))
        {
            Some((part, whole)) => Err(format!("{part} is listed as a part of {whole}, and one of them is not here")),
            None => Ok(()),
        }
    }
}
