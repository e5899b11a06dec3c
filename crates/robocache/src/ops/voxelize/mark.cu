// Points to cells: bits of occupied cells, counts, or occupied cells in the grid itself.
// Host twin: `Finder` in find.rs.
// Grid: one block of 256 threads per (row, tile of 1024 points), in turns where there are too many.
// Preconditions: bits, counts and dropped are 0 before, a grid is filled; a blank one is 0 and whole words.
//   Nothing is assumed of the points and lengths themselves.
// Determinism: the same bits on every run: all additions are of integers, and all that is stored to a cell or
//   set in it is the same pattern. Tolerance against the CPU: none, the same bits.
//
// RC_POINT: element type; RC_PIXELS: 1 where points are made from pixels; RC_MODE: 0 bits, 1 counts, 2 the grid; RC_ARGS_SIZE.
#include "rc.cuh"
#include "depth.cuh"
#include "grid.cuh"
#include "crowd.cuh"

using namespace rc;

typedef RC_POINT Point;
typedef Number<Point>::Compute Compute;

// Mirrors `MarkArgs` in mark.rs, behind the points.
struct Args {
    PointArgs cloud;
    GridArgs grid;
    void* cells;   // words of bits, counts, or the grid
    u64* dropped;  // [rows], or null
    u64 one;       // what is stored in the grid
    u32 bytes;     // of an element of the grid
    u32 looks;     // whether to look at a cell before its bit is set
    u32 blank;     // whether bits of the grid can be set
    u32 padding;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

#if RC_MODE == 0
// Where most points find their cell empty, they are marked without a look. Else the nearest cache is
// asked first. An old answer does no harm, but for the mark that it costs.
template <class Cell> void mark(const Args& args, u64 start, const Cell* cells) {
    u32* bits = (u32*)args.cells + (start >> 5);
    const Cell shift = start & 31;
    bool fresh[PER_THREAD];
    #pragma unroll
    for (int p = 0; p < PER_THREAD; p++) fresh[p] = is_new(cells, p);
    if (args.looks) {
        u32 words[PER_THREAD];
        #pragma unroll
        for (int p = 0; p < PER_THREAD; p++) words[p] = fresh[p] ? bits[(cells[p] + shift) >> 5] : 0;
        #pragma unroll
        for (int p = 0; p < PER_THREAD; p++) fresh[p] = fresh[p] && !(words[p] >> ((cells[p] + shift) & 31) & 1);
    }
    const bool crowd = crowded(cells);
    #pragma unroll
    for (int p = 0; p < PER_THREAD; p++) {
        if (crowd) keep_one(fresh[p], cells[p]);
        if (fresh[p]) set_in(bits + ((cells[p] + shift) >> 5), 1u << ((cells[p] + shift) & 31));
    }
}
#endif

#if RC_MODE == 1
// Equal cells of a warp are added at once, so that crowded cells do not wait in line.
template <class Cell> void mark(const Args& args, u64 start, const Cell* cells) {
    const Cell none = Cell(~Cell(0));
    i32* counts = (i32*)args.cells + start;
    if (!crowded(cells)) {
        #pragma unroll
        for (int p = 0; p < PER_THREAD; p++)
            if (cells[p] != none) add_to(counts + cells[p], 1);
        return;
    }
    const Cell first = __shfl_sync(~0u, cells[0], 0);
    bool same = true;
    #pragma unroll
    for (int p = 0; p < PER_THREAD; p++) same &= cells[p] == first;
    const u32 lane = threadIdx.x & 31;
    if (__all_sync(~0u, same)) {
        if (lane == 0) add_to(counts + first, 32 * PER_THREAD);
        return;
    }
    #pragma unroll
    for (int p = 0; p < PER_THREAD; p++) {
        const u32 peers = __match_any_sync(~0u, cells[p]);
        if (cells[p] != none && (peers & ((1u << lane) - 1)) == 0) add_to(counts + cells[p], __popc(peers));
    }
}
#endif

#if RC_MODE == 2
// In a grid of zeros the bits of an element are set: the cache does that where they lie, which is quicker than
// to store a part of a line. What shares their word is not changed.
template <class Element, class Cell> void put(const Args& args, u64 start, const Cell* cells) {
    Element* grid = (Element*)args.cells + start;
    if (sizeof(Element) <= 4 && args.blank) {
        #pragma unroll
        for (int p = 0; p < PER_THREAD; p++) {
            if (!is_new(cells, p)) continue;
            const u64 place = u64(grid + cells[p]);
            set_in((u32*)(place & ~3ull), u32(args.one) << (place & 3) * 8);
        }
        return;
    }
    #pragma unroll
    for (int p = 0; p < PER_THREAD; p++)
        if (is_new(cells, p)) grid[cells[p]] = Element(args.one);
}

template <class Cell> void mark(const Args& args, u64 start, const Cell* cells) {
    if (args.bytes == 1) put<u8>(args, start, cells);
    else if (args.bytes == 4) put<u32>(args, start, cells);
    else if (args.bytes == 2) put<u16>(args, start, cells);
    else put<u64>(args, start, cells);
}
#endif

// The tile's points of this thread; Cell holds the cells of a row, and ~0 for none.
template <class Cell> void mark_tile(const Args& args, u64 row, u64 tile) {
    const i64 length = row_length(args.cloud, row, tile == 0 && threadIdx.x == 0);
    const i64 first = i64(tile) * TILE_POINTS + threadIdx.x * PER_THREAD;
    Compute points[PER_THREAD][3];
    load_points<Point>(args.cloud, row, first, length, points);
    Cell cells[PER_THREAD];
    find_cells<PER_THREAD>(args.grid, points, cells);
    if (args.dropped) {
        u32 lost = 0;
        #pragma unroll
        for (int p = 0; p < PER_THREAD; p++) lost += cells[p] == Cell(~Cell(0)) && first + p < length;
        lost = __reduce_add_sync(~0u, lost);
        if (lost && (threadIdx.x & 31) == 0) add_to(args.dropped + row, u64(lost));
    }
    mark(args, row * args.grid.cells, cells);
}

// Blocks of a multiprocessor, where the assembler would have more of them and spill registers; else its choice.
const int BLOCKS = RC_PIXELS && RC_MODE == 0 && __CUDA_ARCH__ == 900 ? 5 : 0;

extern "C" __global__ void __launch_bounds__(256, BLOCKS) RC_ENTRY(const __grid_constant__ Args args) {
    const u64 units = args.cloud.rows * args.cloud.tiles;
    u64 open = ~0ull;
    for (u64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const Place place = place_of(args.cloud, unit);
        open_row(args.cloud, place.row, open);
        if (args.grid.narrow) mark_tile<u32>(args, place.row, place.tile);
        else mark_tile<u64>(args, place.row, place.tile);
    }
}
