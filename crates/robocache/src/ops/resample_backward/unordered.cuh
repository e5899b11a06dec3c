// Targets in any order: those that touch the tile, sorted by the sample ahead of them, those of one sample in the order of
// the targets. What a sample is handed then lies in two runs, and is added in the order of the targets as ever.
// Host twin: unordered.rs and hand_back.rs. Part of rows.cu.
#pragma once

const u32 NO_RUN = ~0u;

// Where things lie in the room of picks and bounds.
struct Runs {
    Pick* picks;  // sorted
    u32* targets; // of a run, in any order
    u32* starts;  // run 0: samples ahead of the tile; run n + 1: sample n of the tile; run count + 1: behind it
    u32 room;     // picks
};
inline Runs runs_of(const Args& args, Pick* picks) {
    const u32 room = (args.piece * u32(sizeof(Pick)) + 4 * args.tile - 12) / u32(sizeof(Pick) + 4);
    u32* targets = (u32*)(picks + room);
    return {picks, targets, targets + room, room};
}

inline u32 run_of(const Pick& pick, Index start, u32 count) {
    const Index end = start + Index(count);
    if (pick.first >= end || pick.second < start) return NO_RUN;
    if (pick.first >= start) return u32(pick.first - start) + 1;
    return pick.second < end ? 0 : NO_RUN;
}

// Makes the starts of runs of how long they are, each in the place behind its own; tells how many picks there are.
inline u32 add_up(u32* starts, u32 count) {
    __shared__ u32 total;
    if (threadIdx.x < 32) {
        u32 before = 0;
        #pragma unroll 1
        for (u32 at = threadIdx.x + 1; at - threadIdx.x <= count + 2; at += 32) {
            const u32 own = at <= count + 2 ? starts[at] : 0;
            u32 sum = own;
            #pragma unroll
            for (u32 step = 1; step < 32; step *= 2) {
                const u32 other = __shfl_up_sync(~0u, sum, step);
                if (threadIdx.x >= step) sum += other;
            }
            if (at <= count + 2) starts[at] = before + sum - own;
            before += __shfl_sync(~0u, sum, 31);
        }
        if (threadIdx.x == 0) total = before;
    }
    __syncthreads();
    return total;
}

// Sorts the targets of a row that touch the tile. All threads take part and get the same answer: whether there is room.
template <class Row>
bool sort_picks(const Args& args, i64 row, i64 start, u32 count, const Stamp* staged, const State& state, Pick* shared) {
    const Runs runs = runs_of(args, shared);
    const Row stamps = row_stamps(args, row, state.samples, staged, (Row*)nullptr);
    const Stamps<Stamp> targets = row_targets(args, row, state.targets);
    __syncthreads();  // Nobody reads what was there.
    for (u32 i = threadIdx.x; i < count + 3; i += blockDim.x) runs.starts[i] = 0;
    __syncthreads();
    u32 total = u32(state.targets), found = 0;
    // Counted; then as the targets come, which is in any order; then each finds its place. One loop: what a target was made
    // of is much code.
    #pragma unroll 1
    for (int pass = 0; pass < 3; pass++) {
        #pragma unroll 1
        for (u32 i = threadIdx.x; i < total; i += blockDim.x) {
            const u32 own = pass == 2 ? runs.targets[i] : i;
            Pick pick = find(args, stamps, targets.at(own));
            const u32 run = run_of(pick, Index(start), count);
            if (run == NO_RUN) continue;
            if (pass < 2) {
                const u32 place = atomicAdd(&runs.starts[run + 1], 1);
                if (pass == 1) runs.targets[place] = own;
                continue;
            }
            const u32 end = runs.starts[run + 1];
            u32 place = runs.starts[run];
            #pragma unroll 1
            for (u32 other = place; other < end; other++) place += runs.targets[other] < own;
            pick.target = own;
            runs.picks[place] = pick;
        }
        __syncthreads();
        if (pass == 0 && (found = add_up(runs.starts, count)) > runs.room) return false;
        if (pass == 1) total = found;
    }
    return true;
}

// Adds what the targets of a row hand back to a sample of the tile.
template <class Row>
void add_sorted(const Args& args, i64 row, i64 column, i64 start, u32 own, const Stamp* staged, const State& state, Pick* shared,
                Sum* sums) {
    typedef typename Row::Index RowIndex;
    const Runs runs = runs_of(args, shared);
    const Row stamps = row_stamps(args, row, state.samples, staged, (Row*)nullptr);
    if (start + own >= stamps.length) return;
    const u8* grad = args.grad + row * args.grad_strides[0] + column * args.grad_strides[2];
    // Those of its own run, and those of the last run ahead of it that it is the second sample of.
    u32 at = runs.starts[own + 1], ahead = at;
    const u32 end = runs.starts[own + 2], ahead_end = at;
    if (at > 0) {
        const Index first = runs.picks[at - 1].first;
        // Else the next sample of that run is another one, and the run may be long.
        if (stamps.at(RowIndex(first) + 1) == stamps.at(RowIndex(start + own)))
            ahead = first < start ? 0 : runs.starts[u32(first - start) + 1];
    }
    #pragma unroll 1
    while (ahead < ahead_end || at < end) {
        const bool is_ahead = at >= end || (ahead < ahead_end && runs.picks[ahead].target < runs.picks[at].target);
        Pick pick = runs.picks[is_ahead ? ahead++ : at++];
        const u8* handed = grad + i64(pick.target) * args.grad_strides[1];
        pick.near = Sum(1) - pick.far;
        add(args, handed, &pick, 0, 1, Index(start + own), sums);
    }
}

// Writes the tile. Each thread keeps its column and takes one sample of each slice.
template <class Row> void add_tile(const Args& args, const Stamp* staged, const State& state, Pick* shared) {
    const Block block = block_of(args);
    const Lane lane = lane_of(args, block.chunk);
    if (lane.number >= lane.slice) return;
    #pragma unroll 1
    for (u32 own = lane.number; own < block.count; own += lane.slice) {
        Sum sums[NUMBERS] = {};
        add_sorted<Row>(args, block.row, lane.column, block.start, own, staged, state, shared, sums);
        store(place_of(args, block.row, block.start + own, lane.column), sums);
    }
}
