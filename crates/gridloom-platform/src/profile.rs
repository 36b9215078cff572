//! Profiles: changes of the speed, bandwidth, latency or state of an element over time.
//!
//! Format (SimGrid's): lines `date value`, dates in seconds, not decreasing; `#` and `%` start comments.
//! `PERIODICITY p` restarts the list every `p` seconds, `LOOPAFTER d` restarts it `d` seconds after its last
//! event. Random profiles (`STOCHASTIC`) are rejected.
//!
//! This module reads profiles; the simulator applies their events.

use serde::{Deserialize, Serialize};

use crate::element::{HostId, LinkId};
use gridloom_base::limits::PROFILE_LOOP_S_MIN;

/// The element that a profile changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProfileTarget {
    Host(HostId),
    Link(LinkId),
}

/// The quantity that a profile changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProfileKind {
    /// A factor of a host's speed.
    Speed,
    /// A link's bandwidth, bytes per second.
    Bandwidth,
    /// A link's latency, seconds.
    Latency,
    /// Whether a host or link is on: it is on above 0, and off otherwise, as in SimGrid.
    State,
}

/// The changes of one quantity of one element over time. Before the first event, the quantity has its nominal value.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Profile {
    /// The element.
    pub target: ProfileTarget,
    /// The quantity.
    pub kind: ProfileKind,
    /// Dates in seconds, and the values from then on.
    pub events: Vec<(f64, f64)>,
    /// Seconds after the last event at which the list restarts with its date 0; `None` if it does not repeat.
    pub loop_after_s: Option<f64>,
}

/// Dates and values, and the time after which they restart.
type Events = (Vec<(f64, f64)>, Option<f64>);

/// Parses the text of a profile into events, and the time after which it restarts. `periodicity_s` is the period given
/// outside of the text; 0 or less for none. Only values of a state profile may be negative.
pub(crate) fn parse(text: &str, kind: ProfileKind, periodicity_s: f64) -> Result<Events, String> {
    let mut events: Vec<(f64, f64)> = Vec::new();
    let mut periodicity_s = (periodicity_s > 0.0).then_some(periodicity_s);
    let mut loop_after_s = None;
    for (number, line) in text.lines().enumerate() {
        let wrong = |why: &str| format!("line {} of the profile: {why}", number + 1);
        let line = line.split(['#', '%']).next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let value = |word: &str| match word.parse::<f64>() {
            Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
            _ => Err(wrong(&format!("'{word}' is not a number of 0 or more"))),
        };
        let level = |word: &str| match (kind, word.parse::<f64>()) {
            (ProfileKind::State, Ok(state)) if state.is_finite() => Ok(state.max(0.0)),
            _ => value(word),
        };
        match words[..] {
            [] => {}
            ["PERIODICITY", period] => periodicity_s = Some(value(period)?),
            ["LOOPAFTER", delay] => loop_after_s = Some(value(delay)?),
            ["STOCHASTIC", ..] => return Err(wrong("random profiles are not supported yet")),
            [date, new] => {
                let date = value(date)?;
                if events.last().is_some_and(|(before, _)| *before > date) {
                    return Err(wrong(&format!("date {date} is before the one above it")));
                }
                events.push((date, level(new)?));
            }
            _ => return Err(wrong("expected a date and a value")),
        }
    }
    let last = events.last().map(|(date, _)| *date);
    let (Some(last), Some(period)) = (last, periodicity_s) else {
        let loop_after_s = loop_after_s.filter(|_| last.is_some());
        check_loop(&events, loop_after_s)?;
        return Ok((events, loop_after_s));
    };
    if period < last {
        return Err(format!("the periodicity of {period} s is shorter than the profile, whose last date is {last} s"));
    }
    let loop_after_s = Some(period - last);
    check_loop(&events, loop_after_s)?;
    Ok((events, loop_after_s))
}

/// Rejects a loop that takes no time, or so little that following it would never end.
pub(crate) fn check_loop(events: &[(f64, f64)], loop_after_s: Option<f64>) -> Result<(), String> {
    let (Some((last_s, _)), Some(loop_after_s)) = (events.last(), loop_after_s) else { return Ok(()) };
    let span_s = last_s + loop_after_s;
    if span_s < PROFILE_LOOP_S_MIN {
        return Err(format!(
            "the profile restarts every {span_s} s; a loop must take at least {PROFILE_LOOP_S_MIN} s: let it restart \
             later, or leave the loop out"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periodicity_counts_from_the_start() {
        assert_eq!(
            parse("0.0 1.0\n 11 0.5 # half\n", ProfileKind::Speed, 21.0),
            Ok((vec![(0.0, 1.0), (11.0, 0.5)], Some(10.0)))
        );
        assert_eq!(
            parse("PERIODICITY 12\n1 0\n2 1\n", ProfileKind::State, -1.0),
            Ok((vec![(1.0, 0.0), (2.0, 1.0)], Some(10.0)))
        );
        assert_eq!(parse("1 0\nLOOPAFTER 3", ProfileKind::Speed, 0.0), Ok((vec![(1.0, 0.0)], Some(3.0))));
    }

    #[test]
    fn loops_take_time() {
        for text in ["0 1\nLOOPAFTER 0", "0 1\nPERIODICITY 0", "0 1\n1e-9 0\nLOOPAFTER 0"] {
            let error = parse(text, ProfileKind::Speed, 0.0).unwrap_err();
            assert!(error.contains("a loop must take at least 0.000001 s"), "{text:?}: {error}");
        }
        assert!(parse("0 1\n1 0\nLOOPAFTER 0", ProfileKind::Speed, 0.0).is_ok());
    }

    #[test]
    fn a_state_below_0_is_off_and_no_other_quantity_is_below_0() {
        let text = "1 -1.0\n2 1.0\nLOOPAFTER 10\n";
        assert_eq!(parse(text, ProfileKind::State, 0.0), Ok((vec![(1.0, 0.0), (2.0, 1.0)], Some(10.0))));
        for kind in [ProfileKind::Speed, ProfileKind::Bandwidth, ProfileKind::Latency] {
            assert!(parse(text, kind, 0.0).unwrap_err().contains("'-1.0' is not a number of 0 or more"));
        }
        assert!(parse("-1 1", ProfileKind::State, 0.0).is_err() && parse("1 nan", ProfileKind::State, 0.0).is_err());
    }

    #[test]
    fn wrong_lines_are_named() {
        assert!(
            parse("1 0\n0.5 1", ProfileKind::Speed, 0.0).unwrap_err().starts_with("line 2 of the profile: date 0.5")
        );
        assert!(parse("1 nan", ProfileKind::Speed, 0.0).unwrap_err().contains("'nan' is not a number"));
        assert!(parse("1", ProfileKind::Speed, 0.0).is_err());
    }
}
