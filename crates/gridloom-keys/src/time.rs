//! Dates of certificates, in whole seconds since 1970.

use std::time::Duration;

use rustls_pki_types::UnixTime;
use time::OffsetDateTime;

pub const HOUR: Duration = Duration::from_secs(3600);
pub const DAY: Duration = Duration::from_secs(24 * 3600);

/// Writes a date for people: `2026-11-29 14:08:04 UTC`.
pub fn date(at: UnixTime) -> String {
    match calendar(at) {
        Some(at) => {
            let (year, month, day) = at.to_calendar_date();
            let (hour, minute, second) = at.to_hms();
            format!("{year:04}-{:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC", u8::from(month))
        }
        None => format!("{} s after 1970", at.as_secs()),
    }
}

/// Returns the date in the form that certificates are made from; `None` after the year 9999.
pub(crate) fn calendar(at: UnixTime) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp(i64::try_from(at.as_secs()).ok()?).ok()
}

pub(crate) fn after(at: UnixTime, duration: Duration) -> UnixTime {
    seconds(at.as_secs().saturating_add(duration.as_secs()))
}

pub(crate) fn before(at: UnixTime, duration: Duration) -> UnixTime {
    seconds(at.as_secs().saturating_sub(duration.as_secs()))
}

pub(crate) fn seconds(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

/// A date in JSON: seconds since 1970.
pub(crate) mod as_seconds {
    use rustls_pki_types::UnixTime;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(at: &UnixTime, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(at.as_secs())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UnixTime, D::Error> {
        u64::deserialize(deserializer).map(super::seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_for_people() {
        assert_eq!(date(seconds(0)), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(seconds(1_795_961_284)), "2026-11-29 14:08:04 UTC");
        assert_eq!(date(seconds(u64::MAX)), "18446744073709551615 s after 1970");
    }
}
