// What methods that are not linear in the values hand back: for the gradient in a result, those in
// the samples that it was made of. Host twin: vjp.rs, in the same order.
#pragma once
#include "rc.cuh"

namespace rc {

inline float root(float x) { return sqrtf(x); }
inline double root(double x) { return sqrt(x); }
inline float sine(float x) { return sinf(x); }
inline double sine(double x) { return sin(x); }
inline float cosine(float x) { return cosf(x); }
inline double cosine(double x) { return cos(x); }
inline float arc(float y, float x) { return atan2f(y, x); }
inline double arc(double y, double x) { return atan2(y, x); }
inline float small_angle(float) { return 0.1f; }
inline double small_angle(double) { return 0.005; }

template <class T, int N> T dot(const T (&a)[N], const T (&b)[N]) {
    T sum = a[0] * b[0];
    for (int i = 1; i < N; i++) sum = fma(a[i], b[i], sum);
    return sum;
}

// to = a + b * factor
template <class T, int N> void along(const T (&a)[N], const T (&b)[N], T factor, T (&to)[N]) {
    for (int i = 0; i < N; i++) to[i] = fma(b[i], factor, a[i]);
}

// The gradient in a vector of which only the direction `unit` matters.
template <class T, int N> void through_direction(const T (&grad)[N], const T (&unit)[N], T length, T (&to)[N]) {
    along(grad, unit, -dot(grad, unit), to);
    for (int i = 0; i < N; i++) to[i] /= length;
}

// A quaternion in normal form.
template <class T> void normal(const T (&sample)[4], const T (&grad)[4], T (&to)[4]) {
    const T length = root(dot(sample, sample));
    T unit[4];
    for (int i = 0; i < 4; i++) unit[i] = sample[i] / length;
    through_direction(grad, unit, length, to);
}

// sin(part angle) / sin(angle), and its derivative in the angle divided by sin(angle).
template <class T> void arc_share(T part, T angle, T whole, T beside, T& share, T& slope) {
    const T square = part * part;
    if (angle < small_angle(T())) {
        const T rise = part * (T(1) - square), turn = angle * angle;
        share = part + rise * turn / T(6);
        slope = rise * (T(1) / T(3) + turn * ((T(12) - T(3) * square) / T(90)));
        return;
    }
    const T inner = sine(part * angle), outer = cosine(part * angle);
    slope = (part * outer * whole - inner * beside) / (whole * whole * whole);
    share = inner / whole;
}

// Between two quaternions along the shorter arc: what goes to the second one, or to the first.
template <class T> void slerp(const T (&first)[4], const T (&second)[4], T weight, const T (&grad)[4], bool to_second, T (&to)[4]) {
    const T first_length = root(dot(first, first)), second_length = root(dot(second, second));
    const T sign = dot(first, second) < T(0) ? T(-1) : T(1);
    T a[4], b[4], apart[4], sum[4], mixed[4];
    for (int i = 0; i < 4; i++) {
        a[i] = first[i] / first_length;
        b[i] = sign * second[i] / second_length;
    }
    along(a, b, T(-1), apart);
    along(a, b, T(1), sum);
    const T half = arc(root(dot(apart, apart)), root(dot(sum, sum))), angle = half + half;
    const T whole = sine(angle), beside = cosine(angle);
    T near, near_slope, far, far_slope;
    arc_share(T(1) - weight, angle, whole, beside, near, near_slope);
    arc_share(weight, angle, whole, beside, far, far_slope);
    const T turn = -(near_slope * dot(grad, a) + far_slope * dot(grad, b));
    for (int i = 0; i < 4; i++) mixed[i] = (to_second ? far : near) * grad[i];
    T handed[4];
    if (to_second) {
        along(mixed, a, turn, handed);
        through_direction(handed, b, sign * second_length, to);
    } else {
        along(mixed, b, turn, handed);
        through_direction(handed, a, first_length, to);
    }
}

// Two columns made orthonormal.
template <class T> void orthonormal(const T (&blended)[6], const T (&grad)[6], T (&to)[6]) {
    T first[3], second[3], first_grad[3], second_grad[3], unit[3], rest[3], rest_unit[3], rest_grad[3], step[3], unit_grad[3];
    for (int i = 0; i < 3; i++) {
        first[i] = blended[i];
        second[i] = blended[i + 3];
        first_grad[i] = grad[i];
        second_grad[i] = grad[i + 3];
    }
    const T length = root(dot(first, first));
    for (int i = 0; i < 3; i++) unit[i] = first[i] / length;
    const T share = dot(unit, second);
    along(second, unit, -share, rest);
    const T rest_length = root(dot(rest, rest));
    for (int i = 0; i < 3; i++) rest_unit[i] = rest[i] / rest_length;
    through_direction(second_grad, rest_unit, rest_length, rest_grad);
    const T part = dot(unit, rest_grad);
    along(first_grad, rest_grad, -share, step);
    along(step, second, -part, unit_grad);
    through_direction(unit_grad, unit, length, first);
    along(rest_grad, unit, -part, second);
    for (int i = 0; i < 3; i++) {
        to[i] = first[i];
        to[i + 3] = second[i];
    }
}

// The gradient of the slope at a sample, a mean of those in the gaps beside it: 1 / (share / left + share / right).
template <class T> void inner_slope(T left, T right, T left_gap, T right_gap, T& to_left, T& to_right) {
    to_left = to_right = T(0);
    const bool rises = left > T(0) && right > T(0), falls = left < T(0) && right < T(0);
    if (!rises && !falls) return;
    const T first = right_gap + right_gap + left_gap, second = right_gap + left_gap + left_gap;
    const T left_share = first / (first + second), right_share = second / (first + second);
    const T both = left_share * right + right_share * left, a = right / both, b = left / both;
    to_left = a * a * left_share;
    to_right = b * b * right_share;
}

template <class T> int sign_of(T x) { return x > T(0) ? 1 : x < T(0) ? -1 : 0; }

template <class T> void end_slope(T near, T far, T far_gap, T& to_near, T& to_far) {
    to_near = to_far = T(0);
    const T slope = ((T(2) + far_gap) * near - far) / (T(1) + far_gap);
    if (sign_of(slope) != sign_of(near)) return;
    if (sign_of(near) != sign_of(far) && slope * slope > T(9) * near * near) {
        to_near = T(3);
        return;
    }
    to_near = (T(2) + far_gap) / (T(1) + far_gap);
    to_far = T(-1) / (T(1) + far_gap);
}

// Where a slope does not depend on a difference, no gradient goes there, not even NaN.
template <class T> T through(T grad, T slope) { return slope == T(0) ? T(0) : grad * slope; }

// The monotone cubic between samples[1] and samples[2]: what gradients in its slopes at both ends hand to the four samples.
// Gaps are in units of the one between; 0 where there is no sample, which is so on one side at most.
template <class T> void through_slopes(const T (&samples)[4], T before, T behind, T of_start, T of_end, T (&to)[4]) {
    const bool has_left = before > T(0), has_right = behind > T(0);
    const T middle = samples[2] - samples[1];
    const T left = has_left ? (samples[1] - samples[0]) / before : T(0);
    const T right = has_right ? (samples[3] - samples[2]) / behind : T(0);
    T in_left = 0, in_right = 0, in_middle = 0, one, other;
    if (has_left) {
        inner_slope(left, middle, before, T(1), one, other);
        in_left += through(of_start, one);
        in_middle += through(of_start, other);
    } else {
        end_slope(middle, right, behind, one, other);
        in_middle += through(of_start, one);
        in_right += through(of_start, other);
    }
    if (has_right) {
        inner_slope(middle, right, T(1), behind, one, other);
        in_middle += through(of_end, one);
        in_right += through(of_end, other);
    } else {
        end_slope(middle, left, before, one, other);
        in_middle += through(of_end, one);
        in_left += through(of_end, other);
    }
    in_left = has_left ? in_left / before : T(0);
    in_right = has_right ? in_right / behind : T(0);
    to[0] = -in_left;
    to[1] = in_left - in_middle;
    to[2] = in_middle - in_right;
    to[3] = in_right;
}

}  // namespace rc
