//! Sites of a grid on one machine, as if they were far apart: what a node sends to another site passes filters.
//!
//! ```text
//!   control connection ── Held: waits until it is due ──┐
//!                                                       ├─ Way: one rate ══▶ the other site
//!   lane of bulk ──────── Paced: waits until it is due ─┘
//! ```
//! Each node filters what it sends, below pings and probes. All that goes from this node to one site shares the rate. What is sent is due
//! after the delay and leaves then at the rate: for a delay that does not change, that is the same as the other order, and nothing has to be put
//! aside for what is sent later and leaves earlier. Handshakes pass no filters.
//!
//! A node says its site behind its host's name. So nodes of two sites share no memory.
//!
//! **Limits:** what one node sends has the rate, not what all of a site send. Data that are passed on while they come may be late by one delay more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use gridloom_base::limits::{
    SITE_DELAY_SECONDS_MAX, SITE_NAME_BYTES_MAX, SITE_RATE_MIN, SITE_RATE_WITHOUT_LIMIT, SITE_WAITING_BYTES,
};
use gridloom_base::{Fnv, Time};
use gridloom_process::filter::{FilterSpec, Pair, Times};

use super::CONTROL_BACKLOG_BYTES_MAX;

/// In a program's environment: its site and the filters to others, such as `2 rate=10MB/s delay=16ms`. An empty one names none.
pub const SITE_VARIABLE: &str = "GRIDLOOM_SITE";
/// Stands between a host's name and the site.
const AT: char = '@';
/// So many bytes are given to the way at a time: other connections have a turn between two such pieces.
pub(super) const PIECE_BYTES: usize = 16 << 10;
/// A thread that wakes late may catch up so much: it is asleep when its part is due.
const CATCHES_UP: Duration = Duration::from_millis(5);

/// The site of a node, and what stands between it and the others.
#[derive(Clone, PartialEq, Debug)]
pub struct Site {
    name: String,
    filters: Vec<FilterSpec>,
}

impl Site {
    /// # Errors
    /// If it cannot have that name, or one of the filters cannot stand between sites.
    pub fn new(name: &str, filters: Vec<FilterSpec>) -> Result<Site, String> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !(1..=SITE_NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_name) {
            return Err(format!(
                "site '{name}': a name has 1 to {SITE_NAME_BYTES_MAX} letters, digits, '-', '_' and '.'"
            ));
        }
        let mut times = Times::new(&filters, Pair { from: 0, to: 0 })?;
        let seconds = times.holds_ns_max() as f64 / 1e9;
        if seconds > SITE_DELAY_SECONDS_MAX {
            return Err(format!("{seconds} s between two sites: at most {SITE_DELAY_SECONDS_MAX} s can be"));
        }
        if times.leaves(Time::ZERO, SITE_RATE_MIN as usize) > Time(1_000_000_000) {
            return Err(format!("the rate between two sites is at least {} kB/s", SITE_RATE_MIN / 1e3));
        }
        Ok(Site { name: name.into(), filters })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn filters(&self) -> &[FilterSpec] {
        &self.filters
    }

    /// That of the environment, if it names one.
    ///
    /// # Errors
    /// If what it says is no site.
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

    /// What a node there says of its host, which is empty if it shares no memory.
    pub(crate) fn on(&self, host: &str) -> String {
        format!("{host}{AT}{}", self.name)
    }
}

/// As in [`SITE_VARIABLE`].
impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)?;
        self.filters.iter().try_for_each(|filter| write!(f, " {filter}"))
    }
}

/// Whether two nodes that say this of their hosts share memory.
pub(crate) fn share_memory(own: &str, peer: &str) -> bool {
    own == peer && !own.is_empty() && !own.starts_with(AT)
}

fn site_of(host: &str) -> &str {
    host.split_once(AT).map_or("", |(_, site)| site)
}

/// What stands between this node and other sites, by site.
#[derive(Default)]
pub(crate) struct Apart {
    site: Option<Site>,
    ways: Mutex<BTreeMap<String, Weak<Way>>>,
}

impl Apart {
    pub(crate) fn new(site: Option<Site>) -> Apart {
        Apart { site: site.filter(|site| !site.filters.is_empty()), ways: Mutex::default() }
    }

    /// The way to a peer that says this of its host; `None` if nothing stands between.
    pub(crate) fn way_to(&self, host: &str) -> Option<Arc<Way>> {
        let site = self.site.as_ref().filter(|site| site.name != site_of(host))?;
        let mut ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        ways.retain(|_, way| way.strong_count() > 0);
        if let Some(way) = ways.get(site_of(host)).and_then(Weak::upgrade) {
            return Some(way);
        }
        let way = Arc::new(Way::new(site, site_of(host)));
        ways.insert(site_of(host).into(), Arc::downgrade(&way));
        Some(way)
    }
}

/// From this node to another site.
pub(crate) struct Way {
    filters: Vec<FilterSpec>,
    /// For what is random, and of a connection.
    number: u32,
    start: Instant,
    room_bytes: usize,
    leaving: Mutex<Times>,
}

impl Way {
    fn new(site: &Site, to: &str) -> Way {
        let mut number = Fnv::default();
        site.name.bytes().chain([0]).chain(to.bytes()).for_each(|byte| number.byte(byte));
        let number = number.0 as u32;
        let times =
            |filters: &[FilterSpec]| Times::new(filters, Pair { from: number, to: 0 }).expect("made with the site");
        let mut probe = times(&site.filters);
        let ns = probe.leaves(Time::ZERO, SITE_RATE_MIN as usize).0.max(1) as f64;
        let rate = (SITE_RATE_MIN / (ns / 1e9)).min(SITE_RATE_WITHOUT_LIMIT);
        let under_way_bytes = (rate * probe.holds_ns_max() as f64 / 1e9) as usize;
        Way {
            filters: site.filters.clone(),
            number,
            start: Instant::now(),
            room_bytes: (under_way_bytes + SITE_WAITING_BYTES).min(CONTROL_BACKLOG_BYTES_MAX),
            leaving: Mutex::new(times(&site.filters)),
        }
    }

    /// Bytes that one connection may hold until they are due.
    pub(crate) fn room_bytes(&self) -> usize {
        self.room_bytes
    }

    /// For one connection, which keeps its order; `lane` tells it from others.
    pub(crate) fn delays(self: &Arc<Way>, lane: u32) -> Delays {
        let pair = Pair { from: self.number, to: lane };
        Delays { way: self.clone(), times: Times::new(&self.filters, pair).expect("made with the site") }
    }

    /// When so many bytes have left, behind all that was let out before. They were due at that time, or those before them on the
    /// same connection had left then.
    pub(crate) fn leaves(&self, due: Instant, now: Instant, size_bytes: usize) -> Instant {
        let is_ready = now.saturating_duration_since(due) <= CATCHES_UP;
        let at = self.time(if is_ready { due } else { now });
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        self.instant(leaving.leaves(at, size_bytes))
    }

    fn time(&self, at: Instant) -> Time {
        Time(at.saturating_duration_since(self.start).as_nanos() as u64)
    }

    fn instant(&self, at: Time) -> Instant {
        self.start + Duration::from_nanos(at.0)
    }
}

/// When what one connection sends is due.
pub(crate) struct Delays {
    way: Arc<Way>,
    times: Times,
}

impl Delays {
    pub(crate) fn way(&self) -> &Way {
        &self.way
    }

    /// When what is sent then is due.
    pub(crate) fn due(&mut self, sent: Instant) -> Instant {
        let sent = self.way.time(sent);
        self.way.instant(self.times.due(sent))
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
        assert_eq!(wrong("2 delay=2s jitter=1s"), "3 s between two sites: at most 2 s can be");
        assert_eq!(wrong("2 rate=99kB/s"), "the rate between two sites is at least 100 kB/s");
        assert!(wrong("2 fast").starts_with("filter 'fast' is not known"));
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
        let apart = Apart::new(Some(one.clone()));
        assert!(apart.way_to(&one.on("other host")).is_none());
        let way = apart.way_to(&two.on("host")).unwrap();
        assert!(Arc::ptr_eq(&way, &apart.way_to(&two.on("")).unwrap()));
        assert!(!Arc::ptr_eq(&way, &apart.way_to("host without a site").unwrap()));
        assert!(Apart::new(Some(site("1"))).way_to(&two.on("host")).is_none(), "without filters");
    }

    #[test]
    fn connections_share_the_rate_and_each_keeps_its_order() {
        let apart = Apart::new(Some(site("1 rate=1MB/s delay=16ms jitter=4ms")));
        let way = apart.way_to("").unwrap();
        let (start, ms) = (way.start, Duration::from_millis);
        assert_eq!(way.room_bytes(), 20_000 + SITE_WAITING_BYTES);
        let without_rate = Apart::new(Some(site("1 delay=2s"))).way_to("").unwrap().room_bytes();
        assert_eq!(without_rate, CONTROL_BACKLOG_BYTES_MAX);
        let leaves = |due: u64, now: u64, bytes| way.leaves(start + ms(due), start + ms(now), bytes) - start;
        assert_eq!(leaves(0, 0, 1000), ms(1));
        assert_eq!(leaves(0, 0, 10_000), ms(11), "another connection's");
        assert_eq!(leaves(11, 14, 1000), ms(12), "woken late, it catches up");
        assert_eq!(leaves(20, 100, 1000), ms(101), "a pause is not made up for");
        let mut delays = way.delays(1);
        let due: Vec<Instant> = (0..20).map(|_| delays.due(start)).collect();
        assert!(due.is_sorted() && due.iter().all(|due| (ms(16)..=ms(20)).contains(&(*due - start))));
    }
}
