//! A five-point stencil (Jacobi) on message-driven objects: an array of chares, each with a block of the mesh. A chare computes
//! its next step once the edges of its four neighbours have arrived; while it waits for remote ones, other chares compute.
//!
//! ```sh
//! cargo build --release -p gridloom --example stencil
//! gridloom chares run -n 2 -- target/release/examples/stencil --chares 16 --check
//! gridloom chares run -n 2 --sites 2 --latency 16ms -- target/release/examples/stencil --chares 64
//! ```
//! Every cell is computed by the same operations in the same order as in the serial program. So the mesh has the same bits for any
//! number of chares and elements, and any placement; `--check` compares. With `--move-every 5` each chare moves to the
//! next element
//! after every fifth step. With `--skew 4` the upper quarter of the mesh takes four times as long; `gridloom chares
//! run --balance refine`
//! evens that out. With `--checkpoint-every 10` all chares are saved after every tenth step, in the folder given by
//! `gridloom chares run --checkpoint DIR`. With `--resize 20:4` the mesh is on four elements after step 20, if there
//! is a checkpoint
//! at that time; the option may be repeated.
//!
//! In simulation a step takes the time that it takes on this machine, or with `--cell-ns 2` that many nanoseconds per
//! cell on hosts
//! of 1 Gflop/s, which makes runs reproducible.

use std::rc::Rc;
use std::time::{Duration, Instant};

use gridloom::chares::{self, Callback, Chare, Context, Contribution, Index, Migrate, Pe, Placement, Priority, Value};
use gridloom::{Error, Message};
use serde::{Deserialize, Serialize};

/// Text of `--help`.
const USAGE: &str = "stencil [--size 2048] [--chares 16] [--steps 50] [--placement blocks|round-robin|by-site|by-communication] [--check] \
     [--cell-ns 0] [--move-every 0] [--skew 1] \
     [--checkpoint-every 0] [--resize STEP:ELEMENTS]";

/// Messages between blocks.
#[derive(Clone, Message)]
enum BlockMessage {
    /// All arrays exist.
    Begin,
    /// The edge of a neighbour, before its step of that number.
    Edge { step: u32, side: u8, cells: Vec<f64> },
}

/// The sides of a block, as the offset of the neighbour there. For the neighbour at `side`, this block is at its side `side ^ 1`.
const SIDES: [(i32, i32); 4] = [(-1, 0), (1, 0), (0, -1), (0, 1)];

/// The cells beside a block, by side.
type Edges = [Vec<f64>; 4];

/// Time of an entry method in addition to the cells, nanoseconds: in simulation with `--cell-ns`.
const ENTRY_NS: f64 = 200.0;

/// Tags of results.
const READY: u32 = 0;
const DONE: u32 = 1;
const AT_CHECKPOINT: u32 = 2;
const SAVED: u32 = 3;

/// A rectangle of cells. A step changes it in place, so that it passes through the caches once.
#[derive(Clone)]
struct Mesh {
    rows: usize,
    columns: usize,
    cells: Vec<f64>,
}

/// Sets each cell of a row to the mean of its four neighbours; `old` is the row before the step.
#[inline(never)]
fn step_row(row: &mut [f64], [above, old, below]: [&[f64]; 3], left: f64, right: f64) {
    let last = row.len() - 1;
    let (above, old, below) = (&above[..=last], &old[..=last], &below[..=last]);
    let mean = |at: usize, left: f64, right: f64| 0.25 * (above[at] + below[at] + left + right);
    for at in 1..last {
        row[at] = mean(at, old[at - 1], old[at + 1]);
    }
    row[0] = mean(0, left, if last == 0 { right } else { old[1] });
    if last > 0 {
        row[last] = mean(last, old[last - 1], right);
    }
}

impl Mesh {
    /// Creates the part with that many rows and columns of a mesh of `size` by `size` cells, starting at that row and column.
    fn new(size: usize, (rows, columns): (usize, usize), (row, column): (usize, usize)) -> Mesh {
        let wave = |at: usize| (std::f64::consts::PI * (at + 1) as f64 / (size + 1) as f64).sin();
        let down: Vec<f64> = (0..rows).map(|at| wave(row + at)).collect();
        let across: Vec<f64> = (0..columns).map(|at| wave(column + at)).collect();
        let cell = |i: usize, j: usize| down[i] * across[j] + ((row + i) * 31 + column + j) as f64 % 7.0;
        let mut cells = Vec::with_capacity(rows * columns);
        (0..rows).for_each(|i| cells.extend((0..columns).map(|j| cell(i, j))));
        Mesh { rows, columns, cells }
    }

    /// Sets each cell to the mean of its four neighbours; those outside are `edges`.
    fn step(&mut self, edges: &Edges) {
        let columns = self.columns;
        // The row above, and the row itself, before the step.
        let [mut above, mut old] = [(); 2].map(|()| Vec::with_capacity(columns));
        above.extend_from_slice(&edges[0][..columns]);
        let sides = edges[2][..self.rows].iter().zip(&edges[3][..self.rows]);
        let mut rest = &mut self.cells[..];
        for (left, right) in sides {
            let (row, below) = rest.split_at_mut(columns);
            old.clear();
            old.extend_from_slice(row);
            step_row(row, [&above, &old, if below.is_empty() { &edges[1] } else { below }], *left, *right);
            std::mem::swap(&mut above, &mut old);
            rest = below;
        }
    }

    /// Copies the cells at the rim on that side to `rim`.
    fn copy_rim(&self, side: usize, rim: &mut Vec<f64>) {
        let columns = self.columns;
        rim.clear();
        match side {
            0 => rim.extend_from_slice(&self.cells[..columns]),
            1 => rim.extend_from_slice(&self.cells[(self.rows - 1) * columns..]),
            2 => rim.extend(self.cells.iter().step_by(columns)),
            _ => rim.extend(self.cells.iter().skip(columns - 1).step_by(columns)),
        }
    }

    /// Returns edges of zeros: outside of the whole mesh all cells are zero.
    fn nothing_outside(&self) -> Edges {
        [self.columns, self.columns, self.rows, self.rows].map(|length| vec![0.0; length])
    }

    /// Sums the bits and positions of all cells. The sum of several blocks is that of the whole mesh.
    fn checksum(&self, size: usize, (row, column): (usize, usize)) -> i64 {
        let cell = |(i, j): (usize, usize)| {
            let at = ((row + i) * size + column + j) as u64;
            let mixed =
                (self.cells[i * self.columns + j].to_bits() ^ at.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) as i64
        };
        (0..self.rows).flat_map(|i| (0..self.columns).map(move |j| (i, j))).map(cell).fold(0, i64::wrapping_add)
    }
}

/// Computes a step of the whole mesh from one array into another. Rows of this length leave the first-level cache before a step in
/// place has finished with them, so a step in place would take longer.
fn serial_step(cells: &mut Vec<f64>, next: &mut Vec<f64>, outside: &[f64]) {
    let columns = outside.len();
    let row_at = |row: Option<usize>| row.and_then(|row| cells.get(row * columns..)).filter(|row| !row.is_empty());
    for (at, row) in next.chunks_exact_mut(columns).enumerate() {
        let [above, old, below] = [at.checked_sub(1), Some(at), Some(at + 1)].map(|at| row_at(at).unwrap_or(outside));
        step_row(row, [above, old, below], 0.0, 0.0);
    }
    std::mem::swap(cells, next);
}

/// Returns the checksum after that many steps of the whole mesh, and their duration.
fn serial(size: usize, steps: u32) -> (i64, Duration) {
    let mut mesh = Mesh::new(size, (size, size), (0, 0));
    let (mut next, outside) = (mesh.cells.clone(), vec![0.0; size]);
    let began = Instant::now();
    (0..steps).for_each(|_| serial_step(&mut mesh.cells, &mut next, &outside));
    let taken = began.elapsed();
    (mesh.checksum(size, (0, 0)), taken)
}

/// A chare: a block of the mesh.
struct Block {
    options: Rc<Options>,
    at: Index,
    mesh: Mesh,
    progress: Progress,
}

/// The progress of a block.
#[derive(Clone, Serialize, Deserialize)]
struct Progress {
    /// True once all blocks have begun. Edges of neighbours that learn this earlier may arrive before.
    is_ready: bool,
    step: u32,
    /// The edges of neighbours for this step, and how many of them have arrived.
    edges: Edges,
    there: usize,
    /// Edges for the next step: a neighbour may be one step ahead.
    early: [Option<Vec<f64>>; 4],
    began: f64,
}

/// The state that moves with a block.
#[derive(Serialize, Deserialize)]
struct PackedBlock {
    cells: Vec<f64>,
    progress: Progress,
}

impl Migrate for Block {
    type State = PackedBlock;

    fn pack(&self) -> PackedBlock {
        PackedBlock { cells: self.mesh.cells.clone(), progress: self.progress.clone() }
    }
}

impl Block {
    /// Creates a new block, or one that arrives from another element.
    fn new(options: Rc<Options>, at: Index, moving: Option<PackedBlock>) -> Block {
        let (rows, columns) = options.cells_of_block();
        let (mesh, progress) = match moving {
            Some(PackedBlock { cells, progress }) => (Mesh { rows, columns, cells }, progress),
            None => {
                let mesh = Mesh::new(options.size, (rows, columns), options.begin_of(at));
                let (edges, early, began) = Default::default();
                (mesh, Progress { is_ready: false, step: 0, edges, there: 0, early, began })
            }
        };
        Block { options, at, mesh, progress }
    }

    /// The sides with neighbours, and the indices of these.
    fn neighbours(&self) -> impl Iterator<Item = (usize, Index)> + use<> {
        let (at, (down, across)) = (self.at, self.options.blocks);
        let (rows, columns) = (down as i32, across as i32);
        SIDES.into_iter().enumerate().filter_map(move |(side, (down, right))| {
            let (row, column) = (at[0] + down, at[1] + right);
            let is_inside = (0..rows).contains(&row) && (0..columns).contains(&column);
            is_inside.then(|| (side, (row, column).into()))
        })
    }

    fn send_rim(&mut self, cx: &mut Context<'_, Block>) {
        let step = self.progress.step;
        for (side, neighbour) in self.neighbours() {
            // The edges of the last step are no longer needed, and their memory is in the caches.
            let mut cells = std::mem::take(&mut self.progress.edges[side]);
            self.mesh.copy_rim(side, &mut cells);
            // Messages from another site arrive late: chares that wait for them must not wait for others, too.
            let priority = if cx.is_at_border(neighbour) { Priority(-1) } else { Priority(0) };
            cx.send_with(
                priority,
                cx.array().at(neighbour),
                BlockMessage::Edge { step, side: (side ^ 1) as u8, cells },
            );
        }
    }

    /// Uses the edges of this step that arrived before the rim was sent.
    fn take_early(&mut self) {
        let progress = &mut self.progress;
        progress.there = 0;
        for (edges, early) in progress.edges.iter_mut().zip(&mut progress.early) {
            if let Some(cells) = early.take() {
                *edges = cells;
                progress.there += 1;
            }
        }
    }

    /// Computes as long as the edges of a step have arrived.
    fn compute_ready_steps(&mut self, cx: &mut Context<'_, Block>) {
        let (steps, neighbours) = (self.options.steps, self.neighbours().count());
        while self.progress.is_ready && self.progress.step < steps && self.progress.there == neighbours {
            let times = if self.at[0] * 4 < self.options.blocks.0 as i32 { self.options.skew } else { 1 };
            for _ in 1..times {
                self.mesh.clone().step(&self.progress.edges);
            }
            self.mesh.step(&self.progress.edges);
            cx.compute(self.options.cell_ns * (self.mesh.rows * self.mesh.columns) as f64 * f64::from(times));
            self.progress.step += 1;
            if self.progress.step == steps {
                return self.contribute_checksum(cx);
            }
            if self.options.checkpoint_every > 0 && self.progress.step.is_multiple_of(self.options.checkpoint_every) {
                // No message is in flight once all blocks are here, so only the blocks have to be saved.
                (self.progress.is_ready, self.progress.there) = (false, 0);
                return cx
                    .contribute(Contribution::barrier(), Callback::to(cx.array().at((0, 0))).tagged(AT_CHECKPOINT));
            }
            self.send_rim(cx);
            self.take_early();
            if self.options.move_every > 0 && self.progress.step.is_multiple_of(self.options.move_every) {
                cx.migrate_to(Pe((cx.element().0 + 1) % cx.elements().count()));
            }
        }
    }

    fn contribute_checksum(&self, cx: &mut Context<'_, Block>) {
        let sum = self.mesh.checksum(self.options.size, self.options.begin_of(self.at));
        cx.contribute(Contribution::sum(sum), Callback::to(cx.array().at((0, 0))).tagged(DONE));
    }
}

impl Chare for Block {
    type Message = BlockMessage;

    fn entry(&mut self, message: BlockMessage, cx: &mut Context<'_, Block>) {
        if self.options.cell_ns > 0.0 {
            cx.compute(ENTRY_NS);
        }
        match message {
            BlockMessage::Begin => {
                // Not before, so that the cells of all blocks are contiguous in memory.
                self.progress.edges = self.mesh.nothing_outside();
                cx.contribute(Contribution::barrier(), Callback::to(cx.array().all()).tagged(READY));
            }
            // The rim is sent in the memory of the last edges, so edges that arrive earlier are stored separately.
            BlockMessage::Edge { step, side, cells } if step == self.progress.step && self.progress.is_ready => {
                self.progress.edges[usize::from(side)] = cells;
                self.progress.there += 1;
                self.compute_ready_steps(cx);
            }
            BlockMessage::Edge { side, cells, .. } => self.progress.early[usize::from(side)] = Some(cells),
        }
    }

    fn on_result(&mut self, tag: u32, value: Value, cx: &mut Context<'_, Block>) {
        match tag {
            READY => self.progress.began = cx.now(),
            AT_CHECKPOINT => {
                let resizes = self.options.resizes.iter().filter(|(step, _)| *step == self.progress.step);
                resizes.for_each(|(_, elements)| cx.resize(*elements));
                return cx.checkpoint(Callback::to(cx.array().all()).tagged(SAVED));
            }
            SAVED => {}
            _ => return self.end(value, cx),
        }
        self.progress.is_ready = true;
        self.send_rim(cx);
        self.take_early();
        self.compute_ready_steps(cx);
    }
}

impl Block {
    fn end(&self, value: Value, cx: &mut Context<'_, Block>) {
        let taken_ns = ((cx.now() - self.progress.began) * 1e9) as i64;
        cx.exit(vec![value.integer().unwrap_or_default(), taken_ns]);
    }
}

/// Options of the command line.
#[derive(Clone)]
struct Options {
    size: usize,
    /// Number of blocks per column, and per row.
    blocks: (usize, usize),
    steps: u32,
    placement: Placement,
    check: bool,
    /// Time of a cell in simulation, nanoseconds; 0 for the time measured here.
    cell_ns: f64,
    /// Each chare moves to the next element after this many steps; never if 0.
    move_every: u32,
    /// Factor of the work for blocks of the upper quarter.
    skew: u32,
    /// All chares are saved after this many steps; never if 0.
    checkpoint_every: u32,
    /// Steps after which the mesh is resized, and the number of elements.
    resizes: Vec<(u32, u32)>,
}

impl Options {
    /// Default options.
    fn defaults() -> Options {
        Options {
            size: 2048,
            blocks: (4, 4),
            steps: 50,
            placement: Placement::Blocks,
            check: false,
            cell_ns: 0.0,
            move_every: 0,
            skew: 1,
            checkpoint_every: 0,
            resizes: Vec::new(),
        }
    }

    /// Number of rows and columns of a block.
    fn cells_of_block(&self) -> (usize, usize) {
        (self.size / self.blocks.0, self.size / self.blocks.1)
    }

    /// First row and column of the block of that index.
    fn begin_of(&self, at: Index) -> (usize, usize) {
        let (rows, columns) = self.cells_of_block();
        (at[0] as usize * rows, at[1] as usize * columns)
    }

    /// Each pair of neighbours, with the bytes of the two edges that they exchange in a step.
    fn edges(&self) -> Vec<(Index, Index, u64)> {
        let ((down, across), (rows, columns)) = (self.blocks, self.cells_of_block());
        let mut edges = Vec::new();
        for (row, column) in (0..down as i32).flat_map(|row| (0..across as i32).map(move |column| (row, column))) {
            let neighbours = [((row + 1, column), columns), ((row, column + 1), rows)];
            let inside =
                neighbours.into_iter().filter(|((row, column), _)| *row < down as i32 && *column < across as i32);
            edges.extend(inside.map(|(other, cells)| ((row, column).into(), other.into(), 16 * cells as u64)));
        }
        edges
    }
}

/// Numbers of blocks per column and row, as square as possible, with at least as many columns as rows.
fn blocks_of(chares: usize) -> (usize, usize) {
    let down = (1..=chares.isqrt()).rev().find(|down| chares.is_multiple_of(*down)).unwrap_or(0);
    (down, chares.checked_div(down).unwrap_or(0))
}

fn options() -> Result<Options, String> {
    let mut options = Options::defaults();
    let (mut placement, mut words) = ("blocks".to_string(), std::env::args().skip(1));
    while let Some(word) = words.next() {
        if word == "--check" {
            options.check = true;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{word}: {USAGE}"))?;
        let number = || value.parse::<usize>().map_err(|error| format!("{word} {value}: {error}; {USAGE}"));
        match word.as_str() {
            "--size" => options.size = number()?,
            "--chares" => options.blocks = blocks_of(number()?),
            "--cell-ns" => {
                options.cell_ns = value.parse().map_err(|error| format!("{word} {value}: {error}; {USAGE}"))?
            }
            "--steps" => options.steps = number()? as u32,
            "--checkpoint-every" => options.checkpoint_every = number()? as u32,
            "--resize" => {
                let wrong = || format!("--resize {value}: a step and a number of elements, such as 20:4; {USAGE}");
                let (step, elements) = value.split_once(':').ok_or_else(wrong)?;
                let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
                options.resizes.push((number(step)?, number(elements)?));
            }
            "--skew" => options.skew = number()? as u32,
            "--move-every" => options.move_every = number()? as u32,
            "--placement" => placement = value,
            _ => return Err(format!("{word}: {USAGE}")),
        }
    }
    let Options { size, blocks: (down, across), .. } = options;
    if down == 0 || !size.is_multiple_of(down) || !size.is_multiple_of(across) {
        return Err(format!("{size} by {size} cells cannot be divided into {down} by {across} chares"));
    }
    options.placement = match placement.as_str() {
        "blocks" => Placement::Blocks,
        "round-robin" => Placement::RoundRobin,
        "by-site" => Placement::BySite,
        "by-communication" => Placement::by_communication(options.edges()),
        _ => return Err(format!("--placement {placement}: {USAGE}")),
    };
    Ok(options)
}

fn main() -> Result<(), Error> {
    let options = options().map_err(Error::Input)?;
    let Options { size, blocks, steps, check, .. } = options;
    let ended = chares::run(move |job| {
        let (options, placement) = (Rc::new(options.clone()), options.placement.clone());
        let block = move |at, moving| Block::new(options.clone(), at, moving);
        let mesh = job.migratable_array(blocks, placement, block)?;
        job.start(|cx| cx.send(mesh.all(), BlockMessage::Begin));
        Ok(())
    })?;
    let Value::Integers(told) = ended.value else { unreachable!("the chares end with integers") };
    if !ended.is_first {
        return Ok(());
    }
    let (checksum, ms) = (told[0], told[1] as f64 / 1e6 / f64::from(steps.max(1)));
    println!(
        "{size} x {size} cells in {} chares, {steps} steps: {ms:.3} ms a step, checksum {checksum:016x}, {} moved",
        blocks.0 * blocks.1,
        ended.moved
    );
    if check {
        let (serial, taken) = serial(size, steps);
        let ms = taken.as_secs_f64() * 1e3 / f64::from(steps.max(1));
        println!("serial: {ms:.3} ms a step, checksum {serial:016x}");
        if serial != checksum {
            return Err(Error::Usage("the mesh is not that of the serial program".into()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
