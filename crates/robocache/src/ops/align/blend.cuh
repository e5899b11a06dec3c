// The arithmetic of the methods that are more than a straight line, number by number.
// Host twin: blend.rs, step by step in the same order, so that both give the same bits.
#pragma once
#include "rc.cuh"
#include "trig.cuh"

namespace rc {

template <class T> struct Real;
template <> struct Real<float> {
    static constexpr float PI = 3.14159274f, TWO_PI = 6.28318548f, NO_ANGLE = 0x1p24f;
};
template <> struct Real<double> {
    static constexpr double PI = 3.141592653589793, TWO_PI = 6.283185307179586, NO_ANGLE = 0x1p53;
};

inline float round_down(float x) { return floorf(x); }
inline double round_down(double x) { return floor(x); }
inline float root(float x) { return sqrtf(x); }
inline double root(double x) { return sqrt(x); }
inline float size_of(float x) { return fabsf(x); }
inline double size_of(double x) { return fabs(x); }

// x in [0, pi/2].
inline double sine(double x) {
    constexpr double ALL[10] = {-1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800.0,
                                -1.0 / 1307674368000.0, 1.0 / 355687428096000.0, -1.0 / 121645100408832000.0,
                                1.0 / 51090942171709440000.0};
    return odd_series(ALL, x);
}

// A sample of weight 0 does not matter, not even as NaN.
template <class T> T line(T a, T b, T weight) {
    if (weight == T(0)) return a;
    if (weight == T(1)) return b;
    const T difference = b - a;
    if (is_finite(difference) || !(weight > T(0) && weight < T(1))) return fma(weight, difference, a);
    return fma(weight, b, (T(1) - weight) * a);
}

template <class T> T weighted(T a, T b, T first, T second) {
    if (second == T(0)) return first * a;
    if (first == T(0)) return second * b;
    return fma(second, b, first * a);
}

template <class T, int N> T dot(const T (&a)[N], const T (&b)[N]) {
    T sum = a[0] * b[0];
    #pragma unroll
    for (int i = 1; i < N; i++) sum = fma(a[i], b[i], sum);
    return sum;
}

// By the cosine, in f32; see blend.rs. `scale`: 1 over both lengths.
inline void along_arc(float first, float second, float scale, float product, float weight, float& from, float& to) {
    constexpr float SQUARE[7] = {2.0f, 0.33329728f, 0.0895517f, 0.024578737f, 0.020901984f, -0.009945659f, 0.009016302f};
    constexpr float SINC[5] = {1.0f, -0.1666666f, 0.0083330665f, -0.00019809596f, 2.6057653e-06f};
    constexpr float PER_SINC[7] = {1.0f, 0.16666566f, 0.019452367f, 0.0020297505f, 0.00023387704f, 7.791867e-06f, 5.612295e-06f};
    const float below = 1.0f - product * scale;
    const float square = below * series(SQUARE, below);
    const float both = series(PER_SINC, square) * scale;
    const float rest = 1.0f - weight;
    from = rest * series(SINC, rest * rest * square) * (both * second);
    to = weight * series(SINC, weight * weight * square) * (both * first);
}
inline void along_arc(const float (&)[4], const float (&)[4], float first, float second, float product, float weight, float& from,
                      float& to) {
    along_arc(first, second, 1.0f / (first * second), product, weight, from, to);
}
inline void along_arc(const double (&a)[4], const double (&b)[4], double first, double second, double, double weight,
                      double& from, double& to) {
    double apart[4], along[4];
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        const double x = a[i] * second, y = b[i] * first;
        apart[i] = x - y;
        along[i] = x + y;
    }
    const double half = arc(root(dot(apart, apart) / dot(along, along)));
    const double angle = half + half;
    double whole = sine(angle);
    from = sine((1.0 - weight) * angle);
    to = sine(weight * angle);
    if (whole == 0.0) {
        whole = 1.0;
        from = 1.0 - weight;
        to = weight;
    }
    const double scale = 1.0 / (whole * first * second);
    from = from * second * scale;
    to = to * first * scale;
}

// One of several quaternions side by side.
template <class T> const T (&quaternion(const T* numbers, int first))[4] { return *(const T(*)[4])(numbers + first); }

template <class T> void slerp(const T (&a)[4], const T (&b)[4], T weight, T& from, T& to) {
    const T first = root(dot(a, a));
    T second = root(dot(b, b));
    if (weight == T(0) || weight == T(1)) {
        from = weight == T(0) ? T(1) / first : T(0);
        to = weight == T(0) ? T(0) : T(1) / second;
        return;
    }
    const T product = dot(a, b);
    if (product < T(0)) second = -second;
    along_arc(a, b, first, second, product, weight, from, to);
}

// Whether a square lies from 2^-63 to 2^65, where this is less than 2^30: then roots and the inverse of their product
// are rounded as `sqrtf` and `/` round them, without the look at special numbers that each of these takes.
inline u32 beyond_plain(float square) { return __float_as_uint(square) - 0x20000000u; }
inline float plain_root(float x) {
    float inverse;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
    const float near = x * inverse;
    return fma(fma(-near, near, x), inverse * 0.5f, near);
}
inline float plain_inverse(float x) {
    float near;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(x));
    return fma(near, -fma(x, near, -1.0f), near);
}

// The quaternions between others, of one weight: N / 4 of them.
template <class T, int N> void between(const T (&a)[N], const T (&b)[N], T weight, T (&result)[N]) {
    #pragma unroll
    for (int q = 0; q < N; q += 4) {
        T from, to;
        slerp(quaternion(a, q), quaternion(b, q), weight, from, to);
        #pragma unroll
        for (int i = q; i < q + 4; i++) result[i] = weighted(a[i], b[i], from, to);
    }
}
// Whether quaternions and their weight are plain: then no factor vanishes, and none has to be asked for it. `squares`: of
// the lengths of `a` and `b` in turn.
template <int N> bool are_plain(const float (&a)[N], const float (&b)[N], float weight, float (&squares)[N / 2]) {
    u32 beyond = 0;
    #pragma unroll
    for (int q = 0; q < N / 4; q++) {
        squares[2 * q] = dot(quaternion(a, 4 * q), quaternion(a, 4 * q));
        squares[2 * q + 1] = dot(quaternion(b, 4 * q), quaternion(b, 4 * q));
        beyond |= beyond_plain(squares[2 * q]) | beyond_plain(squares[2 * q + 1]);
    }
    return beyond >> 30 == 0 && !(fabsf(weight) < 0x1p-60f) && weight != 1.0f;
}
template <int N>
void between_plain(const float (&a)[N], const float (&b)[N], const float (&squares)[N / 2], float weight, float (&result)[N]) {
    #pragma unroll
    for (int q = 0; q < N; q += 4) {
        const float product = dot(quaternion(a, q), quaternion(b, q));
        const float first = plain_root(squares[q / 2]), other = plain_root(squares[q / 2 + 1]);
        const float second = product < 0.0f ? -other : other;
        float from, to;
        along_arc(first, second, plain_inverse(first * second), product, weight, from, to);
        #pragma unroll
        for (int i = q; i < q + 4; i++) result[i] = fma(to, b[i], from * a[i]);
    }
}
template <int N> void between(const float (&a)[N], const float (&b)[N], float weight, float (&result)[N]) {
    float squares[N / 2];
    if (are_plain(a, b, weight, squares)) between_plain(a, b, squares, weight, result);
    else between<float, N>(a, b, weight, result);
}

template <class T> void orthonormal(const T (&first)[3], const T (&second)[3], T (&factors)[3]) {
    factors[0] = T(1) / root(dot(first, first));
    T unit[3], rest[3];
    for (int i = 0; i < 3; i++) unit[i] = first[i] * factors[0];
    factors[1] = dot(unit, second);
    for (int i = 0; i < 3; i++) rest[i] = fma(-factors[1], unit[i], second[i]);
    factors[2] = T(1) / root(dot(rest, rest));
}

template <class T> T second_column(T first, T second, const T* factors) {
    return fma(-factors[1], first * factors[0], second) * factors[2];
}

template <class T> T wrap(T angle) {
    typedef Real<T> R;
    const T turns = round_down((angle + R::PI) / R::TWO_PI);
    const T near = size_of(angle) < R::NO_ANGLE ? fma(-turns, R::TWO_PI, angle) : T(__int_as_float(0x7fc00000));
    if (near < -R::PI) return near + R::TWO_PI;
    if (near >= R::PI) return near - R::TWO_PI;
    return near;
}

template <class T> T between_angles(T a, T b, T weight) {
    if (weight == T(0)) return wrap(a);
    if (weight == T(1)) return wrap(b);
    const T difference = b - a;
    T way = wrap(difference);
    if (way == -Real<T>::PI && difference > T(0)) way = Real<T>::PI;
    return wrap(fma(weight, way, a));
}

template <class T> T inner_slope(T left, T right, T left_gap, T right_gap) {
    const bool rises = left > T(0) && right > T(0), falls = left < T(0) && right < T(0);
    if (!rises && !falls) return left == left && right == right ? T(0) : left + right;
    const T first = right_gap + right_gap + left_gap, second = right_gap + left_gap + left_gap;
    return (first + second) / (first / left + second / right);
}

inline int sign_of(float x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }
inline int sign_of(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

template <class T> T end_slope(T near, T far, T far_gap) {
    const T slope = ((T(2) + far_gap) * near - far) / (T(1) + far_gap);
    if (slope == slope && sign_of(slope) != sign_of(near)) return T(0);
    if (sign_of(near) != sign_of(far) && size_of(slope) > T(3) * size_of(near)) return T(3) * near;
    return slope;
}

// Gaps are in units of the one between a and b; 0 where there is no sample.
template <class T> T cubic(T earlier, T a, T b, T later, T before, T behind, T weight) {
    if (weight == T(0)) return a;
    if (weight == T(1)) return b;
    const bool has_left = before > T(0), has_right = behind > T(0);
    if ((!has_left && !has_right) || !(weight > T(0) && weight < T(1))) return line(a, b, weight);
    const T middle = b - a, left = (a - earlier) / before, right = (later - b) / behind;
    const T start = has_left ? inner_slope(left, middle, before, T(1)) : end_slope(middle, right, behind);
    const T end = has_right ? inner_slope(middle, right, T(1), behind) : end_slope(middle, left, before);
    const T bend = start + end - (middle + middle);
    return fma(weight, fma(weight, fma(weight, bend, middle - start - bend), start), a);
}

}  // namespace rc
