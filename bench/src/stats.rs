//! Medians and spreads.

/// Sorted samples.
pub struct Samples(Vec<f64>);

impl Samples {
    /// Sorts them.
    pub fn new(mut samples: Vec<f64>) -> Samples {
        samples.sort_by(f64::total_cmp);
        Samples(samples)
    }

    /// The value below which that fraction of the samples is.
    pub fn quantile(&self, part: f64) -> f64 {
        self.0[((self.0.len() - 1) as f64 * part).round() as usize]
    }

    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}
