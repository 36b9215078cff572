//! Calls that are to be measured: one at a time, only while nothing else is here, and first to go when something comes.

use gridloom_base::{DatumId, Meta, TaskError, TaskId};

/// How a task has ended.
type Outcome = Result<Vec<(DatumId, Meta)>, TaskError>;

/// The call that is to be measured, if there is one.
#[derive(Debug, Default)]
pub(super) struct Calibration(Option<CalibrationRun>);

#[derive(Clone, Copy, Debug)]
struct CalibrationRun {
    task: TaskId,
    /// Other work has come: its time says nothing.
    is_disturbed: bool,
}

impl Calibration {
    pub(super) fn begin(&mut self, task: TaskId) {
        self.0 = Some(CalibrationRun { task, is_disturbed: false });
    }

    /// Other work comes. Gives the call that it disturbs.
    pub(super) fn disturb(&mut self) -> Option<TaskId> {
        let measured = self.0.as_mut()?;
        measured.is_disturbed = true;
        Some(measured.task)
    }

    /// The call is not here, or makes way.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    /// The call that other work has disturbed.
    pub(super) fn disturbed(&self) -> Option<TaskId> {
        self.0.filter(|measured| measured.is_disturbed).map(|measured| measured.task)
    }

    /// A task has ended: how, if it was to be measured, and whether it was. `gave_way` is the end of a disturbed call.
    /// Results in vain go to `in_vain`.
    pub(super) fn ended(
        &mut self,
        task: TaskId,
        outcome: Outcome,
        gave_way: impl FnOnce() -> TaskError,
        in_vain: &mut Vec<DatumId>,
    ) -> (Outcome, bool) {
        let Some(measured) = self.0.take_if(|measured| measured.task == task) else {
            return (outcome, false);
        };
        match outcome {
            Ok(results) if measured.is_disturbed => {
                in_vain.extend(results.into_iter().map(|(datum, _)| datum));
                (Err(gave_way()), false)
            }
            Err(TaskError::Cancelled) if measured.is_disturbed => (Err(gave_way()), false),
            outcome => (outcome, true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::NodeId;

    #[test]
    fn only_an_undisturbed_call_is_measured() {
        let (client, mut in_vain) = (NodeId(7), Vec::new());
        let (id, other) = (TaskId { client, serial: 1 }, TaskId { client, serial: 2 });
        let gave_way = || TaskError::GaveWay { function: "m/f".into(), server: "s".into() };
        let mut calibration = Calibration::default();
        calibration.begin(id);
        assert_eq!(calibration.ended(other, Ok(Vec::new()), gave_way, &mut in_vain), (Ok(Vec::new()), false));
        assert_eq!(calibration.ended(id, Ok(Vec::new()), gave_way, &mut in_vain), (Ok(Vec::new()), true));
        calibration.begin(id);
        assert_eq!(
            (calibration.disturbed(), calibration.disturb(), calibration.disturbed()),
            (None, Some(id), Some(id))
        );
        let result = (DatumId { client, serial: 3 }, Meta::Bytes { size_bytes: 0 });
        assert_eq!(calibration.ended(id, Ok(vec![result]), gave_way, &mut in_vain), (Err(gave_way()), false));
        assert_eq!((in_vain.len(), calibration.disturbed()), (1, None));
    }
}
