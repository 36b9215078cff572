//! The speed of one slot, by a short kernel: products of small dense matrices, which live in the first-level cache.
//!
//! It measures one core with what the compiler makes of plain loops, as most scientific code runs; a tuned BLAS is
//! quicker. Only ratios between servers matter to a mapper.

use std::hint::black_box;
use std::time::{Duration, Instant};

const SIDE: usize = 48;
const LONG_ENOUGH: Duration = Duration::from_millis(30);

/// Floating-point operations per second of this core, now.
pub(crate) fn measure() -> f64 {
    let (a, b) = (vec![1.000_1f64; SIDE * SIDE], vec![0.999_9f64; SIDE * SIDE]);
    let mut c = vec![0f64; SIDE * SIDE];
    multiply(&a, &b, &mut c);
    let start = Instant::now();
    let mut rounds = 0u32;
    while start.elapsed() < LONG_ENOUGH {
        multiply(black_box(&a), black_box(&b), black_box(&mut c));
        rounds += 1;
    }
    let work_flops = 2.0 * (SIDE * SIDE * SIDE) as f64 * f64::from(rounds);
    work_flops / start.elapsed().as_secs_f64()
}

fn multiply(a: &[f64], b: &[f64], c: &mut [f64]) {
    for (row, out) in a.chunks_exact(SIDE).zip(c.chunks_exact_mut(SIDE)) {
        for (factor, from) in row.iter().zip(b.chunks_exact(SIDE)) {
            for (sum, value) in out.iter_mut().zip(from) {
                *sum += factor * value;
            }
        }
    }
}
