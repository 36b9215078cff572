//! Molecular dynamics on message-driven objects, in the style of LeanMD: an array of cells with atoms, and one chare
//! for each pair of
//! neighbouring cells. 6 x 6 x 6 cells have 216 x 14 = 3,024 pairs.
//!
//! ```sh
//! cargo build --release -p gridloom --example leanmd
//! gridloom chares run -n 2 -- target/release/examples/leanmd --steps 100 --check
//! ```
//! In each step a cell sends the positions of its atoms to its 27 pairs, which return forces. It adds them up in the order of its
//! pairs, so positions have the same bits for any number of elements and any placement; `--check` compares with a serial program.
//! Every ten steps, atoms that have left their cell move to the cells that they are in.
//!
//! A pair of cells at two sites waits for remote positions, and the remote cell waits for its forces. So such pairs
//! run before others.
//!
//! The fluid is a Lennard-Jones fluid in reduced units, with forces that are shifted to be 0 at the cutoff: density 0.8442,
//! temperature 0.722, cutoff 2.5. Atoms begin on a cubic lattice. They are integrated by the velocity form of Verlet's method.
//!
//! Source: L. V. Kalé et al., *NAMD2: greater scalability for parallel molecular dynamics*, J. Comput. Phys. 151
//! (1999), for cells and
//! pairs; S. Toxvaerd, J. C. Dyre, J. Chem. Phys. 134, 081102 (2011), for shifted forces.

mod fluid;

use std::cell::OnceCell;
use std::rc::Rc;

use fluid::{AROUND, Atoms, Fluid, NEIGHBOURS, Serial, between, within};
use gridloom::chares::{self, Callback, Chare, Context, Contribution, Index, Placement, Priority, Proxy, Value};
use gridloom::{Error, Message};

const USAGE: &str = "leanmd [--cells 6] [--atoms 4] [--steps 100] [--dt 0.004] [--placement blocks|round-robin|by-site] [--pair-us 0] [--check]";

/// The pairs indexed by a cell's number: the pair with itself is first, then those with its neighbours on one side.
const OWN_PAIRS: usize = NEIGHBOURS.len() + 1;
/// All pairs of a cell.
const PAIRS: usize = OWN_PAIRS + NEIGHBOURS.len();
/// Steps between exchanges of atoms. In this time atoms move by a small fraction of a cell's length beyond the cutoff.
const EXCHANGE_STEPS: u32 = 10;

/// Messages to cells.
#[derive(Clone, Message)]
enum ToCell {
    /// All arrays exist.
    Begin,
    /// The forces of a pair on the atoms of this cell, and this cell's part of the energy.
    Forces { pair: u8, energy: f64, forces: Vec<f64> },
    /// Atoms of a neighbour that are in this cell now.
    Atoms { ids: Vec<u32>, at: Vec<f64>, velocity: Vec<f64>, force: Vec<f64> },
}

/// Messages to pairs.
#[derive(Clone, Message)]
enum ToPair {
    /// Positions of the first cell's atoms, or of the second's.
    Positions { is_first: bool, at: Vec<f64> },
}

/// Work of a processor of 1 Gflop/s in a microsecond.
const FLOPS_PER_US: f64 = 1e3;

/// Charges the entry method with a microsecond if the work of pairs is given, so that a simulation is deterministic.
fn charge_entry<C: Chare>(pair_us: f64, cx: &mut Context<'_, C>) {
    if pair_us > 0.0 {
        cx.compute(FLOPS_PER_US);
    }
}

/// Tags of results.
const READY: u32 = 0;
const ENERGY: u32 = 1;
const DONE: u32 = 2;

/// Pairs as cells address them, available once the pairs are created.
struct Pairs {
    array: Proxy<Pair>,
    /// By cell.
    groups: Vec<[Group; 4]>,
}

/// Pairs that a cell sends to, grouped so that those of two sites precede others.
struct Group {
    priority: Priority,
    /// True if the cell is their first.
    is_first: bool,
    pairs: Vec<[usize; 2]>,
}

/// Priorities of pairs with cells at two sites, and of others.
const PRIORITIES: [Priority; 2] = [Priority(-1), Priority(0)];

impl Pairs {
    /// `site` returns the initial site of a cell.
    fn new(array: Proxy<Pair>, fluid: &Fluid, site: impl Fn(usize) -> u32) -> Pairs {
        let priority = |[cell, pair]: [usize; 2]| priority_of(fluid, cell, pair, &site);
        let groups = |cell| {
            let own: Vec<[usize; 2]> = (0..OWN_PAIRS).map(|pair| [cell, pair]).collect();
            let first = |neighbour| [fluid.first(cell, neighbour), neighbour + 1];
            let others: Vec<[usize; 2]> = (0..NEIGHBOURS.len()).map(first).collect();
            let group = |of: Priority, is_first, all: &[[usize; 2]]| {
                let pairs = all.iter().copied().filter(|pair| priority(*pair) == of).collect();
                Group { priority: of, is_first, pairs }
            };
            let [far, near] = PRIORITIES;
            [group(far, true, &own), group(far, false, &others), group(near, true, &own), group(near, false, &others)]
        };
        Pairs { array, groups: (0..fluid.count()).map(groups).collect() }
    }
}

fn priority_of(fluid: &Fluid, cell: usize, pair: usize, site: &impl Fn(usize) -> u32) -> Priority {
    let is_far = pair > 0 && site(cell) != site(fluid.second(cell, pair - 1).0);
    PRIORITIES[usize::from(!is_far)]
}

/// A chare with the atoms of a cell.
struct Cell {
    options: Options,
    pairs: Rc<OnceCell<Pairs>>,
    number: usize,
    atoms: Atoms,
    step: u32,
    /// Energies and forces of this step, by pair.
    forces: [Option<(f64, Vec<f64>)>; PAIRS],
    /// Atoms received from neighbours, and the number of neighbours that have sent theirs.
    received: Atoms,
    heard: usize,
    is_exchanging: bool,
    began: f64,
    /// Energies of the whole fluid after each step, at the first cell.
    energies: Vec<f64>,
}

impl Cell {
    fn new(options: Options, pairs: Rc<OnceCell<Pairs>>, index: Index) -> Cell {
        let number = options.fluid.number([index[0], index[1], index[2]]);
        let (atoms, forces, received) = (options.fluid.atoms(number), std::array::from_fn(|_| None), Atoms::default());
        let (step, heard, is_exchanging, began, energies) = Default::default();
        Cell { options, pairs, number, atoms, step, forces, received, heard, is_exchanging, began, energies }
    }

    fn send_positions(&self, cx: &mut Context<'_, Cell>) {
        let pairs = self.pairs.get().expect("all arrays are there");
        for Group { priority, is_first, pairs: group } in &pairs.groups[self.number] {
            if !group.is_empty() {
                let positions = ToPair::Positions { is_first: *is_first, at: self.atoms.at.clone() };
                cx.send_with(*priority, pairs.array.section(group.iter().copied()), positions);
            }
        }
    }

    fn begin_step(&mut self, cx: &mut Context<'_, Cell>) {
        self.step += 1;
        self.atoms.kick(self.options.dt);
        self.atoms.drift(self.options.dt);
        self.send_positions(cx);
    }

    /// Called when all forces of a step have been received.
    fn end_step(&mut self, cx: &mut Context<'_, Cell>) {
        let (mut potential, mut force) = (0.0, vec![0.0; self.atoms.at.len()]);
        for (energy, forces) in self.forces.iter_mut().filter_map(Option::take) {
            potential += energy;
            force.iter_mut().zip(&forces).for_each(|(force, of_pair)| *force += of_pair);
        }
        self.atoms.force = force;
        if self.step > 0 {
            self.atoms.kick(self.options.dt);
        }
        let to_first = |tag| Callback::to(cx.array().at((0, 0, 0))).tagged(tag);
        let (of_energy, of_end) = (to_first(ENERGY), to_first(DONE));
        let energy = potential + self.atoms.kinetic_energy();
        cx.contribute(Contribution::sum(energy).ordered(), of_energy);
        let is_exchanged = self.step > 0 && self.step.is_multiple_of(EXCHANGE_STEPS);
        if self.step == self.options.steps {
            let done = vec![self.atoms.checksum(), self.atoms.ids.len() as i64];
            return cx.contribute(Contribution::sum(done), of_end);
        }
        if !is_exchanged {
            return self.begin_step(cx);
        }
        for (cell, atoms) in self.options.fluid.leaving(self.number, &mut self.atoms) {
            let Atoms { ids, at, velocity, force } = atoms;
            let there = cx.array().at(self.options.fluid.index(cell));
            cx.send(there, ToCell::Atoms { ids, at, velocity, force });
        }
        self.is_exchanging = true;
        self.end_exchange(cx);
    }

    /// Ends an exchange. Neighbours may have sent their atoms before this cell has all forces.
    fn end_exchange(&mut self, cx: &mut Context<'_, Cell>) {
        if self.is_exchanging && self.heard == AROUND {
            (self.is_exchanging, self.heard) = (false, 0);
            self.atoms = std::mem::take(&mut self.atoms).joined(std::mem::take(&mut self.received));
            self.begin_step(cx);
        }
    }
}

impl Chare for Cell {
    type Message = ToCell;

    fn entry(&mut self, message: ToCell, cx: &mut Context<'_, Cell>) {
        charge_entry(self.options.pair_us, cx);
        match message {
            ToCell::Begin => {
                cx.contribute(Contribution::barrier(), Callback::to(cx.array().all()).tagged(READY));
            }
            ToCell::Forces { pair, energy, forces } => {
                self.forces[usize::from(pair)] = Some((energy, forces));
                if self.forces.iter().all(Option::is_some) {
                    self.end_step(cx);
                }
            }
            ToCell::Atoms { ids, at, velocity, force } => {
                self.received = std::mem::take(&mut self.received).joined(Atoms { ids, at, velocity, force });
                self.heard += 1;
                self.end_exchange(cx);
            }
        }
    }

    fn on_result(&mut self, tag: u32, value: Value, cx: &mut Context<'_, Cell>) {
        match tag {
            READY => {
                self.began = cx.now();
                self.send_positions(cx);
            }
            ENERGY => self.energies.push(value.float().expect("a sum of floats")),
            _ => {
                let Value::Integers(mut told) = value else { unreachable!("a sum of integers") };
                told.push(((cx.now() - self.began) * 1e9) as i64);
                told.extend(self.energies.iter().map(|energy| energy.to_bits() as i64));
                cx.exit(told);
            }
        }
    }
}

/// A chare with the forces between the atoms of two cells, or of one.
struct Pair {
    cells: Proxy<Cell>,
    fluid: Fluid,
    cell: usize,
    /// 0 for the pair of the cell with itself, else one more than the number of the neighbour.
    number: usize,
    priority: Priority,
    pair_us: f64,
    first: Option<Vec<f64>>,
    second: Option<Vec<f64>>,
}

impl Pair {
    fn send(&self, cx: &mut Context<'_, Pair>, cell: usize, pair: usize, (energy, forces): (f64, Vec<f64>)) {
        let there = self.cells.at(self.fluid.index(cell));
        cx.send_with(self.priority, there, ToCell::Forces { pair: pair as u8, energy, forces });
    }
}

impl Chare for Pair {
    type Message = ToPair;

    fn entry(&mut self, ToPair::Positions { is_first, at }: ToPair, cx: &mut Context<'_, Pair>) {
        charge_entry(self.pair_us, cx);
        if self.number == 0 {
            cx.compute(self.pair_us * FLOPS_PER_US);
            return self.send(cx, self.cell, 0, within(&at));
        }
        *(if is_first { &mut self.first } else { &mut self.second }) = Some(at);
        if let (Some(first), Some(second)) = (&self.first, &self.second) {
            let (other, shift) = self.fluid.second(self.cell, self.number - 1);
            let (energy, on_first, on_second) = between(first, second, shift);
            (self.first, self.second) = (None, None);
            cx.compute(self.pair_us * FLOPS_PER_US);
            self.send(cx, self.cell, self.number, (energy, on_first));
            self.send(cx, other, self.number + NEIGHBOURS.len(), (energy, on_second));
        }
    }
}

/// Options of the command line.
#[derive(Clone)]
struct Options {
    fluid: Fluid,
    steps: u32,
    dt: f64,
    placement: Placement,
    /// Microseconds that the forces of a pair take in a simulation, on a processor of 1 Gflop/s. 0: as long as on this machine.
    pair_us: f64,
    check: bool,
}

fn options() -> Result<Options, String> {
    let (mut cells, mut atoms, mut steps, mut dt) = (6, 4, 100, 0.004);
    let (mut placement, mut pair_us, mut check) = (Placement::Blocks, 0.0, false);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--check" {
            check = true;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{word}: {USAGE}"))?;
        let wrong = |why: String| format!("{word} {value}: {why}; {USAGE}");
        let number = || value.parse::<usize>().map_err(|error| wrong(error.to_string()));
        match word.as_str() {
            "--cells" => cells = number()?,
            "--atoms" => atoms = number()?,
            "--steps" => steps = number()? as u32,
            "--dt" => dt = value.parse().map_err(|_| wrong("a number is wanted".into()))?,
            "--pair-us" => pair_us = value.parse().map_err(|_| wrong("a number is wanted".into()))?,
            "--placement" => {
                placement = match value.as_str() {
                    "blocks" => Placement::Blocks,
                    "round-robin" => Placement::RoundRobin,
                    "by-site" => Placement::BySite,
                    _ => return Err(wrong("there is no such placement".into())),
                }
            }
            _ => return Err(format!("{word}: {USAGE}")),
        }
    }
    Ok(Options { fluid: Fluid::new(cells, atoms)?, steps, dt, placement, pair_us, check })
}

/// The result of a run: checksum, number of atoms, nanoseconds, energies.
struct Outcome {
    checksum: i64,
    atoms: i64,
    ns: i64,
    energies: Vec<f64>,
}

/// Runs the program. Returns a result on the first element only.
fn run(options: Options) -> Result<Option<Outcome>, Error> {
    let ended = chares::run(move |job| {
        let Options { fluid, placement, pair_us, .. } = &options;
        let side = fluid.index(fluid.count() - 1)[0] as usize + 1;
        // Set once the pairs are created, which need to know the cells.
        let pairs = Rc::new(OnceCell::new());
        let cell = |index| Cell::new(options.clone(), pairs.clone(), index);
        let cells = job.array((side, side, side), placement.clone(), cell)?;
        let of_cells = (0..fluid.count()).map(|cell| job.element_of(&cells, fluid.index(cell)));
        let sites: Vec<u32> = of_cells.flatten().map(|element| job.elements().site(element)).collect();
        let site = |cell: usize| sites[cell];
        let pair = |index: Index| {
            let (cell, number) = (index[0] as usize, index[1] as usize);
            let priority = priority_of(fluid, cell, number, &site);
            Pair { cells, fluid: fluid.clone(), cell, number, priority, pair_us: *pair_us, first: None, second: None }
        };
        let made = job.array((fluid.count(), OWN_PAIRS), placement.clone(), pair)?;
        let made = Pairs::new(made, fluid, site);
        pairs.set(made).unwrap_or_else(|_| unreachable!("they are made once"));
        job.start(|cx| cx.send(cells.all(), ToCell::Begin));
        Ok(())
    })?;
    let Value::Integers(told) = ended.value else { unreachable!("the chares end with integers") };
    let energies = told[3..].iter().map(|bits| f64::from_bits(*bits as u64)).collect();
    Ok(ended.is_first.then_some(Outcome { checksum: told[0], atoms: told[1], ns: told[2], energies }))
}

fn main() -> Result<(), Error> {
    let options = options().map_err(Error::Input)?;
    let Options { fluid, steps, dt, check, .. } = options.clone();
    let Some(Outcome { checksum, atoms, ns, energies }) = run(options)? else { return Ok(()) };
    let cells = fluid.count();
    let (pairs, ms) = (cells * OWN_PAIRS, ns as f64 / 1e6 / f64::from(steps.max(1)));
    println!(
        "{atoms} atoms in {cells} cells and {pairs} pairs, {steps} steps: {ms:.3} ms a step, checksum {checksum:016x}"
    );
    let mean = energies.iter().sum::<f64>() / energies.len() as f64;
    let square = energies.iter().map(|energy| (energy - mean).powi(2)).sum::<f64>() / energies.len() as f64;
    println!(
        "energy {:.6} an atom, with fluctuations of {:.1e} of it (rms)",
        mean / atoms as f64,
        square.sqrt() / mean.abs()
    );
    if check {
        let began = std::time::Instant::now();
        let (serial, serial_energies) = Serial::new(fluid).run(steps, dt, EXCHANGE_STEPS);
        let ms = began.elapsed().as_secs_f64() * 1e3 / f64::from(steps.max(1));
        println!("serial: {ms:.3} ms a step, checksum {serial:016x}");
        if serial != checksum || serial_energies != energies {
            return Err(Error::Usage("the atoms are not where they are in the serial program".into()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_energies_are_those_of_the_serial_program() {
        let fluid = Fluid::new(3, 3).unwrap();
        let (steps, dt) = (2 * EXCHANGE_STEPS + 5, 0.004);
        let options =
            Options { fluid: fluid.clone(), steps, dt, placement: Placement::Blocks, pair_us: 0.0, check: false };
        let Outcome { checksum, atoms, energies, .. } = run(options).unwrap().unwrap();
        assert_eq!((checksum, energies), Serial::new(fluid).run(steps, dt, EXCHANGE_STEPS));
        assert_eq!(atoms, 729);
    }
}
