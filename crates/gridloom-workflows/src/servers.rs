//! The servers that a recorded workflow is mapped onto: speeds, the client's links, and direct links.

use std::collections::BTreeMap;

use serde::Deserialize;

use gridloom_base::json::{self, JsonError};

use crate::workflow::CaseError;

/// Maximum number of servers: the table of their links grows with the square (128 MiB).
const SERVERS_MAX: usize = 4096;

/// Servers, numbered from 0. Links are the same in both directions.
#[derive(Clone, Debug)]
pub struct Servers {
    speeds: Vec<f64>,
    client: Vec<f64>,
    /// Bandwidth by pair, 0 if there is no direct link.
    direct: Vec<f64>,
    /// Start of a program, seconds by server.
    starts_s: Vec<f64>,
}

#[derive(Deserialize)]
struct Text {
    #[serde(rename = "speed")]
    speeds: Vec<f64>,
    client_bytes_per_s: Vec<f64>,
    #[serde(default)]
    direct_bytes_per_s: BTreeMap<String, f64>,
    program_start_seconds: Option<Vec<f64>>,
}

#[derive(Deserialize)]
struct Wrapped {
    platform: Text,
}

/// Reads the servers, either at the top level, where a `platform` field may be their name, or in a `platform` object next to
/// other figures.
fn read(text: &str) -> Result<Text, JsonError> {
    if json::has_name(text, "platform") && !json::has_name(text, "speed") {
        return json::read(text).map(|Wrapped { platform }| platform);
    }
    json::read(text)
}

/// Description of the expected top level of a file, for errors.
const EXPECTED_FORMAT: &str = "a platform: \
    {\"speed\": [...], \"client_bytes_per_s\": [...], \"direct_bytes_per_s\": {\"0-1\": BYTES}}, \
    perhaps with \"program_start_seconds\": [...]";

impl Servers {
    /// Reads `{"speed": [...], "client_bytes_per_s": [...], "direct_bytes_per_s": {"0-1": ...}}`, with an optional
    /// `"program_start_seconds": [...]`. The object may also be the value of `platform`. Other fields are ignored.
    ///
    /// # Errors
    /// The reason, with the `name` of the file and, if it is not JSON, line and column.
    pub fn parse(text: &str, name: &str) -> Result<Servers, CaseError> {
        let wrong = |why: String| CaseError { file: name.to_owned(), why };
        let text = read(text).map_err(|error| wrong(format!("{error}; expected {EXPECTED_FORMAT}")))?;
        let count = text.speeds.len();
        if count == 0 {
            return Err(wrong("it has no servers: 'speed' is empty".into()));
        }
        if count > SERVERS_MAX {
            let why = format!("'speed' has {count} servers, and the limit is {SERVERS_MAX}; describe fewer");
            return Err(wrong(why));
        }
        if text.client_bytes_per_s.len() != count {
            let links = text.client_bytes_per_s.len();
            return Err(wrong(format!("'speed' has {count} servers and 'client_bytes_per_s' {links}")));
        }
        let is_rate = |value: &f64| value.is_finite() && *value > 0.0;
        for (what, values) in [("speed", &text.speeds), ("client_bytes_per_s", &text.client_bytes_per_s)] {
            if let Some(at) = values.iter().position(|value| !is_rate(value)) {
                let value = values[at];
                return Err(wrong(format!("'{what}' of server {at} is {value}; it must be above 0 and finite")));
            }
        }
        let mut direct = vec![0.0; count * count];
        for (pair, bandwidth) in &text.direct_bytes_per_s {
            let ends = pair.split_once('-').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
            let Some((a, b)) = ends.filter(|(a, b): &(usize, usize)| a != b && *a < count && *b < count) else {
                let last = count - 1;
                return Err(wrong(format!("'{pair}' is not a pair of servers 'A-B' from 0 to {last}")));
            };
            if !is_rate(bandwidth) {
                return Err(wrong(format!("the link '{pair}' has {bandwidth} bytes/s; it must be above 0 and finite")));
            }
            let known = direct[a * count + b];
            if known > 0.0 && known != *bandwidth {
                return Err(wrong(format!(
                    "the link '{a}-{b}' has {bandwidth} bytes/s, and '{b}-{a}' {known}: links are the same in both directions"
                )));
            }
            direct[a * count + b] = *bandwidth;
            direct[b * count + a] = *bandwidth;
        }
        let starts_s = text.program_start_seconds.unwrap_or_else(|| vec![0.0; count]);
        if starts_s.len() != count {
            let starts = starts_s.len();
            let remedy = format!("give it {count} numbers, or leave it out");
            return Err(wrong(format!("'speed' has {count} servers and 'program_start_seconds' {starts}: {remedy}")));
        }
        if let Some(at) = starts_s.iter().position(|start_s| !(start_s.is_finite() && *start_s >= 0.0)) {
            let value = starts_s[at];
            return Err(wrong(format!("'program_start_seconds' of server {at} is {value}; it must be 0 or above")));
        }
        Ok(Servers { speeds: text.speeds, client: text.client_bytes_per_s, direct, starts_s })
    }

    pub fn len(&self) -> usize {
        self.speeds.len()
    }

    /// True if there are no servers, which no parsed file allows.
    pub fn is_empty(&self) -> bool {
        self.speeds.is_empty()
    }

    /// Speed by server. A task takes its work in seconds divided by the speed.
    pub fn speeds(&self) -> &[f64] {
        &self.speeds
    }

    pub fn speed(&self, server: usize) -> f64 {
        self.speeds[server]
    }

    /// Seconds that the start of a task's program takes on a server, whatever its speed.
    pub fn start_s(&self, server: usize) -> f64 {
        self.starts_s[server]
    }

    /// Run time of a task on a server, seconds.
    pub fn task_s(&self, server: usize, work_s: f64) -> f64 {
        self.starts_s[server] + work_s / self.speeds[server]
    }

    /// Bandwidth between the client and a server, bytes per second.
    pub fn client(&self, server: usize) -> f64 {
        self.client[server]
    }

    /// Bandwidth of the direct link of two servers, if they have one, bytes per second.
    pub fn direct(&self, from: usize, to: usize) -> Option<f64> {
        Some(self.direct[from * self.len() + to]).filter(|bandwidth| *bandwidth > 0.0)
    }

    /// Bandwidth between two servers through the client, one hop after the other, bytes per second.
    pub fn relayed(&self, from: usize, to: usize) -> f64 {
        1.0 / (1.0 / self.client[from] + 1.0 / self.client[to])
    }
}
