// Points that lie far apart, one after the other. Host twin: mod.rs, which tells the rules.
// Grid: one block per row, in turns where there are too many; up to 1024 threads. All threads bring
//   their points up to date and tell the farthest; one barrier for each point that is taken.
// Preconditions: Args as made by cuda.rs. RC_NEAR: a row fits shared memory, and a thread has at most
//   RC_PER_THREAD points.
// Determinism: the same bits on every run. Tolerance against the CPU: none, the same points.
//
// RC_POINT: element type; RC_NEAR: coordinates in shared memory and distances in registers, else both
// in global memory; RC_PER_THREAD; RC_ARGS_SIZE.
#include "rc.cuh"
#include "cloud.cuh"

using namespace rc;

typedef RC_POINT Point;
typedef Number<Point>::Compute Compute;

// Mirrors `Args` in cuda.rs. Strides are in elements.
struct Args {
    CloudArgs cloud;
    i64* index;
    i64 index_strides[2];
    Compute* distances;  // [rows][count], unless RC_NEAR
    i64 k, start, least;
};
static_assert(sizeof(Args) == RC_ARGS_SIZE, "Args differs from its host twin");

// What a warp found: a distance whose order as an integer is that of floats, and its point.
struct __align__(16) Found {
    u32 high, low, index, padding;
};

inline void order_of(float x, u32& high, u32& low) {
    const u32 bits = __float_as_uint(x);
    high = bits ^ (bits >> 31 ? ~0u : 0x80000000u);
    low = 0;
}
inline void order_of(double x, u32& high, u32& low) {
    u64 bits = u64(__double_as_longlong(x));
    bits ^= bits >> 63 ? ~0ull : 0x8000000000000000ull;
    high = u32(bits >> 32);
    low = u32(bits);
}

// The farthest of a warp; a tie takes the lower index.
inline Found farthest(Found own) {
    const u32 high = __reduce_max_sync(~0u, own.high);
    u32 low = own.high == high ? own.low : 0;
    if (sizeof(Compute) == 8) low = __reduce_max_sync(~0u, low);
    const bool best = own.high == high && own.low == low;
    return {high, low, __reduce_min_sync(~0u, best ? own.index : ~0u), 0};
}

// A point's distance to the nearest that was taken: below 0 for what was taken or is no point.
inline Compute nearer(Compute before, const Compute* point, const Compute* last, bool taken) {
    const Compute dx = point[0] - last[0], dy = point[1] - last[1], dz = point[2] - last[2];
    const Compute distance = (dx * dx + dy * dy) + dz * dz;
    if (taken) return Compute(-2);
    return before >= Compute(0) && distance < before ? distance : before;
}

inline void read_point(const Point* points, const CloudArgs& cloud, i64 at, Compute* to) {
    for (int axis = 0; axis < 3; axis++) to[axis] = widen(points[at * cloud.strides[1] + axis * cloud.strides[2]]);
}

inline Compute first_distance(const Compute* point) {
    const bool finite = is_finite(point[0]) && is_finite(point[1]) && is_finite(point[2]);
    return finite ? Compute(__int_as_float(0x7f800000)) : Compute(-1);
}

extern "C" __global__ void __launch_bounds__(1024) RC_ENTRY(const __grid_constant__ Args args) {
    extern __shared__ __align__(16) unsigned char shared[];
    Found* found = (Found*)shared;                // [2][32]
    Compute* kept = (Compute*)(found + 2 * 32);   // [count][3] if near
    const u32 warps = blockDim.x / 32, lane = threadIdx.x & 31, warp = threadIdx.x / 32;

    for (u64 row = blockIdx.x; row < args.cloud.rows; row += gridDim.x) {
        const Point* points = (const Point*)args.cloud.points + i64(row) * args.cloud.strides[0];
        i64* index = args.index + i64(row) * args.index_strides[0];
        i64 length = args.cloud.count;
        if (args.cloud.lengths) {
            const i64 offset = i64(row) * args.cloud.length_stride;
            const i64 given = args.cloud.flags & WIDE_LENGTHS ? ((const i64*)args.cloud.lengths)[offset]
                                                              : i64(((const i32*)args.cloud.lengths)[offset]);
            length = min(max(given, i64(0)), args.cloud.count);
            if ((args.cloud.flags & CHECK) && (given != length || given < args.least)) {
                length = 0;
                if (threadIdx.x == 0)
                    report(args.cloud.reporter, args.cloud.code | 1, row, 0, u64(given), u64(args.cloud.count), u64(args.least));
            }
        }
#if RC_NEAR
        Compute distances[RC_PER_THREAD];
        #pragma unroll
        for (int i = 0; i < RC_PER_THREAD; i++) {
            const i64 at = threadIdx.x + i * i64(blockDim.x);
            distances[i] = Compute(-3);
            if (at < length) {
                read_point(points, args.cloud, at, kept + 3 * at);
                distances[i] = first_distance(kept + 3 * at);
            }
        }
#else
        Compute* distances = args.distances + row * u64(args.cloud.count);
        for (i64 at = threadIdx.x; at < length; at += blockDim.x) {
            Compute point[3];
            read_point(points, args.cloud, at, point);
            distances[at] = first_distance(point);
        }
#endif
        __syncthreads();
        i64 last = args.start < length ? args.start : 0;
        for (i64 taken = 0; taken < args.k; taken++) {
            if (threadIdx.x == 0) index[taken * args.index_strides[1]] = taken < length ? last : -1;
            if (taken + 1 >= length) continue;  // for all threads alike
            Compute centre[3];
            Found own = {0, 0, ~0u, 0};
            Compute most = Compute(-3);
#if RC_NEAR
            for (int axis = 0; axis < 3; axis++) centre[axis] = kept[3 * last + axis];
            #pragma unroll
            for (int i = 0; i < RC_PER_THREAD; i++) {
                const i64 at = threadIdx.x + i * i64(blockDim.x);
                if (at >= length) break;
                distances[i] = nearer(distances[i], kept + 3 * at, centre, at == last);
                if (distances[i] > most) {
                    most = distances[i];
                    own.index = u32(at);
                }
            }
#else
            read_point(points, args.cloud, last, centre);
            for (i64 at = threadIdx.x; at < length; at += blockDim.x) {
                Compute point[3];
                read_point(points, args.cloud, at, point);
                const Compute distance = nearer(distances[at], point, centre, at == last);
                distances[at] = distance;
                if (distance > most) {
                    most = distance;
                    own.index = u32(at);
                }
            }
#endif
            order_of(most, own.high, own.low);
            own = farthest(own);
            // Two rounds in turns: nobody writes what a slower warp still reads.
            Found* round = found + (taken & 1) * 32;
            if (lane == 0) round[warp] = own;
            __syncthreads();
            Found best = {0, 0, ~0u, 0};
            if (lane < warps) best = round[lane];
            last = farthest(best).index;
        }
        __syncthreads();  // the next row may use the memory
    }
}
