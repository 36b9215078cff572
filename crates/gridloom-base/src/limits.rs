//! Every bound in one place, with its reason.

use super::Parts;
use super::time::{MILLISECOND_NS, SECOND_NS};

/// Largest control frame. Graphs and plans are cut into parts well below it; a longer one is an error or an attack.
pub const FRAME_BYTES_MAX: usize = 64 << 20;
/// Least and most connections over which the filter `stripe` spreads letters. One connection spreads nothing, and a seventeenth makes
/// nothing faster.
pub const STRIPES: (usize, usize) = (2, 16);
/// Bytes of letters of one connection that may be on their way before its sender waits.
pub const SEND_BYTES_MAX: u64 = 4 << 20;
/// Latest time of a deployment, seconds: thirty years, which clocks and virtual time both hold.
pub const DEPLOYMENT_SECONDS_MAX: f64 = 1e9;
/// Largest letter of a process, bytes.
pub const LETTER_BYTES_MAX: u64 = 1 << 30;
/// Longest time for which a filter between two processes holds a letter, seconds. No link has as much.
pub const FILTER_DELAY_SECONDS_MAX: f64 = 60.0;
/// Rates of a filter, bytes per second: a modem has more than the least, and no link more than the largest.
pub const FILTER_RATES: (f64, f64) = (100.0, 1e12);
/// Longest time for which filters between two sites of a grid hold what passes, seconds: a peer that is silent for ten seconds counts as lost,
/// and a ping and its answer pass the filters.
pub const SITE_DELAY_SECONDS_MAX: f64 = 2.0;
/// Least rate between two sites of a grid, bytes per second: messages pass beside data, and must not wait until a peer counts as lost.
pub const SITE_RATE_MIN: f64 = 100e3;
/// Bytes that may wait at a sender for their time between two sites, beside those that are under way at the rate.
pub const SITE_WAITING_BYTES: usize = 1 << 20;
/// Without a rate as many bytes may be under way between two sites as at that one, bytes per second.
pub const SITE_RATE_WITHOUT_LIMIT: f64 = 1e9;
/// Longest name of a site, bytes.
pub const SITE_NAME_BYTES_MAX: usize = 64;
/// Shortest letter that the filter `compress` tries to shorten, bytes. A shorter one fits a packet as it is.
pub const COMPRESS_BYTES_MIN: usize = 1024;
/// A letter goes to the connection so long before its turn by the filter `rate`: the receiver waits for the rest, also while the sender
/// computes.
pub const FILTER_AHEAD_NS: u64 = 100_000_000;
/// Buffers that a process keeps of each kind for the messages that come next: one to send from, one to receive into.
pub const SPARE_BUFFERS_MAX: usize = 2;
/// Largest buffer that is kept; the time of longer messages is that of their bytes.
pub const SPARE_BYTES_MAX: usize = 4 << 20;
/// Least buffer that is kept: smaller ones cost the allocator little.
pub const SPARE_BYTES_MIN: usize = 8 << 10;
/// Largest urgent letter of a process, bytes: it is copied to where it waits, and letters behind it wait for it.
pub const URGENT_BYTES_MAX: u64 = 64 << 10;
/// Longest name of a message's type, bytes.
pub const KIND_BYTES_MAX: usize = 255;
/// A datum up to this size travels on the control connection and is pushed unasked (eager); a larger one waits until
/// its receiver has room and asks (rendezvous), and travels on a bulk connection.
pub const EAGER_BYTES_MAX: u64 = 32 << 10;
/// Parts of large data. Smaller ones would wake more threads for each byte, larger ones make each server of a chain later.
pub const PARTS: Parts = Parts { least_bytes: 64 << 10, most_bytes: 256 << 10 };
/// Data that a node passes on to one peer at a time while they come: each takes a stream, and a thread on either side. As many may
/// come over a slow way at once as there are servers behind it; none of them is to wait for another.
pub const PASSED_ON_MAX: usize = 7;
/// Least limit on what a server sends in bulk, bytes per second: the largest part of a datum takes four seconds then.
pub const UPLOAD_RATE_MIN: f64 = 64e3;
/// Sends from a holder of a datum to the last server of a chain that passes it on. A longer chain is cut: its later servers ask as if
/// they stood there.
pub const HOPS_MAX: u16 = 4096;
/// Largest value inside a task's description (scalars and short strings).
pub const INLINE_BYTES_MAX: usize = 1 << 10;
/// Tasks in one message to a server, so that no control frame is long.
pub const TASKS_PER_MESSAGE: usize = 512;
/// Tasks in one group. Past it, close the group and open another.
pub const GROUP_TASKS_MAX: usize = 200_000;
/// Bodies of a loop that are held back to be mapped together. More gain little over so many, and wait long to start.
pub const REGROUP_BODIES_MAX: usize = 256;
/// Slots of one server: more than any host has processors.
pub const SLOTS_MAX: u32 = 4096;
/// Servers of a local grid: each is a process of this machine.
pub const LOCAL_SERVERS_MAX: usize = 256;
/// Sites of an embedded local grid: each has an address of the loopback device, 127.0.0.1 to 127.0.0.254.
pub const LOCAL_SITES_MAX: usize = 254;
/// Slots of all servers of a local grid together: each is a process, too. Few machines have more processors.
pub const LOCAL_SLOTS_MAX: usize = 1024;
/// Objects that one server keeps at a time: each is a process.
pub const OBJECTS_MAX: usize = 256;
/// Dimensions of an array (NumPy's own bound).
pub const DIMENSIONS_MAX: usize = 64;
/// Parameters of one function.
pub const PARAMETERS_MAX: usize = 128;
/// Callbacks of one function (Ninf-G's bound).
pub const CALLBACKS_MAX: usize = 32;
/// Bytes that a function gives its program, or gets from it, in one callback: they travel in a message.
pub const CALLBACK_BYTES_MAX: u64 = 16 << 20;
/// Nesting of an expression, so that hostile text cannot exhaust the stack.
pub const EXPRESSION_DEPTH_MAX: usize = 64;
/// Nesting of heuristics that start from one another, for the same reason; two are enough for any use.
pub const SPEC_DEPTH_MAX: usize = 8;
/// How long an agent spends on the plan of one group: 100,000 tasks on a thousand servers take the slower heuristics less.
pub const MAP_NS_MAX: u64 = 30 * SECOND_NS;
/// The same in simulation, where mapping takes no time: how often a heuristic may ask whether to go on. No heuristic asks more often
/// in those seconds.
pub const MAP_QUESTIONS_MAX: u64 = 100_000_000;
/// A mapping that takes longer lets others begin beside it, which do not know of its plan. Most take less.
pub const MAP_ALONE_NS: u64 = 200 * MILLISECOND_NS;
/// Mappings of an agent at a time: each is a thread.
pub const MAPPINGS_MAX: usize = 4;
/// Requests for plans of one client that wait at an agent. Each is at most a message long.
pub const MAP_REQUESTS_MAX: usize = 4096;
/// Length of a name (function, module, server, parameter).
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of the shared name of a datum: room for a path, and little beside what a message takes anyway.
pub const DATUM_NAME_BYTES_MAX: usize = 1024;
/// Shared data that one agent lists, versions that are still read included: some 300 MB of names and descriptions.
pub const SHARED_DATA_MAX: usize = 1 << 20;
/// Pairs of hosts of different sites of which it is reckoned that they share the way between them.
pub const SITE_PAIRS_MAX: usize = 1 << 16;
/// Servers that may be asked to keep a shared datum.
pub const REPLICAS_MAX: u16 = 16;
/// Servers that one put may find unable to keep its datum: each has taken all of it in vain.
pub const KEEPERS_TRIED_MAX: usize = 32;
/// Bytes of what a server says of that: names of files and of the system's errors are shorter.
pub const REFUSAL_BYTES_MAX: usize = 512;
/// How long a server that could not keep a shared datum is not asked again, at first. The pause doubles each time.
pub const KEEPER_RESTS_NS_MIN: u64 = HEARTBEAT_NS;
/// See [`KEEPER_RESTS_NS_MIN`]: a disk on which somebody has made room is found again in this time.
pub const KEEPER_RESTS_NS_MAX: u64 = 600 * SECOND_NS;
/// Requests for names that nobody has put yet, which wait at one agent.
pub const NAME_WAITS_MAX: usize = 1 << 20;
/// Shared data that one message lists.
pub const SHARED_DATA_TOLD_MAX: usize = 4096;

/// Chares of one array: each takes four bytes on every element, which knows where all of them are.
pub const CHARES_MAX: usize = 1 << 28;
/// Messages that may wait at one processing element. More is a program that sends without end.
pub const CHARE_MESSAGES_MAX: usize = 1 << 27;
/// Bytes of messages for one element that share a letter. Longer letters save little, and the first message waits for the last.
pub const CHARE_LETTER_BYTES: usize = 32 << 10;
/// After so long a load balancer looks at what chares did. Shorter, what one entry method took by chance would count too much.
pub const BALANCE_PERIOD_NS_MIN: u64 = 100_000_000;
/// If moves do not pay, looks come after twice the time, up to this: so soon a change is noticed at the latest.
pub const BALANCE_PERIOD_NS_MAX: u64 = 10_000_000_000;
/// Bytes of messages for one processing element that may be at another, on their way or waiting to run, and as many that may wait for
/// that. A chare that sends more runs no further until some have gone.
pub const CHARE_BACKLOG_BYTES_MAX: usize = 64 << 20;
/// Entry methods, letters and pauses that an element keeps for a timeline: 32 bytes each, so 32 MiB. Viewers are slow with more.
pub const CHARE_EVENTS_MAX: usize = 1 << 20;
/// Bytes of messages from other elements that may wait at a processing element, shared by those. A program may say otherwise.
pub const CHARE_MAILBOX_BYTES: u64 = 256 << 20;
/// The least share of it. Less would hold up messages on a fast link of long latency.
pub const CHARE_WINDOW_BYTES_MIN: u64 = 256 << 10;
/// Bytes of messages for one element that wait for its credit. More is a program in which all send before they receive.
pub const CHARE_UNSENT_BYTES_MAX: u64 = 4 << 30;
/// Processing elements of one program: each is a process with a connection to each other one.
pub const PROCESSING_ELEMENTS_MAX: usize = 1024;

/// Bytes of memory in one typed message, in the sender's and in the receiver's representation: positions stay far below
/// what the pointer of a 32-bit machine holds.
pub const LAYOUT_BYTES_MAX: u64 = 1 << 30;
/// Blocks of memory in one typed message: a list of a million nodes. The table of a hostile message stays below 32 MiB.
pub const LAYOUT_BLOCKS_MAX: usize = 1 << 20;
/// Structs, unions and enums that one message type is made of.
pub const LAYOUT_DECLARATIONS_MAX: usize = 1024;
/// Fields of a struct, cases of a union, constants of an enum.
pub const LAYOUT_MEMBERS_MAX: usize = 4096;
/// Nesting of types by value, so that walking a value exhausts no stack. Nesting by pointers has no bound.
pub const LAYOUT_TYPE_DEPTH_MAX: usize = 64;
/// Text of a declaration, also of one that comes with a message.
pub const LAYOUT_TEXT_BYTES_MAX: usize = 1 << 20;
/// Pointers followed one inside the other when a message becomes a tree (a Rust value), which is recursive.
pub const LAYOUT_TREE_DEPTH_MAX: usize = 512;
/// How often, on average, a message's memory may be copied when it becomes a tree, which copies what is shared. Without a
/// bound a short message of shared pointers grows exponentially.
pub const LAYOUT_TREE_COPIES_MAX: u64 = 16;

/// Elements that are shown of a typed message, and characters of a string, as a multiple of the elements that are shown of one
/// array: arrays of arrays of arrays would multiply.
pub const LAYOUT_SHOWN_FACTOR: u64 = 16;

/// Shortest time after which a profile starts again, seconds: a thousand times what counts as one date in simulation. A loop of
/// no time never ends, and a shorter one takes more events than a user would wait for.
pub const PROFILE_LOOP_S_MIN: f64 = 1e-6;

/// Interval between heartbeats on a connection.
pub const HEARTBEAT_NS: u64 = SECOND_NS;
/// How long a task without room waits while all admitted tasks wait for the answers to their callbacks: their program may
/// itself wait for the task.
pub const CALLED_BACK_NS_MAX: u64 = 30 * SECOND_NS;
/// A peer that said nothing for so long is taken for dead. Ten heartbeats: a host that swaps or a link that stalls
/// for some seconds is slow, not dead.
pub const SILENCE_NS_MAX: u64 = 10 * SECOND_NS;
/// How long what cannot go on without a node that was lost waits for it to come back: as long as it takes to notice that one is
/// silent. A node that begins anew, a laptop that wakes and a link that is up again are back well before.
pub const RETURN_NS_MAX: u64 = SILENCE_NS_MAX;
/// Lines of the log that refused connections get in [`REFUSALS_LOGGED_NS`]: enough to see what is wrong, and a megabyte a day.
pub const REFUSALS_LOGGED_MAX: u32 = 10;
/// See [`REFUSALS_LOGGED_MAX`].
pub const REFUSALS_LOGGED_NS: u64 = 60 * SECOND_NS;
/// How long a dial may take.
pub const DIAL_NS_MAX: u64 = 5 * SECOND_NS;
/// How often one task is started again after its server was lost, before its call fails.
pub const TASK_ATTEMPTS_MAX: u32 = 5;
/// Workers that are killed while they run one task, before that is taken for the task's fault: it needs too much memory, say.
pub const WORKERS_KILLED_MAX: u32 = 3;
/// How often a datum may break off on its way to one place before that is an error. It is tried again once a heartbeat:
/// what is in its way (no memory, no descriptors) may take as long to pass as a silence to be noticed.
pub const BROKEN_MAX: u32 = 10;
/// How long a client has to take a result that a server has no room for, before another client's claim to its share of the
/// store comes first.
pub const TAKE_HOME_NS_MAX: u64 = 10 * SECOND_NS;
/// Bytes of bandwidth probes, one size after the other: the first is little enough for the slowest link, the last enough
/// to leave the start-up behind on a fast one.
pub const PROBE_BYTES: [u64; 3] = [64 << 10, 512 << 10, 4 << 20];
/// The next larger probe is sent only if the last one says that it will take no longer.
pub const PROBE_NS_MAX: u64 = 100 * MILLISECOND_NS;
/// Peers that one node probes: with more, the rest are assumed to be like those measured.
pub const PROBE_PEERS_MAX: usize = 16;
/// A smaller transfer says more of latencies than of bandwidth.
pub const LEARN_BYTES_MIN: u64 = 256 << 10;
/// Transfers of one server that are told to the agent together, every [`RATE_REPORT_NS`]: the largest. 32 bytes each.
pub const SEEN_PER_REPORT: usize = 64;
/// Transfers that are remembered to find those that moved at the same time.
pub const TRAFFIC_SEEN_MAX: usize = 1024;
/// See [`TRAFFIC_SEEN_MAX`]: for so long.
pub const TRAFFIC_NS_MAX: u64 = 30 * SECOND_NS;
/// Servers of one host that plans take to share a network card: with more, each is taken to have a card of its own.
pub const SHARED_CARD_SERVERS_MAX: usize = 64;
/// Data × places of a group above which its plans are not judged with contention: tables of 128 MiB.
pub const JUDGE_ENTRIES_MAX: usize = 1 << 24;
/// Bottlenecks that plans know of.
pub const BOTTLENECKS_MAX: usize = 64;
/// Pairs of links of which it is known whether they share something.
pub const RELATIONS_MAX: usize = 4096;
/// How long the agent waits after a transfer until it learns from it: what moved at the same time is told by then.
pub const TRAFFIC_SETTLES_NS: u64 = 3 * RATE_REPORT_NS;
/// A link that was not measured for so long is probed, if nothing moves over it.
pub const LINK_PROBE_NS: u64 = 60 * SECOND_NS;
/// The same for a link that has fallen below what is usual: plans wait for it to come back.
pub const FALLEN_PROBE_NS: u64 = 5 * SECOND_NS;
/// Nothing moves over a link, as far as its sender can tell, if it sent nothing for so long.
pub const LINK_QUIET_NS: u64 = 2 * SECOND_NS;
/// How long the mapping of a group waits for links and speeds that are still being measured.
pub const MEASURE_WAIT_NS_MAX: u64 = 2 * SECOND_NS;
/// How long a request for a datum waits at a node that does not yet know of it.
pub const FETCH_UNKNOWN_NS_MAX: u64 = 30 * SECOND_NS;
/// Calls of a function may queue inside a worker if its mean time is below this, so that null calls are not bound by the
/// round trip.
pub const SHORT_CALL_NS_MAX: u64 = 100_000;
/// Peers of its host with which one process shares memory, 2 MiB with each: 64 MiB in all. All pairs of 256 processes would take 64 GiB.
/// It talks to further ones by TCP.
pub const RINGS_MAX: usize = 32;
/// How long a process that ends waits for others to take something of what it sent to them.
pub const LINGER_NS_MAX: u64 = 10 * SECOND_NS;
/// Closed connections that a process remembers: names for the log, and closes that its code has not yet been told of.
pub const FORMER_PEERS_MAX: usize = 16_384;
/// Of how many tasks of others a client hears that keep its own waiting: it reckons with the longest.
pub const OTHERS_TOLD_MAX: usize = 64;
/// Least pause between two reports of measured speeds to the agent.
pub const RATE_REPORT_NS: u64 = 100 * MILLISECOND_NS;
/// How much shorter and longer calls may take of late than the models say: beyond, it is the models that are wrong.
pub const PACE_MIN: f64 = 0.01;
/// See [`PACE_MIN`].
pub const PACE_MAX: f64 = 100.0;
/// Calls predicted to be shorter say nothing of a server's pace: their times are noise.
pub const PACE_CALL_S_MIN: f64 = 1e-3;
/// A call that is longer than expected by less than this may have waited for its turn on a processor, seconds: quotas are served in
/// periods of a tenth.
pub const TURNS_NOISE_S: f64 = 0.25;
/// Calls that take less are short: what their processor gives them in turns is seen in sums only, seconds.
pub const TURN_S: f64 = 0.1;
/// Short calls of one size that are learned from.
pub const SHORT_CALLS_KEPT: usize = 64;
/// Numbers of tasks side by side for which times are kept.
pub const LOADS_MAX: usize = 24;
/// A change of pace by this factor or more is told to the agent, and (from [`STALE_FACTOR`] on) to clients with plans that
/// rest on it.
pub const PACE_NEWS_FACTOR: f64 = 1.25;
/// Plans made for a pace that has changed by this factor are stale: what is left of the group is mapped again, if it pays.
pub const STALE_FACTOR: f64 = 1.5;
/// Plans made from a function's time that turns out to be wrong by this factor are stale, too.
pub const SURPRISE_FACTOR: f64 = 3.0;
/// What is left of a group is mapped again only if that takes no more than this part of the time that is left.
pub const REMAP_PART_MAX: f64 = 0.1;
/// A model that has changed little is reported no more often than this.
pub const MODEL_REPORT_NS: u64 = 60 * SECOND_NS;
/// Points of one curve of a model: more than any function needs to be told within a few per cent, and a kilobyte.
pub const MODEL_POINTS_MAX: usize = 24;
/// What a server keeps of that which one call has printed, bytes: some hundred lines, as much as a person reads.
pub const OUTPUT_BYTES_PER_CALL: usize = 64 << 10;
/// The same of all calls, also of those that have ended: little beside its store.
pub const OUTPUT_BYTES_MAX: usize = 8 << 20;
/// The same in one answer, so that no control frame is long.
pub const OUTPUT_BYTES_PER_MESSAGE: usize = 1 << 20;
/// What a line of it costs beside its text: empty lines take memory, too.
pub const OUTPUT_LINE_BYTES: usize = 64;
/// Bytes of a line that a process of a deployment prints: its command prints a longer one in parts. Much longer than lines that programs
/// read, and little beside the processes, of which there may be a thousand.
pub const OUTPUT_PART_BYTES_MAX: usize = 1 << 20;
/// Data that a server remembers having dropped, so that a late request is refused and not kept waiting.
pub const DROPPED_REMEMBERED: usize = 65_536;
/// Default bound on the store of one server.
pub const STORE_BYTES_DEFAULT: u64 = 4 << 30;
/// Work assumed for a function that states no complexity, in floating-point operations.
pub const WORK_FLOPS_DEFAULT: f64 = 1e6;
/// Speed assumed for a server that has not yet measured its own, in floating-point operations per second.
pub const SPEED_FLOPS_DEFAULT: f64 = 1e9;
