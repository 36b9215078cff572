//! The built-in libraries, called with unusual arguments: letters and indices that a routine does not know, sizes of 0
//! and 1, and values that are not numbers. Arrays end at protected pages, so a routine that reads or writes beyond one
//! crashes its process.
//!
//! `GRIDLOOM_ODD_CALLS=20000` makes more calls, `GRIDLOOM_ODD_SEED=7` other ones.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use gridloom::base::{Dtype, Meta, SplitMix64, TaskError};
use gridloom::{Error, Grid, InlineBodies, LocalConfig, Value, load_offer};
use gridloom_idl::{AllowedValues, BaseType, Param, Signature};
use gridloom_net::jobs::Interpreter;
use gridloom_net::payload::Payload;

use crate::support::skipped;

/// Letters that some routine might accept.
const LETTERS: &[u8] = b"NTCRULASOVEBHIFPQntcrulaso\0 *1\xff";
const NUMBERS: [f64; 8] = [0.0, 1.0, -1.0, 0.5, 1e300, f64::NAN, f64::INFINITY, -0.0];
/// Number of values with which the iterations of every solver end; with other values LAPACK's own may not.
const FINITE: usize = 4;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

fn one_of<T: Copy>(random: &mut SplitMix64, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize]
}

/// Part of the error of a call whose invalid argument was first detected by the library.
const REPORTED: &str = "of BLAS or LAPACK got an invalid value";

/// Returns a whole number as an element of that type, if the type is an integer type.
fn whole(dtype: Dtype, value: i64) -> Option<Vec<u8>> {
    dtype.is_integer().then(|| value.to_le_bytes()[..dtype.size_bytes() as usize].to_vec())
}

fn elements(random: &mut SplitMix64, dtype: Dtype, count: u64, largest: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let finite = std::env::var("GRIDLOOM_ODD_LIBRARY").is_ok_and(|library| library == "lapack");
    let numbers = if finite { &NUMBERS[..FINITE] } else { &NUMBERS };
    while (bytes.len() as u64) < count * dtype.size_bytes() {
        let value = one_of(random, numbers);
        let index = random.below(largest as u64 + 4) as i64 - 1;
        bytes.extend(whole(dtype, index).unwrap_or_else(|| match dtype {
            Dtype::Float32 | Dtype::Complex64 => (value as f32).to_ne_bytes().to_vec(),
            _ => value.to_ne_bytes().to_vec(),
        }));
    }
    bytes
}

/// Returns the inputs of a call; `None` if its sizes are invalid.
fn arguments(random: &mut SplitMix64, signature: &Signature) -> Option<Vec<(String, Value)>> {
    let mut scalars: Vec<Option<(Meta, Vec<u8>)>> = vec![None; signature.params.len()];
    let largest = one_of(random, &[0i64, 1, 2, 3, 5, 9]);
    // Half of the calls use valid letters and indices: otherwise hardly any call would run.
    let is_odd = random.below(2) == 0;
    for (param, scalar) in signature.params.iter().zip(&mut scalars) {
        let BaseType::Number(dtype) = param.base else { continue };
        if !param.is_input() || param.is_array {
            continue;
        }
        let bytes = match dtype {
            Dtype::Int8 => vec![if is_odd { one_of(random, LETTERS) } else { one_of(random, &letters(param)) }],
            _ if dtype.is_integer() => {
                let size = if random.below(3) == 0 { random.below(largest as u64 + 2) as i64 } else { largest };
                whole(dtype, size).unwrap()
            }
            _ => elements(random, dtype, 1, largest),
        };
        *scalar = Some((Meta::scalar(dtype), bytes));
    }
    let shapes = signature.shapes(scalars.clone()).ok()?;
    let mut given = Vec::new();
    for (index, param) in signature.params.iter().enumerate().filter(|(_, param)| param.is_input()) {
        let BaseType::Number(dtype) = param.base else { return None };
        let (meta, bytes) = match (&scalars[index], &shapes[index]) {
            (Some((meta, bytes)), _) => (meta.clone(), bytes.clone()),
            (None, Some(shape)) => {
                let bytes = elements(random, dtype, shape.iter().product(), largest);
                (Meta::array(dtype, shape), bytes)
            }
            (None, None) => return None,
        };
        given.push((param.name.clone(), Value::new(meta, Payload::copied(&bytes)).unwrap()));
    }
    Some(given)
}

fn letters(param: &Param) -> Vec<u8> {
    match &param.values {
        Some(AllowedValues::Characters(letters)) => letters.bytes().collect(),
        _ => LETTERS.to_vec(),
    }
}

/// Returns the value of `GRIDLOOM_GUARD_ARRAYS` for a library. Some kernels of OpenBLAS 0.3.21 read a few bytes past the end
/// of a matrix, whatever the arguments, so with OpenBLAS only writes are guarded.
fn guard(library: &str) -> &'static str {
    let files = [PathBuf::from(format!("builtin:{library}"))];
    let offer = load_offer(&files, &Interpreter::from("python3"), &[], InlineBodies::Compile);
    let is_openblas = offer.is_ok_and(|offer| offer.notes.iter().any(|note| note.contains("OpenBLAS")));
    if is_openblas { "writes" } else { "1" }
}

/// Libraries to test, if this machine has them.
const LIBRARIES: [&str; 4] = ["linalg", "blas", "lapack", "fftw"];

#[test]
fn odd_arguments_reach_no_memory_out_of_bounds() {
    for library in LIBRARIES {
        let own = std::env::current_exe().unwrap();
        let mut command = Command::new(own);
        command.args(["--ignored", "--exact", "--nocapture", "odd_calls::calls_of_one_library"]);
        command.env("GRIDLOOM_PROGRAM", env!("CARGO_BIN_EXE_gridloom")).env("GRIDLOOM_GUARD_ARRAYS", guard(library));
        command.env("GRIDLOOM_ODD_LIBRARY", library).env_remove("GRIDLOOM_AGENT").env("GRIDLOOM_MODELS", "none");
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{library}: {said}");
        assert!(said.contains("1 passed"), "{library}: {said}");
    }
}

#[test]
#[ignore = "run by the test above, with arrays that end at protected pages"]
fn calls_of_one_library() {
    let library = std::env::var("GRIDLOOM_ODD_LIBRARY").unwrap();
    let functions = vec![PathBuf::from(format!("builtin:{library}"))];
    match Grid::local(LocalConfig { servers: 1, functions, ..LocalConfig::default() }) {
        Ok(session) => odd_calls(&session, &library),
        Err(error) if error.to_string().contains("no library found") => skipped(&error.to_string()),
        Err(error) => panic!("{error}"),
    }
}

/// Calls each function of a library many times.
fn odd_calls(session: &Grid, library: &str) {
    let seed = number("GRIDLOOM_ODD_SEED", 1);
    let mut random = SplitMix64::new(seed);
    let names: Vec<String> = session
        .functions()
        .iter()
        .map(|signature| signature.name.clone())
        .filter(|name| name.starts_with(library))
        .collect();
    assert!(!names.is_empty(), "{library}");
    let (mut ran, mut refused) = (0, 0);
    let mut wrong: BTreeMap<String, String> = BTreeMap::new();
    let rounds = number("GRIDLOOM_ODD_CALLS", 2000) / names.len() as u64 + 1;
    for round in 0..rounds {
        for name in &names {
            let function = session.function(name).unwrap();
            let Some(given) = arguments(&mut random, function.signature()) else { continue };
            let described: Vec<String> = given.iter().map(|(name, value)| format!("{name}: {value:?}")).collect();
            let named: Vec<_> = given.into_iter().map(|(name, value)| (name, value.into())).collect();
            let ended = function.submit((), &named, None).and_then(|pending| pending.wait());
            match ended {
                Ok(_) => ran += 1,
                // Both letters of gesvd may be O, but not both at the same time.
                Err(Error::Task(TaskError::Refused { why, .. }))
                    if why.contains(REPORTED) && !name.ends_with("gesvd") =>
                {
                    wrong.entry(name.clone()).or_insert(format!("{why}; with {}", described.join(", ")));
                }
                Err(Error::Argument(_) | Error::Task(TaskError::Refused { .. })) => refused += 1,
                Err(error) => {
                    let said = format!("round {round} of seed {seed}: {error}; with {}", described.join(", "));
                    wrong.entry(name.clone()).or_insert(said);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(
        ran > 0 && (library == "fftw" || library == "linalg" || refused > 0),
        "{library}: {ran} ran, {refused} refused"
    );
}
