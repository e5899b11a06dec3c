//! Small systems of equations: a joint step from a wished change of a link's place and rotation.
//!
//! Kernel twin: solve.cuh, step by step in the same order.

use super::frames::{Fixed, Frame, column};
use super::wide::{Float, Wide};

/// Columns of a Jacobian, one for each joint; the linear part multiplied with `scale`.
#[inline(always)]
pub(super) fn columns<T: Float>(
    fixed: &Fixed<'_, T>,
    frames: &[Frame<T, 1>],
    last: &Frame<T, 1>,
    scale: T,
    columns: &mut [[T; 6]],
) {
    columns.fill([T::ZERO; 6]);
    for &place in &fixed.chain.ends[0].path {
        let step = &fixed.steps[place];
        let parts = column(step.slides, &frames[place], &last.origin);
        for i in 0..3 {
            let to = &mut columns[step.joint];
            to[i] = (parts[0][i].0[0] * scale).mul_add(step.factor, to[i]);
            to[3 + i] = parts[1][i].0[0].mul_add(step.factor, to[3 + i]);
        }
    }
}

/// The damped least-squares step: `Jᵀ (J Jᵀ + damping I)⁻¹ wish`, without the joints that are held.
#[inline(always)]
pub(super) fn damped_step<T: Float>(columns: &[[T; 6]], held: &[bool], damping: T, wish: [T; 6], step: &mut [T]) {
    let mut a = [[T::ZERO; 6]; 6];
    for (column, _) in columns.iter().zip(held).filter(|(_, held)| !**held) {
        for i in 0..6 {
            for j in 0..=i {
                a[i][j] = column[i].mul_add(column[j], a[i][j]);
            }
        }
    }
    let y = solve(a, damping, wish);
    for ((step, column), &held) in step.iter_mut().zip(columns).zip(held) {
        let mut sum = column[0] * y[0];
        for i in 1..6 {
            sum = column[i].mul_add(y[i], sum);
        }
        *step = if held { T::ZERO } else { sum };
    }
}

/// Solves `(A + damping I) x = b` for a symmetric A, whose lower half is given, without negative eigenvalues.
#[inline(always)]
fn solve<T: Float>(mut a: [[T; 6]; 6], damping: T, mut x: [T; 6]) -> [T; 6] {
    let mut scales = [T::ZERO; 6];
    for j in 0..6 {
        let mut diagonal = a[j][j] + damping;
        for k in 0..j {
            diagonal = (-(a[j][k] * scales[k])).mul_add(a[j][k], diagonal);
        }
        // No less, but by rounding.
        scales[j] = if diagonal > damping { diagonal } else { damping };
        for i in j + 1..6 {
            let mut sum = a[i][j];
            for k in 0..j {
                sum = (-(a[i][k] * scales[k])).mul_add(a[j][k], sum);
            }
            a[i][j] = sum / scales[j];
        }
    }
    for i in 0..6 {
        for k in 0..i {
            x[i] = (-a[i][k]).mul_add(x[k], x[i]);
        }
    }
    for i in (0..6).rev() {
        x[i] = x[i] / scales[i];
        for k in i + 1..6 {
            x[i] = (-a[k][i]).mul_add(x[k], x[i]);
        }
    }
    x
}

/// One number as several.
#[inline(always)]
pub(super) fn one<T: Float>(x: T) -> Wide<T, 1> {
    Wide([x])
}
