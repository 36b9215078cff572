//! Sockets of processes: listening ports, connections, messages in transit, and messages waiting to be read.
//!
//! A connection takes one round trip to establish and has two lanes, as a channel has (`gridloom_channel`). A message
//! is a flow over the route with the model's latency. Messages of one connection share the links with one another;
//! messages of one lane are delivered in order. So an urgent message does not wait for bulk messages, but shares the
//! links with them.
//!
//! Events here may resume a process; they are returned as a [`Wake`].

use std::collections::{BTreeMap, VecDeque};

use gridloom_base::limits::SEND_QUEUE_BYTES_MAX;
use gridloom_flow::{ActionId, Transfer};
use gridloom_platform::{HostId, Platform};
use gridloom_process::{Incoming, PeerId, ProcessError, ProcessMessage, ProcessSpec};

use super::cargo::MessageFlow;
use super::paths::Path;
use super::routes::{Route, Routes};
use crate::kernel::{Kernel, Purpose, ScheduledEvent};
use crate::observe::{Lane, MessageName, Observation, TransferContents};
use crate::process::ProcessId;

/// Something that a process may have been waiting for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wake {
    /// A message or notification to read.
    Incoming(ProcessId),
    /// Room to send to a peer.
    Room(ProcessId, PeerId),
    /// The result of its dial.
    Connected(ProcessId),
}

#[derive(Debug, Default)]
pub(crate) struct Sockets {
    /// Indexed by process number.
    owners: Vec<ProcessSockets>,
    listening: BTreeMap<(HostId, u16), ProcessId>,
    connections: Vec<Connection>,
    /// Messages that cannot move because nothing can pass on their route.
    blocked_letters: Vec<MessageName>,
}

/// The state of a process's sockets.
#[derive(Debug)]
struct ProcessSockets {
    host: HostId,
    function: String,
    host_name: String,
    inbox: VecDeque<Incoming>,
    /// By peer number: the connection, and which of its ends belongs to this process.
    peers: Vec<(u32, u8)>,
    /// The result of the last connect.
    connected: Option<Result<PeerId, ProcessError>>,
    next_port: u16,
}

#[derive(Debug)]
struct Connection {
    ends: [End; 2],
}

#[derive(Debug)]
struct End {
    process: ProcessId,
    peer: PeerId,
    /// On the listening end: the port that was dialled.
    port: u16,
    open: bool,
    /// True if its own process closed it, rather than a notification from the other end.
    closed_here: bool,
    bulk: Outgoing,
    urgent: Outgoing,
}

/// Messages of one end and lane that were not yet delivered.
#[derive(Debug, Default)]
struct Outgoing {
    /// The messages in order, each with whether it has arrived.
    sent: VecDeque<(ProcessMessage, bool)>,
    /// Number of the first message in `sent`.
    first: u64,
    bytes: u64,
}

impl Outgoing {
    /// Adds a message. Returns its number.
    fn push(&mut self, letter: ProcessMessage) -> u64 {
        self.bytes += letter.payload.len() as u64;
        self.sent.push_back((letter, false));
        self.first + self.sent.len() as u64 - 1
    }

    fn letter(&self, number: u64) -> &ProcessMessage {
        &self.sent[(number - self.first) as usize].0
    }

    /// Marks a message as arrived. Removes and returns the messages that can now be delivered.
    fn arrived(&mut self, number: u64) -> Vec<ProcessMessage> {
        self.sent[(number - self.first) as usize].1 = true;
        let mut letters = Vec::new();
        while self.sent.front().is_some_and(|(_, arrived)| *arrived) {
            let (letter, _) = self.sent.pop_front().expect("seen a moment ago");
            self.first += 1;
            self.bytes -= letter.payload.len() as u64;
            letters.push(letter);
        }
        letters
    }
}

impl End {
    fn lane(&self, lane: Lane) -> &Outgoing {
        match lane {
            Lane::Bulk => &self.bulk,
            Lane::Urgent => &self.urgent,
        }
    }

    fn lane_mut(&mut self, lane: Lane) -> &mut Outgoing {
        match lane {
            Lane::Bulk => &mut self.bulk,
            Lane::Urgent => &mut self.urgent,
        }
    }

    fn has_handed_all_over(&self) -> bool {
        self.bulk.sent.is_empty() && self.urgent.sent.is_empty()
    }
}

impl Sockets {
    /// Adds a process. Processes must be added in the order of their numbers.
    pub(crate) fn add(&mut self, host: HostId, spec: &ProcessSpec) {
        self.owners.push(ProcessSockets {
            host,
            function: spec.function.clone(),
            host_name: spec.host.clone(),
            inbox: VecDeque::new(),
            peers: Vec::new(),
            connected: None,
            next_port: 49152,
        });
    }

    pub(crate) fn listen(&mut self, id: ProcessId, port: u16) -> Result<u16, ProcessError> {
        let owner = &mut self.owners[id.0 as usize];
        let host = owner.host;
        let port = match port {
            0 => {
                owner.next_port += 1;
                let first = owner.next_port;
                (first..=u16::MAX).find(|port| !self.listening.contains_key(&(host, *port))).unwrap_or(0)
            }
            port => port,
        };
        match self.listening.get(&(host, port)) {
            Some(other) => {
                let why = format!("process '{}' listens there", self.owner(*other).function);
                Err(ProcessError::CannotListen { host: self.owner(id).host_name.clone(), port, why })
            }
            None => {
                self.listening.insert((host, port), id);
                Ok(port)
            }
        }
    }

    /// Begins to connect. The result is available after a round trip.
    pub(crate) fn dial(
        &mut self,
        kernel: &mut Kernel,
        routes: &mut Routes,
        platform: &Platform,
        id: ProcessId,
        name: &str,
        port: u16,
    ) -> Result<(), ProcessError> {
        let Some(host) = platform.host(name) else {
            let some: Vec<&str> = platform.hosts().iter().take(8).map(|host| host.name.as_str()).collect();
            return Err(ProcessError::NoSuchHost { host: name.into(), known: some.join(", ") });
        };
        let round_trip_ns = routes.round_trip_ns((self.owner(id).host, host));
        let round_trip_ns =
            round_trip_ns.map_err(|why| ProcessError::CannotConnect { host: name.into(), port, why })?;
        let dialled = ScheduledEvent::ProcessDialled { process: id, host, name: name.into(), port };
        kernel.push(kernel.now() + round_trip_ns, dialled);
        Ok(())
    }

    /// Handles the result of a dial; `None` if nothing answers, which the process notices later.
    pub(crate) fn dialled(
        &mut self,
        routes: &Routes,
        id: ProcessId,
        host: HostId,
        name: String,
        port: u16,
    ) -> Option<Wake> {
        let here = self.owner(id).host;
        let cannot = |why: &str| ProcessError::CannotConnect { host: name, port, why: why.into() };
        let is_answered = !routes.is_lost((here, host)) && !routes.is_lost((host, here));
        let outcome = match self.listening.get(&(host, port)).copied() {
            _ if !is_answered => Err(cannot("no answer")),
            None => Err(cannot("connection refused: nobody listens")),
            Some(listener) => Ok(self.join(id, listener, port)),
        };
        self.owner_mut(id).connected = Some(outcome);
        is_answered.then_some(Wake::Connected(id))
    }

    /// Takes the result of a dial.
    pub(crate) fn take_connected(&mut self, id: ProcessId) -> Option<Result<PeerId, ProcessError>> {
        self.owner_mut(id).connected.take()
    }

    fn join(&mut self, dialler: ProcessId, listener: ProcessId, port: u16) -> PeerId {
        let number = self.connections.len() as u32;
        let ends = [(dialler, 0), (listener, port)].map(|(process, port)| {
            let peer = PeerId(self.owner(process).peers.len() as u64 + u64::from(process == dialler && port > 0));
            let (bulk, urgent) = Default::default();
            End { process, peer, port, open: true, closed_here: false, bulk, urgent }
        });
        for (side, end) in ends.iter().enumerate() {
            self.owner_mut(end.process).peers.push((number, side as u8));
        }
        let peer = ends[0].peer;
        self.connections.push(Connection { ends });
        peer
    }

    /// Describes the other end of a connection as text.
    pub(crate) fn describe(&self, id: ProcessId, peer: PeerId) -> String {
        let Some((connection, side)) = self.owner(id).peers.get(peer.0 as usize) else { return "nobody".into() };
        let other = self.end(*connection, 1 - *side);
        let ProcessSockets { function, host_name, .. } = self.owner(other.process);
        match other.port {
            0 => format!("{function}@{host_name}"),
            port => format!("{function}@{host_name}:{port}"),
        }
    }

    /// Sends a message. Returns it if the sender has to wait first.
    pub(crate) fn send(
        &mut self,
        kernel: &mut Kernel,
        routes: &mut Routes,
        id: ProcessId,
        peer: PeerId,
        lane: Lane,
        letter: ProcessMessage,
    ) -> Result<Option<ProcessMessage>, ProcessError> {
        let (connection, side) = self.owner(id).peers[peer.0 as usize];
        let (ours, theirs) = (self.end(connection, side), self.end(connection, 1 - side));
        if !ours.open || !theirs.open {
            let why = self.why_closed(id, peer);
            return Err(ProcessError::Closed { peer: self.describe(id, peer), why });
        }
        if ours.lane(lane).bytes > SEND_QUEUE_BYTES_MAX {
            return Ok(Some(letter));
        }
        let receiver = theirs.process;
        let number = self.end_mut(connection, side).lane_mut(lane).push(letter);
        let name = MessageName { connection, end: side, lane, number };
        kernel.observe(|| Observation::Sent { name, from: id, to: receiver, letter: self.letter(name) });
        self.start_message(kernel, routes, name);
        let ProcessMessage { kind, payload } = self.letter(name);
        kernel.record(|trace, now| match lane {
            Lane::Bulk => trace.process_message(now, id.0, kind, payload),
            Lane::Urgent => trace.urgent_letter(now, id.0, kind, payload),
        });
        Ok(None)
    }

    /// Starts the flow of a sent message, or queues it until its route is open.
    fn start_message(&mut self, kernel: &mut Kernel, routes: &mut Routes, name: MessageName) {
        let way = self.route_from(name.connection, name.end);
        if routes.is_lost(way) {
            return self.blocked_letters.push(name);
        }
        let path = routes.path(way);
        let ProcessMessage { kind, payload } = self.letter(name);
        let size_bytes = (payload.len() + kind.len()) as u64 + routes.overhead_bytes();
        let transfer = kernel.begin_transfer(TransferContents::Letter { name, kind }, size_bytes, &path.links);
        let flow = Transfer::new(&path.links, path.latency_s, size_bytes as f64);
        let purpose = Purpose::Letter(MessageFlow { name, transfer });
        kernel.start_transfer(&Transfer { return_links: &path.return_links, ..flow }, purpose);
    }

    /// Stops the messages on some routes. They start over when their route is open again.
    pub(crate) fn stop_messages(
        &mut self,
        kernel: &mut Kernel,
        routes: &mut Routes,
        is_on: impl Fn(Route, &Path) -> bool,
    ) {
        let letter = |(action, purpose): (ActionId, &Purpose)| match purpose {
            Purpose::Letter(flow) => Some((action, *flow)),
            _ => None,
        };
        let moving: Vec<(ActionId, MessageFlow)> = kernel.running_actions().filter_map(letter).collect();
        for (action, MessageFlow { name, transfer }) in moving {
            let way = self.route_from(name.connection, name.end);
            if is_on(way, &routes.path(way)) {
                kernel.cancel(action);
                kernel.observe(|| Observation::TransferEnds { transfer });
                self.blocked_letters.push(name);
            }
        }
    }

    /// Restarts the messages whose route has opened.
    pub(crate) fn start_messages(&mut self, kernel: &mut Kernel, routes: &mut Routes) {
        for name in std::mem::take(&mut self.blocked_letters) {
            self.start_message(kernel, routes, name);
        }
    }

    /// Reports whether messages wait for their route.
    pub(crate) fn has_stopped(&self) -> bool {
        !self.blocked_letters.is_empty()
    }

    /// Handles the arrival of a message. If it is the next one, delivers it and the directly following messages that
    /// have already arrived.
    pub(crate) fn message_arrived(&mut self, kernel: &mut Kernel, flow: MessageFlow) -> Vec<Wake> {
        let MessageFlow { name: flow, transfer } = flow;
        kernel.observe(|| Observation::TransferEnds { transfer });
        let [first, second] = &mut self.connections[flow.connection as usize].ends;
        let (from, to) = if flow.end == 0 { (first, second) } else { (second, first) };
        let lane = from.lane_mut(flow.lane);
        let mut name = MessageName { number: lane.first, ..flow };
        let letters = lane.arrived(flow.number);
        if letters.is_empty() {
            return Vec::new();
        }
        let (room, receiver, peer, open) = (Wake::Room(from.process, from.peer), to.process, to.peer, to.open);
        let is_last = from.has_handed_all_over() && !from.open;
        let mut wakes = Vec::new();
        if open {
            for letter in &letters {
                kernel.record(|trace, now| trace.process(b'=', now, receiver.0));
                kernel.observe(|| Observation::Received { name, to: receiver, kind: &letter.kind });
                name.number += 1;
            }
            let incoming = letters.into_iter().map(|letter| Incoming::Message { from: peer, letter });
            self.owner_mut(receiver).inbox.extend(incoming);
            wakes.push(Wake::Incoming(receiver));
        }
        wakes.push(room);
        if is_last {
            wakes.extend(self.notify_closed(flow.connection, 1 - flow.end));
        }
        wakes
    }

    /// Takes the next item that a process reads.
    pub(crate) fn read(&mut self, id: ProcessId) -> Option<Incoming> {
        self.owner_mut(id).inbox.pop_front()
    }

    /// Closes a process's end. The other end is notified behind the last message, after the latency.
    pub(crate) fn close(&mut self, kernel: &mut Kernel, routes: &mut Routes, id: ProcessId, peer: PeerId) {
        let Some((connection, side)) = self.owner(id).peers.get(peer.0 as usize).copied() else { return };
        let is_other_open = self.end(connection, 1 - side).open;
        let end = self.end_mut(connection, side);
        end.closed_here |= end.open;
        if !std::mem::replace(&mut end.open, false) || !is_other_open || !end.has_handed_all_over() {
            return;
        }
        let way = self.route_from(connection, side);
        let latency_ns = routes.between(way).map_or(0, |path| path.frame_latency_ns);
        kernel.push(kernel.now() + latency_ns, ScheduledEvent::ProcessClosed { connection, end: 1 - side });
    }

    /// Closes everything of a process that has ended: unread messages, listening ports, and connections.
    pub(crate) fn close_all(&mut self, kernel: &mut Kernel, routes: &mut Routes, id: ProcessId) {
        self.owner_mut(id).inbox.clear();
        self.listening.retain(|_, listener| *listener != id);
        for peer in 0..self.owner(id).peers.len() as u64 {
            self.close(kernel, routes, id, PeerId(peer));
        }
    }

    /// Returns the reason why a connection of a process is closed, as text.
    pub(crate) fn why_closed(&self, id: ProcessId, peer: PeerId) -> String {
        match self.own_end(id, peer).is_some_and(|end| end.closed_here) {
            true => "it was closed here".into(),
            false => format!("{} has closed it", self.describe(id, peer)),
        }
    }

    /// Reports whether a connection of a process is closed and has nothing left to read.
    pub(crate) fn is_closed(&self, id: ProcessId, peer: PeerId) -> bool {
        let is_open = self.own_end(id, peer).is_some_and(|end| end.open);
        !is_open && !self.owner(id).inbox.iter().any(|incoming| incoming.peer() == peer)
    }

    /// Delivers the notification that the other end of a connection is closed, if its route is open.
    pub(crate) fn closed(&mut self, routes: &mut Routes, connection: u32, end: u8) -> Vec<Wake> {
        let way = self.route_from(connection, 1 - end);
        if routes.is_lost(way) {
            routes.hold_arrival(way, ScheduledEvent::ProcessClosed { connection, end });
            return Vec::new();
        }
        self.notify_closed(connection, end)
    }

    /// Marks an end as closed by the other end.
    fn notify_closed(&mut self, connection: u32, end: u8) -> Vec<Wake> {
        let told = self.end_mut(connection, end);
        if !std::mem::replace(&mut told.open, false) {
            return Vec::new();
        }
        let (process, peer) = (told.process, told.peer);
        let why = format!("{} has closed it", self.describe(process, peer));
        self.owner_mut(process).inbox.push_back(Incoming::Closed { peer, why });
        vec![Wake::Incoming(process), Wake::Room(process, peer)]
    }

    fn route_from(&self, connection: u32, end: u8) -> Route {
        let host = |end: u8| self.owner(self.end(connection, end).process).host;
        (host(end), host(1 - end))
    }

    /// Returns a message that was not yet delivered.
    fn letter(&self, name: MessageName) -> &ProcessMessage {
        self.end(name.connection, name.end).lane(name.lane).letter(name.number)
    }

    fn owner(&self, id: ProcessId) -> &ProcessSockets {
        &self.owners[id.0 as usize]
    }

    fn owner_mut(&mut self, id: ProcessId) -> &mut ProcessSockets {
        &mut self.owners[id.0 as usize]
    }

    fn end(&self, connection: u32, side: u8) -> &End {
        &self.connections[connection as usize].ends[side as usize]
    }

    fn end_mut(&mut self, connection: u32, side: u8) -> &mut End {
        &mut self.connections[connection as usize].ends[side as usize]
    }

    fn own_end(&self, id: ProcessId, peer: PeerId) -> Option<&End> {
        self.owner(id).peers.get(peer.0 as usize).map(|(connection, side)| self.end(*connection, *side))
    }

    /// Panics if an invariant does not hold.
    pub(crate) fn check(&self) {
        for (number, Connection { ends }) in (0..).zip(&self.connections) {
            for (side, end) in (0..).zip(ends) {
                let kept = self.owner(end.process).peers.get(end.peer.0 as usize);
                assert_eq!(kept, Some(&(number, side)), "a process knows its end of connection {number}");
                for lane in [&end.bulk, &end.urgent] {
                    let bytes: usize = lane.sent.iter().map(|(letter, _)| letter.payload.len()).sum();
                    assert_eq!(lane.bytes, bytes as u64, "bytes in transit are counted");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
