//! Time limits of calls, as handles, attributes and configurations give them.

use std::time::Duration;

use gridloom::TransferLimits;

/// The time limits of a call.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(super) struct Limits {
    /// The time that it may take.
    pub(super) whole: Option<Duration>,
    /// The times that its transfers may take.
    pub(super) transfers: TransferLimits,
}

/// What a configuration says of a function: seconds, 0 for no limit. What it leaves out is as for all functions.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(super) struct ConfiguredLimits {
    pub(super) whole: Option<f64>,
    pub(super) arguments: Option<f64>,
    pub(super) results: Option<f64>,
}

impl ConfiguredLimits {
    /// With what holds for all functions.
    pub(super) fn or(&self, others: Limits) -> Limits {
        let or = |own: Option<f64>, other| own.map_or(other, |seconds| limit(seconds).ok().flatten());
        let transfers = TransferLimits {
            arguments: or(self.arguments, others.transfers.arguments),
            results: or(self.results, others.transfers.results),
        };
        Limits { whole: or(self.whole, others.whole), transfers }
    }
}

/// A limit in seconds; 0 is none.
pub(super) fn limit(seconds: f64) -> Result<Option<Duration>, String> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(Duration::ZERO) => Ok(None),
        Ok(limit) => Ok(Some(limit)),
        Err(_) => Err(format!("{seconds} s; give a number of seconds, or 0 for no limit")),
    }
}
