//! Time limits of calls, as set by handles, attributes and configurations.

use std::ffi::c_int;
use std::time::Duration;

use gridloom::TransferLimits;

/// The time limits of a call.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Limits {
    /// Limit of its total time.
    pub whole: Option<Duration>,
    /// Limits of the times of its transfers.
    pub transfers: TransferLimits,
}

/// Limits of a function in a configuration: seconds, 0 for no limit. Missing limits are those of all functions.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(crate) struct ConfiguredLimits {
    pub(crate) whole: Option<f64>,
    pub(crate) arguments: Option<f64>,
    pub(crate) results: Option<f64>,
}

impl ConfiguredLimits {
    /// Returns these limits, completed by those of all functions.
    pub(crate) fn or(&self, others: Limits) -> Limits {
        let known = |seconds| limit(seconds).expect("it was checked when it was read");
        let or = |own: Option<f64>, other| own.map_or(other, known);
        let transfers = TransferLimits {
            arguments: or(self.arguments, others.transfers.arguments),
            results: or(self.results, others.transfers.results),
        };
        Limits { whole: or(self.whole, others.whole), transfers }
    }
}

/// Converts a limit in seconds; 0 is none. A positive limit below one nanosecond becomes one nanosecond.
pub fn limit(seconds: f64) -> Result<Option<Duration>, String> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(_) if seconds > LIMIT_SECONDS_MAX => {
            Err(format!("{seconds} s; give at most {LIMIT_SECONDS_MAX}, or 0 for no limit"))
        }
        Ok(_) if seconds == 0.0 => Ok(None),
        Ok(limit) => Ok(Some(limit.max(Duration::from_nanos(1)))),
        Err(_) => Err(format!("{seconds} s; give a number of seconds from 0 to {LIMIT_SECONDS_MAX}; 0 is no limit")),
    }
}

/// Converts a limit to whole seconds, as in attributes: rounded up, so that no limit becomes 0, which is none.
pub fn whole_seconds(limit: Option<Duration>) -> c_int {
    let up = |limit: Duration| limit.as_secs() + u64::from(limit.subsec_nanos() > 0);
    limit.map_or(0, |limit| c_int::try_from(up(limit)).unwrap_or(c_int::MAX))
}

/// Greater than attributes can express (an `int`), and small enough that a clock can add it to the time since 1970 in nanoseconds.
const LIMIT_SECONDS_MAX: f64 = 4e9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_bounded_and_nothing_becomes_no_limit_but_0() {
        assert_eq!(limit(0.0), Ok(None));
        assert_eq!(limit(1e-12), Ok(Some(Duration::from_nanos(1))));
        assert_eq!(limit(f64::from(c_int::MAX)).unwrap().map(|limit| limit.as_secs()), Some(c_int::MAX as u64));
        for wrong in [-1.0, f64::NAN, f64::INFINITY, 4.1e9, 1.8e19, 1e300] {
            assert!(limit(wrong).unwrap_err().contains("4000000000"), "{wrong}");
        }
    }

    #[test]
    fn whole_seconds_are_rounded_up() {
        let seconds = |seconds: f64| whole_seconds(limit(seconds).unwrap());
        assert_eq!([0.0, 1e-9, 0.4, 1.0, 1.2, 59.000001, 3e9].map(seconds), [0, 1, 1, 1, 2, 60, c_int::MAX]);
    }
}
