//! Every conversion, row by row, for numbers with and without derivatives.
//!
//! Kernel twin: rotation.cuh, step by step in the same order.

use super::dual::{Arithmetic, Dual, Float, PARTS};
use super::representation::{Representation, Sequence};

/// Room for the numbers of any representation.
pub(super) const ROOM: usize = 9;
type Row<X> = [X; ROOM];
/// x, y, z, w; of length 1.
type Quaternion<X> = [X; 4];

/// Angles whose squares are smaller go by series, as do rotations whose vector part is that small.
const SMALL: f64 = 1.0 / 1024.0;

/// A rotation in another representation. A row that holds NaN becomes NaN as a whole, unless it is a matrix of which
/// numbers are copied.
#[inline(always)]
pub(super) fn convert<X: Arithmetic>(x: &Row<X>, source: Representation, target: Representation) -> Row<X> {
    let out = match (source.is_matrix(), target.is_matrix()) {
        (true, true) => of_matrix(&to_matrix(x, source), target),
        (true, false) => of_quaternion(quaternion_of(&to_matrix(x, source)), target),
        (false, true) => of_matrix(&matrix_of(to_quaternion(x, source)), target),
        (false, false) => of_quaternion(to_quaternion(x, source), target),
    };
    let is_copy = source == Representation::Matrix && target.is_matrix();
    let is_bad = out.iter().any(|number| number.value().is_bad());
    if is_bad && !is_copy { out.map(|number| number.times(X::Value::NAN)) } else { out }
}

/// The gradient in `x` from that in the result.
#[inline(always)]
pub(super) fn pull_back<T: Float>(x: &Row<T>, grad: &Row<T>, source: Representation, target: Representation) -> Row<T> {
    let mut result = [T::of(0.0); ROOM];
    for first in (0..source.numbers()).step_by(PARTS) {
        let inputs: Row<Dual<T>> = std::array::from_fn(|i| Dual::input(x[i], i.wrapping_sub(first)));
        let out = convert(&inputs, source, target);
        for part in 0..PARTS.min(ROOM - first) {
            let mut sum = grad[0] * out[0].parts[part];
            for i in 1..target.numbers() {
                sum = sum + grad[i] * out[i].parts[part];
            }
            result[first + part] = sum;
        }
    }
    result
}

#[inline(always)]
fn constant<X: Arithmetic>(x: f64) -> X {
    X::constant(X::Value::of(x))
}

#[inline(always)]
fn row_of<X: Arithmetic, const N: usize>(numbers: [X; N]) -> Row<X> {
    std::array::from_fn(|i| if i < N { numbers[i] } else { constant(0.0) })
}

#[inline(always)]
fn dot<X: Arithmetic, const N: usize>(a: [X; N], b: [X; N]) -> X {
    let mut sum = a[0] * b[0];
    for i in 1..N {
        sum = sum + a[i] * b[i];
    }
    sum
}

/// Of length 1; NaN where the length is 0 or not finite.
#[inline(always)]
fn unit<X: Arithmetic, const N: usize>(mut v: [X; N]) -> [X; N] {
    let mut square = dot(v, v);
    if !(square.value() >= X::Value::LEAST && square.value() <= X::Value::MOST) {
        let mut largest = X::Value::of(0.0);
        for number in v {
            let size = number.value().size();
            if size > largest {
                largest = size;
            }
        }
        v = v.map(|number| number.over(largest));
        square = dot(v, v);
    }
    let length = square.sqrt();
    v.map(|number| number / length)
}

/// `c₀ + c₁ x + ...`.
#[inline(always)]
fn series<X: Arithmetic, const N: usize>(coefficients: [f64; N], x: X) -> X {
    let mut sum: X = constant(coefficients[N - 1]);
    for i in (0..N - 1).rev() {
        sum = (sum * x).plus(X::Value::of(coefficients[i]));
    }
    sum
}

// -- matrices ---------------------------------------------------------------------------------------

#[inline(always)]
fn to_matrix<X: Arithmetic>(x: &Row<X>, source: Representation) -> Row<X> {
    if source == Representation::Matrix {
        return *x;
    }
    let first = unit([x[0], x[1], x[2]]);
    let second = [x[3], x[4], x[5]];
    let share = dot(first, second);
    let second = unit([second[0] - share * first[0], second[1] - share * first[1], second[2] - share * first[2]]);
    let third = [
        first[1] * second[2] - first[2] * second[1],
        first[2] * second[0] - first[0] * second[2],
        first[0] * second[1] - first[1] * second[0],
    ];
    let [[a, d, g], [b, e, h], [c, f, i]] = [first, second, third];
    if source == Representation::Rot6d { [a, b, c, d, e, f, g, h, i] } else { [a, d, g, b, e, h, c, f, i] }
}

#[inline(always)]
fn of_matrix<X: Arithmetic>(m: &Row<X>, target: Representation) -> Row<X> {
    match target {
        Representation::Rot6d => row_of([m[0], m[3], m[6], m[1], m[4], m[7]]),
        Representation::Rot6dRows => row_of([m[0], m[1], m[2], m[3], m[4], m[5]]),
        _ => *m,
    }
}

#[inline(always)]
fn matrix_of<X: Arithmetic>([x, y, z, w]: Quaternion<X>) -> Row<X> {
    let (x2, y2, z2) = (x + x, y + y, z + z);
    let (xx, yy, zz) = (x * x2, y * y2, z * z2);
    let (xy, xz, yz) = (x * y2, x * z2, y * z2);
    let (wx, wy, wz) = (w * x2, w * y2, w * z2);
    let less = |a: X, b: X| (-(a + b)).plus(X::Value::of(1.0));
    [less(yy, zz), xy - wz, xz + wy, xy + wz, less(xx, zz), yz - wx, xz - wy, yz + wx, less(xx, yy)]
}

/// By the largest of the four numbers, so that none is divided by a small one.
#[inline(always)]
fn quaternion_of<X: Arithmetic>(m: &Row<X>) -> Quaternion<X> {
    let trace = m[0] + m[4] + m[8];
    let (a, b, c, t) = (m[0].value(), m[4].value(), m[8].value(), trace.value());
    let one = X::Value::of(1.0);
    let own = |diagonal: X| (diagonal + diagonal - trace).plus(one);
    unit(if t >= a && t >= b && t >= c {
        [m[7] - m[5], m[2] - m[6], m[3] - m[1], trace.plus(one)]
    } else if a >= b && a >= c {
        [own(m[0]), m[3] + m[1], m[6] + m[2], m[7] - m[5]]
    } else if b >= c {
        [m[1] + m[3], own(m[4]), m[7] + m[5], m[2] - m[6]]
    } else {
        [m[2] + m[6], m[5] + m[7], own(m[8]), m[3] - m[1]]
    })
}

// -- quaternions ------------------------------------------------------------------------------------

#[inline(always)]
fn to_quaternion<X: Arithmetic>(x: &Row<X>, source: Representation) -> Quaternion<X> {
    match source {
        Representation::QuatWxyz => unit([x[1], x[2], x[3], x[0]]),
        Representation::AxisAngle => of_vector([x[0], x[1], x[2]]),
        Representation::Euler(order) => of_angles([x[0], x[1], x[2]], order.sequence()),
        _ => unit([x[0], x[1], x[2], x[3]]),
    }
}

/// With w >= 0.
#[inline(always)]
fn of_quaternion<X: Arithmetic>(q: Quaternion<X>, target: Representation) -> Row<X> {
    let q = if q[3].value() < X::Value::of(0.0) { q.map(|number| -number) } else { q };
    match target {
        Representation::QuatWxyz => row_of([q[3], q[0], q[1], q[2]]),
        Representation::AxisAngle => row_of(vector_of(q)),
        Representation::Euler(order) => row_of(angles_of(q, order.sequence())),
        _ => row_of(q),
    }
}

#[inline(always)]
fn of_vector<X: Arithmetic>(v: [X; 3]) -> Quaternion<X> {
    let square = dot(v, v);
    let (share, cosine) = if square.value() < X::Value::of(SMALL) {
        let share = series([0.5, -1.0 / 48.0, 1.0 / 3840.0, -1.0 / 645_120.0], square);
        (share, series([1.0, -1.0 / 8.0, 1.0 / 384.0, -1.0 / 46_080.0, 1.0 / 10_321_920.0], square))
    } else {
        let angle = square.sqrt();
        let ([sine], [cosine]) = X::sin_cos([angle.times(X::Value::of(0.5))]);
        (sine / angle, cosine)
    };
    [v[0] * share, v[1] * share, v[2] * share, cosine]
}

#[inline(always)]
fn vector_of<X: Arithmetic>([x, y, z, w]: Quaternion<X>) -> [X; 3] {
    let two = X::Value::of(2.0);
    let square = dot([x, y, z], [x, y, z]);
    let share = if square.value() < X::Value::of(SMALL) {
        // The angle's half by its tangent.
        let ratio = square / (w * w);
        let arc = [1.0, -1.0 / 3.0, 1.0 / 5.0, -1.0 / 7.0, 1.0 / 9.0, -1.0 / 11.0];
        (series(arc, ratio) / w).times(two)
    } else {
        let sine = square.sqrt();
        X::direction(sine, w).times(two) / sine
    };
    [x * share, y * share, z * share]
}

// -- Euler angles -----------------------------------------------------------------------------------
//
// In a right-handed frame of the first axis, the second, and the other one or its opposite, every sequence is "xyz" or
// "xyx".

#[inline(always)]
fn of_angles<X: Arithmetic>(angles: [X; 3], sequence: Sequence) -> Quaternion<X> {
    let [a, b, c] = if sequence.is_intrinsic { [angles[2], angles[1], angles[0]] } else { angles };
    let half = X::Value::of(0.5);
    let ([s1, s2, s3], [c1, c2, c3]) = X::sin_cos([a.times(half), b.times(half), c.times(half)]);
    let (first, second, other, w) = if sequence.is_symmetric {
        (c2 * (c3 * s1 + s3 * c1), s2 * (c3 * c1 + s3 * s1), s2 * (s3 * c1 - c3 * s1), c2 * (c3 * c1 - s3 * s1))
    } else {
        let s3 = if sequence.is_odd { -s3 } else { s3 };
        let (cc, ss, cs, sc) = (c2 * c1, s2 * s1, c2 * s1, s2 * c1);
        (c3 * cs - s3 * sc, c3 * sc + s3 * cs, s3 * cc - c3 * ss, c3 * cc + s3 * ss)
    };
    let mut q = [w; 4];
    q[sequence.first] = first;
    q[sequence.second] = second;
    q[sequence.other] = if sequence.is_odd { -other } else { other };
    q
}

/// Bernardes and Viollet, "Quaternion to Euler angles conversion: a direct, general and computationally efficient
/// method", PLOS ONE 17(11), 2022; what SciPy does, too, also where the middle angle locks.
#[inline(always)]
fn angles_of<X: Arithmetic>(q: Quaternion<X>, sequence: Sequence) -> [X; 3] {
    let (first, second, other, w) = (q[sequence.first], q[sequence.second], q[sequence.other], q[3]);
    let other = if sequence.is_odd { -other } else { other };
    let (a, b, c, d) = if sequence.is_symmetric {
        (w, first, second, other)
    } else {
        (w - second, first + other, second + w, other - first)
    };
    let two = X::Value::of(2.0);
    let middle = X::direction((c * c + d * d).sqrt(), (a * a + b * b).sqrt()).times(two);
    let (sum, difference) = (X::direction(b, a), X::direction(d, c));
    let angle = middle.value();
    // The angles in the order of results, and the one about the third of the fixed axes among them.
    let (mut start, mut end) = if angle <= X::Value::LOCK {
        (sum.times(two), constant(0.0))
    } else if (angle - X::Value::PI).size() <= X::Value::LOCK {
        let twice = difference.times(two);
        (if sequence.is_intrinsic { twice } else { -twice }, constant(0.0))
    } else if sequence.is_intrinsic {
        (sum + difference, sum - difference)
    } else {
        (sum - difference, sum + difference)
    };
    if sequence.is_symmetric {
        return [wrap(start), middle, wrap(end)];
    }
    if sequence.is_odd {
        let third = if sequence.is_intrinsic { &mut start } else { &mut end };
        *third = -*third;
    }
    [wrap(start), middle.plus(-X::Value::HALF_PI), wrap(end)]
}

/// An angle of at most two turns, in [-π, π].
#[inline(always)]
fn wrap<X: Arithmetic>(angle: X) -> X {
    if angle.value() < -X::Value::PI {
        angle.plus(X::Value::TWO_PI)
    } else if angle.value() > X::Value::PI {
        angle.plus(-X::Value::TWO_PI)
    } else {
        angle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Representation {
        Representation::named("source", name).unwrap()
    }

    fn row(numbers: &[f64]) -> Row<f64> {
        std::array::from_fn(|i| numbers.get(i).copied().unwrap_or(0.0))
    }

    fn to(numbers: &[f64], source: &str, target: &str) -> Vec<f64> {
        convert(&row(numbers), named(source), named(target))[..named(target).numbers()].to_vec()
    }

    #[track_caller]
    fn assert_near(got: &[f64], want: &[f64], tolerance: f64) {
        assert_eq!(got.len(), want.len());
        assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() <= tolerance), "{got:?}, expected {want:?}");
    }

    /// Rotations of any kind: the special ones, tiny ones, near half turns, and many others.
    fn quaternions() -> Vec<[f64; 4]> {
        let mut all = vec![[0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0], [0.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]];
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64 - 0.5
        };
        let pi = std::f64::consts::PI;
        for angle in [1e-12, 1e-8, 1e-4, 1e-2, 0.04, 0.3, 1.0, 2.0, 3.0, pi - 1e-3, pi - 1e-6, pi] {
            for _ in 0..6 {
                let axis = [next(), next(), next()];
                let length = dot(axis, axis).sqrt();
                let (sine, cosine) = (angle * 0.5).sin_cos();
                all.push([0, 1, 2, 3].map(|i| if i == 3 { cosine } else { axis[i] / length * sine }));
            }
        }
        all
    }

    #[test]
    fn all_pairs_are_one_rotation() {
        let matrix_of = |numbers: &[f64], name: &str| to(numbers, name, "matrix");
        for q in quaternions() {
            let want = matrix_of(&q, "quat_xyzw");
            for first in Representation::all() {
                let numbers = to(&q, "quat_xyzw", first.name());
                assert_near(&matrix_of(&numbers, first.name()), &want, 4e-7);
                for second in Representation::all() {
                    let other = to(&numbers, first.name(), second.name());
                    assert_near(&matrix_of(&other, second.name()), &want, 4e-7);
                }
            }
        }
    }

    #[test]
    fn known_rotations() {
        let half = std::f64::consts::FRAC_1_SQRT_2;
        let quarter = std::f64::consts::FRAC_PI_2;
        let turn = [half, 0.0, 0.0, half];
        assert_near(&to(&[2.0, 0.0, 0.0, 2.0], "quat_xyzw", "quat_wxyz"), &[half, half, 0.0, 0.0], 1e-15);
        assert_near(&to(&turn, "quat_xyzw", "axis_angle"), &[quarter, 0.0, 0.0], 1e-15);
        assert_near(&to(&turn, "quat_xyzw", "rot6d"), &[1.0, 0.0, 0.0, 0.0, 0.0, 1.0], 1e-15);
        assert_near(&to(&turn, "quat_xyzw", "rot6d_rows"), &[1.0, 0.0, 0.0, 0.0, 0.0, -1.0], 1e-15);
        assert_near(&to(&turn, "quat_xyzw", "euler_zyx"), &[0.0, 0.0, quarter], 1e-15);
        assert_near(&to(&[0.1, 0.2, 0.3], "euler_xyz", "euler_ZYX"), &[0.3, 0.2, 0.1], 1e-15);
        assert_near(&to(&[3.0, 0.0, 0.0, 1.0, 2.0, 0.0], "rot6d", "quat_xyzw"), &[0.0, 0.0, 0.0, 1.0], 1e-15);
        // More than half a turn is less than half of one the other way around.
        assert_near(&to(&[0.0, 4.0, 0.0], "axis_angle", "axis_angle"), &[0.0, 4.0 - 4.0 * quarter, 0.0], 1e-15);
        assert_eq!(to(&[0.0, -0.6, 0.0, -0.8], "quat_xyzw", "quat_xyzw"), [0.0, 0.6, 0.0, 0.8]);
    }

    #[test]
    fn small_angles_and_lengths_lose_no_digits() {
        for size in [1e-300, 1e-20, 1e-9, 1e-4, 0.03, 0.1] {
            let v = [size, -2.0 * size, 0.5 * size];
            let got = to(&v, "axis_angle", "axis_angle");
            assert!(got.iter().zip(v).all(|(a, b)| (a / b - 1.0).abs() <= 1e-15), "{got:?}, expected {v:?}");
        }
        for length in [1e-300, 1e-160, 1e160, 1e300] {
            assert_near(
                &to(&[0.0, 3.0 * length, 0.0, 4.0 * length], "quat_xyzw", "quat_xyzw"),
                &[0.0, 0.6, 0.0, 0.8],
                1e-15,
            );
        }
        assert!(to(&[0.0; 4], "quat_xyzw", "matrix").iter().all(|x| x.is_nan()));
        assert!(to(&[1.0, 0.0, 0.0, 2.0, 0.0, 0.0], "rot6d", "rot6d").iter().all(|x| x.is_nan()));
        assert!(to(&[f64::INFINITY, 0.0, 0.0, 1.0], "quat_xyzw", "euler_xyz").iter().all(|x| x.is_nan()));
        assert!(to(&[0.0, f64::NAN, 0.0], "axis_angle", "rot6d").iter().all(|x| x.is_nan()));
        let copied = to(&[1.0, 2.0, f64::NAN, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], "matrix", "rot6d");
        assert_eq!(copied, [1.0, 4.0, 7.0, 2.0, 5.0, 8.0]);
    }

    #[test]
    fn locked_angles_have_a_third_of_zero() {
        let quarter = std::f64::consts::FRAC_PI_2;
        for name in ["euler_xyz", "euler_YXZ", "euler_zyx"] {
            for middle in [quarter, -quarter] {
                assert_eq!(to(&[0.3, middle, 0.4], name, name)[2].abs(), 0.0, "{name}");
            }
        }
        for middle in [0.0, std::f64::consts::PI] {
            assert_eq!(to(&[0.3, middle, 0.4], "euler_ZXZ", "euler_ZXZ")[2], 0.0);
        }
    }

    /// Central differences of the same formulas; what is left out is where these are not smooth.
    #[test]
    fn gradients_are_differences() {
        let step = 1e-6;
        for q in quaternions().iter().skip(4) {
            for source in Representation::all() {
                let x = row(&to(q, "quat_xyzw", source.name()));
                for target in Representation::all() {
                    let out = convert(&x, source, target);
                    // Angles near where they lock, or a quaternion about to change its sign.
                    let middle = match target {
                        Representation::Euler(order) if order.sequence().is_symmetric => out[1].sin(),
                        Representation::Euler(_) => out[1].cos(),
                        _ => 1.0,
                    };
                    if middle < 0.1 || q[3] < 1e-3 {
                        continue;
                    }
                    for i in 0..target.numbers() {
                        let grad: Row<f64> = std::array::from_fn(|j| if i == j { 1.0 } else { 0.0 });
                        let got = pull_back(&x, &grad, source, target);
                        for j in 0..source.numbers() {
                            let moved = |by: f64| {
                                let mut x = x;
                                x[j] += by;
                                convert(&x, source, target)[i]
                            };
                            let mut difference = moved(step) - moved(-step);
                            difference -= (difference / std::f64::consts::TAU).round() * std::f64::consts::TAU;
                            let want = difference / (2.0 * step);
                            assert!(
                                (got[j] - want).abs() <= 2e-6 * (1.0 + want.abs()),
                                "{source} {target} {q:?}: {} {want}",
                                got[j]
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn gradients_are_finite_where_formulas_divide() {
        let special = [[0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.6, 0.0, 0.8, 0.0]];
        for q in special {
            for source in Representation::all() {
                let x = row(&to(&q, "quat_xyzw", source.name()));
                for target in Representation::all() {
                    let got = pull_back(&x, &[1.0; ROOM], source, target);
                    assert!(got.iter().all(|x| x.is_finite()), "{source} {target} {q:?}: {got:?}");
                }
            }
        }
        let identity = pull_back(&row(&[]), &row(&[0.0, 0.0, 1.0]), named("axis_angle"), named("axis_angle"));
        assert_eq!(identity, row(&[0.0, 0.0, 1.0]));
    }

    #[test]
    fn limits_are_powers_of_two() {
        assert_eq!((f32::LOCK, f32::LEAST, f32::MOST), (2f32.powi(-20), 2f32.powi(-80), 2f32.powi(80)));
        assert_eq!((f64::LOCK, f64::LEAST, f64::MOST), (2f64.powi(-23), 2f64.powi(-800), 2f64.powi(800)));
    }
}
