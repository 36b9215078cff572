//! Runs the conformance suite of channels on connections of simulated processes.

use std::sync::{Arc, Mutex};

use gridloom_base::Time;
use gridloom_base::time::SECOND_NS;
use gridloom_channel::Kind;
use gridloom_conformance::channel::{CASES, End};
use gridloom_platform::{HostId, Platform};
use gridloom_process::{Incoming, PeerId, ProcessMessage, ProcessSpec, ProcessWorld};
use gridloom_sim::process::{Body, Runner, SimProcess, StackKind};
use gridloom_sim::{SimConfig, Simulation};

/// The type of the suite's urgent messages.
const MESSAGE: &str = "message";

struct SimEnd<'a> {
    process: &'a mut SimProcess,
    peer: PeerId,
}

fn letter(kind: &str, body: &[u8]) -> ProcessMessage {
    ProcessMessage { kind: kind.into(), payload: body.to_vec() }
}

impl End for SimEnd<'_> {
    fn urge(&mut self, body: &[u8]) {
        self.process.send_urgent(self.peer, letter(MESSAGE, body)).unwrap();
    }

    fn offer(&mut self, body: &[u8]) -> bool {
        self.process.offer(self.peer, letter("letter", body)).is_ok_and(|refused| refused.is_none())
    }

    fn send(&mut self, body: &[u8]) -> bool {
        self.process.send(self.peer, letter("letter", body)).is_ok()
    }

    fn receive(&mut self) -> Option<(Kind, Vec<u8>)> {
        match self.process.receive(None).unwrap()? {
            Incoming::Message { letter, .. } if &*letter.kind == MESSAGE => Some((Kind::Message, letter.payload)),
            Incoming::Message { letter, .. } => Some((Kind::ProcessMessage, letter.payload)),
            Incoming::Closed { .. } => None,
        }
    }

    fn close(&mut self) {
        self.process.close(self.peer);
    }
}

#[test]
fn connections_of_simulated_processes_conform() {
    let text = "[[host]]\nname = 'a'\nspeed = '1Gf'\n[[host]]\nname = 'b'\nspeed = '1Gf'\n\
                [[link]]\nname = 'l'\nbandwidth = '1GBps'\nlatency = '1ms'\n\
                [[route]]\nfrom = 'a'\nto = 'b'\nlinks = ['l']\n";
    let platform = Arc::new(Platform::parse(text, "two.toml", &mut |_| Err("no files".into())).unwrap());
    for (name, case) in CASES {
        println!("{name}");
        case(&mut |[dials, listens]| {
            let simulation = Arc::new(Mutex::new(Simulation::new(platform.clone(), SimConfig::default())));
            let mut runner = Runner::new(simulation, Arc::new(|_, _, _, _, _| {}));
            let returned = Arc::new(Mutex::new(0));
            let (one, other) = (returned.clone(), returned.clone());
            let dialler: Body = Box::new(move |mut process| {
                let peer = process.connect("b", 1).unwrap();
                dials(&mut SimEnd { process: &mut process, peer });
                *one.lock().unwrap() += 1;
            });
            let listener: Body = Box::new(move |mut process| {
                process.listen(1).unwrap();
                // By then the dialler has connected.
                process.sleep_until(Time(SECOND_NS)).unwrap();
                listens(&mut SimEnd { process: &mut process, peer: PeerId(0) });
                *other.lock().unwrap() += 1;
            });
            for (host, name, body) in [(0, "a", dialler), (1, "b", listener)] {
                let spec = ProcessSpec { function: "end".into(), host: name.into(), arguments: Vec::new() };
                let start = Time(u64::from(host == 0));
                runner.add(HostId(host), spec, start, StackKind::Coroutine, body).unwrap();
            }
            runner.run().unwrap();
            assert_eq!(*returned.lock().unwrap(), 2, "some end panicked");
        });
    }
}
