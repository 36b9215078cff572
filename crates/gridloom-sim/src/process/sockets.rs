//! Sockets of processes in virtual time: ports that are listened on, connections, and the letters on their way.

use std::collections::VecDeque;

use gridloom_core::base::limits::{DIAL_NS_MAX, SEND_BYTES_MAX};
use gridloom_core::flow::Transfer;
use gridloom_core::platform::HostId;
use gridloom_core::process::{Incoming, Letter, PeerId, ProcessError};

use super::kernel::{Idle, ProcessId, Wait};
use crate::faults::Way;
use crate::links::Path;
use crate::observe::{LetterName, Moved, Seen};
use crate::simulation::{Occurrence, Purpose, Simulation};

/// The letter behind a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LetterFlow {
    name: LetterName,
    transfer: u64,
}

#[derive(Debug)]
pub(super) struct Connection {
    ends: [End; 2],
}

#[derive(Debug)]
struct End {
    process: ProcessId,
    peer: PeerId,
    /// The port that was dialled, on the listening end.
    port: u16,
    open: bool,
    /// Whether it was closed by its own process, rather than by word of the other end.
    was_left: bool,
    /// Letters from this end that have not been handed over, in order; whether each has arrived.
    sent: VecDeque<(Letter, bool)>,
    /// Number of the first of them.
    first: u64,
    bytes: u64,
}

impl Simulation {
    pub(crate) fn process_listen(&mut self, id: ProcessId, port: u16) -> Result<u16, ProcessError> {
        let host = self.process(id).host;
        let port = match port {
            0 => {
                let process = self.process_mut(id);
                process.next_port += 1;
                let first = process.next_port;
                (first..=u16::MAX).find(|port| !self.processes.listening.contains_key(&(host, *port))).unwrap_or(0)
            }
            port => port,
        };
        match self.processes.listening.get(&(host, port)) {
            Some(other) => {
                let function = &self.process(*other).spec.function;
                let why = format!("process '{function}' listens there");
                Err(ProcessError::CannotListen { host: self.process(id).spec.host.clone(), port, why })
            }
            None => {
                self.processes.listening.insert((host, port), id);
                Ok(port)
            }
        }
    }

    /// Begins to connect; the outcome comes after a round trip.
    pub(crate) fn process_dials(&mut self, id: ProcessId, name: &str, port: u16) -> Result<(), ProcessError> {
        let Some(host) = self.platform.host(name) else {
            let some: Vec<&str> = self.platform.hosts().iter().take(8).map(|host| host.name.as_str()).collect();
            return Err(ProcessError::NoSuchHost { host: name.into(), known: some.join(", ") });
        };
        let here = self.process(id).host;
        let cannot = |why: String| ProcessError::CannotConnect { host: name.into(), port, why };
        let there = self.paths.between(here, host).map_err(cannot)?;
        let back = self.paths.between(host, here).map_err(cannot)?;
        let round_trip_ns = there.frame_latency_ns + back.frame_latency_ns;
        self.process_waits(id, Wait::Connection { host: name.into(), port });
        let dialled = Occurrence::ProcessDialled { process: id, host, name: name.into(), port };
        self.push_process(self.now + round_trip_ns, dialled);
        Ok(())
    }

    pub(crate) fn on_process_dialled(&mut self, id: ProcessId, host: HostId, name: String, port: u16) {
        let here = self.process(id).host;
        if self.is_way_lost((here, host)) || self.is_way_lost((host, here)) {
            let why = "no answer".to_string();
            let process = self.process_mut(id);
            process.connected = Some(Err(ProcessError::CannotConnect { host: name, port, why }));
            let turn = process.turn;
            return self.push_process(self.now + DIAL_NS_MAX, Occurrence::ProcessDue { process: id, turn });
        }
        let outcome = match self.processes.listening.get(&(host, port)).copied() {
            None => {
                Err(ProcessError::CannotConnect { host: name, port, why: "connection refused: nobody listens".into() })
            }
            Some(listener) => Ok(self.join(id, listener, port)),
        };
        self.process_mut(id).connected = Some(outcome);
        self.wake_if(id, |wait| matches!(wait, Wait::Connection { .. }));
    }

    pub(crate) fn process_connected(&mut self, id: ProcessId) -> Option<Result<PeerId, ProcessError>> {
        self.process_mut(id).connected.take()
    }

    fn join(&mut self, dialler: ProcessId, listener: ProcessId, port: u16) -> PeerId {
        let number = self.processes.connections.len() as u32;
        let ends = [(dialler, 0), (listener, port)].map(|(process, port)| {
            let peer = PeerId(self.process(process).peers.len() as u64 + u64::from(process == dialler && port > 0));
            End { process, peer, port, open: true, was_left: false, sent: VecDeque::new(), first: 0, bytes: 0 }
        });
        for (side, end) in ends.iter().enumerate() {
            self.process_mut(end.process).peers.push((number, side as u8));
        }
        let peer = ends[0].peer;
        self.processes.connections.push(Connection { ends });
        peer
    }

    fn end_of(&mut self, id: ProcessId, peer: PeerId) -> (u32, u8) {
        self.process(id).peers[peer.0 as usize]
    }

    pub(crate) fn process_describe(&self, id: ProcessId, peer: PeerId) -> String {
        let Some((connection, side)) = self.process(id).peers.get(peer.0 as usize) else { return "nobody".into() };
        let other = &self.processes.connections[*connection as usize].ends[1 - *side as usize];
        let spec = &self.process(other.process).spec;
        match other.port {
            0 => format!("{}@{}", spec.function, spec.host),
            port => format!("{}@{}:{port}", spec.function, spec.host),
        }
    }

    /// Sends; false if the sender has to wait first.
    pub(crate) fn process_send(&mut self, id: ProcessId, peer: PeerId, letter: &Letter) -> Result<bool, ProcessError> {
        let (connection, side) = self.end_of(id, peer);
        let ends = &self.processes.connections[connection as usize].ends;
        let (ours, theirs) = (&ends[side as usize], &ends[1 - side as usize]);
        if !ours.open || !theirs.open {
            let why = self.process_why_closed(id, peer);
            return Err(ProcessError::Closed { peer: self.process_describe(id, peer), why });
        }
        if ours.bytes > SEND_BYTES_MAX {
            return Ok(false);
        }
        let receiver = theirs.process;
        let end = &mut self.processes.connections[connection as usize].ends[side as usize];
        let name = LetterName { connection, end: side, number: end.first + end.sent.len() as u64 };
        end.sent.push_back((letter.clone(), false));
        end.bytes += letter.payload.len() as u64;
        self.watch.see(self.now, || Seen::Sent { name, from: id, to: receiver, letter });
        self.move_letter(name);
        self.trace.letter(self.now, id.0, &letter.kind, &letter.payload);
        self.processes.idle = Idle { since: self.now, limits: 0 };
        Ok(true)
    }

    /// A letter that was sent begins to move, or waits for its way.
    fn move_letter(&mut self, name: LetterName) {
        let (here, there) = self.way_of(name);
        if self.is_way_lost((here, there)) {
            return self.processes.stopped.push(name);
        }
        let path = self.paths.between(here, there).expect("there was a way when they connected");
        let end = &self.processes.connections[name.connection as usize].ends[name.end as usize];
        let letter = &end.sent[(name.number - end.first) as usize].0;
        let size_bytes = (letter.payload.len() + letter.kind.len()) as u64 + self.config.message_overhead_bytes;
        let kind = letter.kind.clone();
        self.synchronise();
        let transfer = Transfer::new(&path.links, path.latency_s, size_bytes as f64);
        let action = self.engine.start_transfer(&Transfer { way_back: &path.way_back, ..transfer });
        let transfer = self.begins(Moved::Letter { name, kind: &kind }, size_bytes, &path.links);
        self.purposes.insert(action, Purpose::Letter(LetterFlow { name, transfer }));
        self.processes.pending += 1;
    }

    /// Stops the letters on some ways; they begin anew when something passes there again.
    pub(crate) fn stop_letters(&mut self, is_on: impl Fn(Way, &Path) -> bool) {
        let mut stopped = Vec::new();
        for (action, purpose) in &self.purposes {
            if let Purpose::Letter(flow) = purpose {
                stopped.push((*action, *flow));
            }
        }
        for (action, LetterFlow { name, transfer }) in stopped {
            let way = self.way_of(name);
            let path = self.paths.between(way.0, way.1).expect("there was a way when they connected");
            if is_on(way, &path) {
                self.synchronise();
                self.engine.cancel(action);
                self.purposes.remove(&action);
                self.processes.pending -= 1;
                self.watch.see(self.now, || Seen::TransferEnds { transfer });
                self.processes.stopped.push(name);
            }
        }
    }

    /// Something passes again on some way: letters that wait for theirs look whether it is that.
    pub(crate) fn move_letters(&mut self) {
        for name in std::mem::take(&mut self.processes.stopped) {
            self.move_letter(name);
        }
    }

    fn way_of(&self, name: LetterName) -> Way {
        let ends = &self.processes.connections[name.connection as usize].ends;
        let host = |end: usize| self.process(ends[end].process).host;
        (host(name.end as usize), host(1 - name.end as usize))
    }

    /// A letter has arrived: it and those behind it that have are handed over.
    pub(crate) fn on_letter(&mut self, LetterFlow { name: flow, transfer }: LetterFlow) {
        self.watch.see(self.now, || Seen::TransferEnds { transfer });
        let ends = &mut self.processes.connections[flow.connection as usize].ends;
        let [first, second] = ends;
        let (from, to) = if flow.end == 0 { (first, second) } else { (second, first) };
        from.sent[(flow.number - from.first) as usize].1 = true;
        let mut letters = Vec::new();
        let mut name = LetterName { number: from.first, ..flow };
        while from.sent.front().is_some_and(|(_, arrived)| *arrived) {
            let (letter, _) = from.sent.pop_front().expect("seen a moment ago");
            from.first += 1;
            from.bytes -= letter.payload.len() as u64;
            letters.push(letter);
        }
        let (sender, sender_peer, receiver, peer, open) = (from.process, from.peer, to.process, to.peer, to.open);
        let is_last = from.sent.is_empty() && !from.open;
        if letters.is_empty() {
            return;
        }
        if open {
            for letter in &letters {
                self.trace.process(b'=', self.now, receiver.0);
                self.watch.see(self.now, || Seen::Received { name, to: receiver, kind: &letter.kind });
                name.number += 1;
            }
            let incoming = letters.into_iter().map(|letter| Incoming::Letter { from: peer, letter });
            self.process_mut(receiver).inbox.extend(incoming);
            self.wake_if(receiver, |wait| matches!(wait, Wait::Incoming));
        }
        self.wake_if(sender, |wait| matches!(wait, Wait::Room { peer } if *peer == sender_peer));
        if is_last {
            self.tell_closed(flow.connection, 1 - flow.end);
        }
    }

    /// The end closes: the other hears of it behind the last letter, after the latency.
    pub(crate) fn process_close(&mut self, id: ProcessId, peer: PeerId) {
        let Some((connection, side)) = self.process(id).peers.get(peer.0 as usize).copied() else { return };
        let ends = &mut self.processes.connections[connection as usize].ends;
        ends[side as usize].was_left |= ends[side as usize].open;
        if !std::mem::replace(&mut ends[side as usize].open, false) || !ends[1 - side as usize].open {
            return;
        }
        let is_empty = ends[side as usize].sent.is_empty();
        let other = ends[1 - side as usize].process;
        if is_empty {
            let (here, there) = (self.process(id).host, self.process(other).host);
            let latency_ns = self.paths.between(here, there).map_or(0, |path| path.frame_latency_ns);
            self.push_process(self.now + latency_ns, Occurrence::ProcessClosed { connection, end: 1 - side });
        }
    }

    /// Why a connection of that process is closed, in words.
    pub(crate) fn process_why_closed(&self, id: ProcessId, peer: PeerId) -> String {
        let was_left = self.process(id).peers.get(peer.0 as usize).is_some_and(|(connection, side)| {
            self.processes.connections[*connection as usize].ends[*side as usize].was_left
        });
        match was_left {
            true => "it was closed here".into(),
            false => format!("{} has closed it", self.process_describe(id, peer)),
        }
    }

    pub(crate) fn process_is_closed(&self, id: ProcessId, peer: PeerId) -> bool {
        let process = self.process(id);
        let is_open = process.peers.get(peer.0 as usize).is_some_and(|(connection, side)| {
            self.processes.connections[*connection as usize].ends[*side as usize].open
        });
        !is_open && !process.inbox.iter().any(|incoming| incoming.peer() == peer)
    }

    /// Word comes to that end that the other is closed, if anything passes.
    pub(crate) fn on_process_closed(&mut self, connection: u32, end: u8) {
        let way = self.way_of(LetterName { connection, end: 1 - end, number: 0 });
        match self.is_way_lost(way) {
            true => self.hold_on(way, Occurrence::ProcessClosed { connection, end }),
            false => self.tell_closed(connection, end),
        }
    }

    /// That end hears that the other is closed.
    pub(crate) fn tell_closed(&mut self, connection: u32, end: u8) {
        let told = &self.processes.connections[connection as usize].ends[end as usize];
        if !told.open {
            return;
        }
        let (process, peer) = (told.process, told.peer);
        let why = format!("{} has closed it", self.process_describe(process, peer));
        self.processes.connections[connection as usize].ends[end as usize].open = false;
        self.process_mut(process).inbox.push_back(Incoming::Closed { peer, why });
        self.wake_if(process, |wait| matches!(wait, Wait::Incoming));
        self.wake_if(process, |wait| matches!(wait, Wait::Room { peer: waiting } if *waiting == peer));
    }
}
