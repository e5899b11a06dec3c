//! What methods that are not linear in the values hand back: for the gradient in a result, those in
//! the samples that it was made of.
//!
//! Kernel twin: vjp.cuh. The definitions are those of `align/blend.rs`; sines and roots are the
//! machine's, so host and GPU agree to rounding.

use super::cells::Number;

#[inline(always)]
fn dot<T: Number, const N: usize>(a: [T; N], b: [T; N]) -> T {
    let mut sum = a[0] * b[0];
    for i in 1..N {
        sum = a[i].mul_add(b[i], sum);
    }
    sum
}

/// `a + b * factor`.
#[inline(always)]
fn along<T: Number, const N: usize>(a: [T; N], b: [T; N], factor: T) -> [T; N] {
    std::array::from_fn(|i| b[i].mul_add(factor, a[i]))
}

/// The gradient in a vector of which only the direction `unit` matters.
#[inline(always)]
fn through_direction<T: Number, const N: usize>(grad: [T; N], unit: [T; N], length: T) -> [T; N] {
    let part = dot(grad, unit);
    along(grad, unit, -part).map(|x| x / length)
}

/// A quaternion in normal form.
#[inline(always)]
pub(super) fn normal<T: Number>(sample: [T; 4], grad: [T; 4]) -> [T; 4] {
    let length = dot(sample, sample).sqrt();
    through_direction(grad, sample.map(|x| x / length), length)
}

/// sin(part θ) / sin(θ), and its derivative in θ divided by sin(θ).
#[inline(always)]
fn arc_share<T: Number>(part: T, angle: T, sine: T, cosine: T) -> (T, T) {
    let square = part * part;
    if angle < T::SMALL_ANGLE {
        // Series: the formula below is a difference of nearly equal numbers.
        let slope = part * (T::ONE - square);
        let turn = angle * angle;
        let share = part + slope * turn / T::of(6.0);
        return (share, slope * (T::ONE / T::of(3.0) + turn * ((T::of(12.0) - T::of(3.0) * square) / T::of(90.0))));
    }
    let (inner_sine, inner_cosine) = ((part * angle).sin(), (part * angle).cos());
    let slope = (part * inner_cosine * sine - inner_sine * cosine) / (sine * sine * sine);
    (inner_sine / sine, slope)
}

/// Between two quaternions along the shorter arc.
#[inline(always)]
pub(super) fn slerp<T: Number>(a: [T; 4], b: [T; 4], weight: T, grad: [T; 4]) -> [[T; 4]; 2] {
    let (first_length, second_length) = (dot(a, a).sqrt(), dot(b, b).sqrt());
    let sign = if dot(a, b) < T::ZERO { -T::ONE } else { T::ONE };
    let (a, b) = (a.map(|x| x / first_length), b.map(|x| sign * x / second_length));
    let (apart, sum) = (along(a, b, -T::ONE), along(a, b, T::ONE));
    let half = dot(apart, apart).sqrt().atan2(dot(sum, sum).sqrt());
    let angle = half + half;
    let (sine, cosine) = (angle.sin(), angle.cos());
    let (near, near_slope) = arc_share(weight.rest(), angle, sine, cosine);
    let (far, far_slope) = arc_share(weight, angle, sine, cosine);
    // cos θ = a·b: its gradient in a is b, up to what goes along a, which has no effect.
    let turn = -(near_slope * dot(grad, a) + far_slope * dot(grad, b));
    let first = along(grad.map(|x| near * x), b, turn);
    let second = along(grad.map(|x| far * x), a, turn);
    [through_direction(first, a, first_length), through_direction(second, b, sign * second_length)]
}

/// Two columns made orthonormal.
#[inline(always)]
pub(super) fn orthonormal<T: Number>(blended: [T; 6], grad: [T; 6]) -> [T; 6] {
    let halves = |x: [T; 6]| ([x[0], x[1], x[2]], [x[3], x[4], x[5]]);
    let ((first, second), (first_grad, second_grad)) = (halves(blended), halves(grad));
    let length = dot(first, first).sqrt();
    let unit = first.map(|x| x / length);
    let share = dot(unit, second);
    let rest = along(second, unit, -share);
    let rest_length = dot(rest, rest).sqrt();
    let rest_grad = through_direction(second_grad, rest.map(|x| x / rest_length), rest_length);
    let part = dot(unit, rest_grad);
    let unit_grad = along(along(first_grad, rest_grad, -share), second, -part);
    let [x, y, z] = through_direction(unit_grad, unit, length);
    let [u, v, w] = along(rest_grad, unit, -part);
    [x, y, z, u, v, w]
}

/// The slope at a sample is a mean of those in the gaps beside it: the shares of the left and the right one.
#[inline(always)]
fn shares<T: Number>(left_gap: T, right_gap: T) -> (T, T) {
    let (left, right) = (right_gap + right_gap + left_gap, right_gap + left_gap + left_gap);
    (left / (left + right), right / (left + right))
}

/// The gradient of that mean, 1 / (share / left + share / right), in the slopes on both sides. All is computed and then
/// chosen from, so that columns side by side become vectors.
#[inline(always)]
fn inner_slope<T: Number>(left: T, right: T, (left_share, right_share): (T, T)) -> (T, T) {
    let rises = (left > T::ZERO) & (right > T::ZERO);
    let falls = (left < T::ZERO) & (right < T::ZERO);
    let both = left_share * right + right_share * left;
    let (a, b) = (right / both, left / both);
    if rises | falls { (a * a * left_share, b * b * right_share) } else { (T::ZERO, T::ZERO) }
}

/// The slope at an end, in the slopes of the near and the far gap.
#[inline(always)]
fn end_slope<T: Number>(near: T, far: T, far_gap: T) -> (T, T) {
    let (two, three) = (T::of(2.0), T::of(3.0));
    let slope = ((two + far_gap) * near - far) / (T::ONE + far_gap);
    let sign = |x: T| (x > T::ZERO, x < T::ZERO);
    if sign(slope) != sign(near) {
        (T::ZERO, T::ZERO)
    } else if sign(near) != sign(far) && slope * slope > three * three * near * near {
        (three, T::ZERO)
    } else {
        ((two + far_gap) / (T::ONE + far_gap), -T::ONE / (T::ONE + far_gap))
    }
}

/// Columns that [`cubics`] takes at a time.
pub(super) const COLUMNS: usize = 8;

/// The monotone cubic between `samples[1]` and `samples[2]`, for a weight between 0 and 1: what each
/// of the four samples weighs, column by column. Gaps are in units of the one between; 0 where there is no sample.
#[inline(always)]
pub(super) fn cubics<T: Number>(samples: &[[T; COLUMNS]; 4], before: T, behind: T, weight: T) -> [[T; COLUMNS]; 4] {
    // What is so for all columns is decided once.
    match (before > T::ZERO, behind > T::ZERO) {
        (true, true) => cubics_with::<T, true, true>(samples, before, behind, weight),
        (true, false) => cubics_with::<T, true, false>(samples, before, behind, weight),
        (false, true) => cubics_with::<T, false, true>(samples, before, behind, weight),
        (false, false) => cubics_with::<T, false, false>(samples, before, behind, weight),
    }
}

#[inline(always)]
fn cubics_with<T: Number, const HAS_LEFT: bool, const HAS_RIGHT: bool>(
    samples: &[[T; COLUMNS]; 4],
    before: T,
    behind: T,
    weight: T,
) -> [[T; COLUMNS]; 4] {
    let (start, end) = (shares(before, T::ONE), shares(T::ONE, behind));
    let mut factors = [[T::ZERO; COLUMNS]; 4];
    for column in 0..COLUMNS {
        let at = [samples[0][column], samples[1][column], samples[2][column], samples[3][column]];
        let [earlier, first, second, later] = cubic::<T, HAS_LEFT, HAS_RIGHT>(at, before, behind, (start, end), weight);
        factors[0][column] = earlier;
        factors[1][column] = first;
        factors[2][column] = second;
        factors[3][column] = later;
    }
    factors
}

#[inline(always)]
fn cubic<T: Number, const HAS_LEFT: bool, const HAS_RIGHT: bool>(
    samples: [T; 4],
    before: T,
    behind: T,
    (start, end): ((T, T), (T, T)),
    weight: T,
) -> [T; 4] {
    let [earlier, a, b, later] = samples;
    if !HAS_LEFT && !HAS_RIGHT {
        return [T::ZERO, weight.rest(), weight, T::ZERO];
    }
    let middle = b - a;
    let left = if HAS_LEFT { (a - earlier) / before } else { T::ZERO };
    let right = if HAS_RIGHT { (later - b) / behind } else { T::ZERO };
    let square = weight * weight;
    let cube = square * weight;
    let (of_start, of_end) = (weight - square - square + cube, cube - square);
    let mut in_middle = T::of(3.0) * square - cube - cube;
    let (mut in_left, mut in_right) = (T::ZERO, T::ZERO);
    if HAS_LEFT {
        let (to_left, to_middle) = inner_slope(left, middle, start);
        in_left = in_left + of_start * to_left;
        in_middle = in_middle + of_start * to_middle;
    } else {
        let (to_middle, to_right) = end_slope(middle, right, behind);
        in_middle = in_middle + of_start * to_middle;
        in_right = in_right + of_start * to_right;
    }
    if HAS_RIGHT {
        let (to_middle, to_right) = inner_slope(middle, right, end);
        in_middle = in_middle + of_end * to_middle;
        in_right = in_right + of_end * to_right;
    } else {
        let (to_middle, to_left) = end_slope(middle, left, before);
        in_middle = in_middle + of_end * to_middle;
        in_left = in_left + of_end * to_left;
    }
    let in_left = if HAS_LEFT { in_left / before } else { T::ZERO };
    let in_right = if HAS_RIGHT { in_right / behind } else { T::ZERO };
    [-in_left, T::ONE + in_left - in_middle, in_middle - in_right, in_right]
}
