// The gradient of poses and Jacobians in the joints' positions. Host twin: backward.rs, which derives it.
// Grid: one thread per row, blocks of 128.
// Preconditions: Args as made by backward.rs; robot.cuh is that of the chain.
// Determinism: the same bits on every run. Tolerance against the CPU: none, as for forward.cu.
//
// RC_NUMBER: element type; RC_ARGS_SIZE.
#include "frames.cuh"

using namespace rc;

typedef RC_NUMBER T;

// Mirrors `Args` in backward.rs.
struct Args {
    View q, pose, jacobian, out;
    u64 rows;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

// What the pose of a link adds to the gradients of the steps that move it.
inline void of_pose(const Args& args, u64 row, int link, const Frame<T>* frames, const Frame<T>& last, T* grads) {
    T given[7], turn[4];
    #pragma unroll
    for (int i = 0; i < 7; i++) given[i] = args.pose.at<T>(row, 0, link, i);
    quaternion(last.axes, turn);
    const T force[3] = {given[0], given[1], given[2]}, twist[3] = {given[3], given[4], given[5]};
    const T axis[3] = {turn[0], turn[1], turn[2]};
    T across[3], torque[3];
    cross(axis, twist, across);
    #pragma unroll
    for (int i = 0; i < 3; i++) torque[i] = (fma(turn[3], twist[i], across[i]) - given[6] * axis[i]) * T(0.5);
    #pragma unroll
    for (int place = 0; place < STEPS; place++) {
        if (!ON_PATH[link][place]) continue;
        T linear[3], angular[3];
        column(ROBOT_STEPS[place].slides, frames[place], last.origin, linear, angular);
        grads[place] += dot(linear, force) + dot(angular, torque);
    }
}

inline void given_column(const Args& args, u64 row, int link, const Step& step, T (&linear)[3], T (&angular)[3]) {
    #pragma unroll
    for (int i = 0; i < 3; i++) {
        linear[i] = args.jacobian.at<T>(row, link, i, step.joint) * T(step.factor);
        angular[i] = args.jacobian.at<T>(row, link, 3 + i, step.joint) * T(step.factor);
    }
}

// What the Jacobian of a link adds to the gradients of the steps that move it.
inline void of_jacobian(const Args& args, u64 row, int link, const Frame<T>* frames, const Frame<T>& last, T* grads) {
    T turned[3] = {}, moved[3] = {};
    #pragma unroll
    for (int place = STEPS - 1; place >= 0; place--) {
        const Step& step = ROBOT_STEPS[place];
        if (!ON_PATH[link][place]) continue;
        T linear[3], angular[3], to_linear[3], to_angular[3], own[3], behind[3];
        column(step.slides, frames[place], last.origin, linear, angular);
        given_column(args, row, link, step, to_linear, to_angular);
        cross(linear, to_linear, own);
        #pragma unroll
        for (int i = 0; i < 3; i++) turned[i] += own[i];
        if (step.slides) continue;
        grads[place] += dot(angular, turned);
        cross(angular, to_angular, behind);
        #pragma unroll
        for (int i = 0; i < 3; i++) turned[i] += behind[i];
    }
    #pragma unroll
    for (int place = 0; place < STEPS; place++) {
        const Step& step = ROBOT_STEPS[place];
        if (!ON_PATH[link][place]) continue;
        T linear[3], angular[3], to_linear[3], to_angular[3], before[3];
        column(step.slides, frames[place], last.origin, linear, angular);
        grads[place] += dot(moved, linear);
        if (step.slides) continue;
        given_column(args, row, link, step, to_linear, to_angular);
        cross(to_linear, angular, before);
        #pragma unroll
        for (int i = 0; i < 3; i++) moved[i] += before[i];
    }
}

extern "C" __global__ void __launch_bounds__(128) RC_ENTRY(const __grid_constant__ Args args) {
    const u64 row = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= args.rows) return;
    T q[SOME_JOINTS], grads[SOME_STEPS];
    #pragma unroll
    for (int joint = 0; joint < JOINTS; joint++) q[joint] = args.q.at<T>(row, 0, 0, joint);
    Frame<T> frames[SOME_STEPS];
    all_frames(q, frames);
    const T nothing = nothing_or_nan(q);
    #pragma unroll
    for (int place = 0; place < STEPS; place++) grads[place] = nothing;
    #pragma unroll
    for (int link = 0; link < ENDS; link++) {
        const Frame<T> last = end_frame(frames, link);
        if (args.pose.data) of_pose(args, row, link, frames, last, grads);
        if (args.jacobian.data) of_jacobian(args, row, link, frames, last, grads);
    }
    #pragma unroll
    for (int joint = 0; joint < JOINTS; joint++) {
        T sum = nothing;
        #pragma unroll
        for (int place = 0; place < STEPS; place++) {
            if (ROBOT_STEPS[place].joint == joint) sum = fma(grads[place], T(ROBOT_STEPS[place].factor), sum);
        }
        args.out.at<T>(row, 0, 0, joint) = sum;
    }
}
