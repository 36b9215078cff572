//! Emulates distant sites of a grid on one machine: what a node sends to another site passes through filters.
//!
//! ```text
//!   control connection ── Held: waits until it is due ──┐
//!                                                       ├─ Way: one rate ══▶ the other site
//!   lane of bulk ──────── Paced: waits until it is due ─┘
//! ```
//! Each node filters what it sends, below pings and probes. All traffic from this node to one site shares the rate.
//! Data are due after the delay, and then leave at the rate. For a constant delay this is equivalent to the opposite
//! order, and no data have to be set aside for later data that leave earlier. Handshakes bypass the filters.
//!
//! A node appends its site to its host's name, so nodes of two sites share no memory.
//!
//! **Limits:** the rate applies to each node, not to all nodes of a site together. Data that are forwarded while they
//! are received may be late by one additional delay.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use gridloom_base::limits::{
    SITE_DELAY_SECONDS_MAX, SITE_NAME_BYTES_MAX, SITE_RATE_MIN, SITE_RATE_WITHOUT_LIMIT, SITE_WAITING_BYTES,
};
use gridloom_base::{Fnv, Time};
use gridloom_process::filter::{FilterSpec, FilterTimes, PeerPair};

use super::CONTROL_BACKLOG_BYTES_MAX;

/// Environment variable with a program's site and the filters to other sites, such as `2 rate=10MB/s delay=16ms`. If
/// empty, there is no site.
pub const SITE_VARIABLE: &str = "GRIDLOOM_SITE";
/// Separator between a host's name and its site.
const SITE_SEPARATOR: char = '@';
/// Maximum number of bytes scheduled on the link at a time: other connections get a turn between two such pieces.
pub(super) const PIECE_BYTES: usize = 16 << 10;
/// Time that a thread which wakes late may catch up: it is asleep when its part becomes due.
const CATCHES_UP: Duration = Duration::from_millis(5);

/// The site of a node, and the filters between it and other sites.
#[derive(Clone, PartialEq, Debug)]
pub struct Site {
    name: String,
    filters: Vec<FilterSpec>,
}

impl Site {
    /// Creates a site.
    ///
    /// # Errors
    /// If the name is invalid, or a filter cannot be used between sites.
    pub fn new(name: &str, filters: Vec<FilterSpec>) -> Result<Site, String> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !(1..=SITE_NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_name) {
            return Err(format!(
                "site '{name}': a name has 1 to {SITE_NAME_BYTES_MAX} letters, digits, '-', '_' and '.'"
            ));
        }
        let mut times = FilterTimes::new(&filters, PeerPair { from: 0, to: 0 })?;
        let seconds = times.delay_ns_max() as f64 / 1e9;
        if seconds > SITE_DELAY_SECONDS_MAX {
            return Err(format!(
                "a delay of {seconds} s between two sites exceeds the limit of {SITE_DELAY_SECONDS_MAX} s"
            ));
        }
        if times.departure(Time::ZERO, SITE_RATE_MIN as usize) > Time(1_000_000_000) {
            return Err(format!("the rate between two sites must be at least {} kB/s", SITE_RATE_MIN / 1e3));
        }
        Ok(Site { name: name.into(), filters })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn filters(&self) -> &[FilterSpec] {
        &self.filters
    }

    /// Returns the site of the environment, if set.
    ///
    /// # Errors
    /// If the variable is not a valid site.
    pub fn of_environment() -> Result<Option<Site>, String> {
        Site::of_variable(&std::env::var(SITE_VARIABLE).unwrap_or_default())
    }

    fn of_variable(text: &str) -> Result<Option<Site>, String> {
        if text.trim().is_empty() {
            return Ok(None);
        }
        Site::parse(text).map(Some).map_err(|why| format!("{SITE_VARIABLE}: {why}"))
    }

    fn parse(text: &str) -> Result<Site, String> {
        let mut words = text.split_whitespace();
        let name = words.next().unwrap_or_default();
        Site::new(name, words.map(str::parse).collect::<Result<_, _>>()?)
    }

    /// Returns the host name that a node of this site reports. `host` is empty if it shares no memory.
    pub(crate) fn on(&self, host: &str) -> String {
        format!("{host}{SITE_SEPARATOR}{}", self.name)
    }
}

/// Formats the site as in [`SITE_VARIABLE`].
impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)?;
        self.filters.iter().try_for_each(|filter| write!(f, " {filter}"))
    }
}

/// Reports whether two nodes with these reported host names share memory.
pub(crate) fn share_memory(own: &str, peer: &str) -> bool {
    own == peer && !own.is_empty() && !own.starts_with(SITE_SEPARATOR)
}

fn site_of(host: &str) -> &str {
    host.split_once(SITE_SEPARATOR).map_or("", |(_, site)| site)
}

/// The emulated links between this node and other sites, by site.
#[derive(Default)]
pub(crate) struct EmulatedLinks {
    site: Option<Site>,
    links: Mutex<BTreeMap<String, Weak<EmulatedLink>>>,
}

impl EmulatedLinks {
    pub(crate) fn new(site: Option<Site>) -> EmulatedLinks {
        EmulatedLinks { site: site.filter(|site| !site.filters.is_empty()), links: Mutex::default() }
    }

    /// Returns the link to a peer with this reported host name; `None` if the peer is in the same site.
    pub(crate) fn link_to(&self, host: &str) -> Option<Arc<EmulatedLink>> {
        let site = self.site.as_ref().filter(|site| site.name != site_of(host))?;
        let mut ways = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        ways.retain(|_, way| way.strong_count() > 0);
        if let Some(way) = ways.get(site_of(host)).and_then(Weak::upgrade) {
            return Some(way);
        }
        let way = Arc::new(EmulatedLink::new(site, site_of(host)));
        ways.insert(site_of(host).into(), Arc::downgrade(&way));
        Some(way)
    }
}

/// The emulated link from this node to another site.
pub(crate) struct EmulatedLink {
    filters: Vec<FilterSpec>,
    /// Hash of both sites' names. It seeds the random draws, and identifies the site in the pair of a connection.
    number: u32,
    start: Instant,
    room_bytes: usize,
    leaving: Mutex<FilterTimes>,
}

impl EmulatedLink {
    fn new(site: &Site, to: &str) -> EmulatedLink {
        let mut number = Fnv::default();
        site.name.bytes().chain([0]).chain(to.bytes()).for_each(|byte| number.byte(byte));
        let number = number.0 as u32;
        let times = |filters: &[FilterSpec]| {
            FilterTimes::new(filters, PeerPair { from: number, to: 0 }).expect("made with the site")
        };
        let mut probe = times(&site.filters);
        let ns = probe.departure(Time::ZERO, SITE_RATE_MIN as usize).0.max(1) as f64;
        let rate = (SITE_RATE_MIN / (ns / 1e9)).min(SITE_RATE_WITHOUT_LIMIT);
        let under_way_bytes = (rate * probe.delay_ns_max() as f64 / 1e9) as usize;
        EmulatedLink {
            filters: site.filters.clone(),
            number,
            start: Instant::now(),
            room_bytes: (under_way_bytes + SITE_WAITING_BYTES).min(CONTROL_BACKLOG_BYTES_MAX),
            leaving: Mutex::new(times(&site.filters)),
        }
    }

    /// Returns the number of bytes that one connection may delay.
    pub(crate) fn room_bytes(&self) -> usize {
        self.room_bytes
    }

    /// Returns the delays of one connection, which preserve its order; `lane` distinguishes connections.
    pub(crate) fn delays(self: &Arc<EmulatedLink>, lane: u32) -> Delays {
        let pair = PeerPair { from: self.number, to: lane };
        Delays { way: self.clone(), times: FilterTimes::new(&self.filters, pair).expect("made with the site") }
    }

    /// Returns the time at which these bytes have left, after everything that was scheduled before. They were due at
    /// `due`, or the preceding bytes on the same connection had left at that time.
    pub(crate) fn departure(&self, due: Instant, now: Instant, size_bytes: usize) -> Instant {
        let is_ready = now.saturating_duration_since(due) <= CATCHES_UP;
        let at = self.time(if is_ready { due } else { now });
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        self.instant(leaving.departure(at, size_bytes))
    }

    fn time(&self, at: Instant) -> Time {
        Time(at.saturating_duration_since(self.start).as_nanos() as u64)
    }

    fn instant(&self, at: Time) -> Instant {
        self.start + Duration::from_nanos(at.0)
    }
}

/// Computes when the data sent on one connection are due.
pub(crate) struct Delays {
    way: Arc<EmulatedLink>,
    times: FilterTimes,
}

impl Delays {
    pub(crate) fn link(&self) -> &EmulatedLink {
        &self.way
    }

    /// Returns the time at which data sent at `sent` are due.
    pub(crate) fn due(&mut self, sent: Instant) -> Instant {
        let sent = self.way.time(sent);
        self.way.instant(self.times.delivery(sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(text: &str) -> Site {
        Site::parse(text).unwrap()
    }

    #[test]
    fn a_site_is_named_and_its_filters_give_times_within_bounds() {
        let text = "2 rate=10MB/s delay=16ms";
        assert_eq!(site(text).to_string(), text);
        let wrong = |text: &str| Site::parse(text).unwrap_err();
        assert!(wrong("").starts_with("site '': a name has 1 to 64"));
        assert!(wrong("a@b").starts_with("site 'a@b'"));
        assert!(wrong("2 compress").starts_with("filter compress changes bytes"));
        assert_eq!(wrong("2 delay=2s jitter=1s"), "a delay of 3 s between two sites exceeds the limit of 2 s");
        assert_eq!(wrong("2 rate=99kB/s"), "the rate between two sites must be at least 100 kB/s");
        assert!(wrong("2 fast").starts_with("filter 'fast' is unknown"));
    }

    #[test]
    fn a_variable_names_a_site_or_is_empty() {
        let text = Site::new("2", vec!["delay= 16ms".parse().unwrap()]).unwrap().to_string();
        assert_eq!(Site::of_variable(&text), Ok(Some(site("2 delay=16ms"))));
        assert_eq!((Site::of_variable(""), Site::of_variable(" ")), (Ok(None), Ok(None)));
        assert!(Site::of_variable("a@b").unwrap_err().starts_with("GRIDLOOM_SITE: site 'a@b'"));
    }

    #[test]
    fn nodes_of_two_sites_share_no_memory_and_a_way_there_is_one() {
        let (one, two) = (site("1 delay=1ms"), site("2 delay=1ms"));
        assert!(share_memory(&one.on("host"), &one.on("host")) && share_memory("host", "host"));
        assert!(!share_memory(&one.on("host"), &two.on("host")) && !share_memory("", ""));
        assert!(!share_memory(&one.on(""), &one.on("")), "neither shares memory");
        let apart = EmulatedLinks::new(Some(one.clone()));
        assert!(apart.link_to(&one.on("other host")).is_none());
        let way = apart.link_to(&two.on("host")).unwrap();
        assert!(Arc::ptr_eq(&way, &apart.link_to(&two.on("")).unwrap()));
        assert!(!Arc::ptr_eq(&way, &apart.link_to("host without a site").unwrap()));
        assert!(EmulatedLinks::new(Some(site("1"))).link_to(&two.on("host")).is_none(), "without filters");
    }

    #[test]
    fn connections_share_the_rate_and_each_keeps_its_order() {
        let apart = EmulatedLinks::new(Some(site("1 rate=1MB/s delay=16ms jitter=4ms")));
        let way = apart.link_to("").unwrap();
        let (start, ms) = (way.start, Duration::from_millis);
        assert_eq!(way.room_bytes(), 20_000 + SITE_WAITING_BYTES);
        let without_rate = EmulatedLinks::new(Some(site("1 delay=2s"))).link_to("").unwrap().room_bytes();
        assert_eq!(without_rate, CONTROL_BACKLOG_BYTES_MAX);
        let leaves = |due: u64, now: u64, bytes| way.departure(start + ms(due), start + ms(now), bytes) - start;
        assert_eq!(leaves(0, 0, 1000), ms(1));
        assert_eq!(leaves(0, 0, 10_000), ms(11), "another connection's");
        assert_eq!(leaves(11, 14, 1000), ms(12), "woken late, it catches up");
        assert_eq!(leaves(20, 100, 1000), ms(101), "a pause is not made up for");
        let mut delays = way.delays(1);
        let due: Vec<Instant> = (0..20).map(|_| delays.due(start)).collect();
        assert!(due.is_sorted() && due.iter().all(|due| (ms(16)..=ms(20)).contains(&(*due - start))));
    }
}
