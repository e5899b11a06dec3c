// Poses of links and their Jacobians. Host twin: forward.rs.
// Grid: one thread per row, blocks of whole warps; shared memory for the rows of each warp where `dense` says so.
// Preconditions: Args as made by forward.rs; robot.cuh is that of the chain.
// Determinism: the same bits on every run. Tolerance against the CPU: none, the same bits, but for positions beyond those
//   that trig.cuh computes itself.
//
// RC_NUMBER: element type; RC_POSE, RC_JACOBIAN: what is made; RC_ARGS_SIZE.
#include "frames.cuh"

using namespace rc;

typedef RC_NUMBER T;

// Mirrors `Args` in forward.rs.
struct Args {
    View q, pose, jacobian;
    u64 rows;
    u32 dense, warp_bytes;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

extern "C" __global__ void RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char all_shared[];
    // Poses and Jacobians lie in the same place one after the other, which only threads of a warp wait for.
    unsigned char* const shared = all_shared + threadIdx.x / 32 * args.warp_bytes;
    const u64 row = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    const u64 first = row - (threadIdx.x & 31);
    const u64 read = row < args.rows ? row : args.rows - 1;
    T q[SOME_JOINTS];
    #pragma unroll
    for (int joint = 0; joint < JOINTS; joint++) q[joint] = args.q.at<T>(read, 0, 0, joint);
    Frame<T> frames[SOME_STEPS];
    all_frames(q, frames);
    const T nothing = nothing_or_nan(q);
    if (RC_POSE) {
        typedef Staged<T, ENDS * 7> Rows;
        const bool staged = args.dense & 1;
        Rows rows(shared);
        #pragma unroll
        for (int link = 0; link < ENDS; link++) {
            const Frame<T> last = end_frame(frames, link);
            T turn[4];
            quaternion(last.axes, turn);
            #pragma unroll
            for (int i = 0; i < 7; i++) {
                const T number = (i < 3 ? last.origin[i] : turn[i - 3]) + nothing;
                if (staged) rows.row[link * 7 + i] = number;
                else if (row < args.rows) args.pose.at<T>(row, 0, link, i) = number;
            }
        }
        if (staged) rows.store((T*)args.pose.data, first, args.rows);
    }
    if (RC_JACOBIAN) {
        typedef Staged<T, ENDS * 6 * SOME_JOINTS> Rows;
        const bool staged = args.dense & 2;
        Rows rows(shared);
        #pragma unroll
        for (int link = 0; link < ENDS; link++) {
            const Frame<T> last = end_frame(frames, link);
            T columns[SOME_JOINTS][6] = {};
            #pragma unroll
            for (int place = 0; place < STEPS; place++) {
                const Step& step = ROBOT_STEPS[place];
                if (!ON_PATH[link][place]) continue;
                T linear[3], angular[3];
                column(step.slides, frames[place], last.origin, linear, angular);
                #pragma unroll
                for (int i = 0; i < 3; i++) {
                    T* const to = columns[step.joint];
                    to[i] = fma(linear[i], T(step.factor), to[i]);
                    to[3 + i] = fma(angular[i], T(step.factor), to[3 + i]);
                }
            }
            #pragma unroll
            for (int i = 0; i < 6; i++) {
                #pragma unroll
                for (int joint = 0; joint < JOINTS; joint++) {
                    const T number = columns[joint][i] + nothing;
                    if (staged) rows.row[(link * 6 + i) * JOINTS + joint] = number;
                    else if (row < args.rows) args.jacobian.at<T>(row, link, i, joint) = number;
                }
            }
        }
        if (staged) rows.store((T*)args.jacobian.data, first, args.rows);
    }
}
