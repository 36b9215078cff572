//! The connections of an element to all others: outgoing and incoming batches of messages, and the filters between
//! sites. With the filter `stripe` there are several connections to an element of another site, and batches use them in
//! turn.
//!
//! **Promises:** nothing here waits for a peer to accept data: what a connection does not accept is kept, and offered
//! again. Batches from one element arrive in order, also through filters. **Limit:** elements give each other credit
//! for messages (`gridloom_chare`), which bounds the messages kept here. Parts and results of reductions and moving
//! chares use no credit: everything of them that a connection does not accept is kept. With `stripe`, a batch that
//! arrives early is kept until the batches before it have arrived.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gridloom_base::Time;
use gridloom_base::limits::PROCESSING_ELEMENTS_MAX;
use gridloom_base::time::{MILLISECOND_NS, SECOND_NS};
use gridloom_chare::{BuddyMessage, ChareError, Element, Pe};
use gridloom_process::filter::{FilterChain, FilterError};
use gridloom_process::{Incoming, PeerId, ProcessError, ProcessMessage, ProcessWorld};

use super::placement::ElementPlacement;
use super::timeline::Timeline;
use crate::Error;

mod connections;

use connections::{Connections, GOODBYE};

/// Type of the first message on a connection: the dialler's element, its epoch, and which of its connections this is.
const HELLO: &str = "chares:element";
/// Type of the messages that carry batches of records.
const RECORDS: &str = "chares";
/// Type of the messages that carry notes on checkpoints in memory; filters never delay them.
const NOTES: &str = "chares:memory";
/// Time limit for connecting to another element, which may start later.
const DIAL_NS: u64 = 30 * SECOND_NS;
/// Delay between two attempts to connect.
const RETRY_NS: u64 = 2 * MILLISECOND_NS;
/// Delay between two offers of a message that a connection did not accept.
const OFFER_NS: u64 = MILLISECOND_NS;

/// Something received from an element.
enum Received {
    Letter(Vec<u8>),
    Closed(String),
}

/// Parses the hello of a dialler: its element, its epoch, and which of its connections this is; `None` if it is not an
/// element of this program.
pub(super) fn parse_hello(letter: &ProcessMessage) -> Option<(Pe, u64, usize)> {
    let hello = (&*letter.kind == HELLO).then(|| postcard::from_bytes::<(Pe, u64, u32)>(&letter.payload).ok());
    let (element, epoch, way) = hello.flatten()?;
    ((element.0 as usize) < PROCESSING_ELEMENTS_MAX).then_some((element, epoch, way as usize))
}

/// Messages queued for one element.
#[derive(Default)]
struct Backlog {
    /// Each with the time before which the filters do not release it.
    letters: VecDeque<(Time, ProcessMessage)>,
}

/// Connections that have sent a hello: element, epoch, and which of its connections each one is.
pub(super) type Early = BTreeMap<PeerId, (Pe, u64, usize)>;

pub(super) struct Links {
    places: ElementPlacement,
    kind: Arc<str>,
    /// Connections by element; empty for this one.
    ways: Vec<Connections>,
    elements: BTreeMap<PeerId, Pe>,
    backlogs: Vec<Backlog>,
    backlog_bytes: usize,
    /// The filters between this element and each other one, by element.
    chains: Vec<FilterChain>,
    /// Received items that no filter delays.
    due: VecDeque<(Pe, Received)>,
    /// Items that filters delay, ordered by due time and then by arrival.
    delayed: BTreeMap<(Time, u64), (Pe, Received)>,
    notes: VecDeque<(Pe, BuddyMessage)>,
    /// Number of losses, and of changes of the number of elements, before these connections were made.
    epoch: u64,
    /// Connections of a later epoch, which other elements have already begun.
    early: Early,
    received_count: u64,
    /// The record of the element's activities, if a timeline is requested.
    pub(super) timeline: Option<Timeline>,
}

impl Links {
    /// Creates the links of that epoch, not yet connected. `early` has connections that other elements have already made.
    pub(super) fn new(places: ElementPlacement, epoch: u64, early: Early) -> Links {
        let count = places.elements.len();
        let timeline = places.records.clone().map(|records| Timeline::new(records, count));
        let chains: Vec<FilterChain> = (0..count as u32).map(|number| places.chain(Pe(number))).collect();
        let mut links = Links {
            kind: RECORDS.into(),
            ways: chains.iter().map(|chain| Connections::of(chain.connections())).collect(),
            elements: BTreeMap::new(),
            backlogs: (0..count).map(|_| Backlog::default()).collect(),
            backlog_bytes: 0,
            chains,
            due: VecDeque::new(),
            delayed: BTreeMap::new(),
            notes: VecDeque::new(),
            epoch,
            early: Early::new(),
            received_count: 0,
            timeline,
            places,
        };
        for (peer, (element, of, way)) in early {
            match of == epoch && links.has_room(element, way) {
                true => links.join(element, way, peer),
                false => _ = links.early.insert(peer, (element, of, way)),
            }
        }
        links
    }

    /// Connects this element, which listens already, with all others, while they do the same. `may_come` returns
    /// whether elements that have not dialled for a long time may still do so.
    pub(super) fn connect(
        &mut self,
        world: &mut dyn ProcessWorld,
        may_come: impl Fn() -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let me = self.places.me();
        let mut until = world.now() + DIAL_NS;
        for element in (0..me.0).map(Pe) {
            for way in 0..self.ways[element.0 as usize].peers.len() {
                let peer = self.dial(world, element, until)?;
                let hello = postcard::to_allocvec(&(me, self.epoch, way as u32)).expect("numbers");
                world.send(peer, ProcessMessage { kind: HELLO.into(), payload: hello })?;
                self.join(element, way, peer);
            }
        }
        let count = self.ways.len() as u32;
        while let Some(missing) = (me.0 + 1..count).find(|number| self.ways[*number as usize].are_awaited()) {
            let Some(incoming) = world.receive(Some(until))? else {
                if may_come()? {
                    until = world.now() + DIAL_NS;
                    continue;
                }
                let why = format!("it did not connect within {} s", DIAL_NS / SECOND_NS);
                return Err(ChareError::Lost { element: Pe(missing), why }.into());
            };
            self.on_incoming(world, incoming)?;
            // A connection that closed after its messages may mean that the program ended before all had connected;
            // the messages tell.
            self.check_open(|from| self.has_letters(from))?;
        }
        Ok(())
    }

    fn has_letters(&self, from: Pe) -> bool {
        let is_its = |(other, arrival): &(Pe, Received)| *other == from && matches!(arrival, Received::Letter(_));
        self.due.iter().chain(self.delayed.values()).any(is_its)
    }

    /// Closes all connections before they are made again. Returns those of a later epoch that others have already made.
    pub(super) fn close(self, world: &mut dyn ProcessWorld) -> Early {
        self.ways.into_iter().flat_map(|ways| ways.peers).flatten().for_each(|peer| world.close(peer));
        self.early
    }

    /// Checks for closed connections.
    ///
    /// # Errors
    /// If an element for which `may_close` is false has closed its connection.
    fn check_open(&self, may_close: impl Fn(Pe) -> bool) -> Result<(), ChareError> {
        let closed = |(from, arrival): &(Pe, Received)| match arrival {
            Received::Closed(why) if !may_close(*from) => Some(ChareError::Lost { element: *from, why: why.clone() }),
            Received::Closed(_) | Received::Letter(_) => None,
        };
        self.due.iter().chain(self.delayed.values()).find_map(closed).map_or(Ok(()), Err)
    }

    fn dial(&self, world: &mut dyn ProcessWorld, element: Pe, until: Time) -> Result<PeerId, Error> {
        loop {
            match world.connect(self.places.host(element), self.places.port(element)) {
                Err(ProcessError::CannotConnect { .. }) if world.now() + RETRY_NS <= until => {
                    world.sleep_until(world.now() + RETRY_NS)?;
                }
                outcome => return Ok(outcome?),
            }
        }
    }

    /// True if that connection is still to be made by the other element.
    fn has_room(&self, element: Pe, way: usize) -> bool {
        let ways = self.ways.get(element.0 as usize).filter(|_| element != self.places.me());
        ways.and_then(|ways| ways.peers.get(way)).is_some_and(Option::is_none)
    }

    fn join(&mut self, element: Pe, way: usize, peer: PeerId) {
        self.ways[element.0 as usize].peers[way] = Some(peer);
        self.elements.insert(peer, element);
    }

    /// Processes an event of a connection. Messages are passed on no earlier than in [`Links::deliver`].
    pub(super) fn on_incoming(&mut self, world: &mut dyn ProcessWorld, incoming: Incoming) -> Result<(), Error> {
        let Some(element) = self.elements.get(&incoming.peer()).copied() else { return self.on_hello(world, incoming) };
        let ways = &mut self.ways[element.0 as usize];
        let wrong = |error: FilterError| ChareError::Batch { from: element, why: error.to_string() };
        let letter = match incoming {
            Incoming::Message { letter, .. } if &*letter.kind == NOTES => {
                let wrong = |error: postcard::Error| ChareError::Batch { from: element, why: error.to_string() };
                self.notes.push_back((element, postcard::from_bytes(&letter.payload).map_err(wrong)?));
                return Ok(());
            }
            Incoming::Message { from, letter } if ways.stripes.is_some() && &*letter.kind == GOODBYE => {
                ways.on_goodbye(from);
                return Ok(());
            }
            Incoming::Message { letter, .. } => letter.payload,
            Incoming::Closed { peer, why } => {
                if let Some(why) = ways.on_closed(peer, why) {
                    self.has_ended(world, element, why);
                }
                return Ok(());
            }
        };
        match &mut ways.stripes {
            None => self.take_in(world, element, letter).map_err(wrong)?,
            Some(stripes) => {
                for letter in stripes.reorder(letter).map_err(wrong)? {
                    self.take_in(world, element, letter).map_err(wrong)?;
                }
            }
        }
        Ok(())
    }

    /// Handles a batch after all batches before it have arrived.
    fn take_in(&mut self, world: &mut dyn ProcessWorld, element: Pe, payload: Vec<u8>) -> Result<(), FilterError> {
        let chain = &mut self.chains[element.0 as usize];
        let (bytes, due) = match chain.is_empty() {
            true => (payload, Time(0)),
            false => chain.receive(world.now(), payload)?,
        };
        self.hold(element, due, Received::Letter(bytes));
        Ok(())
    }

    /// Notes that no further batches of that element will arrive.
    fn has_ended(&mut self, world: &mut dyn ProcessWorld, element: Pe, why: String) {
        let chain = &self.chains[element.0 as usize];
        // Filters may still delay batches that were sent before the end.
        let due = if chain.is_empty() { Time(0) } else { chain.closed(world.now()) };
        self.hold(element, due, Received::Closed(why));
    }

    fn hold(&mut self, element: Pe, due: Time, arrival: Received) {
        if due == Time(0) {
            self.due.push_back((element, arrival));
        } else {
            self.received_count += 1;
            self.delayed.insert((due, self.received_count), (element, arrival));
        }
    }

    /// Handles the hello on an accepted connection.
    fn on_hello(&mut self, world: &mut dyn ProcessWorld, incoming: Incoming) -> Result<(), Error> {
        let peer = incoming.peer();
        let Incoming::Message { letter, .. } = incoming else {
            self.early.remove(&peer);
            return Ok(());
        };
        match parse_hello(&letter) {
            Some((element, epoch, way)) if epoch == self.epoch && self.has_room(element, way) => {
                self.join(element, way, peer);
            }
            // It may belong to a generation with more elements than this one.
            Some((element, epoch, way)) if epoch > self.epoch => {
                self.early.insert(peer, (element, epoch, way));
                let why = format!("it has restarted with other elements, in epoch {epoch}");
                return Err(ChareError::Lost { element, why }.into());
            }
            // Either another program of the same grid dialled the wrong port, or that element will learn of another loss.
            _ => world.close(peer),
        }
        Ok(())
    }

    /// Passes all due batches to the element.
    ///
    /// # Errors
    /// If a batch is invalid, or an element is lost before the program has ended.
    pub(super) fn deliver(&mut self, world: &mut dyn ProcessWorld, element: &mut Element) -> Result<(), Error> {
        while let Some((from, arrival)) = self.due.pop_front().or_else(|| self.take_delayed(world)) {
            match arrival {
                Received::Letter(bytes) => {
                    if let Some(timeline) = &mut self.timeline {
                        timeline.receives(from, bytes.len());
                    }
                    element.receive(from, &bytes)?;
                    world.return_buffer(bytes);
                }
                Received::Closed(_) if element.end().is_some() || element.is_resized() => {}
                Received::Closed(why) => {
                    let place = format!("{why} (on host {})", self.places.host(from));
                    return Err(ChareError::Lost { element: from, why: place }.into());
                }
            }
        }
        Ok(())
    }

    /// Takes an item whose delay by a filter is over.
    fn take_delayed(&mut self, world: &mut dyn ProcessWorld) -> Option<(Pe, Received)> {
        let ((due, _), _) = self.delayed.first_key_value()?;
        if *due > world.now() { None } else { self.delayed.pop_first().map(|(_, came)| came) }
    }

    /// Sends the element's outgoing batches and the queued messages, as far as the connections accept them.
    pub(super) fn send_all(&mut self, world: &mut dyn ProcessWorld, element: &mut Element) -> Result<(), Error> {
        self.offer_all(world)?;
        while let Some((to, mut payload)) = element.take_batch() {
            if let Some(timeline) = &mut self.timeline {
                timeline.sends(to, payload.len());
            }
            let chain = &mut self.chains[to.0 as usize];
            let mut opens = Time(0);
            if !chain.is_empty() {
                (payload, opens) = chain.send(world.now(), payload);
            }
            if let Some(stripes) = &mut self.ways[to.0 as usize].stripes {
                stripes.number(&mut payload);
            }
            let letter = ProcessMessage { kind: self.kind.clone(), payload };
            self.queue(world, to, letter, opens)?;
        }
        Ok(())
    }

    /// Sends a message after those already queued, and not before `opens`.
    fn queue(
        &mut self,
        world: &mut dyn ProcessWorld,
        to: Pe,
        letter: ProcessMessage,
        opens: Time,
    ) -> Result<(), Error> {
        let backlog = &mut self.backlogs[to.0 as usize];
        let waits = !backlog.letters.is_empty();
        self.backlog_bytes += letter.payload.len();
        backlog.letters.push_back((opens, letter));
        if waits { Ok(()) } else { self.offer(world, to) }
    }

    /// Sends notes.
    pub(super) fn send_notes(
        &mut self,
        world: &mut dyn ProcessWorld,
        notes: Vec<(Pe, BuddyMessage)>,
    ) -> Result<(), Error> {
        for (to, note) in notes {
            let payload = postcard::to_allocvec(&note).expect("postcard into a vector fails for no such type");
            self.queue(world, to, ProcessMessage { kind: NOTES.into(), payload }, Time(0))?;
        }
        Ok(())
    }

    /// Takes the received notes.
    pub(super) fn take_notes(&mut self) -> VecDeque<(Pe, BuddyMessage)> {
        std::mem::take(&mut self.notes)
    }

    /// Waits for a note.
    ///
    /// # Errors
    /// If an element closes its connection that may not.
    pub(super) fn next_note(
        &mut self,
        world: &mut dyn ProcessWorld,
        may_close: impl Fn(Pe) -> bool,
    ) -> Result<(Pe, BuddyMessage), Error> {
        loop {
            if let Some(note) = self.notes.pop_front() {
                return Ok(note);
            }
            self.check_open(&may_close)?;
            self.offer_all(world)?;
            let until = self.next_offer(world.now());
            if let Some(incoming) = world.receive(until)? {
                self.on_incoming(world, incoming)?;
            }
        }
    }

    fn offer_all(&mut self, world: &mut dyn ProcessWorld) -> Result<(), Error> {
        if self.backlog_bytes > 0 {
            for to in 0..self.backlogs.len() {
                self.offer(world, Pe(to as u32))?;
            }
        }
        Ok(())
    }

    fn offer(&mut self, world: &mut dyn ProcessWorld, to: Pe) -> Result<(), Error> {
        let ways = &mut self.ways[to.0 as usize];
        if !ways.are_made() {
            return Ok(());
        }
        let backlog = &mut self.backlogs[to.0 as usize];
        while let Some((opens, letter)) = backlog.letters.pop_front() {
            if opens > Time(0) && opens > world.now() {
                backlog.letters.push_front((opens, letter));
                break;
            }
            let length = letter.payload.len();
            match ways.offer(world, letter) {
                Ok(Some(back)) => {
                    backlog.letters.push_front((opens, back));
                    break;
                }
                // The end of the connection is reported after the last data that the element sent.
                Ok(None) | Err(ProcessError::Closed { .. }) => {
                    self.backlog_bytes -= length;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The time of the next action, if nothing arrives before.
    pub(super) fn next_due(&self, now: Time) -> Option<Time> {
        let due = self.due.front().map(|_| Time(0));
        let held = self.delayed.first_key_value().map(|((due, _), _)| *due);
        due.or(held).into_iter().chain(self.next_offer(now)).min()
    }

    /// The time at which a queued message is offered next.
    fn next_offer(&self, now: Time) -> Option<Time> {
        let first = |backlog: &Backlog| backlog.letters.front().map(|(opens, _)| *opens);
        let offer = |opens: Time| if opens > now { opens } else { now + OFFER_NS };
        if self.backlog_bytes > 0 { self.backlogs.iter().filter_map(first).map(offer).min() } else { None }
    }

    /// Called when the program has ended: waits until the connections have accepted all queued messages.
    pub(super) fn finish(&mut self, world: &mut dyn ProcessWorld, element: &mut Element) -> Result<(), Error> {
        self.send_all(world, element)?;
        for (to, backlog) in std::mem::take(&mut self.backlogs).into_iter().enumerate() {
            let ways = &mut self.ways[to];
            for (opens, letter) in backlog.letters {
                if opens > world.now() {
                    world.sleep_until(opens)?;
                }
                match ways.send(world, letter) {
                    // The other element has ended before.
                    Ok(()) | Err(ProcessError::Closed { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            match ways.say_goodbye(world) {
                Ok(()) | Err(ProcessError::Closed { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
