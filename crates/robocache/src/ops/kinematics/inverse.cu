// Joint positions that bring a link to a pose. Host twin: inverse.rs, which explains the method.
// Grid: blocks of 64, at most as many as run at once: a thread that has finished a row goes on to another, so that no lane
//   waits for a hard row of its neighbour.
// Preconditions: Args as made by inverse.rs; robot.cuh is that of the chain, which has one link.
// Determinism: the same bits on every run. Tolerance against the CPU: none, as for forward.cu, but for the last digits of
//   rotation_error, whose arc sine is that of the platform.
//
// RC_NUMBER: element type; RC_LEAST_DAMPING, RC_PATIENCE, RC_FALLS, RC_LONGEST: as in inverse.rs; RC_ARGS_SIZE.
#include "solve.cuh"

using namespace rc;

typedef RC_NUMBER T;

// Mirrors `Rules` and `Args` in inverse.rs.
struct Rules {
    double near, turned, scale;
    u32 max_iterations, seeds, limits, padding;
};
struct Args {
    View pose, q0, q, converged, position_error, rotation_error, iterations;
    u64 rows;
    Rules rules;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

inline float floor_to(float x) { return floorf(x); }
inline double floor_to(double x) { return floor(x); }
inline T within(T x, T low, T high) { return x < low ? low : x > high ? high : x; }
inline T size_of(T x) { return x < T(0) ? -x : x; }

// Where a seed begins.
inline void begin(const Args& args, u64 row, u32 seed, T (&q)[SOME_JOINTS]) {
    const bool given = args.q0.data;
    #pragma unroll
    for (int joint = 0; joint < JOINTS; joint++) {
        T position;
        if (given && seed == 0) {
            position = args.q0.at<T>(row, 0, 0, joint);
        } else {
            const T part = fma(T(seed - u32(given)), T(SEEDS[joint][2]), T(0.5));
            position = fma(T(SEEDS[joint][1]), part - floor_to(part), T(SEEDS[joint][0]));
        }
        const T low = T(LIMITS[joint][0]), high = T(LIMITS[joint][1]);
        if (args.rules.limits) position = within(position, low, high);
        q[joint] = is_finite(position) ? position : low;
    }
}

// The way from a frame to a pose: place and rotation, the squared distance, the squared sine of half the angle.
inline void difference(const T (&pose)[7], const Frame<T>& last, T scale, T (&wish)[6], T& near, T& turned) {
    T way[3], at[4];
    #pragma unroll
    for (int i = 0; i < 3; i++) way[i] = pose[i] - last.origin[i];
    quaternion(last.axes, at);
    const T a = at[0], b = at[1], c = at[2], d = at[3], x = pose[3], y = pose[4], z = pose[5], w = pose[6];
    const T turn[3] = {fma(d, x, fma(-w, a, fma(z, b, -(y * c)))), fma(d, y, fma(-w, b, fma(x, c, -(z * a)))),
                       fma(d, z, fma(-w, c, fma(y, a, -(x * b))))};
    const T real = fma(w, d, fma(z, c, fma(y, b, x * a)));
    const T twice = real < T(0) ? T(-2) : T(2);
    #pragma unroll
    for (int i = 0; i < 3; i++) {
        wish[i] = way[i] * scale;
        wish[3 + i] = turn[i] * twice;
    }
    near = fma(way[2], way[2], fma(way[1], way[1], way[0] * way[0]));
    turned = fma(turn[2], turn[2], fma(turn[1], turn[1], turn[0] * turn[0]));
}

extern "C" __global__ void __launch_bounds__(64) RC_ENTRY(const __grid_constant__ Args args) {
    const Rules& rules = args.rules;
    const u64 threads = u64(gridDim.x) * blockDim.x;
    const T scale = T(rules.scale), infinite = T(1) / T(0);
    T pose[7], q[SOME_JOINTS], best_q[SOME_JOINTS], best = 0, near = 0, turned = 0, lowest = 0;
    u32 seed = 0, iteration = 0, waited = 0;
    i32 steps = 0;
    bool opens = true;
    for (u64 row = u64(blockIdx.x) * blockDim.x + threadIdx.x; row < args.rows;) {
        bool done = false, converged = false;
        if (opens) {
            #pragma unroll
            for (int i = 0; i < 7; i++) pose[i] = args.pose.at<T>(row, 0, 0, i);
            const T length = root(fma(pose[6], pose[6], fma(pose[5], pose[5], fma(pose[4], pose[4], pose[3] * pose[3]))));
            #pragma unroll
            for (int i = 0; i < 7; i++) {
                if (i >= 3) pose[i] = pose[i] / length;
                done |= !is_finite(pose[i]);
            }
            best = lowest = infinite;
            near = turned = infinite - infinite;
            seed = iteration = waited = 0;
            steps = 0;
            begin(args, row, 0, q);
            #pragma unroll
            for (int joint = 0; joint < JOINTS; joint++) best_q[joint] = q[joint];
            opens = false;
        }
        if (!done) {
            Frame<T> frames[SOME_STEPS];
            all_frames(q, frames);
            const Frame<T> last = end_frame(frames, 0);
            T wish[6], apart, angle;
            difference(pose, last, scale, wish, apart, angle);
            T cost = wish[0] * wish[0];
            #pragma unroll
            for (int i = 1; i < 6; i++) cost = fma(wish[i], wish[i], cost);
            converged = apart <= T(rules.near) && angle <= T(rules.turned);
            if (cost < best || converged) {
                best = cost < best ? cost : best;
                near = apart;
                turned = angle;
                #pragma unroll
                for (int joint = 0; joint < JOINTS; joint++) best_q[joint] = q[joint];
            }
            if (cost < T(RC_FALLS) * lowest) {
                lowest = cost;
                waited = 0;
            } else {
                waited++;
            }
            if (converged) {
                done = true;
            } else if (waited > RC_PATIENCE || iteration == rules.max_iterations) {
                done = ++seed == rules.seeds;
                if (!done) {
                    begin(args, row, seed, q);
                    lowest = infinite;
                    iteration = waited = 0;
                }
            } else {
                iteration++;
                steps++;
                T columns[SOME_JOINTS][6], step[SOME_JOINTS];
                bool held[SOME_JOINTS] = {};
                columns_of(frames, last, scale, columns);
                const T damping = cost + T(RC_LEAST_DAMPING);
                damped_step(columns, held, damping, wish, step);
                bool any = false;
                #pragma unroll
                for (int joint = 0; joint < JOINTS; joint++) {
                    const T low = T(LIMITS[joint][0]), high = T(LIMITS[joint][1]);
                    held[joint] = rules.limits && ((q[joint] <= low && step[joint] < T(0)) || (q[joint] >= high && step[joint] > T(0)));
                    any |= held[joint];
                }
                if (any) damped_step(columns, held, damping, wish, step);
                T longest = 0;
                #pragma unroll
                for (int joint = 0; joint < JOINTS; joint++) longest = size_of(step[joint]) > longest ? size_of(step[joint]) : longest;
                const T part = longest > T(RC_LONGEST) ? T(RC_LONGEST) / longest : T(1);
                #pragma unroll
                for (int joint = 0; joint < JOINTS; joint++) {
                    const T moved = fma(step[joint], part, q[joint]);
                    q[joint] = rules.limits ? within(moved, T(LIMITS[joint][0]), T(LIMITS[joint][1])) : moved;
                }
            }
        }
        if (done) {
            #pragma unroll
            for (int joint = 0; joint < JOINTS; joint++) args.q.at<T>(row, 0, 0, joint) = best_q[joint];
            args.converged.at<u8>(row, 0, 0, 0) = converged;
            args.position_error.at<T>(row, 0, 0, 0) = root(near);
            const double half = double(turned);
            args.rotation_error.at<T>(row, 0, 0, 0) = T(2.0 * asin(sqrt(half > 1.0 ? 1.0 : half)));
            args.iterations.at<i32>(row, 0, 0, 0) = steps;
            row += threads;
            opens = true;
        }
    }
}
