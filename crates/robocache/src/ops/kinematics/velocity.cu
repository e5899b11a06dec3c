// Joint velocities that move a link as wished. Host twin: velocity.rs.
// Grid: one thread per row, blocks of 128.
// Preconditions: Args as made by velocity.rs; robot.cuh is that of the chain, which has one link.
// Determinism: the same bits on every run. Tolerance against the CPU: none, as for forward.cu.
//
// RC_NUMBER: element type; RC_ARGS_SIZE.
#include "solve.cuh"

using namespace rc;

typedef RC_NUMBER T;

// Mirrors `Args` in velocity.rs.
struct Args {
    View q, twist, out;
    u64 rows;
    double damping;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

extern "C" __global__ void __launch_bounds__(128) RC_ENTRY(const __grid_constant__ Args args) {
    const u64 row = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= args.rows) return;
    T q[SOME_JOINTS], wish[6], columns[SOME_JOINTS][6], step[SOME_JOINTS];
    const bool held[SOME_JOINTS] = {};
    #pragma unroll
    for (int joint = 0; joint < JOINTS; joint++) q[joint] = args.q.at<T>(row, 0, 0, joint);
    #pragma unroll
    for (int i = 0; i < 6; i++) wish[i] = args.twist.at<T>(row, 0, 0, i);
    Frame<T> frames[SOME_STEPS];
    all_frames(q, frames);
    columns_of(frames, end_frame(frames, 0), T(1), columns);
    damped_step(columns, held, T(args.damping), wish, step);
    const T nothing = nothing_or_nan(q);
    #pragma unroll
    for (int joint = 0; joint < JOINTS; joint++) args.out.at<T>(row, 0, 0, joint) = step[joint] + nothing;
}
