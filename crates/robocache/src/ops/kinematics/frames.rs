//! Frames of a robot at some positions, for several rows at once.
//!
//! Kernel twin: frames.cuh, step by step in the same order. A kernel leaves out products with a 0 that is fixed, which
//! changes no sum but the sign of a 0, and results have 0 added at their end.

use super::chain::{Chain, NO_LIMIT};
use super::pose::Pose;
use super::wide::{Float, Wide, cross};

/// Where a frame is: its axes as columns of a rotation (row-major), and its origin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<T, const N: usize> {
    pub(super) axes: [Wide<T, N>; 9],
    pub(super) origin: [Wide<T, N>; 3],
}

/// A step in the type that is computed in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step<T> {
    pub(super) parent: Option<usize>,
    pub(super) slides: bool,
    pub(super) joint: usize,
    pub(super) factor: T,
    offset: T,
    fixed: [T; 12],
}

/// A chain in the type that is computed in.
#[derive(Debug)]
pub(super) struct Fixed<'c, T> {
    pub(super) chain: &'c Chain,
    pub(super) steps: Vec<Step<T>>,
    ends: Vec<[T; 12]>,
    pub(super) limits: Vec<[T; 2]>,
}

fn rounded<T: Float>(pose: &Pose) -> [T; 12] {
    pose.map(T::of)
}

impl<'c, T: Float> Fixed<'c, T> {
    pub(super) fn new(chain: &'c Chain) -> Self {
        let steps = chain.steps.iter().map(|step| Step {
            parent: step.parent,
            slides: step.slides,
            joint: step.joint,
            factor: T::of(step.factor),
            offset: T::of(step.offset),
            fixed: rounded(&step.fixed),
        });
        let ends = chain.ends.iter().map(|end| rounded(&end.fixed)).collect();
        let limits = chain.limits.iter().map(|limits| limits.map(|limit| T::of(limit.clamp(-NO_LIMIT, NO_LIMIT))));
        Self { chain, steps: steps.collect(), ends, limits: limits.collect() }
    }
}

impl<T: Float, const N: usize> Frame<T, N> {
    pub(super) const fn zero() -> Self {
        let zero = Wide([T::ZERO; N]);
        Self { axes: [zero; 9], origin: [zero; 3] }
    }

    /// The direction of its z.
    #[inline(always)]
    pub(super) fn z(&self) -> [Wide<T, N>; 3] {
        [self.axes[2], self.axes[5], self.axes[8]]
    }
}

/// A frame that is fixed in another, or in the base.
#[inline(always)]
fn fixed_in<T: Float, const N: usize>(above: Option<&Frame<T, N>>, fixed: &[T; 12]) -> Frame<T, N> {
    let mut frame = Frame::zero();
    for row in 0..3 {
        match above {
            Some(above) => {
                let [x, y, z] = [0, 1, 2].map(|k| above.axes[row * 3 + k]);
                for column in 0..3 {
                    let part = z.fma_by(fixed[8 + column], y.fma_by(fixed[4 + column], x * Wide::all(fixed[column])));
                    frame.axes[row * 3 + column] = part;
                }
                frame.origin[row] = z.fma_by(fixed[11], y.fma_by(fixed[7], x.fma_by(fixed[3], above.origin[row])));
            }
            None => {
                for column in 0..3 {
                    frame.axes[row * 3 + column] = Wide::all(fixed[row * 4 + column]);
                }
                frame.origin[row] = Wide::all(fixed[row * 4 + 3]);
            }
        }
    }
    frame
}

/// The frames of all steps.
#[inline(always)]
pub(super) fn all_frames<T: Float, const N: usize>(fixed: &Fixed<'_, T>, q: &[Wide<T, N>], frames: &mut [Frame<T, N>]) {
    for (place, step) in fixed.steps.iter().enumerate() {
        let mut frame = fixed_in(step.parent.map(|parent| &frames[parent]), &step.fixed);
        let position = q[step.joint].fma_by(step.factor, Wide::all(step.offset));
        if step.slides {
            for (origin, z) in frame.origin.iter_mut().zip([frame.axes[2], frame.axes[5], frame.axes[8]]) {
                *origin = z.fma(position, *origin);
            }
        } else {
            let (sine, cosine) = position.sin_cos();
            for row in 0..3 {
                let (x, y) = (frame.axes[row * 3], frame.axes[row * 3 + 1]);
                frame.axes[row * 3] = cosine.fma(x, sine * y);
                frame.axes[row * 3 + 1] = cosine.fma(y, -(sine * x));
            }
        }
        frames[place] = frame;
    }
}

/// The frame of a link that was asked for.
#[inline(always)]
pub(super) fn end_frame<T: Float, const N: usize>(
    fixed: &Fixed<'_, T>,
    frames: &[Frame<T, N>],
    end: usize,
) -> Frame<T, N> {
    fixed_in(fixed.chain.ends[end].step.map(|step| &frames[step]), &fixed.ends[end])
}

/// The quaternion xyzw of a rotation, with w >= 0: by the largest of its numbers, so that none is divided by little.
#[inline(always)]
pub(super) fn quaternion<T: Float, const N: usize>(m: &[Wide<T, N>; 9]) -> [Wide<T, N>; 4] {
    let (zero, one) = (Wide::all(T::ZERO), Wide::all(T::ONE));
    let squares = [
        ((one + m[0]) - m[4]) - m[8],
        ((one - m[0]) + m[4]) - m[8],
        ((one - m[0]) - m[4]) + m[8],
        ((one + m[0]) + m[4]) + m[8],
    ];
    let sums = [m[5] + m[7], m[2] + m[6], m[1] + m[3]];
    let differences = [m[7] - m[5], m[2] - m[6], m[3] - m[1]];
    // Four times a number of the quaternion with each: which are right for all, up to a factor.
    let by = [
        [squares[0], sums[2], sums[1], differences[0]],
        [sums[2], squares[1], sums[0], differences[1]],
        [sums[1], sums[0], squares[2], differences[2]],
        [differences[0], differences[1], differences[2], squares[3]],
    ];
    let (mut largest, mut chosen) = (squares[3], by[3]);
    for which in 0..3 {
        for i in 0..4 {
            chosen[i] = squares[which].greater(largest, by[which][i], chosen[i]);
        }
        largest = squares[which].greater(largest, squares[which], largest);
    }
    let length = chosen[3].fma(chosen[3], chosen[2].fma(chosen[2], chosen[1].fma(chosen[1], chosen[0] * chosen[0])));
    let scale = one.over(length.sqrt());
    let scale = zero.greater(chosen[3], -scale, scale);
    for number in &mut chosen {
        *number = *number * scale;
    }
    chosen
}

/// How a step moves a point: the change of its place and of the rotation with the step's position.
#[inline(always)]
pub(super) fn column<T: Float, const N: usize>(
    slides: bool,
    frame: &Frame<T, N>,
    point: &[Wide<T, N>; 3],
) -> [[Wide<T, N>; 3]; 2] {
    let z = frame.z();
    if slides {
        return [z, [Wide::all(T::ZERO); 3]];
    }
    let arm = [0, 1, 2].map(|i| point[i] - frame.origin[i]);
    [cross(z, arm), z]
}

/// 0, or NaN where a position that is used is NaN or infinite: added to results, so that such rows are NaN as a whole.
#[inline(always)]
pub(super) fn nothing_or_nan<T: Float, const N: usize>(steps: &[Step<T>], q: &[Wide<T, N>]) -> Wide<T, N> {
    let mut sum = Wide::all(T::ZERO);
    for step in steps {
        sum = q[step.joint].fma_by(T::ZERO, sum);
    }
    sum
}
