//! The Lennard-Jones fluid in cells: its atoms, their forces, and the serial program.

/// Relative positions of the second cell of a pair: half of the 26 around the first.
pub const NEIGHBOURS: [[i32; 3]; 13] = [
    [0, 0, 1],
    [0, 1, -1],
    [0, 1, 0],
    [0, 1, 1],
    [1, -1, -1],
    [1, -1, 0],
    [1, -1, 1],
    [1, 0, -1],
    [1, 0, 0],
    [1, 0, 1],
    [1, 1, -1],
    [1, 1, 0],
    [1, 1, 1],
];
/// Number of cells around a cell.
pub const AROUND: usize = 26;
/// Number of atoms per unit of volume.
const DENSITY: f64 = 0.8442;
const TEMPERATURE: f64 = 0.722;
/// Atoms farther apart do not act on one another.
pub const CUTOFF: f64 = 2.5;

/// The atoms of a cell, in the order of their numbers: three values of each kind per atom.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Atoms {
    pub ids: Vec<u32>,
    pub at: Vec<f64>,
    pub velocity: Vec<f64>,
    pub force: Vec<f64>,
}

impl Atoms {
    /// Applies half a step of these forces to the velocities.
    pub fn kick(&mut self, dt: f64) {
        self.velocity.iter_mut().zip(&self.force).for_each(|(velocity, force)| *velocity += force * (0.5 * dt));
    }

    pub fn drift(&mut self, dt: f64) {
        self.at.iter_mut().zip(&self.velocity).for_each(|(at, velocity)| *at += velocity * dt);
    }

    pub fn kinetic_energy(&self) -> f64 {
        0.5 * self.velocity.iter().map(|velocity| velocity * velocity).sum::<f64>()
    }

    /// Sums the bits of positions and velocities. The sum of several cells is that of all atoms.
    pub fn checksum(&self) -> i64 {
        let mixed = |(number, value): (u64, f64)| {
            let mixed = (value.to_bits() ^ number.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) as i64
        };
        let numbered = |values: &[f64], what: u64| {
            let number = |place: usize| u64::from(self.ids[place / 3]) * 6 + what + place as u64 % 3;
            values.iter().enumerate().map(|(place, value)| mixed((number(place), *value))).fold(0, i64::wrapping_add)
        };
        numbered(&self.at, 0).wrapping_add(numbered(&self.velocity, 3))
    }

    fn push(&mut self, id: u32, [at, velocity, force]: [[f64; 3]; 3]) {
        self.ids.push(id);
        self.at.extend(at);
        self.velocity.extend(velocity);
        self.force.extend(force);
    }

    fn get(&self, place: usize) -> (u32, [[f64; 3]; 3]) {
        let of = |values: &[f64]| [values[3 * place], values[3 * place + 1], values[3 * place + 2]];
        (self.ids[place], [of(&self.at), of(&self.velocity), of(&self.force)])
    }

    /// Merges two sets of atoms, in order.
    pub fn joined(self, others: Atoms) -> Atoms {
        let mut all: Vec<_> =
            [&self, &others].into_iter().flat_map(|of| (0..of.ids.len()).map(|at| of.get(at))).collect();
        all.sort_by_key(|(id, _)| *id);
        let mut joined = Atoms::default();
        all.into_iter().for_each(|(id, values)| joined.push(id, values));
        joined
    }
}

/// A periodic cube of cells: the same cube follows on each side.
#[derive(Clone, Debug)]
pub struct Fluid {
    /// Number of cells along a side.
    cells: i32,
    /// Initial number of atoms along the side of a cell.
    lattice: i32,
    /// Length of a cell.
    edge: f64,
    /// Offset that is subtracted from the drawn velocities, and the factor that they are multiplied by.
    mean: [f64; 3],
    scale: f64,
}

impl Fluid {
    /// # Errors
    /// If atoms would act on others in cells that are not neighbours.
    pub fn new(cells: usize, lattice: usize) -> Result<Fluid, String> {
        let edge = lattice as f64 / DENSITY.cbrt();
        if edge < CUTOFF + 0.5 || !(3..=32).contains(&cells) || lattice > 16 {
            return Err(format!(
                "{cells} cells along a side, with {lattice} atoms: give 3 to 32 cells, and 3 to 16 atoms, as a cell is longer than the cutoff"
            ));
        }
        let mut fluid = Fluid { cells: cells as i32, lattice: lattice as i32, edge, mean: [0.0; 3], scale: 1.0 };
        let ids = 0..(cells * lattice).pow(3) as u32;
        let count = f64::from(ids.end);
        let mut sum = [0.0; 3];
        ids.clone().for_each(|id| (0..3).for_each(|axis| sum[axis] += drawn(id, axis)));
        fluid.mean = sum.map(|sum| sum / count);
        let square = ids.map(|id| fluid.velocity(id).iter().map(|one| one * one).sum::<f64>()).sum::<f64>();
        fluid.scale = (3.0 * (count - 1.0) * TEMPERATURE / square).sqrt();
        Ok(fluid)
    }

    pub fn count(&self) -> usize {
        (self.cells * self.cells * self.cells) as usize
    }

    pub fn index(&self, cell: usize) -> [i32; 3] {
        let (cell, cells) = (cell as i32, self.cells);
        [cell / (cells * cells), cell / cells % cells, cell % cells]
    }

    pub fn number(&self, index: [i32; 3]) -> usize {
        let [x, y, z] = index.map(|at| at.rem_euclid(self.cells));
        ((x * self.cells + y) * self.cells + z) as usize
    }

    fn moved(&self, cell: usize, by: [i32; 3]) -> [i32; 3] {
        let index = self.index(cell);
        std::array::from_fn(|axis| index[axis] + by[axis])
    }

    /// Returns the second cell of a pair of that cell, and the offset to add to its positions: the cubes around this
    /// one are its images.
    pub fn second(&self, cell: usize, neighbour: usize) -> (usize, [f64; 3]) {
        let index = self.moved(cell, NEIGHBOURS[neighbour]);
        let length = f64::from(self.cells) * self.edge;
        (self.number(index), index.map(|at| f64::from(at.div_euclid(self.cells)) * length))
    }

    /// Returns the cell whose pair with that neighbour has this one as its second cell.
    pub fn first(&self, cell: usize, neighbour: usize) -> usize {
        self.number(self.moved(cell, NEIGHBOURS[neighbour].map(|by| -by)))
    }

    fn velocity(&self, id: u32) -> [f64; 3] {
        std::array::from_fn(|axis| (drawn(id, axis) - self.mean[axis]) * self.scale)
    }

    /// Returns the initial atoms of a cell, on a cubic lattice.
    pub fn atoms(&self, cell: usize) -> Atoms {
        let (lattice, side, spacing) = (self.lattice, self.cells * self.lattice, self.edge / f64::from(self.lattice));
        let index = self.index(cell);
        let mut atoms = Atoms::default();
        for inside in 0..lattice.pow(3) {
            let inside = [inside / (lattice * lattice), inside / lattice % lattice, inside % lattice];
            let [x, y, z] = std::array::from_fn(|axis| index[axis] * lattice + inside[axis]);
            let id = ((x * side + y) * side + z) as u32;
            let at = [x, y, z].map(|at| (f64::from(at) + 0.5) * spacing);
            atoms.push(id, [at, self.velocity(id), [0.0; 3]]);
        }
        atoms
    }

    /// Removes the atoms that have left a cell; returns, for each of the 26 around it, its number and the atoms that move there.
    pub fn leaving(&self, cell: usize, atoms: &mut Atoms) -> Vec<(usize, Atoms)> {
        let around = NEIGHBOURS.into_iter().chain(NEIGHBOURS.map(|by| by.map(|by| -by)));
        let mut leaving: Vec<([i32; 3], Atoms)> = around.map(|by| (by, Atoms::default())).collect();
        let (index, length) = (self.index(cell), f64::from(self.cells) * self.edge);
        let mut stay = Atoms::default();
        for place in 0..atoms.ids.len() {
            let (id, [mut at, velocity, force]) = atoms.get(place);
            let by = std::array::from_fn(|axis| (at[axis] / self.edge).floor() as i32 - index[axis]);
            match leaving.iter_mut().find(|(there, _)| *there == by) {
                None => stay.push(id, [at, velocity, force]),
                Some((_, there)) => {
                    for axis in 0..3 {
                        at[axis] -= f64::from((index[axis] + by[axis]).div_euclid(self.cells)) * length;
                    }
                    there.push(id, [at, velocity, force]);
                }
            }
        }
        *atoms = stay;
        leaving.into_iter().map(|(by, atoms)| (self.number(self.moved(cell, by)), atoms)).collect()
    }
}

/// Draws a number of the normal distribution by the Box-Muller method.
fn drawn(id: u32, axis: usize) -> f64 {
    let uniform = |which: u64| {
        let mut mixed = (u64::from(id) * 6 + axis as u64 * 2 + which + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    };
    (-2.0 * (1.0 - uniform(0)).ln()).sqrt() * (std::f64::consts::TAU * uniform(1)).cos()
}

/// Returns the energy of two atoms at that square of a distance, and their force divided by the distance.
fn law(square: f64) -> (f64, f64) {
    // Both are 0 at the cutoff: V(r) - V(c) + (r - c) F(c), and F(r) - F(c).
    let at = |square: f64| {
        let (inverse, sixth) = (1.0 / square, (1.0 / square).powi(3));
        (4.0 * sixth * (sixth - 1.0), 24.0 * sixth * (2.0 * sixth - 1.0) * inverse)
    };
    let ((energy, force), (cut_energy, cut_force)) = (at(square), at(CUTOFF * CUTOFF));
    let (distance, cut_force) = (square.sqrt(), cut_force * CUTOFF);
    (energy - cut_energy + (distance - CUTOFF) * cut_force, force - cut_force / distance)
}

/// Returns half of the energy of two cells' atoms, and the forces on the first and on the second; `shift` is added to the second's
/// positions.
pub fn between(first: &[f64], second: &[f64], shift: [f64; 3]) -> (f64, Vec<f64>, Vec<f64>) {
    let (mut energy, mut on_first, mut on_second) = (0.0, vec![0.0; first.len()], vec![0.0; second.len()]);
    let second: Vec<f64> = second.iter().enumerate().map(|(place, at)| at + shift[place % 3]).collect();
    for (a, on_a) in first.chunks_exact(3).zip(on_first.chunks_exact_mut(3)) {
        for (b, on_b) in second.chunks_exact(3).zip(on_second.chunks_exact_mut(3)) {
            energy += add_forces([a, b], on_a, on_b);
        }
    }
    (0.5 * energy, on_first, on_second)
}

/// Returns the energy of a cell's atoms, and their forces.
pub fn within(at: &[f64]) -> (f64, Vec<f64>) {
    let (mut energy, mut force) = (0.0, vec![0.0; at.len()]);
    for a in (0..at.len()).step_by(3) {
        let (on_a, on_others) = force[a..].split_at_mut(3);
        for (b, on_b) in at[a + 3..].chunks_exact(3).zip(on_others.chunks_exact_mut(3)) {
            energy += add_forces([&at[a..a + 3], b], on_a, on_b);
        }
    }
    (energy, force)
}

fn add_forces([a, b]: [&[f64]; 2], on_a: &mut [f64], on_b: &mut [f64]) -> f64 {
    let way = [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
    let square = way[0] * way[0] + way[1] * way[1] + way[2] * way[2];
    if square >= CUTOFF * CUTOFF {
        return 0.0;
    }
    let (energy, force) = law(square);
    for axis in 0..3 {
        on_a[axis] += force * way[axis];
        on_b[axis] -= force * way[axis];
    }
    energy
}

/// The serial program: cell by cell, pair by pair, in the order of the chares' sums.
pub struct Serial {
    fluid: Fluid,
    cells: Vec<Atoms>,
}

impl Serial {
    pub fn new(fluid: Fluid) -> Serial {
        let cells = (0..fluid.count()).map(|cell| fluid.atoms(cell)).collect();
        Serial { fluid, cells }
    }

    /// Returns the checksum, and the energy at the beginning and after each step.
    pub fn run(&mut self, steps: u32, dt: f64, exchange_steps: u32) -> (i64, Vec<f64>) {
        let mut energies = vec![self.forces()];
        for step in 1..=steps {
            for atoms in &mut self.cells {
                atoms.kick(dt);
                atoms.drift(dt);
            }
            let potential = self.forces_then(|atoms| atoms.kick(dt));
            energies.push(potential);
            if step % exchange_steps == 0 {
                self.exchange();
            }
        }
        (self.cells.iter().map(Atoms::checksum).fold(0, i64::wrapping_add), energies)
    }

    fn forces(&mut self) -> f64 {
        self.forces_then(|_| ())
    }

    /// Computes new forces, applies `then` to all atoms, and returns the energy.
    fn forces_then(&mut self, then: impl Fn(&mut Atoms)) -> f64 {
        let positions: Vec<&[f64]> = self.cells.iter().map(|atoms| &atoms.at[..]).collect();
        let mut potential = vec![0.0; self.cells.len()];
        let mut force: Vec<Vec<f64>> = self.cells.iter().map(|atoms| vec![0.0; atoms.at.len()]).collect();
        let add = |to: &mut [f64], of: &[f64]| to.iter_mut().zip(of).for_each(|(to, of)| *to += of);
        let pairs: Vec<Vec<_>> = (0..self.cells.len())
            .map(|cell| {
                let pair = |neighbour| {
                    let (second, shift) = self.fluid.second(cell, neighbour);
                    between(positions[cell], positions[second], shift)
                };
                (0..NEIGHBOURS.len()).map(pair).collect()
            })
            .collect();
        for cell in 0..self.cells.len() {
            let (energy, own) = within(positions[cell]);
            potential[cell] += energy;
            add(&mut force[cell], &own);
            for (energy, on_first, _) in &pairs[cell] {
                potential[cell] += energy;
                add(&mut force[cell], on_first);
            }
            for neighbour in 0..NEIGHBOURS.len() {
                let (energy, _, on_second) = &pairs[self.fluid.first(cell, neighbour)][neighbour];
                potential[cell] += energy;
                add(&mut force[cell], on_second);
            }
        }
        let energy = |((atoms, force), potential): ((&mut Atoms, Vec<f64>), f64)| {
            atoms.force = force;
            then(atoms);
            potential + atoms.kinetic_energy()
        };
        let energies = self.cells.iter_mut().zip(force).zip(potential).map(energy);
        energies.reduce(|sum, one| sum + one).unwrap_or(0.0)
    }

    fn exchange(&mut self) {
        let mut coming = vec![Atoms::default(); self.cells.len()];
        for (cell, atoms) in self.cells.iter_mut().enumerate() {
            for (to, leaving) in self.fluid.leaving(cell, atoms) {
                coming[to] = std::mem::take(&mut coming[to]).joined(leaving);
            }
        }
        for (atoms, coming) in self.cells.iter_mut().zip(coming) {
            *atoms = std::mem::take(atoms).joined(coming);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forces_are_those_of_all_pairs_of_atoms() {
        let fluid = Fluid::new(3, 3).unwrap();
        let length = f64::from(fluid.cells) * fluid.edge;
        let mut serial = Serial::new(fluid);
        serial.run(25, 0.004, 10);
        let all = serial.cells.iter().fold(Atoms::default(), |all, cell| all.joined(cell.clone()));
        assert_eq!(all.ids, (0..729).collect::<Vec<u32>>());
        let mut force = vec![0.0; all.at.len()];
        for a in 0..all.ids.len() {
            for b in (0..all.ids.len()).filter(|b| *b != a) {
                let nearest = |axis: usize| {
                    let way = all.at[3 * a + axis] - all.at[3 * b + axis];
                    way - (way / length).round() * length
                };
                let way = [0, 1, 2].map(nearest);
                let square: f64 = way.iter().map(|one| one * one).sum();
                if square < CUTOFF * CUTOFF {
                    let (_, along) = law(square);
                    (0..3).for_each(|axis| force[3 * a + axis] += along * way[axis]);
                }
            }
        }
        let off = force.iter().zip(&all.force).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(off < 1e-10, "{off}");
        let sums = [0, 1, 2].map(|axis| all.force.iter().skip(axis).step_by(3).sum::<f64>());
        let momentum = [0, 1, 2].map(|axis| all.velocity.iter().skip(axis).step_by(3).sum::<f64>());
        assert!(sums.iter().chain(&momentum).all(|sum| sum.abs() < 1e-10), "{sums:?}, {momentum:?}");
    }

    #[test]
    fn energy_is_kept_the_better_the_shorter_steps_are() {
        let spread = |steps, dt| {
            let (_, energies) = Serial::new(Fluid::new(3, 3).unwrap()).run(steps, dt, 10);
            let (least, greatest) =
                energies.iter().fold((f64::MAX, f64::MIN), |(a, b), one| (a.min(*one), b.max(*one)));
            (greatest - least) / energies[0].abs()
        };
        let (long, short) = (spread(100, 0.004), spread(200, 0.002));
        assert!(long < 1e-3 && (2.5..6.0).contains(&(long / short)), "{long}, {short}");
    }
}
