// Sine, cosine and arctangent: the same bits as on the CPU, but for sines of angles that are far.
// Host twin: src/ops/trig.rs, step by step.
#pragma once
#include "rc.cuh"

namespace rc {

template <class T> struct Circle;
template <> struct Circle<float> {
    static constexpr float FAR = 16384.0f, QUARTERS = 0.636619747f;
    static constexpr float HALF_PI[3] = {1.5703125f, 4.837513e-4f, 7.54979e-8f};
    static constexpr float SIN[3] = {-0.16666655f, 8.332161e-3f, -1.9515296e-4f};
    static constexpr float COS[3] = {4.1666646e-2f, -1.3887316e-3f, 2.4433157e-5f};
};
template <> struct Circle<double> {
    static constexpr double FAR = 1048576.0, QUARTERS = 0.6366197723675814;
    static constexpr double HALF_PI[3] = {1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21};
    static constexpr double SIN[6] = {-1.6666666666666632e-1, 8.33333333332249e-3,   -1.984126982985795e-4,
                                      2.7557313707070068e-6,  -2.5050760253406863e-8, 1.58969099521155e-10};
    static constexpr double COS[6] = {4.16666666666666e-2,    -1.388888888887411e-3, 2.480158728947673e-5,
                                      -2.7557314351390663e-7, 2.087572321298175e-9,  -1.1359647557788195e-11};
};

inline float floor_of(float x) { return floorf(x); }
inline double floor_of(double x) { return floor(x); }

// Angles that are not far.
template <class T> void sin_cos_near(T angle, T& sine, T& cosine) {
    typedef Circle<T> C;
    const int terms = sizeof(C::SIN) / sizeof(T);
    const T quarters = floor_of(fma(angle, C::QUARTERS, T(0.5)));
    T x = angle;
    #pragma unroll
    for (int i = 0; i < 3; i++) x = fma(-quarters, T(C::HALF_PI[i]), x);
    const T square = x * x;
    T s = C::SIN[terms - 1], c = C::COS[terms - 1];
    #pragma unroll
    for (int i = terms - 2; i >= 0; i--) {
        s = fma(s, square, T(C::SIN[i]));
        c = fma(c, square, T(C::COS[i]));
    }
    s = fma(x * square, s, x);
    c = fma(square * square, c, fma(square, T(-0.5), T(1)));
    const T quarter = fma(T(-4), floor_of(quarters * T(0.25)), quarters);
    const bool is_odd = quarter == T(1) || quarter == T(3);
    const T first = is_odd ? c : s, second = is_odd ? s : c;
    sine = quarter >= T(2) ? -first : first;
    cosine = quarter == T(1) || quarter == T(2) ? -second : second;
}

inline void sin_cos(double angle, double& sine, double& cosine) {
    if (fabs(angle) <= Circle<double>::FAR) return sin_cos_near(angle, sine, cosine);
    sine = sin(angle);
    cosine = cos(angle);
}
inline void sin_cos(float angle, float& sine, float& cosine) {
    if (fabsf(angle) <= Circle<float>::FAR) return sin_cos_near(angle, sine, cosine);
    double s, c;
    sin_cos(double(angle), s, c);
    sine = float(s);
    cosine = float(c);
}

template <class T, int N> T series(const T (&coefficients)[N], T x) {
    T sum = coefficients[N - 1];
    #pragma unroll
    for (int i = N - 2; i >= 0; i--) sum = fma(sum, x, coefficients[i]);
    return sum;
}
template <int N> double odd_series(const double (&coefficients)[N], double x) {
    return fma(x * (x * x), series(coefficients, x * x), x);
}

// The angle whose tangent is x, in [0, 1].
inline double arc(double x) {
    constexpr double ALL[9] = {-1.0 / 3, 1.0 / 5, -1.0 / 7, 1.0 / 9, -1.0 / 11, 1.0 / 13, -1.0 / 15, 1.0 / 17, -1.0 / 19};
    const int quarter = min(i32(x * 4.0 + 0.5), 4);
    const double known = quarter * 0.25, rest = (x - known) / fma(x, known, 1.0);
    double base = 0;
    if (quarter == 1) base = 0.24497866312686414;
    if (quarter == 2) base = 0.4636476090008061;
    if (quarter == 3) base = 0.6435011087932844;
    if (quarter == 4) base = 0.7853981633974483;
    return base + odd_series(ALL, rest);
}
inline float arc(float slope) {
    const bool is_steep = slope > 0.4140625f;
    const float x = is_steep ? (slope - 1.0f) / (slope + 1.0f) : slope, square = x * x;
    float sum = 8.053745e-2f;
    sum = fma(sum, square, -0.13877686f);
    sum = fma(sum, square, 0.19977711f);
    sum = fma(sum, square, -0.3333295f);
    const float angle = fma(x * square, sum, x);
    return is_steep ? 0.785398185f + angle : angle;
}

// The angle in [-pi, pi] of the point (x, y); 0 of (0, 0). Zeros have no sign.
template <class T> T direction(T y, T x) {
    const T PI = T(3.14159265358979323846), HALF_PI = T(1.57079632679489661923);
    const T up = y < T(0) ? -y : y, along = x < T(0) ? -x : x;
    const bool is_steep = up > along;
    const T less = is_steep ? along : up, more = is_steep ? up : along;
    T angle = arc(less == T(0) && more == T(0) ? T(0) : less / more);
    if (is_steep) angle = HALF_PI - angle;
    if (x < T(0)) angle = PI - angle;
    return y < T(0) ? -angle : angle;
}

}  // namespace rc
