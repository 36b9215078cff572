//! From the text of a scenario to the scenario, or to the list of what is wrong with it.
//!
//! A place is the path to a value, such as `activities[3].src`; activities are named too. What is wrong is noted and
//! replaced by something harmless, so that reading goes on.

use std::collections::BTreeMap;
use std::fmt;

use gridloom_core::base::json;
use gridloom_core::base::limits::PROFILE_LOOP_S_MIN;
use gridloom_core::flow::timeline::Quantity;
use gridloom_core::flow::{HostIndex, LinkIndex, NetworkModel};
use gridloom_core::idl::near::{did_you_mean, near_names};
use serde_json::{Map, Value};

use super::scenario::{Activity, Kind, Link, LinkPolicy, Problems, Profile, Route, Scenario};

/// Bandwidth of the link from any host to itself, bytes per second.
const LOOPBACK_BANDWIDTH: f64 = 1e10;
/// More problems than that help nobody.
const PROBLEMS_MAX: usize = 20;

/// Reads all of it.
pub(super) fn scenario(text: &str, file_name: &str) -> Result<Scenario, Problems> {
    let wrong = |why: String| Problems(vec![format!("{file_name}: {why}")]);
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let root: Value = json::read(text).map_err(|error| wrong(error.to_string()))?;
    let Value::Object(root) = root else { return Err(wrong("expected an object".into())) };
    let mut reader = Reader::default();
    reader.refuse_misspelt(&root);
    let model = reader.model(&root);
    let platform = reader.object(&root, "platform");
    reader.allow(&platform, "platform", PLATFORM_KEYS);
    reader.hosts(&platform);
    reader.links(&platform);
    reader.routes(&platform);
    reader.profiles(&platform);
    reader.activities(&root);
    if reader.problems.is_empty() {
        reader.refuse_cycles();
    }
    let Reader { hosts, links, routes, profiles, activities, mut problems, .. } = reader;
    if problems.is_empty() {
        return Ok(Scenario { model, hosts, links, routes, profiles, activities });
    }
    let more = problems.len().saturating_sub(PROBLEMS_MAX);
    problems.truncate(PROBLEMS_MAX);
    let mut problems: Vec<String> = problems.into_iter().map(|why| format!("{file_name}: {why}")).collect();
    if more > 0 {
        problems.push(format!("{file_name}: and {more} more problems"));
    }
    Err(Problems(problems))
}

#[derive(Default)]
struct Reader {
    hosts: Vec<(f64, u32)>,
    host_names: BTreeMap<String, HostIndex>,
    links: Vec<Link>,
    link_names: BTreeMap<String, Directions>,
    routes: BTreeMap<(HostIndex, HostIndex), Route>,
    profiles: Vec<Profile>,
    activities: Vec<Activity>,
    problems: Vec<String>,
}

#[derive(Clone, Copy)]
enum Directions {
    One(LinkIndex),
    Two { up: LinkIndex, down: LinkIndex },
}

/// What a number must lie between. What is computed from numbers within these bounds is finite.
#[derive(Clone, Copy)]
struct Range {
    least: f64,
    most: f64,
    or_zero: bool,
}

/// Seconds: latencies and dates. Some ten thousand years.
const TIME: Range = Range { least: 0.0, most: 1e12, or_zero: true };
/// Bytes and operations.
const AMOUNT: Range = Range { least: 0.0, most: 1e30, or_zero: true };
/// Bytes and operations per second.
const RATE: Range = Range { least: 1e-9, most: 1e30, or_zero: false };
/// What a profile makes of a speed, a bandwidth or a state.
const LEVEL: Range = Range { or_zero: true, ..RATE };
/// Weight of a share.
const PRIORITY: Range = Range { least: 1e-9, most: 1e9, or_zero: false };

impl Range {
    fn has(self, number: f64) -> bool {
        (self.least..=self.most).contains(&number) || self.or_zero && number == 0.0
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { least, most, or_zero } = self;
        match (*or_zero, *least > 0.0) {
            (true, true) => write!(f, "0, or a number from {least:e} to {most:e}"),
            (true, false) => write!(f, "a number, 0 or more, at most {most:e}"),
            (false, _) => write!(f, "a number above 0, from {least:e} to {most:e}"),
        }
    }
}

const PLATFORM_KEYS: &[&str] = &["hosts", "links", "routes", "profiles"];
const HOST_KEYS: &[&str] = &["name", "speed", "cores"];
const LINK_KEYS: &[&str] = &["name", "bandwidth", "latency", "policy"];
const ROUTE_KEYS: &[&str] = &["src", "dst", "links", "symmetrical"];
const PROFILE_KEYS: &[&str] = &["element", "kind", "events", "loop_after"];
const TRANSFER_KEYS: &[&str] = &["name", "type", "src", "dst", "bytes", "rate", "start", "after"];
const EXECUTION_KEYS: &[&str] = &["name", "type", "host", "flops", "priority", "bound", "threads", "start", "after"];
/// What is read of the whole. It may say more of itself: who made it, which dates are expected.
const ROOT_KEYS: &[&str] = &["model", "crosstraffic", "platform", "activities"];
/// What scenarios that come with their dates say of themselves.
const ROOT_NOTES: &[&str] = &["id", "family", "seed", "simulator", "start_times", "finish_times", "failed", "makespan"];

impl Reader {
    /// Notes keys that the object does not have.
    fn allow(&mut self, object: &Map<String, Value>, place: &str, known: &[&str]) {
        for key in object.keys().filter(|key| !known.contains(&key.as_str())) {
            let hint = did_you_mean(&near_names(key, known.iter().copied()));
            self.problems.push(format!("{place}: unknown key '{key}'{hint}; it has: {}", known.join(", ")));
        }
    }

    /// Notes keys of the whole that look like one that is read.
    fn refuse_misspelt(&mut self, root: &Map<String, Value>) {
        for key in root.keys().filter(|key| !ROOT_KEYS.iter().chain(ROOT_NOTES).any(|known| known == key)) {
            let near = near_names(key, ROOT_KEYS.iter().copied());
            if !near.is_empty() {
                self.problems.push(format!("unknown key '{key}'{}", did_you_mean(&near)));
            }
        }
    }

    fn model(&mut self, root: &Map<String, Value>) -> NetworkModel {
        let name = root.get("model").and_then(Value::as_str).unwrap_or_default();
        let model = NetworkModel::by_name(&name.to_lowercase()).unwrap_or_else(|error| {
            self.problems.push(format!("model: {error}"));
            NetworkModel::WARM_TCP
        });
        match root.get("crosstraffic") {
            None => model,
            Some(Value::Bool(on)) => NetworkModel { cross_traffic: *on, ..model },
            Some(_) => {
                self.problems.push("crosstraffic: expected true or false".into());
                model
            }
        }
    }

    fn hosts(&mut self, platform: &Map<String, Value>) {
        for (place, host) in self.list(platform, "platform", "hosts", true) {
            self.allow(&host, &place, HOST_KEYS);
            let name = self.name(&host, &place);
            let speed = self.number(&host, &place, "speed", RATE, None);
            let cores = self.count(&host, &place, "cores");
            let index = HostIndex(self.hosts.len() as u32);
            self.hosts.push((speed, cores));
            if self.host_names.insert(name.clone(), index).is_some() {
                self.problems.push(format!("{place}: host '{name}' is defined twice"));
            }
        }
    }

    fn links(&mut self, platform: &Map<String, Value>) {
        let add = |links: &mut Vec<Link>, name: String, bandwidth, latency_s, policy| {
            links.push(Link { name, bandwidth, latency_s, policy });
            LinkIndex(links.len() as u32 - 1)
        };
        add(&mut self.links, "__loopback__".into(), LOOPBACK_BANDWIDTH, 0.0, LinkPolicy::FatPipe);
        for (place, link) in self.list(platform, "platform", "links", true) {
            self.allow(&link, &place, LINK_KEYS);
            let name = self.name(&link, &place);
            let bandwidth = self.number(&link, &place, "bandwidth", RATE, None);
            let latency_s = self.number(&link, &place, "latency", TIME, None);
            let mut one = |name: String, policy| add(&mut self.links, name, bandwidth, latency_s, policy);
            let directions = match link.get("policy").and_then(Value::as_str) {
                Some("SHARED") => Directions::One(one(name.clone(), LinkPolicy::Shared)),
                Some("FATPIPE") => Directions::One(one(name.clone(), LinkPolicy::FatPipe)),
                Some("SPLITDUPLEX") => Directions::Two {
                    up: one(format!("{name}:UP"), LinkPolicy::Shared),
                    down: one(format!("{name}:DOWN"), LinkPolicy::Shared),
                },
                Some(_) | None => {
                    self.problems.push(format!("{place}.policy: expected SHARED, FATPIPE or SPLITDUPLEX"));
                    Directions::One(one(name.clone(), LinkPolicy::Shared))
                }
            };
            if self.link_names.insert(name.clone(), directions).is_some() {
                self.problems.push(format!("{place}: link '{name}' is defined twice"));
            }
        }
    }

    fn routes(&mut self, platform: &Map<String, Value>) {
        for (place, route) in self.list(platform, "platform", "routes", true) {
            self.allow(&route, &place, ROUTE_KEYS);
            let (src, dst) = (self.host(&route, &place, "src"), self.host(&route, &place, "dst"));
            let names = route.get("links").and_then(Value::as_array);
            let Some(names) = names.filter(|names| !names.is_empty()) else {
                self.problems.push(format!("{place}.links: expected a list of at least one link"));
                continue;
            };
            let there: Route = (0..names.len())
                .map(|at| self.direction(names[at].as_str().unwrap_or_default(), &format!("{place}.links[{at}]")))
                .collect();
            let symmetrical = match route.get("symmetrical") {
                None => true,
                Some(Value::Bool(symmetrical)) => *symmetrical,
                Some(other) => {
                    self.problems.push(format!("{place}.symmetrical: {other}; expected true or false"));
                    true
                }
            };
            let back: Route = there.iter().rev().map(|link| self.opposite(*link)).collect();
            let mut add = |pair, links| self.routes.insert(pair, links).is_some();
            let twice = add((src, dst), there) || symmetrical && src != dst && add((dst, src), back);
            if twice {
                self.problems.push(format!("{place}: this pair of hosts has a route already"));
            }
        }
    }

    fn profiles(&mut self, platform: &Map<String, Value>) {
        for (place, profile) in self.list(platform, "platform", "profiles", false) {
            self.allow(&profile, &place, PROFILE_KEYS);
            let element = profile.get("element").and_then(Value::as_str).unwrap_or_default().to_string();
            let kind = profile.get("kind").and_then(Value::as_str).unwrap_or_default().to_string();
            let quantities = self.quantities(&element, &kind, &place);
            let values = match kind.as_str() {
                "latency" => TIME,
                _ => LEVEL,
            };
            let events = self.events(&profile, &place, values);
            let loop_after_s = match profile.get("loop_after") {
                None | Some(Value::Null) => None,
                Some(_) => Some(self.number(&profile, &place, "loop_after", TIME, None)),
            };
            let span_s = events.last().map_or(0.0, |last| last.0) + loop_after_s.unwrap_or(f64::INFINITY);
            if span_s < PROFILE_LOOP_S_MIN {
                self.problems.push(format!(
                    "{place}.loop_after: a loop of {span_s} s; it must take at least {PROFILE_LOOP_S_MIN} s"
                ));
            }
            for quantity in quantities {
                self.profiles.push(Profile { quantity, events: events.clone(), loop_after_s });
            }
        }
    }

    fn quantities(&mut self, element: &str, kind: &str, place: &str) -> Vec<Quantity> {
        if let (Some(host), "speed" | "state") = (self.host_names.get(element), kind) {
            return vec![if kind == "speed" { Quantity::Speed(*host) } else { Quantity::HostState(*host) }];
        }
        let make: fn(LinkIndex) -> Quantity = match kind {
            "bandwidth" => Quantity::Bandwidth,
            "latency" => Quantity::Latency,
            "state" => Quantity::LinkState,
            _ => {
                self.problems.push(format!(
                    "{place}: expected the speed or state of a host, or the bandwidth, latency or state of a link, not \
                     the '{kind}' of '{element}'"
                ));
                return Vec::new();
            }
        };
        match self.link_names.get(element).copied().or_else(|| self.one_direction(element).map(Directions::One)) {
            Some(Directions::One(link)) => vec![make(link)],
            Some(Directions::Two { up, down }) => vec![make(up), make(down)],
            None => {
                self.unknown("link", element, &format!("{place}.element"));
                Vec::new()
            }
        }
    }

    fn events(&mut self, profile: &Map<String, Value>, place: &str, values: Range) -> Vec<(f64, f64)> {
        let mut events: Vec<(f64, f64)> = Vec::new();
        for (at, event) in profile.get("events").and_then(Value::as_array).into_iter().flatten().enumerate() {
            let pair = event.as_array().filter(|pair| pair.len() == 2);
            let number = |at: usize, range: Range| pair.and_then(|pair| pair[at].as_f64()).filter(|n| range.has(*n));
            match (number(0, TIME), number(1, values)) {
                (Some(date), Some(value)) if events.last().is_none_or(|last| last.0 <= date) => {
                    events.push((date, value));
                }
                (Some(_), Some(_)) => {
                    self.problems.push(format!("{place}.events[{at}]: its date is before the one above it"));
                }
                _ => self.problems.push(format!(
                    "{place}.events[{at}]: expected [date, value]; the date is {TIME}, the value {values}"
                )),
            }
        }
        if events.is_empty() {
            self.problems.push(format!("{place}.events: expected at least one"));
        }
        events
    }

    fn activities(&mut self, root: &Map<String, Value>) {
        let list = self.list(root, "", "activities", true);
        let mut numbers = BTreeMap::new();
        for (number, (place, activity)) in list.iter().enumerate() {
            let name = self.name(activity, place);
            if numbers.insert(name.clone(), number).is_some() {
                self.problems.push(format!("{place}: activity '{name}' is defined twice"));
            }
        }
        for (place, activity) in list {
            let name = activity.get("name").and_then(Value::as_str).unwrap_or_default().to_string();
            let place = format!("{place} '{name}'");
            let start_s = self.number(&activity, &place, "start", TIME, Some(0.0));
            let mut after = Vec::new();
            let list = match activity.get("after") {
                None => &[][..],
                Some(Value::Array(list)) => &list[..],
                Some(other) => {
                    self.problems.push(format!("{place}.after: {other}; expected a list of names, such as [\"a\"]"));
                    &[][..]
                }
            };
            for before in list {
                let Some(before) = before.as_str() else {
                    self.problems.push(format!("{place}.after: {before}; expected the name of an activity"));
                    continue;
                };
                match numbers.get(before) {
                    Some(number) => after.push(*number),
                    None => {
                        let near = near_names(before, numbers.keys().map(String::as_str));
                        let hint = did_you_mean(&near);
                        self.problems.push(format!("{place}.after: unknown activity '{before}'{hint}"));
                    }
                }
            }
            let kind = match activity.get("type").and_then(Value::as_str) {
                Some("comm") => {
                    self.allow(&activity, &place, TRANSFER_KEYS);
                    Some(self.transfer(&activity, &place))
                }
                Some("exec") => {
                    self.allow(&activity, &place, EXECUTION_KEYS);
                    Some(self.execution(&activity, &place))
                }
                Some(_) | None => {
                    self.problems.push(format!("{place}.type: expected comm or exec"));
                    None
                }
            };
            self.activities.extend(kind.map(|kind| Activity { name, start_s, after, kind }));
        }
    }

    fn transfer(&mut self, activity: &Map<String, Value>, place: &str) -> Kind {
        let known = self.problems.len();
        let (src, dst) = (self.host(activity, place, "src"), self.host(activity, place, "dst"));
        if known == self.problems.len() && src != dst && !self.routes.contains_key(&(src, dst)) {
            let name = |key: &str| activity.get(key).and_then(Value::as_str).unwrap_or_default();
            self.problems.push(format!("{place}: no route from '{}' to '{}'", name("src"), name("dst")));
        }
        let size_bytes = self.number(activity, place, "bytes", AMOUNT, None);
        let rate_max = self.number(activity, place, "rate", RATE, Some(f64::INFINITY));
        Kind::Transfer { src, dst, size_bytes, rate_max }
    }

    fn execution(&mut self, activity: &Map<String, Value>, place: &str) -> Kind {
        Kind::Execution {
            host: self.host(activity, place, "host"),
            work_flops: self.number(activity, place, "flops", AMOUNT, None),
            priority: self.number(activity, place, "priority", PRIORITY, Some(1.0)),
            bound_flops: self.number(activity, place, "bound", RATE, Some(f64::INFINITY)),
            threads: self.count(activity, place, "threads"),
        }
    }

    /// Notes one circle of activities that wait for each other, if there is one.
    fn refuse_cycles(&mut self) {
        let mut waits: Vec<usize> = self.activities.iter().map(|activity| activity.after.len()).collect();
        let mut followers = vec![Vec::new(); waits.len()];
        for (number, activity) in self.activities.iter().enumerate() {
            activity.after.iter().for_each(|before| followers[*before].push(number));
        }
        let mut ready: Vec<usize> = (0..waits.len()).filter(|number| waits[*number] == 0).collect();
        while let Some(number) = ready.pop() {
            for follower in &followers[number] {
                waits[*follower] -= 1;
                if waits[*follower] == 0 {
                    ready.push(*follower);
                }
            }
        }
        let Some(start) = waits.iter().position(|waits| *waits > 0) else { return };
        // Whoever still waits, waits for one that still waits: going back must come round.
        let before = |number: usize| self.activities[number].after.iter().copied().find(|other| waits[*other] > 0);
        let mut at = start;
        for _ in 0..waits.len() {
            at = before(at).expect("what is left waits for something that is left");
        }
        let mut circle = vec![at];
        let mut next = before(at).expect("as above");
        while next != at {
            circle.push(next);
            next = before(next).expect("as above");
        }
        circle.reverse();
        circle.push(circle[0]);
        let names: Vec<&str> = circle.iter().map(|number| self.activities[*number].name.as_str()).collect();
        let first = circle[0];
        let text = format!("activities[{first}] '{}'.after: a cycle: {}", names[0], names.join(" before "));
        self.problems.push(text);
    }

    fn object(&mut self, root: &Map<String, Value>, key: &str) -> Map<String, Value> {
        root.get(key).and_then(Value::as_object).cloned().unwrap_or_else(|| {
            self.problems.push(format!("{key}: expected an object"));
            Map::new()
        })
    }

    /// The objects of a list, each with its place.
    fn list(
        &mut self,
        parent: &Map<String, Value>,
        parent_place: &str,
        key: &str,
        required: bool,
    ) -> Vec<(String, Map<String, Value>)> {
        let place = if parent_place.is_empty() { key.to_string() } else { format!("{parent_place}.{key}") };
        let Some(list) = parent.get(key).and_then(Value::as_array) else {
            if required || parent.contains_key(key) {
                self.problems.push(format!("{place}: expected a list"));
            }
            return Vec::new();
        };
        let mut objects = Vec::with_capacity(list.len());
        for (at, value) in list.iter().enumerate() {
            match value.as_object() {
                Some(object) => objects.push((format!("{place}[{at}]"), object.clone())),
                None => self.problems.push(format!("{place}[{at}]: expected an object")),
            }
        }
        objects
    }

    fn name(&mut self, object: &Map<String, Value>, place: &str) -> String {
        let name = object.get("name").and_then(Value::as_str).unwrap_or_default();
        if name.is_empty() {
            self.problems.push(format!("{place}.name: expected a name"));
        }
        name.to_string()
    }

    fn number(
        &mut self,
        object: &Map<String, Value>,
        place: &str,
        key: &str,
        range: Range,
        default: Option<f64>,
    ) -> f64 {
        let found = match object.get(key) {
            None => {
                return default.unwrap_or_else(|| {
                    self.problems.push(format!("{place}.{key}: missing; expected {range}"));
                    1.0
                });
            }
            Some(found) => found,
        };
        match found.as_f64() {
            Some(number) if range.has(number) => number,
            _ => {
                self.problems.push(format!("{place}.{key}: {found}; expected {range}"));
                1.0
            }
        }
    }

    fn count(&mut self, object: &Map<String, Value>, place: &str, key: &str) -> u32 {
        let Some(found) = object.get(key) else { return 1 };
        let count = found.as_u64().and_then(|count| u32::try_from(count).ok()).filter(|count| *count > 0);
        count.unwrap_or_else(|| {
            self.problems.push(format!("{place}.{key}: {found}; expected a whole number of 1 or more"));
            1
        })
    }

    fn host(&mut self, object: &Map<String, Value>, place: &str, key: &str) -> HostIndex {
        let Some(name) = object.get(key).and_then(Value::as_str) else {
            let found = object.get(key).map_or("missing".to_string(), Value::to_string);
            self.problems.push(format!("{place}.{key}: {found}; expected the name of a host"));
            return HostIndex(0);
        };
        match self.host_names.get(name) {
            Some(host) => *host,
            None => {
                self.unknown("host", name, &format!("{place}.{key}"));
                HostIndex(0)
            }
        }
    }

    /// The link that a route names: `NAME`, or `NAME:UP` and `NAME:DOWN` of a split-duplex link.
    fn direction(&mut self, name: &str, place: &str) -> LinkIndex {
        match self.link_names.get(name) {
            Some(Directions::One(link)) => *link,
            Some(Directions::Two { up, .. }) => {
                self.problems.push(format!("{place}: link '{name}' is split-duplex: say {name}:UP or {name}:DOWN"));
                *up
            }
            None => self.one_direction(name).unwrap_or_else(|| {
                self.unknown("link", name, place);
                LinkIndex(0)
            }),
        }
    }

    fn one_direction(&self, name: &str) -> Option<LinkIndex> {
        let (name, direction) = name.rsplit_once(':')?;
        match (self.link_names.get(name)?, direction) {
            (Directions::Two { up, .. }, "UP") => Some(*up),
            (Directions::Two { down, .. }, "DOWN") => Some(*down),
            _ => None,
        }
    }

    /// The other direction of a link.
    fn opposite(&self, link: LinkIndex) -> LinkIndex {
        let name = &self.links[link.0 as usize].name;
        // The directions of a split-duplex link stand side by side.
        match name.rsplit_once(':').and_then(|(name, direction)| Some((self.link_names.get(name)?, direction))) {
            Some((Directions::Two { down, .. }, "UP")) => *down,
            Some((Directions::Two { up, .. }, "DOWN")) => *up,
            _ => link,
        }
    }

    fn unknown(&mut self, what: &str, name: &str, place: &str) {
        let near = match what {
            "host" => near_names(name, self.host_names.keys().map(String::as_str)),
            _ => near_names(name, self.link_names.keys().map(String::as_str)),
        };
        self.problems.push(format!("{place}: unknown {what} '{name}'{}", did_you_mean(&near)));
    }
}
