//! The discrete cosine transform and the quantisation of a block.
//!
//! The transform is that of Arai, Agui and Nakajima (1988): five multiplications for eight numbers, what is
//! left of the scale goes into the quantisation. In `f32`, nothing fused, so that all machines
//! give the same bits.

use std::f64::consts::{PI, SQRT_2};

pub(super) type Rows = [[f32; 8]; 8];

/// A block's numbers: down the columns, one column after the other.
pub(super) type Block = [i16; 64];

/// 1.5 * 2^23: the sum with a small number ends in the nearest integer.
const ONES: f32 = 12_582_912.0;
/// What a word of the code can hold.
const MOST: i16 = 1023;

/// From pixels to the numbers of a block.
#[derive(Debug)]
pub(super) struct Quantiser {
    /// What numbers are multiplied by, column by column.
    factors: Rows,
    /// What the pixels of a block add up to where all are the middle.
    middle: f32,
}

impl Quantiser {
    /// For a table, row by row; `middle` is the pixel that becomes 0, and a step between pixels is worth
    /// `step`.
    pub(super) fn new(table: &[u8; 64], middle: f64, step: f64) -> Self {
        let scale = |at: usize| if at == 0 { 1.0 } else { (at as f64 * PI / 16.0).cos() * SQRT_2 };
        let factor = |column: usize, row: usize| {
            let coarse = table.get(row * 8 + column).copied().unwrap_or(1);
            (step / (f64::from(coarse.max(1)) * scale(row) * scale(column) * 8.0)) as f32
        };
        let factors = std::array::from_fn(|column| std::array::from_fn(|row| factor(column, row)));
        Self { factors, middle: (middle * 64.0) as f32 }
    }

    /// Transforms and quantises; `transpose` makes columns of rows.
    #[inline(always)]
    pub(super) fn apply(&self, pixels: &[[u8; 8]; 8], transpose: impl Fn(&Rows) -> Rows) -> Block {
        let rows: Rows = std::array::from_fn(|row| pixels[row].map(f32::from));
        let mut sums = cosines(transpose(&cosines(rows)));
        sums[0][0] -= self.middle;
        let mut block = [0; 64];
        for ((out, sums), factors) in block.as_chunks_mut::<8>().0.iter_mut().zip(&sums).zip(&self.factors) {
            *out = std::array::from_fn(|at| (sums[at] * factors[at] + ONES).to_bits() as i16);
        }
        // Levels beyond black and white can come to more than a word of the code can hold.
        block.map(|number| number.clamp(-MOST, MOST))
    }
}

/// Rows as columns, number by number.
#[inline(always)]
pub(super) fn transposed(rows: &Rows) -> Rows {
    std::array::from_fn(|a| std::array::from_fn(|b| rows[b][a]))
}

#[inline(always)]
fn zip(a: [f32; 8], b: [f32; 8], join: impl Fn(f32, f32) -> f32) -> [f32; 8] {
    std::array::from_fn(|at| join(a[at], b[at]))
}

/// The transform down the columns, all eight at once.
#[inline(always)]
fn cosines(x: Rows) -> Rows {
    let add = |a, b| zip(a, b, |a, b| a + b);
    let take = |a, b| zip(a, b, |a, b| a - b);
    let times = |a: [f32; 8], factor: f32| a.map(|a| a * factor);
    let (s0, s1, s2, s3) = (add(x[0], x[7]), add(x[1], x[6]), add(x[2], x[5]), add(x[3], x[4]));
    let (d0, d1, d2, d3) = (take(x[0], x[7]), take(x[1], x[6]), take(x[2], x[5]), take(x[3], x[4]));
    let (outer, inner) = (add(s0, s3), add(s1, s2));
    let (far, near) = (take(s0, s3), take(s1, s2));
    let turned = times(add(near, far), 0.707_106_77);
    let (low, middle, high) = (add(d3, d2), add(d2, d1), add(d1, d0));
    let shared = times(take(low, high), 0.382_683_43);
    let left = add(times(low, 0.541_196_1), shared);
    let right = add(times(high, 1.306_563), shared);
    let halfway = times(middle, 0.707_106_77);
    let (above, below) = (add(d0, halfway), take(d0, halfway));
    [
        add(outer, inner),
        add(above, right),
        add(far, turned),
        take(below, left),
        take(outer, inner),
        add(below, left),
        take(far, turned),
        take(above, right),
    ]
}

/// The same by vector instructions, which the compiler does not find.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn transposed_avx2(rows: &Rows) -> Rows {
    use std::arch::x86_64::*;
    // SAFETY: eight vectors of eight numbers each, the same bytes.
    let r: [__m256; 8] = unsafe { std::mem::transmute(*rows) };
    let pairs = |a: usize| (_mm256_unpacklo_ps(r[a], r[a + 1]), _mm256_unpackhi_ps(r[a], r[a + 1]));
    let ((a0, a1), (b0, b1), (c0, c1), (d0, d1)) = (pairs(0), pairs(2), pairs(4), pairs(6));
    let fours = |a, b| (_mm256_shuffle_ps::<0x44>(a, b), _mm256_shuffle_ps::<0xee>(a, b));
    let ((e0, e1), (e2, e3)) = (fours(a0, b0), fours(a1, b1));
    let ((f0, f1), (f2, f3)) = (fours(c0, d0), fours(c1, d1));
    let low = |a, b| _mm256_permute2f128_ps::<0x20>(a, b);
    let high = |a, b| _mm256_permute2f128_ps::<0x31>(a, b);
    let columns =
        [low(e0, f0), low(e1, f1), low(e2, f2), low(e3, f3), high(e0, f0), high(e1, f1), high(e2, f2), high(e3, f3)];
    // SAFETY: as above.
    unsafe { std::mem::transmute(columns) }
}
