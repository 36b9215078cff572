//! Records durations of measured blocks in a file: one run writes them, the next charges them, so that both are
//! identical to the bit.
//!
//! ```text
//! gridloom-measures 1
//! # process  function@host  block       occurrence  seconds      flops
//! 1          "client@b"     "assemble"  1           0.012345678  12345678.9
//! ```
//!
//! The first line has the version of the format. Each run of a block has a line with columns separated by tabs. The
//! first three are the process's number in the deployment, from 1, its name and the block's name, both as JSON strings.
//! The fourth is the number of the run among those of this block by this process; the fifth is the time measured on
//! this machine. The last is the charged amount, in floating-point operations. Lines that begin with `#` are comments.
//! A replay uses the last column, whatever the machine's speed.
//!
//! **Invariant:** numbers are written so that reading them yields the same bits.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use gridloom_base::time::ns_to_seconds;
use gridloom_sim::process::{BlockCharges, MeasuredBlock};

use crate::Error;

const HEAD: &str = "gridloom-measures ";
const VERSION: u32 = 1;

/// The runs of one block by one process.
type Block = (u32, String, String);

/// Records the charged times.
pub(crate) struct Recorder {
    path: PathBuf,
    file: BufWriter<File>,
    runs: BTreeMap<Block, u64>,
}

impl Recorder {
    pub(crate) fn create(path: &Path) -> Result<Recorder, Error> {
        let file = File::create(path).map_err(|error| Error::Input(format!("{}: {error}", path.display())))?;
        let mut record = Recorder { path: path.to_path_buf(), file: BufWriter::new(file), runs: BTreeMap::new() };
        let head = format!("{HEAD}{VERSION}\n# process\tfunction@host\tblock\toccurrence\tseconds\tflops\n");
        record.write(&head).map_err(Error::Input)?;
        Ok(record)
    }

    fn write(&mut self, text: &str) -> Result<(), String> {
        self.file.write_all(text.as_bytes()).map_err(|error| self.cannot(&error))
    }

    fn cannot(&self, error: &std::io::Error) -> String {
        format!("cannot record measured blocks in {}: {error}", self.path.display())
    }
}

impl BlockCharges for Recorder {
    fn charge(&mut self, measured: &MeasuredBlock<'_>) -> Result<f64, String> {
        let block = block_of(measured);
        let run = self.runs.entry(block.clone()).and_modify(|run| *run += 1).or_insert(1);
        let (number, who, name) = block;
        let quoted = |text: &str| serde_json::to_string(text).expect("a text");
        let (who, name, seconds) = (quoted(&who), quoted(&name), ns_to_seconds(measured.real_ns));
        let line = format!("{number}\t{who}\t{name}\t{run}\t{seconds:?}\t{:?}\n", measured.flops);
        self.write(&line)?;
        Ok(measured.flops)
    }

    fn finish(&mut self) -> Result<(), String> {
        self.file.flush().map_err(|error| self.cannot(&error))
    }
}

/// Charges recorded times.
#[derive(Debug)]
pub(crate) struct Replay {
    path: PathBuf,
    charged_flops: BTreeMap<Block, BTreeMap<u64, f64>>,
    runs: BTreeMap<Block, u64>,
}

impl Replay {
    pub(crate) fn read(path: &Path) -> Result<Replay, Error> {
        let text = crate::read_text(path)?;
        Replay::parse(&text, path).map_err(|(line, why)| {
            Error::Input(format!("{}:{line}: {why}; it should be a file that --record has written", path.display()))
        })
    }

    fn parse(text: &str, path: &Path) -> Result<Replay, (usize, String)> {
        let head = text.lines().next().unwrap_or_default();
        match head.strip_prefix(HEAD) {
            Some(version) if version == VERSION.to_string() => {}
            Some(version) => return Err((1, format!("its format has version {version}, and this reads {VERSION}"))),
            None => return Err((1, format!("it begins with '{head}' and not with '{HEAD}{VERSION}'"))),
        }
        let mut charged_flops: BTreeMap<Block, BTreeMap<u64, f64>> = BTreeMap::new();
        for (index, line) in text.lines().enumerate().skip(1).filter(|(_, line)| !line.starts_with('#')) {
            let (block, run, flops) = parse_line(line).map_err(|why| (index + 1, why))?;
            if charged_flops.entry(block).or_default().insert(run, flops).is_some() {
                return Err((index + 1, format!("run {run} of this block is listed twice")));
            }
        }
        Ok(Replay { path: path.to_path_buf(), charged_flops, runs: BTreeMap::new() })
    }
}

fn parse_line(line: &str) -> Result<(Block, u64, f64), String> {
    let columns: Vec<&str> = line.split('\t').collect();
    let [number, who, name, run, seconds, flops] = columns[..] else {
        return Err(format!("{} columns instead of 6", columns.len()));
    };
    let wrong = |what: &str, value: &str| format!("'{value}' is no {what}");
    let text = |what: &str, value: &str| serde_json::from_str::<String>(value).map_err(|_| wrong(what, value));
    let amount = |what: &str, value: &str| match value.parse::<f64>() {
        Ok(amount) if amount.is_finite() && amount >= 0.0 => Ok(amount),
        _ => Err(wrong(what, value)),
    };
    let number = number.parse().map_err(|_| wrong("number of a process", number))?;
    let block = (number, text("name of a process", who)?, text("name of a block", name)?);
    let run = run.parse().map_err(|_| wrong("number of a run", run))?;
    amount("time", seconds)?;
    Ok((block, run, amount("number of operations", flops)?))
}

impl BlockCharges for Replay {
    fn charge(&mut self, measured: &MeasuredBlock<'_>) -> Result<f64, String> {
        let block = block_of(measured);
        let run = *self.runs.entry(block.clone()).and_modify(|run| *run += 1).or_insert(1);
        let known = self.charged_flops.get(&block);
        known.and_then(|runs| runs.get(&run)).copied().ok_or_else(|| {
            let ((number, who, name), file) = (block, self.path.display());
            let has = match known {
                Some(runs) => format!("{} runs of it", runs.len()),
                None => "none of it".into(),
            };
            format!(
                "{file} has no duration of the measured block '{name}', run {run}, of process {number}, {who}; it \
                 has {has}. The recorded run was a different one: its program, deployment, seed, platform or faults differ. \
                 Record a new file with --record"
            )
        })
    }

    fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }
}

fn block_of(measured: &MeasuredBlock<'_>) -> Block {
    let spec = measured.spec;
    (measured.process.0 + 1, format!("{}@{}", spec.function, spec.host), measured.block.to_string())
}

#[cfg(test)]
mod tests {
    use gridloom_process::ProcessSpec;
    use gridloom_sim::process::ProcessId;

    use super::*;

    fn measured<'a>(spec: &'a ProcessSpec, block: &'a str, real_ns: u64) -> MeasuredBlock<'a> {
        MeasuredBlock { process: ProcessId(4), spec, block, real_ns, flops: real_ns as f64 * 0.3 }
    }

    #[test]
    fn what_is_recorded_is_charged_again_to_the_bit() {
        let path = std::env::temp_dir().join(format!("gridloom-measures-{}", std::process::id()));
        let spec = ProcessSpec { function: "client".into(), host: "b".into(), arguments: Vec::new() };
        let runs = [("assemble", 1_234_567_891), ("a \t\"tab\"\n", 1), ("assemble", 77), ("assemble", 0)];
        let mut record = Recorder::create(&path).unwrap();
        let charged = runs.map(|(block, ns)| record.charge(&measured(&spec, block, ns)).unwrap().to_bits());
        record.finish().unwrap();
        let mut replay = Replay::read(&path).unwrap();
        assert_eq!(charged, runs.map(|(block, _)| replay.charge(&measured(&spec, block, 5)).unwrap().to_bits()));
        let missing = replay.charge(&measured(&spec, "assemble", 5)).unwrap_err();
        assert!(missing.contains("platform or faults differ"), "{missing}");
        assert!(missing.contains("block 'assemble', run 4, of process 5, client@b; it has 3 runs"), "{missing}");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_that_is_wrong_is_refused_with_its_line() {
        let parse = |text: &str| Replay::parse(text, Path::new("f")).unwrap_err();
        assert_eq!(parse("hello").0, 1);
        assert_eq!(parse("gridloom-measures 2").1, "its format has version 2, and this reads 1");
        let wrong = [
            ("1\t\"c@b\"\t\"x\"\t1\t0.5", "5 columns instead of 6"),
            ("1\t\"c@b\"\t\"x\"\t1\t0.5\tnan", "'nan' is no number of operations"),
            ("1\t\"c@b\"\tx\t1\t0.5\t1", "'x' is no name of a block"),
        ];
        for (line, why) in wrong {
            assert_eq!(parse(&format!("gridloom-measures 1\n# note\n{line}\n")), (3, why.to_string()));
        }
        let line = "1\t\"c@b\"\t\"x\"\t1\t0.5\t1";
        assert_eq!(parse(&format!("gridloom-measures 1\n{line}\n{line}")).0, 3);
    }
}
