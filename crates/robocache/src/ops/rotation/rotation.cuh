// Every conversion, row by row, for numbers with and without derivatives.
// Host twins: formulas.rs and dual.rs, step by step in the same order, so that both give the same bits.
#pragma once
#include "rc.cuh"
#include "trig.cuh"

namespace rc {

// Mirrors `Representation::code`: the kind, above it the first two axes of a sequence of Euler angles and what it is.
enum Form : u32 { QUAT_XYZW, QUAT_WXYZ, MATRIX, AXIS_ANGLE, ROT6D, ROT6D_ROWS, EULER };
inline u32 form_of(u32 code) { return code & 255; }
inline bool is_matrix(u32 code) { return form_of(code) == MATRIX || form_of(code) == ROT6D || form_of(code) == ROT6D_ROWS; }
inline u32 first_axis(u32 code) { return code >> 8 & 3; }
inline u32 second_axis(u32 code) { return code >> 10 & 3; }
inline bool is_symmetric(u32 code) { return code >> 12 & 1; }
inline bool is_intrinsic(u32 code) { return code >> 13 & 1; }
inline bool is_odd(u32 code) { return code >> 14 & 1; }

template <class T> struct Limits;
template <> struct Limits<float> { static constexpr float LOCK = 0x1p-20f, LEAST = 0x1p-80f, MOST = 0x1p80f; };
template <> struct Limits<double> { static constexpr double LOCK = 0x1p-23, LEAST = 0x1p-800, MOST = 0x1p800; };
const double PI = 3.14159265358979323846;
// Angles whose squares are smaller go by series, as do rotations whose vector part is that small.
const double SMALL = 1.0 / 1024;

// A number with N of its derivatives.
template <class T, int N> struct Dual { T value, parts[N]; };

// What is compared.
template <class T> T value(T x) { return x; }
template <class T, int N> T value(const Dual<T, N>& x) { return x.value; }
template <class X> using Value = decltype(value(X()));

template <class T> void set(T& x, T constant) { x = constant; }
template <class T, int N> void set(Dual<T, N>& x, T constant) {
    x.value = constant;
    for (int p = 0; p < N; p++) x.parts[p] = T(0);
}
template <class T> T square_root(T x) { return sqrt(x); }

// `part` reads derivative p of the operands, and `value`, that of the result.
#define RC_DUAL(result, part) \
    Dual<T, N> made; \
    const T value = made.value = (result); \
    for (int p = 0; p < N; p++) made.parts[p] = (part); \
    return made
#define RC_BINARY(sign, part) \
    template <class T, int N> Dual<T, N> operator sign(const Dual<T, N>& a, const Dual<T, N>& b) { \
        RC_DUAL(a.value sign b.value, part); \
    }
RC_BINARY(+, a.parts[p] + b.parts[p])
RC_BINARY(-, a.parts[p] - b.parts[p])
RC_BINARY(*, a.value * b.parts[p] + a.parts[p] * b.value)
RC_BINARY(/, (a.parts[p] - value * b.parts[p]) / b.value)
template <class T, int N> Dual<T, N> operator-(const Dual<T, N>& a) { RC_DUAL(-a.value, -a.parts[p]); }
template <class T, int N> Dual<T, N> operator+(const Dual<T, N>& a, T b) { RC_DUAL(a.value + b, a.parts[p]); }
template <class T, int N> Dual<T, N> operator*(const Dual<T, N>& a, T b) { RC_DUAL(a.value * b, a.parts[p] * b); }
template <class T, int N> Dual<T, N> operator/(const Dual<T, N>& a, T b) { RC_DUAL(a.value / b, a.parts[p] / b); }
template <class T, int N> Dual<T, N> square_root(const Dual<T, N>& a) {
    RC_DUAL(square_root(a.value), value == T(0) ? value : a.parts[p] / (value + value));
}
template <class T, int N> void sin_cos(const Dual<T, N>& angle, Dual<T, N>& sine, Dual<T, N>& cosine) {
    sin_cos(angle.value, sine.value, cosine.value);
    for (int p = 0; p < N; p++) {
        sine.parts[p] = cosine.value * angle.parts[p];
        cosine.parts[p] = -(sine.value * angle.parts[p]);
    }
}
template <class T, int N> Dual<T, N> direction(const Dual<T, N>& y, const Dual<T, N>& x) {
    const T square = x.value * x.value + y.value * y.value;
    RC_DUAL(direction(y.value, x.value),
            square == T(0) ? square : (x.value * y.parts[p] - y.value * x.parts[p]) / square);
}

// One of two. `?:` would choose between their addresses, which registers do not have.
template <class T> T choose(bool first, T a, T b) { return first ? a : b; }
template <class T, int N> Dual<T, N> choose(bool first, const Dual<T, N>& a, const Dual<T, N>& b) {
    RC_DUAL(choose(first, a.value, b.value), choose(first, a.parts[p], b.parts[p]));
}

template <class X, int N> X dot(const X (&a)[N], const X (&b)[N]) {
    X sum = a[0] * b[0];
    for (int i = 1; i < N; i++) sum = sum + a[i] * b[i];
    return sum;
}

// To length 1; NaN where the length is 0 or not finite.
template <class X, int N> void make_unit(X (&v)[N]) {
    typedef Value<X> T;
    X square = dot(v, v);
    if (!(value(square) >= Limits<T>::LEAST && value(square) <= Limits<T>::MOST)) {
        T largest = T(0);
        for (int i = 0; i < N; i++)
            if (fabs(value(v[i])) > largest) largest = fabs(value(v[i]));
        for (int i = 0; i < N; i++) v[i] = v[i] / largest;
        square = dot(v, v);
    }
    const X length = square_root(square);
    for (int i = 0; i < N; i++) v[i] = v[i] / length;
}

template <class X, int N> X power_series(const double (&coefficients)[N], const X& x) {
    X sum;
    set(sum, Value<X>(coefficients[N - 1]));
    #pragma unroll
    for (int i = N - 2; i >= 0; i--) sum = sum * x + Value<X>(coefficients[i]);
    return sum;
}

template <class X> void to_matrix(const X (&x)[9], u32 source, X (&m)[9]) {
    if (form_of(source) == MATRIX) {
        for (int i = 0; i < 9; i++) m[i] = x[i];
        return;
    }
    X first[3] = {x[0], x[1], x[2]}, second[3] = {x[3], x[4], x[5]};
    make_unit(first);
    const X share = dot(first, second);
    for (int i = 0; i < 3; i++) second[i] = second[i] - share * first[i];
    make_unit(second);
    for (int i = 0; i < 3; i++) {
        const int j = (i + 1) % 3, k = (i + 2) % 3;
        const X all[3] = {first[i], second[i], first[j] * second[k] - first[k] * second[j]};
        for (int line = 0; line < 3; line++)
            if (form_of(source) == ROT6D) m[3 * i + line] = all[line];
            else m[3 * line + i] = all[line];
    }
}

template <class X> void of_matrix(const X (&m)[9], u32 target, X (&out)[9]) {
    for (int i = 0; i < 9; i++) out[i] = choose(form_of(target) == ROT6D && i < 6, m[i % 3 * 3 + i / 3 % 3], m[i]);
}

template <class X> void matrix_of(const X (&q)[4], X (&m)[9]) {
    typedef Value<X> T;
    const X &x = q[0], &y = q[1], &z = q[2], &w = q[3];
    const X x2 = x + x, y2 = y + y, z2 = z + z;
    const X xx = x * x2, yy = y * y2, zz = z * z2, xy = x * y2, xz = x * z2, yz = y * z2;
    const X wx = w * x2, wy = w * y2, wz = w * z2;
    m[0] = -(yy + zz) + T(1), m[1] = xy - wz, m[2] = xz + wy;
    m[3] = xy + wz, m[4] = -(xx + zz) + T(1), m[5] = yz - wx;
    m[6] = xz - wy, m[7] = yz + wx, m[8] = -(xx + yy) + T(1);
}

// By the largest of the four numbers, so that none is divided by a small one.
template <class X> void quaternion_of(const X (&m)[9], X (&q)[4]) {
    typedef Value<X> T;
    const X trace = m[0] + m[4] + m[8];
    const T a = value(m[0]), b = value(m[4]), c = value(m[8]), t = value(trace);
    const X turns[3] = {m[7] - m[5], m[2] - m[6], m[3] - m[1]};
    if (t >= a && t >= b && t >= c) {
        q[0] = turns[0], q[1] = turns[1], q[2] = turns[2], q[3] = trace + T(1);
    } else if (a >= b && a >= c) {
        q[0] = (m[0] + m[0] - trace) + T(1), q[1] = m[3] + m[1], q[2] = m[6] + m[2], q[3] = turns[0];
    } else if (b >= c) {
        q[0] = m[1] + m[3], q[1] = (m[4] + m[4] - trace) + T(1), q[2] = m[7] + m[5], q[3] = turns[1];
    } else {
        q[0] = m[2] + m[6], q[1] = m[5] + m[7], q[2] = (m[8] + m[8] - trace) + T(1), q[3] = turns[2];
    }
    make_unit(q);
}

template <class X> void of_vector(const X (&v)[9], X (&q)[4]) {
    typedef Value<X> T;
    constexpr double SINE[4] = {0.5, -1.0 / 48, 1.0 / 3840, -1.0 / 645120};
    constexpr double COSINE[5] = {1.0, -1.0 / 8, 1.0 / 384, -1.0 / 46080, 1.0 / 10321920};
    const X square = v[0] * v[0] + v[1] * v[1] + v[2] * v[2];
    X share;
    if (value(square) < T(SMALL)) {
        share = power_series(SINE, square);
        q[3] = power_series(COSINE, square);
    } else {
        const X angle = square_root(square);
        sin_cos(angle * T(0.5), share, q[3]);
        share = share / angle;
    }
    for (int i = 0; i < 3; i++) q[i] = v[i] * share;
}

template <class X> void vector_of(const X (&q)[4], X (&out)[9]) {
    typedef Value<X> T;
    constexpr double ARC[6] = {1.0, -1.0 / 3, 1.0 / 5, -1.0 / 7, 1.0 / 9, -1.0 / 11};
    const X square = q[0] * q[0] + q[1] * q[1] + q[2] * q[2];
    X share;
    if (value(square) < T(SMALL)) {
        share = power_series(ARC, square / (q[3] * q[3])) / q[3] * T(2);
    } else {
        const X sine = square_root(square);
        share = direction(sine, q[3]) * T(2) / sine;
    }
    for (int i = 0; i < 3; i++) out[i] = q[i] * share;
}

template <class X> X at_axis(const X (&q)[4], u32 axis) { return choose(axis == 0, q[0], choose(axis == 1, q[1], q[2])); }

template <class X> void of_angles(const X (&x)[9], u32 code, X (&q)[4]) {
    typedef Value<X> T;
    X s1, c1, s2, c2, s3, c3, first, second, other;
    sin_cos(choose(is_intrinsic(code), x[2], x[0]) * T(0.5), s1, c1);
    sin_cos(x[1] * T(0.5), s2, c2);
    sin_cos(choose(is_intrinsic(code), x[0], x[2]) * T(0.5), s3, c3);
    if (is_symmetric(code)) {
        first = c2 * (c3 * s1 + s3 * c1), second = s2 * (c3 * c1 + s3 * s1);
        other = s2 * (s3 * c1 - c3 * s1), q[3] = c2 * (c3 * c1 - s3 * s1);
    } else {
        if (is_odd(code)) s3 = -s3;
        const X cc = c2 * c1, ss = s2 * s1, cs = c2 * s1, sc = s2 * c1;
        first = c3 * cs - s3 * sc, second = c3 * sc + s3 * cs;
        other = s3 * cc - c3 * ss, q[3] = c3 * cc + s3 * ss;
    }
    if (is_odd(code)) other = -other;
    for (u32 i = 0; i < 3; i++) q[i] = choose(first_axis(code) == i, first, choose(second_axis(code) == i, second, other));
}

// An angle of at most two turns, in [-pi, pi].
template <class X> X within_turn(const X& angle) {
    typedef Value<X> T;
    return value(angle) < -T(PI) ? angle + T(2 * PI) : value(angle) > T(PI) ? angle + T(-2 * PI) : angle;
}

template <class X> void angles_of(const X (&q)[4], u32 code, X (&out)[9]) {
    typedef Value<X> T;
    const bool intrinsic = is_intrinsic(code), odd = is_odd(code), symmetric = is_symmetric(code);
    const X first = at_axis(q, first_axis(code)), second = at_axis(q, second_axis(code)), &w = q[3];
    X other = at_axis(q, 3 - first_axis(code) - second_axis(code)), start, end;
    if (odd) other = -other;
    const X a = choose(symmetric, w, w - second), b = choose(symmetric, first, first + other);
    const X c = choose(symmetric, second, second + w), d = choose(symmetric, other, other - first);
    const X middle = direction(square_root(c * c + d * d), square_root(a * a + b * b)) * T(2);
    const X sum = direction(b, a), difference = direction(d, c);
    set(end, T(0));
    if (value(middle) <= Limits<T>::LOCK) {
        start = sum * T(2);
    } else if (fabs(value(middle) - T(PI)) <= Limits<T>::LOCK) {
        start = difference * T(2);
        if (!intrinsic) start = -start;
    } else {
        start = intrinsic ? sum + difference : sum - difference;
        end = intrinsic ? sum - difference : sum + difference;
    }
    if (odd && !symmetric && intrinsic) start = -start;
    if (odd && !symmetric && !intrinsic) end = -end;
    out[0] = within_turn(start);
    out[1] = choose(symmetric, middle, middle + T(-PI / 2));
    out[2] = within_turn(end);
}

// Quaternions are x, y, z, w, of length 1.
template <class X> void to_quaternion(const X (&x)[9], u32 source, X (&q)[4]) {
    if (form_of(source) == AXIS_ANGLE) return of_vector(x, q);
    if (form_of(source) == EULER) return of_angles(x, source, q);
    for (int i = 0; i < 4; i++) q[i] = choose(form_of(source) == QUAT_WXYZ, x[(i + 1) % 4], x[i]);
    make_unit(q);
}

// With w >= 0.
template <class X> void of_quaternion(X (&q)[4], u32 target, X (&out)[9]) {
    if (value(q[3]) < Value<X>(0))
        for (int i = 0; i < 4; i++) q[i] = -q[i];
    if (form_of(target) == AXIS_ANGLE) return vector_of(q, out);
    if (form_of(target) == EULER) return angles_of(q, target, out);
    for (int i = 0; i < 4; i++) out[i] = choose(form_of(target) == QUAT_WXYZ, q[(i + 3) % 4], q[i]);
}

// A row that holds NaN becomes NaN as a whole, unless it is a matrix of which numbers are copied.
template <class X> void convert(const X (&x)[9], u32 source, u32 target, X (&out)[9]) {
    typedef Value<X> T;
    for (int i = 0; i < 9; i++) set(out[i], T(0));
    X m[9], q[4];
    if (is_matrix(source)) to_matrix(x, source, m);
    else to_quaternion(x, source, q);
    if (is_matrix(target)) {
        if (!is_matrix(source)) matrix_of(q, m);
        of_matrix(m, target, out);
    } else {
        if (is_matrix(source)) quaternion_of(m, q);
        of_quaternion(q, target, out);
    }
    bool is_bad = false;
    for (int i = 0; i < 9; i++) is_bad |= is_nan(value(out[i]));
    if (!is_bad || (form_of(source) == MATRIX && is_matrix(target))) return;
    for (int i = 0; i < 9; i++) out[i] = out[i] * T(__int_as_float(0x7fc00000));
}

// The gradient in x from that in the result, by three derivatives at a time; `from`, `to`: how many numbers they have.
template <class T>
void pull_back(const T (&x)[9], const T (&grad)[9], u32 source, int from, u32 target, int to, T (&result)[9]) {
    for (int i = 0; i < 9; i++) result[i] = T(0);
    #pragma unroll 1
    for (int first = 0; first < from; first += 3) {
        Dual<T, 3> inputs[9], out[9];
        for (int i = 0; i < 9; i++) {
            set(inputs[i], x[i]);
            for (int p = 0; p < 3; p++) inputs[i].parts[p] = T(i == first + p ? 1 : 0);
        }
        convert(inputs, source, target, out);
        for (int p = 0; p < 3; p++) {
            T sum = grad[0] * out[0].parts[p];
            for (int i = 1; i < 9; i++) sum = i < to ? sum + grad[i] * out[i].parts[p] : sum;
            for (int i = p; i < 9; i += 3) result[i] = i == first + p ? sum : result[i];
        }
    }
}

}  // namespace rc
