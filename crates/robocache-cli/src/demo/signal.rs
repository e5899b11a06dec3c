//! Signals whose value is known at any time: sums of sines.

use std::f64::consts::TAU;

use super::random::Random;

/// Columns that are sums of sines of the same two frequencies with their own sizes and phases.
#[derive(Debug)]
pub(super) struct Signal {
    /// Radians per second.
    omegas: [f64; 2],
    /// Per column and frequency, the factors of sine and cosine.
    columns: Vec<[(f64, f64); 2]>,
}

impl Signal {
    /// `columns` columns of amplitudes up to `amplitudes` at `hertz`, phases at random.
    pub(super) fn new(columns: usize, hertz: [f64; 2], amplitudes: [f64; 2], random: &mut Random) -> Self {
        let mut column = || {
            amplitudes.map(|amplitude| {
                let (sin, cos) = random.between(0.0, TAU).sin_cos();
                let amplitude = amplitude * random.between(0.5, 1.0);
                (amplitude * cos, amplitude * sin)
            })
        };
        Self { omegas: hertz.map(|hertz| TAU * hertz), columns: (0..columns).map(|_| column()).collect() }
    }

    pub(super) fn width(&self) -> usize {
        self.columns.len()
    }

    /// Writes all columns at `seconds`.
    pub(super) fn at(&self, seconds: f64, out: &mut [f64]) {
        let [slow, fast] = self.omegas.map(|omega| (omega * seconds).sin_cos());
        for (out, [a, b]) in out.iter_mut().zip(&self.columns) {
            *out = a.0 * slow.0 + a.1 * slow.1 + b.0 * fast.0 + b.1 * fast.1;
        }
    }

    /// No column's value is ever larger.
    pub(super) fn largest(&self) -> f64 {
        self.largest_of([1.0, 1.0])
    }

    /// No column's second derivative is ever larger.
    pub(super) fn largest_curvature(&self) -> f64 {
        self.largest_of(self.omegas.map(|omega| omega * omega))
    }

    fn largest_of(&self, factors: [f64; 2]) -> f64 {
        let column = |[a, b]: &[(f64, f64); 2]| a.0.hypot(a.1) * factors[0] + b.0.hypot(b.1) * factors[1];
        self.columns.iter().map(column).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_curvature_stay_within_their_bounds() {
        let signal = Signal::new(3, [0.5, 2.0], [1.0, 0.25], &mut Random::new(7));
        let at = |seconds| {
            let mut out = [0.0; 3];
            signal.at(seconds, &mut out);
            out
        };
        let step = 1e-4;
        let (mut value, mut curvature) = (0.0f64, 0.0f64);
        for index in 0..20_000 {
            let seconds = f64::from(index) * 1e-3;
            let (before, here, after) = (at(seconds - step), at(seconds), at(seconds + step));
            for column in 0..3 {
                value = value.max(here[column].abs());
                curvature =
                    curvature.max(((before[column] - 2.0 * here[column] + after[column]) / (step * step)).abs());
            }
        }
        assert!(value <= signal.largest() && value > 0.9 * signal.largest());
        assert!(curvature <= 1.001 * signal.largest_curvature() && curvature > 0.9 * signal.largest_curvature());
    }
}
