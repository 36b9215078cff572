use gridloom_process::{Level, ProcessSpec};

use super::*;

/// A world in which element 1 dials only at the last of a number of waits.
struct Slow {
    spec: ProcessSpec,
    now: Time,
    waits: u32,
}

impl ProcessWorld for Slow {
    fn spec(&self) -> &ProcessSpec {
        &self.spec
    }

    fn now(&self) -> Time {
        self.now
    }

    fn receive(&mut self, until: Option<Time>) -> Result<Option<Incoming>, ProcessError> {
        self.waits -= 1;
        if self.waits > 0 {
            self.now = until.expect("a limit");
            return Ok(None);
        }
        let payload = postcard::to_allocvec(&(Pe(1), 1_u64, 0_u32)).unwrap();
        Ok(Some(Incoming::Message { from: PeerId(0), letter: ProcessMessage { kind: HELLO.into(), payload } }))
    }

    fn listen(&mut self, _: u16) -> Result<u16, ProcessError> {
        unreachable!()
    }

    fn connect(&mut self, _: &str, _: u16) -> Result<PeerId, ProcessError> {
        unreachable!()
    }

    fn send(&mut self, _: PeerId, _: ProcessMessage) -> Result<(), ProcessError> {
        unreachable!()
    }

    fn offer(&mut self, _: PeerId, _: ProcessMessage) -> Result<Option<ProcessMessage>, ProcessError> {
        unreachable!()
    }

    fn send_urgent(&mut self, _: PeerId, _: ProcessMessage) -> Result<(), ProcessError> {
        unreachable!()
    }

    fn close(&mut self, _: PeerId) {}

    fn is_closed(&self, _: PeerId) -> bool {
        false
    }

    fn describe(&self, _: PeerId) -> String {
        String::new()
    }

    fn sleep_until(&mut self, _: Time) -> Result<(), ProcessError> {
        unreachable!()
    }

    fn account_flops(&mut self, _: f64) -> Result<(), ProcessError> {
        unreachable!()
    }

    fn account_computed(&mut self, _: &str, _: u64) -> Result<f64, ProcessError> {
        unreachable!()
    }

    fn log(&mut self, _: Level, _: &str, _: &str) {}

    fn is_simulated(&self) -> bool {
        false
    }
}

#[test]
fn an_element_whose_entry_method_runs_long_is_waited_for_after_a_loss() {
    let elements = vec![(String::new(), 0); 2];
    let mut links = Links::new(ElementPlacement { elements, ..ElementPlacement::default() }, 1, Early::new());
    let slow = |waits| Slow { spec: ProcessSpec::default(), now: Time(0), waits };
    let why = links.connect(&mut slow(9), || Ok(false)).unwrap_err();
    assert_eq!(why.to_string(), "element 1 was lost before the program ended: it did not connect within 30 s");
    links.connect(&mut slow(9), || Ok(true)).unwrap();
    assert_eq!(links.elements, BTreeMap::from([(PeerId(0), Pe(1))]));
}

#[test]
fn an_element_may_end_before_all_have_connected_if_its_batches_have_arrived() {
    let elements = vec![(String::new(), 0), (String::new(), 1)];
    let mut links = Links::new(ElementPlacement { elements, ..ElementPlacement::default() }, 1, Early::new());
    links.due.push_back((Pe(1), Received::Closed("it has closed".into())));
    assert!(links.check_open(|from| links.has_letters(from)).is_err());
    links.delayed.insert((Time(1), 1), (Pe(1), Received::Letter(Vec::new())));
    links.check_open(|from| links.has_letters(from)).unwrap();
}

#[test]
fn an_element_is_lost_as_soon_as_one_of_several_connections_ends_without_a_goodbye() {
    let elements = vec![(String::new(), 0), (String::new(), 1)];
    let filters = vec!["stripe=2".parse().unwrap()];
    let mut links = Links::new(ElementPlacement { elements, filters, ..ElementPlacement::default() }, 1, Early::new());
    let mut world = Slow { spec: ProcessSpec::default(), now: Time(5), waits: 0 };
    let mut element = Element::new(Pe(0), std::sync::Arc::new(links.places.elements()));
    (0..2).for_each(|way| links.join(Pe(1), way, PeerId(way as u64)));
    links.on_incoming(&mut world, Incoming::Closed { peer: PeerId(1), why: "reset by peer".into() }).unwrap();
    // Code that waits for a note ends, too.
    let note = links.next_note(&mut world, |_| false).map(|_| ()).unwrap_err().to_string();
    let why = links.deliver(&mut world, &mut element).unwrap_err().to_string();
    let lost = "element 1 was lost before the program ended: connection 2 of 2 ended early: reset by peer";
    assert_eq!((note, why), (lost.to_string(), format!("{lost} (on host )")));
    links.on_incoming(&mut world, Incoming::Closed { peer: PeerId(0), why: "reset by peer".into() }).unwrap();
    links.deliver(&mut world, &mut element).unwrap();
}

#[test]
fn after_a_goodbye_batches_of_the_other_connections_are_awaited() {
    let elements = vec![(String::new(), 0), (String::new(), 1)];
    let filters = vec!["stripe=2".parse().unwrap()];
    let mut links = Links::new(ElementPlacement { elements, filters, ..ElementPlacement::default() }, 1, Early::new());
    let mut world = Slow { spec: ProcessSpec::default(), now: Time(5), waits: 0 };
    (0..2).for_each(|way| links.join(Pe(1), way, PeerId(way as u64)));
    let letter = |peer, kind: &str, payload: &[u8]| Incoming::Message {
        from: PeerId(peer),
        letter: ProcessMessage { kind: kind.into(), payload: payload.to_vec() },
    };
    let closed = |peer| Incoming::Closed { peer: PeerId(peer), why: "it has closed it".into() };
    // Batch 1 arrives before batch 0, which is long. Each has a time and a number.
    let number = |number: u64| [[0; 8], number.to_le_bytes()].concat();
    for incoming in [letter(1, RECORDS, &number(1)), letter(1, GOODBYE, b""), closed(1)] {
        links.on_incoming(&mut world, incoming).unwrap();
        assert!(links.due.is_empty() && links.next_due(Time(5)).is_none());
    }
    for incoming in [letter(0, RECORDS, &number(0)), letter(0, GOODBYE, b""), closed(0)] {
        links.on_incoming(&mut world, incoming).unwrap();
    }
    let came = links.due.iter().chain(links.delayed.values());
    let are_letters: Vec<bool> = came.map(|(_, came)| matches!(came, Received::Letter(_))).collect();
    assert_eq!(are_letters, [true, true, false]);
    let why = links.check_open(|_| false).unwrap_err().to_string();
    assert_eq!(why, "element 1 was lost before the program ended: it has closed it");
}

#[test]
fn an_element_that_skips_a_batch_is_lost() {
    let mut ways = Connections::of(2);
    (0..2).for_each(|way| ways.peers[way] = Some(PeerId(way as u64)));
    ways.stripes.as_mut().unwrap().reorder(1_u64.to_le_bytes().to_vec()).unwrap();
    (0..2).for_each(|peer| ways.on_goodbye(PeerId(peer)));
    assert_eq!(ways.on_closed(PeerId(0), "its end".into()), None);
    let why = ways.on_closed(PeerId(1), "its end".into()).unwrap();
    assert_eq!(why, "it has not sent its batch 0, but later ones: its end");
}

#[test]
fn a_batch_that_no_filter_of_the_other_element_made_is_refused() {
    let elements = vec![(String::new(), 0), (String::new(), 1)];
    let filters = vec!["compress".parse().unwrap()];
    let mut links = Links::new(ElementPlacement { elements, filters, ..ElementPlacement::default() }, 1, Early::new());
    let mut world = Slow { spec: ProcessSpec::default(), now: Time(0), waits: 1 };
    links.connect(&mut world, || Ok(false)).unwrap();
    // Seven bytes of a block whose header claims 4 GiB of uncompressed data, and the time.
    let payload = [&[0; 7][..], &[255; 4], &[1], &[0; 8]].concat();
    let letter = ProcessMessage { kind: RECORDS.into(), payload };
    let why = links.on_incoming(&mut world, Incoming::Message { from: PeerId(0), letter }).unwrap_err();
    let says = "the message states that its 12 bytes expand to 4294967295, at most 1785 are possible";
    assert_eq!(why.to_string(), format!("a message batch from element 1: filter compress: {says}"));
}
