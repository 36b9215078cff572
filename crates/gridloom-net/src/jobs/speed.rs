//! Measures the speed of one slot with a short matrix product in plain Rust, so that all servers are measured alike.

use std::hint::black_box;
use std::time::Duration;

use crate::processor_clock::processor_time;

/// Order of the matrices. Three of them, 96 KiB, fit into the second-level cache of every relevant processor.
const ORDER: usize = 64;
/// Number of products between two readings of the clock.
const PRODUCTS_PER_LOOK: usize = 4;
/// Duration of one sample.
const SAMPLE: Duration = Duration::from_millis(3);
/// Number of samples. The result is their median, so that one interruption does not affect it.
const SAMPLES: usize = 5;

/// Returns the floating-point operations per second of one core: the median of a few short samples, 15 ms in total.
/// Processor time is measured, not wall-clock time, so that servers that start together on one host do not slow down
/// each other's measurement.
///
/// The result is what compiled loops reach, not the peak of a tuned library. It serves to compare servers and is soon
/// replaced by the measured durations of real calls.
pub fn measure_speed() -> f64 {
    let a: Vec<f64> = (0..ORDER * ORDER).map(|i| 1.0 + i as f64 * 1e-6).collect();
    let b: Vec<f64> = (0..ORDER * ORDER).map(|i| 1.0 - i as f64 * 1e-6).collect();
    let mut c = vec![0.0; ORDER * ORDER];
    let mut samples: Vec<f64> = (0..SAMPLES).map(|_| sample(&a, &b, &mut c)).collect();
    samples.sort_by(f64::total_cmp);
    samples[SAMPLES / 2]
}

fn sample(a: &[f64], b: &[f64], c: &mut [f64]) -> f64 {
    let begin = processor_time();
    let mut products = 0usize;
    loop {
        for _ in 0..PRODUCTS_PER_LOOK {
            product(black_box(a), black_box(b), c);
            black_box(&mut *c);
        }
        products += PRODUCTS_PER_LOOK;
        let taken = processor_time() - begin;
        if taken >= SAMPLE {
            return (products * 2 * ORDER.pow(3)) as f64 / taken.as_secs_f64();
        }
    }
}

/// Computes C = A B row by row, so that the inner loop runs along rows of B and C and vectorises.
fn product(a: &[f64], b: &[f64], c: &mut [f64]) {
    for (a, c) in a.chunks_exact(ORDER).zip(c.chunks_exact_mut(ORDER)) {
        c.fill(0.0);
        for (a, b) in a.iter().zip(b.chunks_exact(ORDER)) {
            for (c, b) in c.iter_mut().zip(b) {
                *c += a * b;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_speed_is_plausible_and_quickly_found() {
        let begin = Instant::now();
        let flops = measure_speed();
        assert!((1e7..1e12).contains(&flops), "{flops}");
        assert!(begin.elapsed() < Duration::from_secs(2));
    }
}
