//! Parses a scenario, or returns the list of its problems.
//!
//! A place is the path of a value, such as `activities[3].src`; activities are also identified by name.

use std::collections::BTreeMap;

use gridloom_base::json;
use gridloom_base::limits::PROFILE_LOOP_S_MIN;
use gridloom_base::near::{did_you_mean, near_names};
use gridloom_flow::timeline::Quantity;
use gridloom_flow::{HostIndex, LinkIndex, NetworkModel};
use serde_json::{Map, Value};

use super::cycle::cycle;
use super::fields::{AMOUNT, LEVEL, PRIORITY, ProblemList, RATE, Range, TIME};
use super::scenario::{Activity, Kind, Link, LinkPolicy, Problems, Profile, Route, Scenario};

/// Bandwidth of the link from any host to itself, bytes per second.
const LOOPBACK_BANDWIDTH: f64 = 1e10;
/// Maximum number of reported problems. More would not help the reader.
const PROBLEMS_MAX: usize = 20;

impl Scenario {
    /// Parses a scenario.
    ///
    /// # Errors
    /// All problems, one line each, beginning with `file_name` and the place.
    pub fn parse(text: &str, file_name: &str) -> Result<Scenario, Problems> {
        let wrong = |why: String| Problems(vec![format!("{file_name}: {why}")]);
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let root: Value = json::read(text).map_err(|error| wrong(error.to_string()))?;
        let Value::Object(root) = root else { return Err(wrong("expected an object".into())) };
        let mut reader = Reader::default();
        reader.refuse_misspelt(&root);
        let model = reader.model(&root);
        let platform = reader.fields.object(&root, "platform");
        reader.fields.allow(&platform, "platform", PLATFORM_KEYS);
        reader.hosts(&platform);
        reader.links(&platform);
        reader.routes(&platform);
        reader.profiles(&platform);
        reader.activities(&root);
        if reader.fields.problems() == 0 {
            cycle(&reader.activities).into_iter().for_each(|problem| reader.fields.note(problem));
        }
        let Reader { hosts, links, routes, profiles, activities, fields, .. } = reader;
        let mut problems = fields.into_problems();
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
}

#[derive(Default)]
struct Reader {
    hosts: Vec<(f64, u32)>,
    host_names: BTreeMap<String, HostIndex>,
    links: Vec<Link>,
    link_names: BTreeMap<String, LinkDirections>,
    routes: BTreeMap<(HostIndex, HostIndex), Route>,
    profiles: Vec<Profile>,
    activities: Vec<Activity>,
    fields: ProblemList,
}

#[derive(Clone, Copy)]
enum LinkDirections {
    One(LinkIndex),
    Two { up: LinkIndex, down: LinkIndex },
}

const PLATFORM_KEYS: &[&str] = &["hosts", "links", "routes", "profiles"];
const HOST_KEYS: &[&str] = &["name", "speed", "cores"];
const LINK_KEYS: &[&str] = &["name", "bandwidth", "latency", "policy"];
const ROUTE_KEYS: &[&str] = &["src", "dst", "links", "symmetrical"];
const PROFILE_KEYS: &[&str] = &["element", "kind", "events", "loop_after"];
const TRANSFER_KEYS: &[&str] = &["name", "type", "src", "dst", "bytes", "rate", "start", "after"];
const EXECUTION_KEYS: &[&str] = &["name", "type", "host", "flops", "priority", "bound", "threads", "start", "after"];
/// The keys that are read at the top level. Other keys are allowed, such as the file's generator and the expected dates.
const ROOT_KEYS: &[&str] = &["model", "crosstraffic", "platform", "activities"];
/// Known top-level keys of scenarios with expected dates. They are not read.
const ROOT_NOTES: &[&str] = &["id", "family", "seed", "simulator", "start_times", "finish_times", "failed", "makespan"];

impl Reader {
    /// Records a problem for top-level keys that look like a misspelt known key.
    fn refuse_misspelt(&mut self, root: &Map<String, Value>) {
        for key in root.keys().filter(|key| !ROOT_KEYS.iter().chain(ROOT_NOTES).any(|known| known == key)) {
            let near = near_names(key, ROOT_KEYS.iter().copied());
            if !near.is_empty() {
                self.fields.note(format!("unknown key '{key}'{}", did_you_mean(&near)));
            }
        }
    }

    fn model(&mut self, root: &Map<String, Value>) -> NetworkModel {
        let name = root.get("model").and_then(Value::as_str).unwrap_or_default();
        let model = NetworkModel::by_name(&name.to_lowercase()).unwrap_or_else(|error| {
            self.fields.note(format!("model: {error}"));
            NetworkModel::WARM_TCP
        });
        match root.get("crosstraffic") {
            None => model,
            Some(Value::Bool(on)) => NetworkModel { cross_traffic: *on, ..model },
            Some(_) => {
                self.fields.note("crosstraffic: expected true or false".into());
                model
            }
        }
    }

    fn hosts(&mut self, platform: &Map<String, Value>) {
        for (place, host) in self.fields.list(platform, "platform", "hosts", true) {
            self.fields.allow(&host, &place, HOST_KEYS);
            let name = self.fields.name(&host, &place);
            let speed = self.fields.number(&host, &place, "speed", RATE, None);
            let cores = self.fields.count(&host, &place, "cores");
            let index = HostIndex(self.hosts.len() as u32);
            self.hosts.push((speed, cores));
            if self.host_names.insert(name.clone(), index).is_some() {
                self.fields.note(format!("{place}: host '{name}' is defined twice"));
            }
        }
    }

    fn links(&mut self, platform: &Map<String, Value>) {
        let add = |links: &mut Vec<Link>, name: String, bandwidth, latency_s, policy| {
            links.push(Link { name, bandwidth, latency_s, policy });
            LinkIndex(links.len() as u32 - 1)
        };
        add(&mut self.links, "__loopback__".into(), LOOPBACK_BANDWIDTH, 0.0, LinkPolicy::FatPipe);
        for (place, link) in self.fields.list(platform, "platform", "links", true) {
            self.fields.allow(&link, &place, LINK_KEYS);
            let name = self.fields.name(&link, &place);
            let bandwidth = self.fields.number(&link, &place, "bandwidth", RATE, None);
            let latency_s = self.fields.number(&link, &place, "latency", TIME, None);
            let mut one = |name: String, policy| add(&mut self.links, name, bandwidth, latency_s, policy);
            let directions = match link.get("policy").and_then(Value::as_str) {
                Some("SHARED") => LinkDirections::One(one(name.clone(), LinkPolicy::Shared)),
                Some("FATPIPE") => LinkDirections::One(one(name.clone(), LinkPolicy::FatPipe)),
                Some("SPLITDUPLEX") => LinkDirections::Two {
                    up: one(format!("{name}:UP"), LinkPolicy::Shared),
                    down: one(format!("{name}:DOWN"), LinkPolicy::Shared),
                },
                Some(_) | None => {
                    self.fields.note(format!("{place}.policy: expected SHARED, FATPIPE or SPLITDUPLEX"));
                    LinkDirections::One(one(name.clone(), LinkPolicy::Shared))
                }
            };
            if self.link_names.insert(name.clone(), directions).is_some() {
                self.fields.note(format!("{place}: link '{name}' is defined twice"));
            }
        }
    }

    fn routes(&mut self, platform: &Map<String, Value>) {
        for (place, route) in self.fields.list(platform, "platform", "routes", true) {
            self.fields.allow(&route, &place, ROUTE_KEYS);
            let (src, dst) = (self.host(&route, &place, "src"), self.host(&route, &place, "dst"));
            let names = route.get("links").and_then(Value::as_array);
            let Some(names) = names.filter(|names| !names.is_empty()) else {
                self.fields.note(format!("{place}.links: expected a list of at least one link"));
                continue;
            };
            let there: Route = (0..names.len())
                .map(|at| self.direction(names[at].as_str().unwrap_or_default(), &format!("{place}.links[{at}]")))
                .collect();
            let symmetrical = match route.get("symmetrical") {
                None => true,
                Some(Value::Bool(symmetrical)) => *symmetrical,
                Some(other) => {
                    self.fields.note(format!("{place}.symmetrical: {other}; expected true or false"));
                    true
                }
            };
            let back: Route = there.iter().rev().map(|link| self.opposite(*link)).collect();
            let mut add = |pair, links| self.routes.insert(pair, links).is_some();
            let twice = add((src, dst), there) || symmetrical && src != dst && add((dst, src), back);
            if twice {
                self.fields.note(format!("{place}: this pair of hosts has a route already"));
            }
        }
    }

    fn profiles(&mut self, platform: &Map<String, Value>) {
        for (place, profile) in self.fields.list(platform, "platform", "profiles", false) {
            self.fields.allow(&profile, &place, PROFILE_KEYS);
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
                Some(_) => Some(self.fields.number(&profile, &place, "loop_after", TIME, None)),
            };
            let span_s = events.last().map_or(0.0, |last| last.0) + loop_after_s.unwrap_or(f64::INFINITY);
            if span_s < PROFILE_LOOP_S_MIN {
                self.fields.note(format!(
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
                self.fields.note(format!(
                    "{place}: expected the speed or state of a host, or the bandwidth, latency or state of a link, not \
                     the '{kind}' of '{element}'"
                ));
                return Vec::new();
            }
        };
        match self.link_names.get(element).copied().or_else(|| self.one_direction(element).map(LinkDirections::One)) {
            Some(LinkDirections::One(link)) => vec![make(link)],
            Some(LinkDirections::Two { up, down }) => vec![make(up), make(down)],
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
                    self.fields.note(format!("{place}.events[{at}]: its date is before that of the previous event"));
                }
                _ => self.fields.note(format!(
                    "{place}.events[{at}]: expected [date, value]; the date is {TIME}, the value {values}"
                )),
            }
        }
        if events.is_empty() {
            self.fields.note(format!("{place}.events: expected at least one"));
        }
        events
    }

    fn activities(&mut self, root: &Map<String, Value>) {
        let list = self.fields.list(root, "", "activities", true);
        let mut numbers = BTreeMap::new();
        for (number, (place, activity)) in list.iter().enumerate() {
            let name = self.fields.name(activity, place);
            if numbers.insert(name.clone(), number).is_some() {
                self.fields.note(format!("{place}: activity '{name}' is defined twice"));
            }
        }
        for (place, activity) in list {
            let name = activity.get("name").and_then(Value::as_str).unwrap_or_default().to_string();
            let place = format!("{place} '{name}'");
            let start_s = self.fields.number(&activity, &place, "start", TIME, Some(0.0));
            let mut after = Vec::new();
            let list = match activity.get("after") {
                None => &[][..],
                Some(Value::Array(list)) => &list[..],
                Some(other) => {
                    self.fields.note(format!("{place}.after: {other}; expected a list of names, such as [\"a\"]"));
                    &[][..]
                }
            };
            for before in list {
                let Some(before) = before.as_str() else {
                    self.fields.note(format!("{place}.after: {before}; expected the name of an activity"));
                    continue;
                };
                match numbers.get(before) {
                    Some(number) => after.push(*number),
                    None => {
                        let near = near_names(before, numbers.keys().map(String::as_str));
                        let hint = did_you_mean(&near);
                        self.fields.note(format!("{place}.after: unknown activity '{before}'{hint}"));
                    }
                }
            }
            let kind = match activity.get("type").and_then(Value::as_str) {
                Some("comm") => {
                    self.fields.allow(&activity, &place, TRANSFER_KEYS);
                    Some(self.transfer(&activity, &place))
                }
                Some("exec") => {
                    self.fields.allow(&activity, &place, EXECUTION_KEYS);
                    Some(self.execution(&activity, &place))
                }
                Some(_) | None => {
                    self.fields.note(format!("{place}.type: expected comm or exec"));
                    None
                }
            };
            self.activities.extend(kind.map(|kind| Activity { name, start_s, after, kind }));
        }
    }

    fn transfer(&mut self, activity: &Map<String, Value>, place: &str) -> Kind {
        let known = self.fields.problems();
        let (src, dst) = (self.host(activity, place, "src"), self.host(activity, place, "dst"));
        if known == self.fields.problems() && src != dst && !self.routes.contains_key(&(src, dst)) {
            let name = |key: &str| activity.get(key).and_then(Value::as_str).unwrap_or_default();
            self.fields.note(format!("{place}: no route from '{}' to '{}'", name("src"), name("dst")));
        }
        let size_bytes = self.fields.number(activity, place, "bytes", AMOUNT, None);
        let rate_max = self.fields.number(activity, place, "rate", RATE, Some(f64::INFINITY));
        Kind::Transfer { src, dst, size_bytes, rate_max }
    }

    fn execution(&mut self, activity: &Map<String, Value>, place: &str) -> Kind {
        Kind::Execution {
            host: self.host(activity, place, "host"),
            work_flops: self.fields.number(activity, place, "flops", AMOUNT, None),
            priority: self.fields.number(activity, place, "priority", PRIORITY, Some(1.0)),
            bound_flops: self.fields.number(activity, place, "bound", RATE, Some(f64::INFINITY)),
            threads: self.fields.count(activity, place, "threads"),
        }
    }

    fn host(&mut self, object: &Map<String, Value>, place: &str, key: &str) -> HostIndex {
        let Some(name) = object.get(key).and_then(Value::as_str) else {
            let found = object.get(key).map_or("missing".to_string(), Value::to_string);
            self.fields.note(format!("{place}.{key}: {found}; expected the name of a host"));
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

    /// Returns the link that a route names: `NAME`, or `NAME:UP` and `NAME:DOWN` of a split-duplex link.
    fn direction(&mut self, name: &str, place: &str) -> LinkIndex {
        match self.link_names.get(name) {
            Some(LinkDirections::One(link)) => *link,
            Some(LinkDirections::Two { up, .. }) => {
                self.fields.note(format!("{place}: link '{name}' is split-duplex: write {name}:UP or {name}:DOWN"));
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
            (LinkDirections::Two { up, .. }, "UP") => Some(*up),
            (LinkDirections::Two { down, .. }, "DOWN") => Some(*down),
            _ => None,
        }
    }

    /// Returns the opposite direction of a link.
    fn opposite(&self, link: LinkIndex) -> LinkIndex {
        let name = &self.links[link.0 as usize].name;
        // The two directions of a split-duplex link are adjacent.
        match name.rsplit_once(':').and_then(|(name, direction)| Some((self.link_names.get(name)?, direction))) {
            Some((LinkDirections::Two { down, .. }, "UP")) => *down,
            Some((LinkDirections::Two { up, .. }, "DOWN")) => *up,
            _ => link,
        }
    }

    fn unknown(&mut self, what: &str, name: &str, place: &str) {
        let near = match what {
            "host" => near_names(name, self.host_names.keys().map(String::as_str)),
            _ => near_names(name, self.link_names.keys().map(String::as_str)),
        };
        self.fields.note(format!("{place}: unknown {what} '{name}'{}", did_you_mean(&near)));
    }
}
