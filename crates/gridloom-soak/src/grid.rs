//! The grid of a run: four servers and one to three clients, each on a host of its own.

use std::sync::Arc;

use gridloom_base::{DatumId, Dtype, Meta, NodeId, Origin, PartSizes, SplitMix64, Time};
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Event, Role};
use gridloom_idl::Definition;
use gridloom_platform::{HostId, Platform};

use super::layout::{self, AGENT, AGENT_HOST, CLIENT_HOST, CLIENTS_MAX, SERVERS, USER};
use super::ledger::Ledger;
use super::malicious_client::{FORGED, MaliciousClient, OWN_COUNT, OWN_FROM};
use super::shared_functions;
use super::workload::{Hashes, IDL, Mix, array};
use gridloom_sim::BoxedMachine;
use gridloom_sim::Files;
use gridloom_sim::faults::FaultTargets;
use gridloom_sim::inspect::NodeState;
use gridloom_sim::{SimConfig, Simulation};

/// Salts of the random streams.
const INSIDER: u64 = 0x696e_7369_6465_7221;

/// The larger arrays of the workload have several parts, so that servers forward them while receiving them.
const PARTS: PartSizes = PartSizes { least_bytes: 768, most_bytes: 12 << 10 };

/// Returns the functions and methods.
fn offered() -> Vec<Definition> {
    let file = gridloom_idl::parse_file(IDL, "soak.idl").expect("the functions of the soak parse");
    let methods = file.classes.into_iter().flat_map(|class| class.methods);
    file.definitions.into_iter().chain(methods).chain(shared_functions::offered()).collect()
}

/// A running grid with its first client, and the clients that start later.
pub(crate) struct SoakGrid {
    pub(crate) sim: Simulation,
    pub(crate) targets: FaultTargets,
    pub(crate) first_client: NodeId,
    /// Clients that start later: delay, name and host.
    pub(crate) later_clients: Vec<(u64, String, HostId)>,
    pub(crate) elements: u64,
    pub(crate) hashes: Hashes,
}

impl SoakGrid {
    /// Draws and starts a grid, and waits until the first client knows all servers.
    pub(crate) fn new(seed: u64, random: &mut SplitMix64, ledger: &mut Ledger) -> SoakGrid {
        let platform = Platform::parse(&layout::platform(seed), "soak.toml", &mut |_| Err("no files".into()));
        let platform = Arc::new(platform.expect("the platform of the soak parses"));
        let host = |number: u32| platform.hosts()[number as usize].name.clone();
        let storages = (1..=SERVERS as u32).map(|number| (HostId(number), HostId(AGENT_HOST))).collect();
        let config = SimConfig { seed, parts: PARTS, slow_mappings_of: 16, storages, ..SimConfig::default() };
        let mut sim = Simulation::new(platform.clone(), config);
        sim.take_events();
        sim.set_bodies(Box::<Mix>::default());
        let definitions = offered();
        let hashes = std::array::from_fn(|index| definitions[index].signature.hash());
        sim.set_files(super::workload::WITH_FILES, Files { args: vec![1], outputs: vec![0], ..Files::default() });
        sim.add_agent(HostId(AGENT_HOST), AGENT);
        let mut targets = FaultTargets { agent: (AGENT.into(), host(AGENT_HOST)), ..FaultTargets::default() };
        ledger.is_tight = random.below(3) == 0;
        // Small arrays are sent without a request.
        let elements = [100, 3_000, 14_000, 14_000][random.below(4) as usize];
        for number in 1..=SERVERS as u32 {
            // A roomy server has room for all data of three clients and a malicious one, and for the data that their calls share.
            let memory_bytes = 8 * elements * if ledger.is_tight { 6 + random.below(30) } else { 700 };
            let name = format!("server-{number}");
            let (slots, plain) = (1 + random.below(2) as u32, random.below(8) == 0);
            ledger.plain.extend(plain.then(|| name.clone()));
            ledger.bounds.insert(name.clone(), memory_bytes);
            targets.servers.push((name.clone(), host(number)));
            let spec = ServerSpec {
                name,
                slots,
                is_stateless: plain,
                memory_bytes,
                disk_bytes: 0,
                functions: definitions.clone(),
            };
            sim.add_server(HostId(number), spec);
        }
        let mut later_clients = Vec::new();
        for number in 0..1 + random.below(CLIENTS_MAX) as u32 {
            let (name, at) = (format!("client-{}", number + 1), HostId(CLIENT_HOST + number));
            targets.clients.push((name.clone(), host(at.0)));
            if number > 0 {
                later_clients.push((random.below(1_500_000_000), name, at));
            }
        }
        let first_client = SoakGrid::add_client(&mut sim, HostId(CLIENT_HOST), "client-1");
        let all =
            |event: &Event| matches!(event, Event::Directory { grid, .. } if grid.servers.len() == SERVERS as usize);
        while !sim.next_event(first_client, Some(Time::NEVER)).as_ref().is_some_and(all) {}
        SoakGrid::add_insider(&mut sim, seed, ledger, elements, hashes);
        SoakGrid { sim, targets, first_client, later_clients, elements, hashes }
    }

    /// Adds a malicious client in one seed of four. Uses its own random stream, so that nothing else depends on it.
    fn add_insider(sim: &mut Simulation, seed: u64, ledger: &mut Ledger, elements: u64, hashes: Hashes) {
        let mut random = SplitMix64::new(seed ^ INSIDER);
        if random.below(4) > 0 {
            return;
        }
        let nodes = sim.nodes().filter(|(_, role)| *role != Role::Client);
        let addresses = nodes.map(|(node, _)| sim.address(node).to_string()).collect();
        let first = sim.nodes().find(|(_, role)| *role == Role::Client).expect("there is a client").0;
        // Clients that start later, and sessions of functions, get the numbers after its own.
        let make = |id: NodeId, _: &str| {
            let victims = [first].into_iter().chain((1..CLIENTS_MAX).map(|number| NodeId(id.0 + number))).collect();
            let (peers, shared, next) = (Default::default(), Vec::new(), 0);
            Box::new(MaliciousClient {
                id,
                random,
                addresses,
                impersonated: victims,
                elements,
                hashes,
                peers,
                shared,
                next,
            }) as BoxedMachine
        };
        let node = sim.add_machine(HostId(CLIENT_HOST + CLIENTS_MAX as u32 - 1), Role::Client, "insider", 1, make);
        sim.set_origin(node, Origin { user: "mallory".into(), ..Origin::default() });
        ledger.malicious_clients.insert(node);
        let meta = Meta::array(Dtype::Float64, &[elements]);
        let own = (0..OWN_COUNT).map(|number| DatumId { client: node, serial: OWN_FROM + number });
        let others = (0..FORGED).map(|number| DatumId { client: first, serial: number });
        let all: Vec<DatumId> = own.chain(others).collect();
        for datum in all {
            sim.put(node, datum, meta.clone(), Some(array(-1.0, &meta).into()));
        }
    }

    /// Starts a client. It may also delete names whose owners a restarted agent does not know.
    pub(crate) fn add_client(sim: &mut Simulation, host: HostId, name: &str) -> NodeId {
        let client = sim.add_client(host, name);
        SoakGrid::set_user(sim, client);
        client
    }

    pub(crate) fn set_user(sim: &mut Simulation, client: NodeId) {
        sim.set_origin(client, Origin { user: USER.into(), is_administrator: true, ..Origin::default() });
    }

    /// Iterates over the nodes of a role, including those that were killed.
    pub(crate) fn all(sim: &Simulation, role: Role) -> impl Iterator<Item = NodeId> + '_ {
        sim.nodes().filter(move |(_, own)| *own == role).map(|(id, _)| id)
    }

    /// Iterates over the nodes of a role that react.
    pub(crate) fn running(sim: &Simulation, role: Role) -> impl Iterator<Item = NodeId> + '_ {
        SoakGrid::all(sim, role).filter(|node| sim.state(*node) == NodeState::Running)
    }
}
