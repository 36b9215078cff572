//! A five-point stencil (Jacobi) on message-driven objects: an array of chares, each with a block of the mesh. A chare computes
//! its next step once the edges of its four neighbours are there; while it waits for far ones, other chares compute.
//!
//! ```sh
//! cargo build --release -p gridloom --example stencil
//! gridloom chares run -n 2 -- target/release/examples/stencil --chares 16 --check
//! gridloom chares run -n 2 --sites 2 --latency 16ms -- target/release/examples/stencil --chares 64
//! ```
//! Every cell is computed by the same operations in the same order as in the serial program. So the mesh has the same bits for any
//! number of chares and elements, and any placement; `--check` compares.
//!
//! In simulation a step takes the time that it takes on this machine, or with `--cell-ns 2` so many nanoseconds a cell on hosts of
//! 1 Gflop/s, so that two runs are the same.

use gridloom::chares::{self, Callback, Chare, Context, Contribution, Index, Placement, Value};
use gridloom::{Error, Message};

/// What `--help` would say.
const USAGE: &str = "stencil [--size 2048] [--chares 16] [--steps 50] [--placement blocks|round-robin|by-site] [--check] \
     [--cell-ns 0]";

/// What blocks send one another.
#[derive(Clone, Message)]
enum Ask {
    /// All arrays are there.
    Begin { steps: u32 },
    /// The edge of a neighbour, before its step of that number.
    Edge { step: u32, side: u8, cells: Vec<f64> },
}

/// Where an edge comes from.
const SIDES: [(u8, i32, i32); 4] = [(0, -1, 0), (1, 1, 0), (2, 0, -1), (3, 0, 1)];

/// What an entry method takes beside the cells, nanoseconds: in simulation with `--cell-ns`.
const ENTRY_NS: f64 = 200.0;

/// Tags of results.
const READY: u32 = 0;
const DONE: u32 = 1;

/// A square of cells with a frame around it, before and after a step.
struct Mesh {
    side: usize,
    cells: Vec<f64>,
    next: Vec<f64>,
}

impl Mesh {
    /// The part of a mesh of `size` by `size` cells that begins at that row and column.
    fn new(size: usize, side: usize, row: usize, column: usize) -> Mesh {
        let width = side + 2;
        let mut cells = vec![0.0; width * width];
        for (i, j) in (0..side).flat_map(|i| (0..side).map(move |j| (i, j))) {
            let wave = |at: usize| (std::f64::consts::PI * (at + 1) as f64 / (size + 1) as f64).sin();
            cells[(i + 1) * width + j + 1] =
                wave(row + i) * wave(column + j) + ((row + i) * 31 + column + j) as f64 % 7.0;
        }
        Mesh { side, next: cells.clone(), cells }
    }

    /// Each cell becomes the mean of its four neighbours.
    fn step(&mut self) {
        let (side, width) = (self.side, self.side + 2);
        for row in 1..=side {
            let line = |row: usize, from: usize| &self.cells[row * width + from..][..side];
            let (above, below, left, right) = (line(row - 1, 1), line(row + 1, 1), line(row, 0), line(row, 2));
            let next = &mut self.next[row * width + 1..][..side];
            for column in 0..side {
                next[column] = 0.25 * (above[column] + below[column] + left[column] + right[column]);
            }
        }
        std::mem::swap(&mut self.cells, &mut self.next);
    }

    /// The cells next to the neighbour on that side, in the memory of an edge before.
    fn edge(&self, side: u8, mut edge: Vec<f64>) -> Vec<f64> {
        let width = self.side + 2;
        edge.clear();
        match side {
            0 => edge.extend_from_slice(&self.cells[width + 1..][..self.side]),
            1 => edge.extend_from_slice(&self.cells[self.side * width + 1..][..self.side]),
            2 => edge.extend((1..=self.side).map(|row| self.cells[row * width + 1])),
            _ => edge.extend((1..=self.side).map(|row| self.cells[row * width + self.side])),
        }
        edge
    }

    /// The edge of the neighbour on that side becomes the frame.
    fn put_frame(&mut self, side: u8, edge: &[f64]) {
        let width = self.side + 2;
        match side {
            0 => self.cells[1..][..self.side].copy_from_slice(edge),
            1 => self.cells[(self.side + 1) * width + 1..][..self.side].copy_from_slice(edge),
            2 => edge.iter().enumerate().for_each(|(row, cell)| self.cells[(row + 1) * width] = *cell),
            _ => edge.iter().enumerate().for_each(|(row, cell)| self.cells[(row + 2) * width - 1] = *cell),
        }
    }

    /// Sums up the bits of all cells and where they are. The sum of several blocks is that of the whole mesh.
    fn checksum(&self, size: usize, row: usize, column: usize) -> i64 {
        let width = self.side + 2;
        let cell = |(i, j): (usize, usize)| {
            let at = ((row + i) * size + column + j) as u64;
            let mixed = (self.cells[(i + 1) * width + j + 1].to_bits() ^ at.rotate_left(40))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) as i64
        };
        (0..self.side).flat_map(|i| (0..self.side).map(move |j| (i, j))).map(cell).fold(0, i64::wrapping_add)
    }
}

/// A chare: a block of the mesh.
struct Block {
    mesh: Mesh,
    /// Cells and blocks of the whole mesh in each direction.
    size: usize,
    blocks: i32,
    at: Index,
    steps: u32,
    step: u32,
    /// Edges of this step. They are put into the frame together, so that the block passes the caches once a step.
    edges: Vec<(u8, Vec<f64>)>,
    /// Edges of the next step: a neighbour may be one step ahead.
    early: Vec<(u8, Vec<f64>)>,
    /// Memory of edges that are done with.
    spare: Vec<Vec<f64>>,
    began: f64,
    /// What a cell takes in simulation; 0 for what it takes here.
    cell_ns: f64,
}

impl Block {
    fn new(size: usize, blocks: usize, at: Index, cell_ns: f64) -> Block {
        let side = size / blocks;
        let mesh = Mesh::new(size, side, at[0] as usize * side, at[1] as usize * side);
        let blocks = blocks as i32;
        let (edges, early, spare) = Default::default();
        Block { mesh, size, blocks, at, steps: 0, step: 0, edges, early, spare, began: 0.0, cell_ns }
    }

    /// The neighbours, and the side of theirs on which this block is.
    fn neighbours(&self) -> impl Iterator<Item = (u8, Index)> + use<> {
        let (at, blocks) = (self.at, self.blocks);
        SIDES.into_iter().filter_map(move |(side, down, right)| {
            let (row, column) = (at[0] + down, at[1] + right);
            let is_inside = (0..blocks).contains(&row) && (0..blocks).contains(&column);
            is_inside.then(|| (side, (row, column).into()))
        })
    }

    fn send_edges(&mut self, cx: &mut Context<'_, Block>) {
        for (side, neighbour) in self.neighbours() {
            let cells = self.mesh.edge(side, self.spare.pop().unwrap_or_default());
            // What lies above this block has this block below it.
            cx.send(cx.array().at(neighbour), Ask::Edge { step: self.step, side: side ^ 1, cells });
        }
    }

    /// Computes while the edges of a step are there.
    fn go_on(&mut self, cx: &mut Context<'_, Block>) {
        while self.step < self.steps && self.edges.len() == self.neighbours().count() {
            for (side, cells) in self.edges.drain(..) {
                self.mesh.put_frame(side, &cells);
                self.spare.push(cells);
            }
            self.mesh.step();
            cx.compute(self.cell_ns * (self.mesh.side * self.mesh.side) as f64);
            self.step += 1;
            std::mem::swap(&mut self.edges, &mut self.early);
            if self.step < self.steps {
                self.send_edges(cx);
            } else {
                self.contribute_checksum(cx);
            }
        }
    }

    fn contribute_checksum(&self, cx: &mut Context<'_, Block>) {
        let side = self.mesh.side;
        let sum = self.mesh.checksum(self.size, self.at[0] as usize * side, self.at[1] as usize * side);
        cx.contribute(Contribution::sum(sum), Callback::to(cx.array().at((0, 0))).tagged(DONE));
    }
}

impl Chare for Block {
    type Message = Ask;

    fn entry(&mut self, message: Ask, cx: &mut Context<'_, Block>) {
        if self.cell_ns > 0.0 {
            cx.compute(ENTRY_NS);
        }
        match message {
            Ask::Begin { steps } => {
                self.steps = steps;
                cx.contribute(Contribution::barrier(), Callback::to(cx.array().all()).tagged(READY));
            }
            Ask::Edge { step, side, cells } if step == self.step => {
                self.edges.push((side, cells));
                self.go_on(cx);
            }
            Ask::Edge { side, cells, .. } => self.early.push((side, cells)),
        }
    }

    fn outcome(&mut self, tag: u32, value: Value, cx: &mut Context<'_, Block>) {
        if tag == READY {
            self.began = cx.now();
            self.send_edges(cx);
            return self.go_on(cx);
        }
        let taken_ns = ((cx.now() - self.began) * 1e9) as i64;
        cx.exit(vec![value.integer().unwrap_or_default(), taken_ns]);
    }
}

/// What the command line says.
#[derive(Clone)]
struct Options {
    size: usize,
    blocks: usize,
    steps: u32,
    placement: Placement,
    check: bool,
    cell_ns: f64,
}

fn options() -> Result<Options, String> {
    let mut options =
        Options { size: 2048, blocks: 4, steps: 50, placement: Placement::Blocks, check: false, cell_ns: 0.0 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--check" {
            options.check = true;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{word}: {USAGE}"))?;
        let number = || value.parse::<usize>().map_err(|error| format!("{word} {value}: {error}; {USAGE}"));
        match word.as_str() {
            "--size" => options.size = number()?,
            "--chares" => options.blocks = number()?.isqrt(),
            "--cell-ns" => {
                options.cell_ns = value.parse().map_err(|error| format!("{word} {value}: {error}; {USAGE}"))?
            }
            "--steps" => options.steps = number()? as u32,
            "--placement" => {
                options.placement = match value.as_str() {
                    "blocks" => Placement::Blocks,
                    "round-robin" => Placement::RoundRobin,
                    "by-site" => Placement::BySite,
                    _ => return Err(format!("{word} {value}: {USAGE}")),
                }
            }
            _ => return Err(format!("{word}: {USAGE}")),
        }
    }
    let Options { size, blocks, .. } = options;
    match blocks > 0 && size.is_multiple_of(blocks) {
        true => Ok(options),
        false => Err(format!("{size} by {size} cells cannot be divided into {blocks} by {blocks} chares")),
    }
}

fn main() -> Result<(), Error> {
    let options = options().map_err(Error::Input)?;
    let Options { size, blocks, steps, check, .. } = options;
    let ended = chares::run(move |job| {
        let Options { size, blocks, steps, placement, cell_ns, .. } = options.clone();
        let mesh = job.array((blocks, blocks), placement, |at| Block::new(size, blocks, at, cell_ns))?;
        job.start(|cx| cx.send(mesh.all(), Ask::Begin { steps }));
        Ok(())
    })?;
    let Value::Integers(told) = ended.value else { unreachable!("the chares end with integers") };
    if !ended.is_first {
        return Ok(());
    }
    let (checksum, ms) = (told[0], told[1] as f64 / 1e6 / f64::from(steps.max(1)));
    println!(
        "{size} x {size} cells in {} chares, {steps} steps: {ms:.3} ms a step, checksum {checksum:016x}",
        blocks * blocks
    );
    if check {
        let mut mesh = Mesh::new(size, size, 0, 0);
        let began = std::time::Instant::now();
        (0..steps).for_each(|_| mesh.step());
        let ms = began.elapsed().as_secs_f64() * 1e3 / f64::from(steps.max(1));
        let serial = mesh.checksum(size, 0, 0);
        println!("serial: {ms:.3} ms a step, checksum {serial:016x}");
        if serial != checksum {
            return Err(Error::Usage("the mesh is not that of the serial program".into()));
        }
    }
    Ok(())
}
