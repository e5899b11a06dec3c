// Frames of a robot at some positions, one thread a row. Host twin: frames.rs, step by step in the same order.
//
// The robot is constants: loops over its steps are unrolled, and products with a 0 that is fixed are left out.
#pragma once
#include "rc.cuh"
#include "robot.cuh"
#include "trig.cuh"

namespace rc {

// Mirrors `View` in mod.rs.
struct View {
    void* data;  // null where it is not there
    i64 strides[4];

    template <class T> T& at(u64 row, int i, int j, int k) const {
        return ((T*)data)[i64(row) * strides[0] + i * strides[1] + j * strides[2] + k * strides[3]];
    }
};

template <class T> struct Frame {
    T axes[9], origin[3];
};

inline float root(float x) { return sqrtf(x); }
inline double root(double x) { return sqrt(x); }

// a + x * factor, where the factor is fixed; `first`: there is nothing to add to yet.
template <class T> T add_fixed(T x, double factor, T a, bool& first) {
    if (factor == 0.0) return a;
    const T sum = first ? x * T(factor) : fma(x, T(factor), a);
    first = false;
    return sum;
}

// A frame that is fixed in another, or in the base.
template <class T> Frame<T> fixed_in(const Frame<T>* above, const double (&fixed)[12]) {
    Frame<T> frame;
    #pragma unroll
    for (int row = 0; row < 3; row++) {
        #pragma unroll
        for (int column = 0; column < 4; column++) {
            T sum = column < 3 ? T(0) : above ? above->origin[row] : T(0);
            bool first = column < 3;
            if (above) {
                #pragma unroll
                for (int k = 0; k < 3; k++) sum = add_fixed(above->axes[row * 3 + k], fixed[k * 4 + column], sum, first);
            } else {
                sum = T(fixed[row * 4 + column]);
            }
            if (column < 3) frame.axes[row * 3 + column] = sum;
            else frame.origin[row] = sum;
        }
    }
    return frame;
}

template <class T> void all_frames(const T* q, Frame<T>* frames) {
    #pragma unroll
    for (int place = 0; place < STEPS; place++) {
        const Step& step = ROBOT_STEPS[place];
        Frame<T> frame = fixed_in(step.parent < 0 ? (const Frame<T>*)nullptr : &frames[step.parent], step.fixed);
        const T position = fma(q[step.joint], T(step.factor), T(step.offset));
        if (step.slides) {
            #pragma unroll
            for (int row = 0; row < 3; row++) frame.origin[row] = fma(frame.axes[row * 3 + 2], position, frame.origin[row]);
        } else {
            T sine, cosine;
            sin_cos(position, sine, cosine);
            #pragma unroll
            for (int row = 0; row < 3; row++) {
                const T x = frame.axes[row * 3], y = frame.axes[row * 3 + 1];
                frame.axes[row * 3] = fma(cosine, x, sine * y);
                frame.axes[row * 3 + 1] = fma(cosine, y, -(sine * x));
            }
        }
        frames[place] = frame;
    }
}

template <class T> Frame<T> end_frame(const Frame<T>* frames, int end) {
    const End& e = ROBOT_ENDS[end];
    return fixed_in(e.step < 0 ? (const Frame<T>*)nullptr : &frames[e.step], e.fixed);
}

// xyzw with w >= 0: by the largest of its numbers, so that none is divided by little.
template <class T> void quaternion(const T (&m)[9], T (&chosen)[4]) {
    const T squares[4] = {((1 + m[0]) - m[4]) - m[8], ((1 - m[0]) + m[4]) - m[8], ((1 - m[0]) - m[4]) + m[8],
                          ((1 + m[0]) + m[4]) + m[8]};
    const T sums[3] = {m[5] + m[7], m[2] + m[6], m[1] + m[3]};
    const T differences[3] = {m[7] - m[5], m[2] - m[6], m[3] - m[1]};
    const T by[3][4] = {{squares[0], sums[2], sums[1], differences[0]},
                        {sums[2], squares[1], sums[0], differences[1]},
                        {sums[1], sums[0], squares[2], differences[2]}};
    T largest = squares[3];
    chosen[0] = differences[0];
    chosen[1] = differences[1];
    chosen[2] = differences[2];
    chosen[3] = squares[3];
    #pragma unroll
    for (int which = 0; which < 3; which++) {
        const bool more = squares[which] > largest;
        #pragma unroll
        for (int i = 0; i < 4; i++) chosen[i] = more ? by[which][i] : chosen[i];
        largest = more ? squares[which] : largest;
    }
    const T length = fma(chosen[3], chosen[3], fma(chosen[2], chosen[2], fma(chosen[1], chosen[1], chosen[0] * chosen[0])));
    T scale = T(1) / root(length);
    scale = T(0) > chosen[3] ? -scale : scale;
    #pragma unroll
    for (int i = 0; i < 4; i++) chosen[i] *= scale;
}

template <class T> void cross(const T (&a)[3], const T (&b)[3], T (&out)[3]) {
    out[0] = fma(a[1], b[2], -(a[2] * b[1]));
    out[1] = fma(a[2], b[0], -(a[0] * b[2]));
    out[2] = fma(a[0], b[1], -(a[1] * b[0]));
}
template <class T> T dot(const T (&a)[3], const T (&b)[3]) { return fma(a[2], b[2], fma(a[1], b[1], a[0] * b[0])); }

// How a step moves a point: the change of its place and of the rotation with the step's position.
template <class T> void column(bool slides, const Frame<T>& frame, const T (&point)[3], T (&linear)[3], T (&angular)[3]) {
    const T z[3] = {frame.axes[2], frame.axes[5], frame.axes[8]};
    const T arm[3] = {point[0] - frame.origin[0], point[1] - frame.origin[1], point[2] - frame.origin[2]};
    if (!slides) cross(z, arm, linear);
    #pragma unroll
    for (int i = 0; i < 3; i++) {
        if (slides) linear[i] = z[i];
        angular[i] = slides ? T(0) : z[i];
    }
}

// 0, or NaN where a position that is used is NaN or infinite.
template <class T> T nothing_or_nan(const T* q) {
    T sum = 0;
    #pragma unroll
    for (int place = 0; place < STEPS; place++) sum = fma(q[ROBOT_STEPS[place].joint], T(0), sum);
    return sum;
}

// Rows that a warp writes side by side, by way of shared memory. Whether they fit is for the host to say: `staged_bytes`
// in forward.rs.
template <class T, int WIDTH> struct Staged {
    static const int PITCH = WIDTH | 1;  // odd, so that threads use different banks

    // The row of this thread, which it fills before `store`.
    T* row;
    // `shared` is the warp's own.
    explicit Staged(void* shared) : row((T*)shared + (threadIdx.x & 31) * PITCH) {}

    // All lanes of a warp; `first` is the row of lane 0.
    void store(T* out, u64 first, u64 rows) {
        const u32 lane = threadIdx.x & 31;
        T* const from = row - lane * PITCH;
        const u32 count = u32(first >= rows ? 0 : rows - first < 32 ? rows - first : 32) * WIDTH;
        __syncwarp();
        for (u32 e = lane; e < count; e += 32) out[first * WIDTH + e] = from[e / WIDTH * PITCH + e % WIDTH];
        __syncwarp();
    }
};

const int SOME_JOINTS = JOINTS > 0 ? JOINTS : 1, SOME_STEPS = STEPS > 0 ? STEPS : 1;

}  // namespace rc
