//! Task Bench on message-driven objects: a chare for each point of a graph of tasks. A task computes for a given time once the
//! outputs required by its pattern have arrived, and sends its own output to the tasks that take it.
//!
//! ```sh
//! cargo build --release -p gridloom --example taskbench
//! gridloom chares run -n 2 -- target/release/examples/taskbench --pattern stencil --width 32 --rounds 0:1000,100:1000
//! ```
//! `--rounds 0:1000,100:500` runs the graph with 0 iterations of the kernel in each task for 1,000 steps, and then
//! with 100 for 500.
//! It prints the time of an iteration and of each round in JSON, from which `bench/taskbench.py` computes the minimum
//! effective task granularity (METG).
//!
//! An output consists of the step and the point of its task, so that each task can check its inputs (`graph`). An additional or
//! wrong input ends the program with an error, and so does a missing one: the chares then wait while no message is in
//! flight. `--spoil lost`, `--spoil twice` and `--spoil wrong` demonstrate this.

mod graph;

use std::hint::black_box;
use std::time::Instant;

use gridloom::chares::{self, Callback, Chare, Context, Contribution, Ended, Placement, Value};
use gridloom::{Error, Message};

use graph::{Graph, Inputs, PATTERNS, Pattern, WIDTH_MAX};

/// Text of `--help`.
const USAGE: &str = "taskbench [--pattern none|stencil|tree|fft|all-to-all] [--width 32] [--rounds ITERATIONS:STEPS,…] \
     [--spoil lost|twice|wrong]";

/// Number of values that the kernel works on.
const CELLS: usize = 64;
/// The kernel's time is the minimum of `CALIBRATIONS` measurements of `CALIBRATION_ITERATIONS` iterations.
const CALIBRATIONS: u32 = 20;
const CALIBRATION_ITERATIONS: u32 = 10_000;
/// Step at which a point spoils its output.
const SPOILED_STEP: u32 = 3;

/// Tags of results.
const READY: u32 = 0;
const DONE: u32 = 1;

/// The kernel's data. They are aligned, since the time of an iteration depends on it.
#[repr(align(64))]
struct Cells([f64; CELLS]);

/// Messages between points.
#[derive(Clone, Message)]
enum PointMessage {
    /// Starts that round. Sent to all points.
    Begin { round: u32 },
    /// The output of a task.
    Output { step: u32, point: u32 },
    /// Sent by a point to itself if tasks take no inputs: starts its next task.
    Next { step: u32 },
}

/// How one output is spoiled, to test the checks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spoil {
    Lost,
    Twice,
    Wrong,
}

/// A chare: a point of the graph. Its tasks run one after the other.
struct Point {
    options: Options,
    at: u32,
    round: usize,
    /// True once all points have begun the round. Outputs of points that are notified earlier may arrive while it is false.
    is_ready: bool,
    inputs: Inputs,
    taken: u64,
    cells: Cells,
    /// At the first point: start of the round, and durations of earlier ones.
    began: f64,
    rounds_ns: Vec<i64>,
}

impl Point {
    fn new(options: Options, at: u32) -> Point {
        let (inputs, rounds_ns) = (Inputs::new(options.graph, at), Vec::new());
        Point {
            options,
            at,
            round: 0,
            is_ready: false,
            inputs,
            taken: 0,
            cells: Cells([1.0; CELLS]),
            began: 0.0,
            rounds_ns,
        }
    }

    /// Runs tasks as long as their inputs have arrived.
    fn run_ready_tasks(&mut self, cx: &mut Context<'_, Point>) {
        let (iterations, steps) = self.options.rounds[self.round];
        while self.is_ready && self.inputs.step < steps && self.inputs.next() {
            compute(&mut self.cells, iterations);
            let step = self.inputs.step - 1;
            if step + 1 == steps {
                return self.finish(cx);
            }
            self.send_output(step, cx);
            if self.options.graph.pattern == Pattern::None {
                // Each task is a message of its own, as with any other pattern.
                return cx.send(cx.this(), PointMessage::Next { step: step + 1 });
            }
        }
    }

    fn send_output(&self, step: u32, cx: &mut Context<'_, Point>) {
        let spoil = self.options.spoil.filter(|_| step == SPOILED_STEP && self.at == 0);
        for (number, to) in self.options.graph.outputs(step, self.at).each().enumerate() {
            let point = self.at;
            match spoil.filter(|_| number == 0) {
                Some(Spoil::Lost) => continue,
                Some(Spoil::Wrong) => {
                    cx.send(cx.array().at(to as usize), PointMessage::Output { step, point: self.options.graph.width });
                    continue;
                }
                Some(Spoil::Twice) => cx.send(cx.array().at(to as usize), PointMessage::Output { step, point }),
                None => {}
            }
            cx.send(cx.array().at(to as usize), PointMessage::Output { step, point });
        }
    }

    /// Called when all tasks of the round have run here.
    fn finish(&self, cx: &mut Context<'_, Point>) {
        let (_, steps) = self.options.rounds[self.round];
        let tasks = steps.saturating_sub(self.options.graph.first_step(self.at));
        let sums = vec![i64::from(tasks), self.taken as i64];
        cx.contribute(Contribution::sum(sums), Callback::to(cx.array().at(0)).tagged(DONE));
    }

    fn begin(&mut self, round: u32, cx: &mut Context<'_, Point>) {
        self.round = round as usize;
        self.is_ready = false;
        self.taken = 0;
        self.inputs = Inputs::new(self.options.graph, self.at);
        cx.contribute(Contribution::barrier(), Callback::to(cx.array().all()).tagged(READY));
    }

    /// At the first point: ends the round. Begins the next one, or ends the program with the durations of all rounds, ns.
    fn end_round(&mut self, sums: Value, cx: &mut Context<'_, Point>) {
        self.rounds_ns.push(((cx.now() - self.began) * 1e9) as i64);
        let due = self.options.graph.totals(self.options.rounds[self.round].1);
        let due = Value::Integers(vec![due.0 as i64, due.1 as i64]);
        if sums != due {
            return cx.fail(format!("the numbers of tasks and inputs are {sums:?}, but should be {due:?}"));
        }
        match self.round + 1 {
            next if next == self.options.rounds.len() => cx.exit(std::mem::take(&mut self.rounds_ns)),
            next => cx.send(cx.array().all(), PointMessage::Begin { round: next as u32 }),
        }
    }
}

impl Chare for Point {
    type Message = PointMessage;

    fn entry(&mut self, message: PointMessage, cx: &mut Context<'_, Point>) {
        match message {
            PointMessage::Begin { round } => self.begin(round, cx),
            PointMessage::Output { step, point } => {
                self.taken += 1;
                match self.inputs.take(step, point) {
                    Ok(()) => self.run_ready_tasks(cx),
                    Err(why) => cx.fail(why),
                }
            }
            PointMessage::Next { step } if step == self.inputs.step => self.run_ready_tasks(cx),
            PointMessage::Next { step } => {
                cx.fail(format!("task {step} of point {} arrived before {}", self.at, self.inputs.step))
            }
        }
    }

    fn on_result(&mut self, tag: u32, value: Value, cx: &mut Context<'_, Point>) {
        if tag == DONE {
            return self.end_round(value, cx);
        }
        self.began = cx.now();
        self.is_ready = true;
        match self.inputs.step < self.options.rounds[self.round].1 {
            true => self.run_ready_tasks(cx),
            // In a tree, this point may have no task within that number of steps.
            false => self.finish(cx),
        }
    }
}

/// The kernel: `iterations` times a product and a sum of each cell. The values stay near 2.
#[inline(never)]
fn compute(cells: &mut Cells, iterations: u32) {
    for _ in 0..iterations {
        for cell in &mut cells.0 {
            *cell = *cell * 0.5 + 1.0;
        }
        black_box(&mut *cells);
    }
}

/// Time of an iteration of the kernel, nanoseconds.
fn iteration_ns() -> f64 {
    let mut cells = Cells([1.0; CELLS]);
    let once = |_| {
        let began = Instant::now();
        compute(&mut cells, CALIBRATION_ITERATIONS);
        began.elapsed().as_nanos() as f64 / f64::from(CALIBRATION_ITERATIONS)
    };
    (0..CALIBRATIONS).map(once).fold(f64::INFINITY, f64::min)
}

/// Options of the command line.
#[derive(Clone)]
struct Options {
    graph: Graph,
    /// Iterations of the kernel in each task, and steps.
    rounds: Vec<(u32, u32)>,
    spoil: Option<Spoil>,
}

fn options() -> Result<Options, String> {
    let graph = Graph { pattern: Pattern::Stencil, width: 32 };
    let mut options = Options { graph, rounds: vec![(0, 1000)], spoil: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word}: {USAGE}"))?;
        let wrong = || format!("{word} {value}: {USAGE}");
        match word.as_str() {
            "--pattern" => {
                let known = PATTERNS.iter().find(|(name, _)| *name == value);
                options.graph.pattern = known.ok_or_else(wrong)?.1;
            }
            "--width" => options.graph.width = value.parse().map_err(|_| wrong())?,
            "--rounds" => {
                let round = |text: &str| {
                    let (iterations, steps) = text.split_once(':')?;
                    Some((iterations.parse().ok()?, steps.parse().ok().filter(|steps| *steps > 0)?))
                };
                options.rounds = value.split(',').map(round).collect::<Option<_>>().ok_or_else(wrong)?;
            }
            "--spoil" => {
                options.spoil = Some(match value.as_str() {
                    "lost" => Spoil::Lost,
                    "twice" => Spoil::Twice,
                    "wrong" => Spoil::Wrong,
                    _ => return Err(wrong()),
                });
            }
            _ => return Err(wrong()),
        }
    }
    if !(1..=WIDTH_MAX).contains(&options.graph.width) {
        return Err(format!("--width {}: 1 to {WIDTH_MAX} points", options.graph.width));
    }
    Ok(options)
}

/// Runs the graph on this element.
fn run(options: Options) -> Result<Ended, Error> {
    chares::run(move |job| {
        let (options, width) = (options.clone(), options.graph.width as usize);
        let points = job.array(width, Placement::Blocks, |index| Point::new(options.clone(), index[0] as u32))?;
        job.start(|cx| cx.send(points.all(), PointMessage::Begin { round: 0 }));
        Ok(())
    })
}

fn main() -> Result<(), Error> {
    let options = options().map_err(Error::Input)?;
    let Options { graph, rounds, .. } = options.clone();
    let iteration_ns = iteration_ns();
    let ended = run(options)?;
    let Value::Integers(rounds_ns) = ended.value else { unreachable!("the chares end with integers") };
    if ended.is_first {
        let round = |(&(iterations, steps), ns): (&(u32, u32), &i64)| {
            let (tasks, seconds) = (graph.totals(steps).0, *ns as f64 / 1e9);
            format!(r#"{{"iterations": {iterations}, "steps": {steps}, "tasks": {tasks}, "seconds": {seconds}}}"#)
        };
        let all: Vec<String> = rounds.iter().zip(&rounds_ns).map(round).collect();
        println!(r#"{{"iteration_ns": {iteration_ns}, "rounds": [{}]}}"#, all.join(", "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tasks_run_in_each_pattern() {
        for (name, pattern) in PATTERNS {
            for width in [1, 2, 7, 16] {
                let graph = Graph { pattern, width };
                let options = Options { graph, rounds: vec![(0, 9), (10, 1), (0, 40)], spoil: None };
                let Value::Integers(rounds_ns) = run(options).expect(name).value else { panic!("{name}") };
                assert_eq!(rounds_ns.len(), 3, "{name}, {width}");
            }
        }
    }

    #[test]
    fn a_task_with_other_inputs_ends_the_program() {
        for (_, pattern) in &PATTERNS[1..] {
            let graph = Graph { pattern: *pattern, width: 4 };
            let outcome =
                |spoil| run(Options { graph, rounds: vec![(0, 9)], spoil: Some(spoil) }).unwrap_err().to_string();
            assert!(outcome(Spoil::Lost).contains("can never end"), "{}", outcome(Spoil::Lost));
            assert!(outcome(Spoil::Wrong).contains("at step 3: it takes no such input"), "{}", outcome(Spoil::Wrong));
            let twice = outcome(Spoil::Twice);
            assert!(["it has it already", "it has run without it"].iter().any(|why| twice.contains(why)), "{twice}");
        }
    }
}
