// Points to a grid of occupied cells in one launch: the blocks of a cluster hold the bits of a part of a
// row's grid in their shared memory, mark them there for each other, and write that part.
// Host twin: `Finder` in find.rs, `fill` in cpu.rs.
// Grid: clusters of 8 blocks of 256 threads, one per (row, part of its grid). The blocks of a cluster
//   share the points of the row; cells go to them in turns of CHUNK, so that all write as much.
// Shared memory: a word for 32 cells of a block's share.
// Preconditions: sm_90; a row has at most 2^31 cells, of whole vectors of 16 bytes, from an address that is
//   a multiple of 16. Nothing is assumed of the points and lengths themselves.
// Determinism: the same bits on every run. Tolerance against the CPU: none, the same bits.
//
// RC_POINT: element type that computes in float; RC_PIXELS: 1 where points are made from pixels; RC_ARGS_SIZE.
#include "rc.cuh"
#include "depth.cuh"
#include "grid.cuh"
#include "bits.cuh"
#include "crowd.cuh"

using namespace rc;

typedef RC_POINT Point;

// Mirrors `ClusterArgs` in cluster.rs, behind the points.
struct Args {
    PointArgs cloud;
    GridArgs grid;
    u8* out;
    i64* dropped;  // [rows], or null
    u64 fill, one;
    u32 parts, words;  // words of a block, a multiple of CHUNK / 32
    u32 bytes;         // of an element
    u32 padding;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

const u32 BLOCKS = 8, THREADS = 256;
// Cells that lie side by side in one block; their words, as a power of two.
const u32 CHUNK = 4096, CHUNK_BITS = 7;

#if __CUDA_ARCH__ >= 900

inline u32 rank_in_cluster() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
// All that the blocks of a cluster wrote to shared memory before is seen by all of them after.
inline void meet() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// A place in the shared memory of another block of the cluster.
inline u32 place_in(u32 rank, u32 address) {
    u32 place;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(place) : "r"(address), "r"(rank));
    return place;
}
inline void set_bits(u32 place, u32 bits) {
    asm volatile("red.relaxed.cluster.shared::cluster.or.b32 [%0], %1;" : : "r"(place), "r"(bits) : "memory");
}
inline void add(u32 place, u32 number) {
    asm volatile("red.relaxed.cluster.shared::cluster.add.u32 [%0], %1;" : : "r"(place), "r"(number) : "memory");
}

// The block's cells of the grid.
template <int BYTES> void write_cells(const Args& args, const u32* bits, u64 row, u32 part, u32 rank) {
    const u32 PER = 16 / BYTES, cells = u32(args.grid.cells), vectors = args.words * 32 / PER;
    uint4* out = (uint4*)(args.out + row * args.grid.cells * BYTES);
    // Of the part: cells begin where those of the parts before end.
    const u64 base = u64(part) * args.words * 32 * BLOCKS + rank * CHUNK;
    #pragma unroll 4
    for (u32 v = threadIdx.x; v < vectors; v += THREADS) {
        const u32 own = v * PER;
        const u64 cell = base + u64(own / CHUNK) * (CHUNK * BLOCKS) + own % CHUNK;
        if (cell >= cells) break;  // and so are all further ones
        __stcs(out + cell / PER, spread_bits<BYTES>(bits[own / 32] >> own % 32, args.one, args.fill));
    }
}

extern __shared__ __align__(16) u32 bits[];

extern "C" __global__ void __cluster_dims__(8, 1, 1) __launch_bounds__(THREADS, 4)
RC_ENTRY(const __grid_constant__ Args args) {
    __shared__ u32 lost;
    const u32 rank = rank_in_cluster(), unit = blockIdx.x / BLOCKS;
    const u32 row = unit / args.parts, part = unit - row * args.parts, words = args.words;
    for (u32 w = threadIdx.x * 4; w < words; w += THREADS * 4) *(uint4*)(bits + w) = make_uint4(0, 0, 0, 0);
    if (threadIdx.x == 0) lost = 0;
    u64 open = ~0ull;
    open_row(args.cloud, row, open);
    const i64 length = row_length(args.cloud, row, rank == 0 && part == 0 && threadIdx.x == 0);
    const u32 own_bits = u32(__cvta_generic_to_shared(bits)), own_lost = u32(__cvta_generic_to_shared(&lost));
    const u32 base = part * words * 32 * BLOCKS;
    bool waits = true;  // for the others to clear theirs
    u32 out_of_grid = 0;
    // Warps of all blocks in turn, so that few points are shared by all.
    i64 first = i64((threadIdx.x / 32 * BLOCKS + rank) * 32 + (threadIdx.x & 31)) * PER_THREAD;
    do {
        float points[PER_THREAD][3];
        load_points<Point>(args.cloud, row, first, length, points);
        u32 cells[PER_THREAD];
        find_cells<PER_THREAD>(args.grid, points, cells);
        if (waits) meet();
        waits = false;
        if (args.dropped) {
            #pragma unroll
            for (int p = 0; p < PER_THREAD; p++) out_of_grid += cells[p] == ~0u && first + p < length;
        }
        const bool crowd = crowded(cells);
        #pragma unroll
        for (int p = 0; p < PER_THREAD; p++) {
            bool fresh = is_new(cells, p);
            if (crowd) keep_one(fresh, cells[p]);
            // What is below the part, above it or nowhere lies past its last word.
            const u32 cell = cells[p] - base, word = cell / 32;
            if (!fresh || word >= words * BLOCKS) continue;
            const u32 chunk = word >> CHUNK_BITS, at = (chunk / BLOCKS << CHUNK_BITS) + (word & ((1 << CHUNK_BITS) - 1));
            set_bits(place_in(chunk % BLOCKS, own_bits + at * 4), 1u << cell % 32);
        }
        first += BLOCKS * THREADS * PER_THREAD;
    } while (__any_sync(~0u, first < length));
    if (args.dropped && part == 0) {
        out_of_grid = __reduce_add_sync(~0u, out_of_grid);
        if (out_of_grid && (threadIdx.x & 31) == 0) add(place_in(0, own_lost), out_of_grid);
    }
    meet();
    if (args.dropped && part == 0 && rank == 0 && threadIdx.x == 0) args.dropped[row] = i64(lost);
    if (args.bytes == 1) write_cells<1>(args, bits, row, part, rank);
    else if (args.bytes == 4) write_cells<4>(args, bits, row, part, rank);
    else if (args.bytes == 2) write_cells<2>(args, bits, row, part, rank);
    else write_cells<8>(args, bits, row, part, rank);
}

#else

extern "C" __global__ void RC_ENTRY(const __grid_constant__ Args args) {}

#endif
