//! Calibration calls, which are measured: one at a time, only while the server is otherwise idle, and preempted by any other work.

use gridloom_base::{DatumId, Meta, TaskError, TaskId};

/// The result of a task.
type Outcome = Result<Vec<(DatumId, Meta)>, TaskError>;

/// The current calibration call, if there is one.
#[derive(Debug, Default)]
pub(super) struct Calibration(Option<CalibrationRun>);

#[derive(Clone, Copy, Debug)]
struct CalibrationRun {
    task: TaskId,
    /// Other work has arrived, so the time of the call is no measure.
    is_disturbed: bool,
}

impl Calibration {
    pub(super) fn begin(&mut self, task: TaskId) {
        self.0 = Some(CalibrationRun { task, is_disturbed: false });
    }

    /// Marks the current call as disturbed by other work, and returns it.
    pub(super) fn disturb(&mut self) -> Option<TaskId> {
        let measured = self.0.as_mut()?;
        measured.is_disturbed = true;
        Some(measured.task)
    }

    /// Forgets a call that is no longer here or is preempted.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    /// Returns the call if other work has disturbed it.
    pub(super) fn disturbed(&self) -> Option<TaskId> {
        self.0.filter(|measured| measured.is_disturbed).map(|measured| measured.task)
    }

    /// Handles the end of a task. Returns the outcome to report, and whether the task was measured. A disturbed
    /// calibration call ends with `gave_way`, and its results are added to `in_vain`.
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
        let gave_way = || TaskError::Preempted { function: "m/f".into(), server: "s".into() };
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
