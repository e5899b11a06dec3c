// Sums of all numbers before each: in place, in one pass over memory.
// Host twin: none needed; launched by src/cuda/scan.rs.
// Grid: one block of 256 threads per tile of 4096 numbers, which take their tiles in the order in
//   which they start and look back at the tiles before (so a tile only waits for one that runs).
// Preconditions: status and ticket are 0; numbers are aligned to 16 bytes, with room for a whole
//   tile; the sum fits 32 bits.
// Determinism: the same bits on every run: integers.
//
// RC_ARGS_SIZE.
#include "rc.cuh"
#include "block.cuh"

using namespace rc;

// Mirrors `ScanArgs` in scan.rs.
struct Args {
    u32* numbers;
    u32* total;    // the sum of all, or null
    u64* status;   // [tiles]
    u32* ticket;
    u64 count, tiles;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

const int ITEMS = 16, TILE = 256 * ITEMS;
// A tile's word: its own sum, or that of all tiles so far.
const u64 PARTIAL = 1ull << 62, INCLUSIVE = 2ull << 62, VALUE = PARTIAL - 1;

extern "C" __global__ void __launch_bounds__(256) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    u32* sums = (u32*)shared;  // 8 for scans, then the tile, what comes before it, and its sum
    if (threadIdx.x == 0) sums[8] = atomicAdd(args.ticket, 1u);
    __syncthreads();
    const u64 tile = sums[8], first = tile * TILE + threadIdx.x * ITEMS;
    u32 numbers[ITEMS];
    uint4* place = (uint4*)(args.numbers + first);
    u32 own = 0;
    #pragma unroll
    for (int i = 0; i < ITEMS / 4; i++) {
        uint4 quad = make_uint4(0, 0, 0, 0);
        if (first + 4 * i + 4 <= args.count) {
            quad = place[i];
        } else {
            // Nothing is read behind the last number.
            const u32* rest = args.numbers + first + 4 * i;
            if (first + 4 * i < args.count) quad.x = rest[0];
            if (first + 4 * i + 1 < args.count) quad.y = rest[1];
            if (first + 4 * i + 2 < args.count) quad.z = rest[2];
        }
        numbers[4 * i] = quad.x;
        numbers[4 * i + 1] = quad.y;
        numbers[4 * i + 2] = quad.z;
        numbers[4 * i + 3] = quad.w;
    }
    #pragma unroll
    for (int i = 0; i < ITEMS; i++) own += numbers[i];
    const u32 before = exclusive_scan(own, sums);
    if (threadIdx.x == 255) sums[10] = before + own;
    __syncthreads();
    if (threadIdx.x == 0) {
        const u64 sum = sums[10];
        volatile u64* status = args.status + tile;
        u64 others = 0;
        if (tile > 0) {
            *status = PARTIAL | sum;
            for (volatile const u64* other = status - 1;;) {
                const u64 word = *other;
                if (word < PARTIAL) continue;  // it runs, and will tell
                others += word & VALUE;
                if (word >= INCLUSIVE) break;
                other--;
            }
        }
        *status = INCLUSIVE | (others + sum);
        sums[9] = u32(others);
        if (args.total && tile + 1 == args.tiles) *args.total = u32(others + sum);
    }
    __syncthreads();
    u32 next = sums[9] + before;
    #pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const u32 number = numbers[i];
        numbers[i] = next;
        next += number;
    }
    #pragma unroll
    for (int i = 0; i < ITEMS / 4; i++)
        place[i] = make_uint4(numbers[4 * i], numbers[4 * i + 1], numbers[4 * i + 2], numbers[4 * i + 3]);
}
