// Rotations from one representation to another, or the gradient of that. Host twin: mod.rs.
// Grid: one block of 256 threads per 256 rows, in turns where there are too many. Shared memory: 256 rows of the widest
//   of the tensors whose rows lie side by side.
// Preconditions: Args as made by cuda.rs.
// Determinism: the same bits on every run. Tolerance against the CPU: none, the same bits, but for the payload of NaN,
//   and for the last bits of what comes of angles beyond 2^20 rad.
//
// RC_NUMBER: element type; RC_BACKWARD: 0 the conversion, 1 its gradient; RC_ARGS_SIZE.
#include "rc.cuh"
#include "scalar.cuh"
#include "rotation.cuh"

using namespace rc;

typedef RC_NUMBER Element;
typedef Number<Element>::Compute Compute;

const int TILE = 256;

enum Flags : u32 { DENSE = 1, ALIGNED = 2 };

// Mirrors `Rows` in cuda.rs. Strides, in elements: of rows, of threes of numbers, of numbers.
struct Rows {
    Element* data;
    i64 steps[3];
    u32 numbers, flags;

    Element& at(u64 row, int i) const { return data[i64(row) * steps[0] + i / 3 * steps[1] + i % 3 * steps[2]]; }
};

// Mirrors `Args` in cuda.rs.
struct Args {
    Rows x, grad, out;
    u64 rows;
    u32 source, target;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

// So many numbers from one place to another, by all threads; `vectors`: both lie at 16 bytes.
inline void copy(const Element* from, Element* to, u32 count, bool vectors) {
    const u32 wide = 16 / u32(sizeof(Element)), whole = vectors ? count / wide : 0;
    for (u32 i = threadIdx.x; i < whole; i += TILE) ((uint4*)to)[i] = ((const uint4*)from)[i];
    for (u32 i = whole * wide + threadIdx.x; i < count; i += TILE) to[i] = from[i];
}

// A thread's row; all threads of the block call this. Rows side by side come through shared memory, as lines.
inline void read(const Rows& rows, u64 first, u32 count, Element* staged, Compute (&x)[9]) {
    const bool dense = rows.flags & DENSE;
    if (dense) {
        __syncthreads();  // what is staged is free again
        copy(rows.data + first * rows.numbers, staged, count * rows.numbers, rows.flags & ALIGNED);
        __syncthreads();
    }
    for (int i = 0; i < 9; i++) {
        x[i] = Compute(0);
        if (threadIdx.x < count && i < int(rows.numbers))
            x[i] = widen(dense ? staged[threadIdx.x * rows.numbers + i] : rows.at(first + threadIdx.x, i));
    }
}

inline void write(const Rows& rows, u64 first, u32 count, Element* staged, const Compute (&x)[9]) {
    const bool dense = rows.flags & DENSE;
    if (dense) __syncthreads();
    for (int i = 0; i < 9; i++)
        if (threadIdx.x < count && i < int(rows.numbers))
            narrow(x[i], dense ? staged[threadIdx.x * rows.numbers + i] : rows.at(first + threadIdx.x, i));
    if (!dense) return;
    __syncthreads();
    copy(staged, rows.data + first * rows.numbers, count * rows.numbers, rows.flags & ALIGNED);
}

// Blocks of a multiprocessor, where the assembler would have more of them and spill registers; else its choice.
const int BLOCKS = RC_BACKWARD ? 1 : 0;

extern "C" __global__ void __launch_bounds__(TILE, BLOCKS) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    Element* const staged = (Element*)shared;
    for (u64 first = blockIdx.x * u64(TILE); first < args.rows; first += gridDim.x * u64(TILE)) {
        const u32 count = u32(min(args.rows - first, u64(TILE)));
        Compute x[9], out[9];
        read(args.x, first, count, staged, x);
#if RC_BACKWARD
        Compute grad[9];
        read(args.grad, first, count, staged, grad);
        pull_back(x, grad, args.source, args.x.numbers, args.target, args.grad.numbers, out);
#else
        convert(x, args.source, args.target, out);
#endif
        write(args.out, first, count, staged, out);
    }
}
