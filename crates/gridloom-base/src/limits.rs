//! All limits of the system in one place, each with its reason.

use super::PartSizes;
use super::time::{MILLISECOND_NS, SECOND_NS};

/// Largest control frame. Graphs and plans are split into messages well below this size, so a longer frame is a bug
/// or an attack.
pub const FRAME_BYTES_MAX: usize = 64 << 20;
/// Minimum and maximum number of connections that the filter `stripe` uses. A single connection would not spread
/// anything, and more than 16 bring no further speedup.
pub const STRIPES: (usize, usize) = (2, 16);
/// Bytes of messages that may be queued on one connection per direction before its sender waits.
pub const SEND_QUEUE_BYTES_MAX: u64 = 4 << 20;
/// Latest time in a deployment, in seconds: about thirty years, which both clocks and virtual time can represent.
pub const DEPLOYMENT_SECONDS_MAX: f64 = 1e9;
/// Largest message between processes, in bytes. Few machines have memory for a larger message and its copies.
pub const PROCESS_MESSAGE_BYTES_MAX: u64 = 64 << 30;
/// Longest delay that a filter between two processes may add, in seconds. No real link has a longer one.
pub const FILTER_DELAY_SECONDS_MAX: f64 = 60.0;
/// Range of rates for a filter, in bytes per second: from less than a modem's rate to more than that of any link.
pub const FILTER_RATES: (f64, f64) = (100.0, 1e12);
/// Longest delay that filters between two sites of a grid may add, in seconds. Pings and their answers pass through
/// the filters too, and a peer that is silent for ten seconds counts as lost.
pub const SITE_DELAY_SECONDS_MAX: f64 = 2.0;
/// Lowest rate between two sites of a grid, in bytes per second. Control messages share the link with data and must
/// arrive before the peer counts as lost.
pub const SITE_RATE_MIN: f64 = 100e3;
/// Bytes that a sender may queue for the delay between two sites, in addition to the bytes in flight at the given rate.
pub const SITE_WAITING_BYTES: usize = 1 << 20;
/// Rate assumed for the number of bytes in flight between two sites if no rate is set, in bytes per second.
pub const SITE_RATE_WITHOUT_LIMIT: f64 = 1e9;
/// Longest name of a site, in bytes.
pub const SITE_NAME_BYTES_MAX: usize = 64;
/// Shortest message that the filter `compress` compresses, in bytes. A shorter one fits into one packet as it is.
pub const COMPRESS_BYTES_MIN: usize = 1024;
/// Longest message that is compressed, in bytes. It also limits the memory into which a small message can expand.
pub const COMPRESS_BYTES_MAX: usize = 1 << 30;
/// How early the filter `rate` hands a message to the connection, before the time at which the rate allows it. The
/// receiver waits out the rest, so the delay passes even while the sender computes.
pub const FILTER_AHEAD_NS: u64 = 100_000_000;
/// Buffers of each kind that a process keeps for reuse: one to send from and one to receive into.
pub const POOLED_BUFFERS_MAX: usize = 2;
/// Largest buffer that is kept for reuse. For longer messages the cost of copying outweighs that of allocation.
pub const POOLED_BYTES_MAX: usize = 4 << 20;
/// Smallest buffer that is kept for reuse: smaller ones cost the allocator little.
pub const POOLED_BYTES_MIN: usize = 8 << 10;
/// Largest urgent message between processes, in bytes: it is copied into the queue, and messages behind it wait for it.
pub const URGENT_BYTES_MAX: u64 = 64 << 10;
/// Longest name of a message type, in bytes.
pub const KIND_BYTES_MAX: usize = 255;
/// Largest datum that travels on the control connection and is sent without a request (eager). A larger one waits
/// until its receiver has room and requests it (rendezvous), and travels on a bulk connection.
pub const EAGER_BYTES_MAX: u64 = 32 << 10;
/// Size of the parts into which large data are split. Smaller parts would wake more threads per byte; larger parts
/// would increase the latency of each server of a chain.
pub const PARTS: PartSizes = PartSizes { least_bytes: 64 << 10, most_bytes: 256 << 10 };
/// Data that a node forwards to one peer at a time while it still receives them. Each needs a stream and a thread on
/// both sides. The limit is large enough that transfers over a slow link to several servers need not wait for one
/// another.
pub const FORWARDS_MAX: usize = 7;
/// Smallest upload limit of a server, in bytes per second. At this rate the largest part of a datum takes four seconds.
pub const UPLOAD_RATE_MIN: f64 = 64e3;
/// Longest forwarding chain, counted in sends from a holder of a datum to the last server. A longer chain is cut: the
/// servers after the cut send requests as if they were at it.
pub const HOPS_MAX: u16 = 4096;
/// Largest value that is stored inside a task's description (scalars and short strings).
pub const INLINE_BYTES_MAX: usize = 1 << 10;
/// Tasks in one message to a server. Keeps control frames short.
pub const TASKS_PER_MESSAGE: usize = 512;
/// Tasks in one group. A program with more tasks closes the group and opens another.
pub const GROUP_TASKS_MAX: usize = 200_000;
/// Loop bodies that are delayed to be mapped together. More would improve the mapping little and delay the start.
pub const REGROUP_BODIES_MAX: usize = 256;
/// Slots of one server: more than any host has processors.
pub const SLOTS_MAX: u32 = 4096;
/// Servers of a local grid. Each is a process on this machine.
pub const LOCAL_SERVERS_MAX: usize = 256;
/// Sites of an embedded local grid. Each uses an address of the loopback device, from 127.0.0.1 to 127.0.0.254.
pub const LOCAL_SITES_MAX: usize = 254;
/// Slots of all servers of a local grid together. Each slot is a process too, and few machines have more processors.
pub const LOCAL_SLOTS_MAX: usize = 1024;
/// Objects that one server keeps at a time. Each is a process.
pub const OBJECTS_MAX: usize = 256;
/// Dimensions of an array (the same limit as NumPy's).
pub const DIMENSIONS_MAX: usize = 64;
/// Parameters of one function.
pub const PARAMETERS_MAX: usize = 128;
/// Callbacks of one function (the same limit as Ninf-G's).
pub const CALLBACKS_MAX: usize = 32;
/// Bytes that a function sends to its program or receives from it in one callback. They travel inside one message.
pub const CALLBACK_BYTES_MAX: u64 = 16 << 20;
/// Nesting depth of an expression, so that hostile text cannot exhaust the stack.
pub const EXPRESSION_DEPTH_MAX: usize = 64;
/// Nesting depth of heuristics that start from one another's plans, for the same reason. Two levels are enough in
/// practice.
pub const SPEC_DEPTH_MAX: usize = 8;
/// Longest time that an agent spends on the plan of one group. The slower heuristics need less for 100,000 tasks on a
/// thousand servers.
pub const MAP_NS_MAX: u64 = 30 * SECOND_NS;
/// The same limit in simulation, where mapping takes no time: how often a heuristic may check its time limit. No
/// heuristic checks more often within [`MAP_NS_MAX`].
pub const MAP_CHECKS_MAX: u64 = 100_000_000;
/// A grid with at most this many servers is mapped onto as a whole. In a larger one, servers that are too slow to be useful to
/// a group are left out beforehand.
pub const SERVERS_MAPPED_ALL_MAX: usize = 128;
/// Servers per function that a mapping considers, the fastest ones: a table of all pairs of these takes 16 MB.
pub const SERVERS_MAPPED_MAX: usize = 1_000;
/// After this time a mapping no longer blocks others. Mappings that start while it runs do not take its plan into
/// account. Most mappings take less.
pub const MAP_EXCLUSIVE_NS: u64 = 200 * MILLISECOND_NS;
/// Concurrent mappings of an agent. Each uses a thread.
pub const MAPPINGS_MAX: usize = 4;
/// Mapping requests of one client that wait at an agent. Each has at most the size of one message.
pub const MAP_REQUESTS_MAX: usize = 4096;
/// Longest name of a function, module, server or parameter, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest name of a grid, in bytes: it is part of each certificate, and the name of a folder.
pub const GRID_NAME_BYTES_MAX: usize = 64;
/// Longest shared name of a datum, in bytes: enough for a path, and small compared with the rest of a message.
pub const DATUM_NAME_BYTES_MAX: usize = 1024;
/// Maximum number of users, stated one by one, with whom a name is shared.
pub const READERS_MAX: usize = 64;
/// Maximum total length of their names, in bytes. With it, thousands of names fit into one message.
pub const READERS_BYTES_MAX: usize = 2048;
/// Maximum size of a file of rules: those of thousands of users. Each server receives all of them in one message.
pub const RULES_BYTES_MAX: u64 = 256 << 10;
/// Maximum weight of a user. A turn of a user of this weight costs a thousandth, which is still a whole number.
pub const WEIGHT_MAX: u32 = 1000;
/// Maximum number of shared data in the list of one agent, including versions that are still being read. An entry with a
/// short name takes 1.2 kB of the agent's memory, so a full list takes 1.3 GB.
pub const SHARED_DATA_MAX: usize = 1 << 20;
/// Pairs of hosts at different sites that are modelled as sharing the link between the sites.
pub const SITE_PAIRS_MAX: usize = 1 << 16;
/// Largest number of replicas of a shared datum.
pub const REPLICAS_MAX: u16 = 16;
/// Servers that may fail to store the datum of one put before the put fails. Each of them received all of it for
/// nothing.
pub const KEEPERS_TRIED_MAX: usize = 32;
/// Longest reason that a server reports for such a failure, in bytes. File names and the system's error texts are
/// shorter.
pub const REFUSAL_BYTES_MAX: usize = 512;
/// Initial time for which a server that failed to store a shared datum is not tried again. The time doubles with each
/// failure.
pub const KEEPER_RETRY_NS_MIN: u64 = HEARTBEAT_NS;
/// Upper limit of [`KEEPER_RETRY_NS_MIN`]'s doubling. A disk that has free space again is noticed within this time.
pub const KEEPER_RETRY_NS_MAX: u64 = 600 * SECOND_NS;
/// Requests at one agent that wait for names that do not exist yet.
pub const NAME_WAITS_MAX: usize = 1 << 20;
/// The same limit for a single client: each task of the largest group may wait for a different name.
pub const NAME_WAITS_PER_CLIENT_MAX: usize = GROUP_TASKS_MAX;
/// Shared data that one message lists.
pub const SHARED_DATA_PER_MESSAGE: usize = 4096;

/// Chares of one array. Each takes four bytes on every processing element, because every element knows the location of
/// all of them.
pub const CHARES_MAX: usize = 1 << 28;
/// Messages that may wait at one processing element. A program that exceeds this sends without end.
pub const CHARE_MESSAGES_MAX: usize = 1 << 27;
/// Bytes of messages for one processing element that are sent in one batch. Longer batches save little and delay their
/// first message.
pub const CHARE_BATCH_BYTES: usize = 32 << 10;
/// Shortest interval at which a load balancer examines the load. In a shorter one, random variations of entry methods
/// would count too much.
pub const BALANCE_PERIOD_NS_MIN: u64 = 100_000_000;
/// The interval doubles while migrations do not pay, up to this limit, so that a change is noticed within this time.
pub const BALANCE_PERIOD_NS_MAX: u64 = 10_000_000_000;
/// Bytes of messages for one processing element that may be at another one, in flight or waiting to run, and as many
/// again that may wait for these. A chare that sends more is suspended until some have been delivered.
pub const CHARE_BACKLOG_BYTES_MAX: usize = 64 << 20;
/// Entry methods, batches and pauses that a processing element records for a timeline: 32 bytes each, so 32 MiB.
/// Viewers are slow with more.
pub const CHARE_EVENTS_MAX: usize = 1 << 20;
/// Default size of the mailbox of a processing element: bytes of messages from other elements that may wait there,
/// shared by all senders.
pub const CHARE_MAILBOX_BYTES: u64 = 256 << 20;
/// Smallest share of the mailbox per sender. A smaller one would throttle messages on a fast link with a long latency.
pub const CHARE_WINDOW_BYTES_MIN: u64 = 256 << 10;
/// Bytes of messages for one processing element that may wait for its credit. A program that exceeds this sends
/// everything before it receives.
pub const CHARE_UNSENT_BYTES_MAX: u64 = 4 << 30;
/// Processing elements of one program. Each is a process with a connection to every other one.
pub const PROCESSING_ELEMENTS_MAX: usize = 1024;

/// Bytes of memory of one typed message, in the sender's and in the receiver's representation. Offsets stay far below
/// the pointer range of a 32-bit machine.
pub const LAYOUT_BYTES_MAX: u64 = 1 << 30;
/// Memory blocks of one typed message, for example a list of a million nodes. The table of a hostile message stays
/// below 32 MiB.
pub const LAYOUT_BLOCKS_MAX: usize = 1 << 20;
/// Structs, unions and enums in the declaration of one message type.
pub const LAYOUT_DECLARATIONS_MAX: usize = 1024;
/// Fields of a struct, cases of a union, or constants of an enum.
pub const LAYOUT_MEMBERS_MAX: usize = 4096;
/// Nesting depth of types by value, so that traversing a value cannot exhaust the stack. Nesting by pointers is
/// unlimited.
pub const LAYOUT_TYPE_DEPTH_MAX: usize = 64;
/// Length of a declaration's text, including one received with a message, in bytes.
pub const LAYOUT_TEXT_BYTES_MAX: usize = 1 << 20;
/// Depth of nested pointers when a message is converted to a tree (a Rust value), which is recursive.
pub const LAYOUT_TREE_DEPTH_MAX: usize = 512;
/// Average number of times that a message's memory may be copied when it is converted to a tree, which duplicates
/// shared blocks. Without a limit a short message with shared pointers could grow exponentially.
pub const LAYOUT_TREE_COPIES_MAX: u64 = 16;

/// Elements of a typed message that are displayed, and characters of a string, as a multiple of the number of elements
/// that are displayed of one array. Without it nested arrays would multiply.
pub const LAYOUT_DISPLAY_FACTOR: u64 = 16;

/// Shortest period of a repeating profile, in seconds: a thousand times the time resolution of the simulation. A
/// period of zero would never end, and a shorter one creates more events than a user would wait for.
pub const PROFILE_LOOP_S_MIN: f64 = 1e-6;

/// Interval between heartbeats on a connection.
pub const HEARTBEAT_NS: u64 = SECOND_NS;
/// How long a task without room waits while all admitted tasks wait for answers to their callbacks. Their program may
/// itself be waiting for this task.
pub const CALLBACK_WAIT_NS_MAX: u64 = 30 * SECOND_NS;
/// A peer that has been silent for this long is considered dead. Ten heartbeats: a host that swaps or a link that
/// stalls for some seconds is slow, not dead.
pub const SILENCE_NS_MAX: u64 = 10 * SECOND_NS;
/// Time without an event after which a client logs the pending requests of its program. It is longer than the wait for
/// lost nodes.
pub const QUIET_NS: u64 = 30 * SECOND_NS;
/// Time without an event after which a client reports the pending requests of its program to the agent, for operators.
/// Programs that make progress report nothing.
pub const WAITS_REPORT_NS: u64 = 3 * HEARTBEAT_NS;
/// Maximum number of texts in such a report, each about one server or one kind of request. Further texts are dropped.
pub const WAITS_PER_PROGRAM_MAX: usize = 16;
/// Maximum length of such a text, in bytes: enough for the names of a few calls.
pub const WAIT_TEXT_BYTES_MAX: usize = 512;
/// Number of consecutive heartbeats that a server may leave unanswered while another one waits for its shared data. If
/// other servers have the data, the receiver then chooses another source, long before the server counts as dead.
pub const SOURCE_PINGS_MAX: u32 = 2;
/// How long operations that need a lost node wait for its return: as long as it takes to detect a silent peer. A node
/// that restarts, a laptop that wakes up or a link that recovers is back well before.
pub const RECONNECT_NS_MAX: u64 = SILENCE_NS_MAX;
/// Log lines for refused connections per [`REFUSALS_LOGGED_NS`]: enough for a diagnosis, and at most a megabyte a day.
pub const REFUSALS_LOGGED_MAX: u32 = 10;
/// See [`REFUSALS_LOGGED_MAX`].
pub const REFUSALS_LOGGED_NS: u64 = 60 * SECOND_NS;
/// Time limit for opening a connection.
pub const DIAL_NS_MAX: u64 = 5 * SECOND_NS;
/// How often a task is restarted after its server was lost before its call fails.
pub const TASK_ATTEMPTS_MAX: u32 = 5;
/// How many workers may be killed while they run one task before the task is considered the cause, for example because
/// it needs too much memory.
pub const WORKERS_KILLED_MAX: u32 = 3;
/// How often the transfer of a datum to one node may fail before that is an error. It is retried once per heartbeat,
/// because a temporary cause (no memory, no descriptors) may last as long as it takes to detect a silent peer.
pub const INTERRUPTIONS_MAX: u32 = 10;
/// How long a client has to fetch a result that exceeds a server's room before another client's claim to its share of
/// the store takes precedence.
pub const WRITE_BACK_NS_MAX: u64 = 10 * SECOND_NS;
/// Maximum number of events of a simulation at one instant. The largest group needs a hundred per task if no event takes
/// time; more events are a loop.
pub const EVENTS_AT_ONE_TIME_MAX: u64 = 100 * GROUP_TASKS_MAX as u64;
/// Sizes of bandwidth probes in bytes, sent in this order. The first is small enough for the slowest link; the last is
/// large enough that start-up costs do not matter on a fast one.
pub const PROBE_BYTES: [u64; 3] = [64 << 10, 512 << 10, 4 << 20];
/// The next larger probe is sent only if its predicted duration is at most this.
pub const PROBE_NS_MAX: u64 = 100 * MILLISECOND_NS;
/// Peers that one node probes. If there are more, the rest are assumed to be like the measured ones.
pub const PROBE_PEERS_MAX: usize = 16;
/// Peers that a new node probes in a grid of more than [`SERVERS_MAPPED_ALL_MAX`] servers. On a local network, four probes take
/// 0.3 s; plans wait for them.
pub const PROBE_PEERS_LARGE: usize = 4;
/// Links of which an agent has models, at some 700 bytes each: 26 for each of 10,000 hosts. If data move between more pairs of
/// hosts, those that were measured longest ago are forgotten.
pub const LINKS_MAX: usize = 1 << 18;
/// Smallest transfer that bandwidth is learned from. The time of a smaller one depends more on latency.
pub const LEARN_BYTES_MIN: u64 = 256 << 10;
/// Sums of bytes over links that a server or an agent keeps for a day, one for each user and link of the rules, at some 100 bytes each. If there
/// are more, the rest is not limited.
pub const LINK_USES_MAX: usize = 16_384;
/// Links that rules may name. Each datum that a server receives is compared with all of them.
pub const RULES_LINKS_MAX: usize = 64;
/// Paths through relays that an agent remembers, at some 150 bytes each. If there are more, plans assume that the rest
/// share no relay.
pub const RELAYED_PATHS_MAX: usize = 65_536;
/// Characters of a relay's address that a receiver reports: a host name has at most 253, a port 6.
pub const ADDRESS_CHARS_MAX: usize = 300;
/// Transfers that a server reports to the agent per [`RATE_REPORT_NS`], the largest ones first, at 32 bytes each.
pub const TRANSFERS_PER_REPORT: usize = 64;
/// Past transfers that are remembered to find those that overlapped in time.
pub const TRAFFIC_SEEN_MAX: usize = 1024;
/// How long past transfers are remembered. See [`TRAFFIC_SEEN_MAX`].
pub const TRAFFIC_NS_MAX: u64 = 30 * SECOND_NS;
/// Servers on one host that plans model as sharing a network interface. With more, each is modelled with an interface
/// of its own.
pub const SHARED_NIC_SERVERS_MAX: usize = 64;
/// Largest product of data and places of a group whose plans are evaluated with contention: the tables take 128 MiB.
pub const CONTENTION_ENTRIES_MAX: usize = 1 << 24;
/// Bottlenecks that plans take into account.
pub const BOTTLENECKS_MAX: usize = 64;
/// Pairs of links for which it is recorded whether they share a bottleneck.
pub const RELATIONS_MAX: usize = 4096;
/// How long after a transfer the agent waits before it learns from it. By then concurrent transfers have been reported.
pub const TRAFFIC_SETTLES_NS: u64 = 3 * RATE_REPORT_NS;
/// A link that has not been measured for this long is probed if it is idle.
pub const LINK_PROBE_NS: u64 = 60 * SECOND_NS;
/// The same for a link whose bandwidth has dropped below its usual one: plans wait for its recovery.
pub const DEGRADED_PROBE_NS: u64 = 5 * SECOND_NS;
/// A link is considered idle if its sender has sent nothing over it for this long.
pub const LINK_QUIET_NS: u64 = 2 * SECOND_NS;
/// How long the mapping of a group waits for link and speed measurements in progress.
pub const MEASURE_WAIT_NS_MAX: u64 = 2 * SECOND_NS;
/// How long a request for a datum waits at a node that does not know the datum yet.
pub const FETCH_UNKNOWN_NS_MAX: u64 = 30 * SECOND_NS;
/// Calls of a function whose mean time is below this may queue inside a worker, so that empty calls are not limited by
/// the round trip.
pub const SHORT_CALL_NS_MAX: u64 = 100_000;
/// Peers on its host with which one process shares memory: 2 MiB with each, 64 MiB in all. It uses TCP with further
/// peers. All pairs of 256 processes would take 64 GiB.
pub const RINGS_MAX: usize = 32;
/// How long a process that exits waits for its peers to receive some of the data that it sent.
pub const LINGER_NS_MAX: u64 = 10 * SECOND_NS;
/// Closed connections that a process remembers: their names for the log, and closes that its code has not been
/// notified of yet.
pub const FORMER_PEERS_MAX: usize = 16_384;
/// Tasks of other clients that are reported to a client because they block its own tasks. The client uses the longest
/// ones.
pub const BLOCKERS_REPORTED_MAX: usize = 64;
/// Shortest interval between two reports of measured speeds to the agent.
pub const RATE_REPORT_NS: u64 = 100 * MILLISECOND_NS;
/// Smallest ratio of recent call times to predicted ones that counts as a change of pace. Beyond it the models are
/// considered wrong.
pub const PACE_MIN: f64 = 0.01;
/// Largest such ratio. See [`PACE_MIN`].
pub const PACE_MAX: f64 = 100.0;
/// Calls with a shorter predicted time are not used to estimate a server's pace: their times are noise.
pub const PACE_CALL_S_MIN: f64 = 1e-3;
/// A call that exceeds its expected time by less than this, in seconds, may have waited for its turn on a processor:
/// CPU quotas are enforced in periods of a tenth of a second.
pub const TIME_SLICE_NOISE_S: f64 = 0.25;
/// Calls below this time, in seconds, are short: the effect of time sharing shows only in sums of them.
pub const SHORT_CALL_S: f64 = 0.1;
/// Short calls of one size that are kept for learning.
pub const SHORT_CALLS_KEPT: usize = 64;
/// Numbers of concurrent tasks for which call times are kept.
pub const LOADS_MAX: usize = 24;
/// A change of pace by this factor or more is reported to the agent. From [`STALE_FACTOR`] on it is also reported to
/// clients whose plans depend on it.
pub const PACE_REPORT_FACTOR: f64 = 1.25;
/// Plans made for a pace that has changed by this factor are stale: the rest of the group is remapped if that pays.
pub const STALE_FACTOR: f64 = 1.5;
/// Plans based on a function's predicted time that proves wrong by this factor are stale too.
pub const SURPRISE_FACTOR: f64 = 3.0;
/// Largest part of the remaining time that remapping the rest of a group may take.
pub const REMAP_PART_MAX: f64 = 0.1;
/// Shortest interval between reports of a model that has changed little.
pub const MODEL_REPORT_NS: u64 = 60 * SECOND_NS;
/// Points of one curve of a model: more than any function needs for an accuracy of a few per cent, and about a
/// kilobyte.
pub const MODEL_POINTS_MAX: usize = 24;
/// Output of one call that a server keeps, in bytes: some hundred lines, as much as a person reads.
pub const OUTPUT_BYTES_PER_CALL: usize = 64 << 10;
/// Output of all calls that a server keeps, including finished ones, in bytes. Small compared with its store.
pub const OUTPUT_BYTES_MAX: usize = 8 << 20;
/// Output in one answer, in bytes. Keeps control frames short.
pub const OUTPUT_BYTES_PER_MESSAGE: usize = 1 << 20;
/// Memory charged per line of output in addition to its text, in bytes: empty lines take memory too.
pub const OUTPUT_LINE_BYTES: usize = 64;
/// Longest line of output of a deployed process, in bytes. The command prints a longer line in parts. The limit is
/// much longer than lines that programs read, and small compared with the memory of the processes, of which there may
/// be a thousand.
pub const OUTPUT_PART_BYTES_MAX: usize = 1 << 20;
/// Dropped data that a server remembers, so that a late request is refused instead of being kept waiting.
pub const DROPPED_REMEMBERED: usize = 65_536;
/// Default limit of one server's store.
pub const STORE_BYTES_DEFAULT: u64 = 4 << 30;
/// Work assumed for a function that declares no complexity, in floating-point operations.
pub const WORK_FLOPS_DEFAULT: f64 = 1e6;
/// Speed assumed for a server that has not been measured yet, in floating-point operations per second.
pub const SPEED_FLOPS_DEFAULT: f64 = 1e9;

/// Interval between two reports of a server about the usage of users. A server that is killed has not reported the rest.
pub const USAGE_REPORT_NS: u64 = 10 * SECOND_NS;
/// Users whose usage a server counts separately; all others count as one. A report of all of them is at most 100 KiB long.
pub const USAGE_USERS_MAX: usize = 256;
/// Days for which the agent keeps the usage of users: more than a year, for yearly reports.
pub const USAGE_DAYS_MAX: u32 = 400;
/// Users of one day whose usage the agent keeps separately; all others count as one.
pub const USAGE_USERS_PER_DAY_MAX: usize = 1024;
/// Days after which the agent forgets the last report of a server that reports nothing. Servers repeat their reports more often.
pub const USAGE_SERVER_DAYS_MAX: u32 = 30;
/// Users in the last reports of all servers, in total, that the agent remembers. Beyond it, the servers that have been silent
/// longest are forgotten. The remembered reports take at most 20 MiB.
pub const USAGE_TOTALS_MAX: usize = 1 << 17;
/// Entries in one answer about usage.
pub const USAGE_PER_PAGE: usize = 1024;
/// Records of one user per [`AUDIT_NS`] in the audit log of the agent; the others are only counted. A program that reads
/// thousands of shared names in a second must not fill the disk.
pub const AUDIT_RECORDS_MAX: u32 = 120;
/// See [`AUDIT_RECORDS_MAX`].
pub const AUDIT_NS: u64 = 60 * SECOND_NS;
/// Users for whom records are counted separately; all others count as one.
pub const AUDIT_USERS_MAX: usize = 1024;
/// Records in one report of a server, and kinds of calls that it counts separately.
pub const AUDIT_PER_REPORT: usize = 256;
/// Records of one server per [`AUDIT_NS`] in the audit log: those of ten full reports.
pub const AUDIT_RECORDS_OF_SERVER_MAX: u32 = 5120;
/// Requests of one client whose answers the agent awaits, to record them.
pub const AUDIT_REQUESTS_MAX: usize = 256;
