// A joint step from a wished change of a link's place and rotation. Host twin: solve.rs, step by step in the same order.
#pragma once
#include "frames.cuh"

namespace rc {

// Columns of the Jacobian of link 0; the linear part multiplied with `scale`.
template <class T> void columns_of(const Frame<T>* frames, const Frame<T>& last, T scale, T (&columns)[SOME_JOINTS][6]) {
    #pragma unroll
    for (int joint = 0; joint < JOINTS; joint++) {
        #pragma unroll
        for (int i = 0; i < 6; i++) columns[joint][i] = 0;
    }
    #pragma unroll
    for (int place = 0; place < STEPS; place++) {
        const Step& step = ROBOT_STEPS[place];
        T linear[3], angular[3];
        column(step.slides, frames[place], last.origin, linear, angular);
        #pragma unroll
        for (int i = 0; i < 3; i++) {
            T* const to = columns[step.joint];
            to[i] = fma(linear[i] * scale, T(step.factor), to[i]);
            to[3 + i] = fma(angular[i], T(step.factor), to[3 + i]);
        }
    }
}

// Solves (A + damping I) x = b for a symmetric A, whose lower half is given, without negative eigenvalues.
template <class T> void solve(T (&a)[6][6], T damping, T (&x)[6]) {
    T scales[6];
    #pragma unroll
    for (int j = 0; j < 6; j++) {
        T diagonal = a[j][j] + damping;
        #pragma unroll
        for (int k = 0; k < j; k++) diagonal = fma(-(a[j][k] * scales[k]), a[j][k], diagonal);
        scales[j] = diagonal > damping ? diagonal : damping;
        #pragma unroll
        for (int i = j + 1; i < 6; i++) {
            T sum = a[i][j];
            #pragma unroll
            for (int k = 0; k < j; k++) sum = fma(-(a[i][k] * scales[k]), a[j][k], sum);
            a[i][j] = sum / scales[j];
        }
    }
    #pragma unroll
    for (int i = 0; i < 6; i++) {
        #pragma unroll
        for (int k = 0; k < i; k++) x[i] = fma(-a[i][k], x[k], x[i]);
    }
    #pragma unroll
    for (int i = 5; i >= 0; i--) {
        x[i] = x[i] / scales[i];
        #pragma unroll
        for (int k = i + 1; k < 6; k++) x[i] = fma(-a[k][i], x[k], x[i]);
    }
}

// The damped least-squares step without the joints that are held.
template <class T>
void damped_step(const T (&columns)[SOME_JOINTS][6], const bool (&held)[SOME_JOINTS], T damping, const T (&wish)[6],
                 T (&step)[SOME_JOINTS]) {
    T a[6][6] = {}, y[6];
    #pragma unroll
    for (int joint = 0; joint < JOINTS; joint++) {
        if (held[joint]) continue;
        #pragma unroll
        for (int i = 0; i < 6; i++) {
            #pragma unroll
            for (int j = 0; j <= i; j++) a[i][j] = fma(columns[joint][i], columns[joint][j], a[i][j]);
        }
    }
    #pragma unroll
    for (int i = 0; i < 6; i++) y[i] = wish[i];
    solve(a, damping, y);
    #pragma unroll
    for (int joint = 0; joint < JOINTS; joint++) {
        T sum = columns[joint][0] * y[0];
        #pragma unroll
        for (int i = 1; i < 6; i++) sum = fma(columns[joint][i], y[i], sum);
        step[joint] = held[joint] ? T(0) : sum;
    }
}

}  // namespace rc
