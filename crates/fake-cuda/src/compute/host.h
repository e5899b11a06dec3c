// CUDA's words for the host: a launch computes its blocks one after the other, each thread of a block in a stack of its
// own. A thread runs until it waits for others, a warp until all of its lanes wait; who goes first can be chosen. Shared
// memory holds nothing of value when a block begins, and ends where the launch said. x86-64 with FMA and F16C.
#pragma once
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <type_traits>
#include <vector>

#define __global__
#define __noinline__ __attribute__((noinline))
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// What is not shared memory of a kernel: statics lie in .bss, which is spoiled before each block.
#define HOST_STATE __attribute__((section("host_state")))

struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) longlong2 { long long x, y; };

inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline longlong2 make_longlong2(long long x, long long y) { return {x, y}; }
struct dim3 { unsigned x, y, z; };
HOST_STATE static dim3 threadIdx = {0, 0, 0}, blockIdx = {0, 0, 0}, blockDim = {0, 0, 0}, gridDim = {0, 0, 0};

extern "C" __attribute__((visibility("hidden"))) unsigned char __bss_start[], _end[];

namespace host {

const unsigned SHARED_BYTES = 232448, STACK_BYTES = 1 << 17, MOST_THREADS = 1024, PAGE = 4096;
const unsigned char SPOILED = 0xa5;
const unsigned long long CANARY = 0x5afe57ac5afe57acull;

// Does not take part in finding out what T is.
template <class T> using Same = typename std::common_type<T>::type;

struct Copy { void* to; const void* from; unsigned bytes, group; };

// What a thread waits in. Those who meet must wait in the same.
enum Wait { NOTHING, SYNC, SHUFFLE, VOTE, MATCH, REDUCE, BARRIER, BARRIER_OR, END };

struct Thread {
    void* place;  // where its stack goes on
    Wait wait;
    unsigned mask;  // of the lanes that it waits for
    unsigned long long number;  // what it shows to them
    unsigned group;
    std::vector<Copy> copies;  // on their way to shared memory
};

struct State {
    Thread threads[MOST_THREADS];
    unsigned char* stacks;
    unsigned char* dynamic;  // shared memory that the launch asked for
    void* scheduler;
    void (*body)();
    int any;  // of what threads brought to a barrier
    const char* fault;
};
HOST_STATE static State* state = (State*)~0ull;

inline Thread& self() { return state->threads[threadIdx.x]; }
inline void fail(const char* why) {
    if (!state->fault) state->fault = why;
}

// Addresses of 32 bits, as in shared memory: those of statics have the highest bit.
inline unsigned near_of(const void* place) {
    const unsigned char* const byte = (const unsigned char*)place;
    if (byte >= __bss_start && byte < _end) return unsigned(byte - __bss_start) | 1u << 31;
    return unsigned(byte - state->dynamic);
}
template <class T> T* at(unsigned place) {
    return (T*)(place >> 31 ? __bss_start + (place & ~0u >> 1) : state->dynamic + place);
}

// Goes on in another stack, and keeps what a called function must keep.
extern "C" __attribute__((visibility("hidden"))) void host_switch(void** from, void* to);
asm(".text\n.hidden host_switch\n.globl host_switch\nhost_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");

__noinline__ inline void wait(Wait what, unsigned mask = 0) {
    Thread& thread = self();
    thread.wait = what;
    thread.mask = mask;
    host_switch(&thread.place, state->scheduler);
}

inline void begin() {
    state->body();
    wait(END);
}

inline unsigned long long* stack_of(unsigned number) {
    return (unsigned long long*)(state->stacks + number * size_t(STACK_BYTES));
}
inline void prepare(unsigned number) {
    Thread& thread = state->threads[number];
    thread.wait = NOTHING;
    thread.group = 0;
    thread.copies.clear();
    *stack_of(number) = CANARY;
    void** top = (void**)stack_of(number + 1);
    // As if it had been called: where it would return to, where it goes on, and room for six registers.
    *--top = nullptr;
    *--top = (void*)begin;
    top -= 6;
    thread.place = top;
}

inline bool is_of_warp(Wait wait) { return wait >= SYNC && wait <= REDUCE; }

// Lets lanes go on that have all come to the same place.
inline bool release_warp(Thread* lanes, unsigned count) {
    bool released = false;
    for (unsigned lane = 0; lane < count; lane++) {
        if (!is_of_warp(lanes[lane].wait)) continue;
        const unsigned mask = lanes[lane].mask;
        bool all = mask >> lane & 1;
        if (!all) fail("a lane is not in its own mask");
        for (unsigned other = 0; other < 32 && all; other++) {
            if (!(mask >> other & 1)) continue;
            const bool there = other < count && lanes[other].wait != END;
            if (!there) fail("a lane waits for one that has ended");
            all = there && is_of_warp(lanes[other].wait) && lanes[other].mask == mask;
            if (all && lanes[other].wait != lanes[lane].wait) fail("lanes meet in different functions");
        }
        if (!all) continue;
        released = true;
        for (unsigned other = 0; other < count; other++)
            if (mask >> other & 1) lanes[other].wait = NOTHING;
    }
    return released;
}

// Runs the lanes of a warp until all of them wait for other warps; tells whether one came further.
inline bool run_warp(unsigned first, unsigned count, unsigned start, bool backwards) {
    bool moved = false;
    do {
        for (unsigned turn = 0; turn < count; turn++) {
            const unsigned number = first + ((backwards ? count - 1 - turn : turn) + start) % count;
            Thread& thread = state->threads[number];
            if (thread.wait != NOTHING) continue;
            threadIdx.x = number;
            host_switch(&state->scheduler, thread.place);
            moved = true;
            if (*stack_of(number) != CANARY) fail("the stack of a thread is too small");
        }
    } while (!state->fault && release_warp(state->threads + first, count));
    return moved;
}

// `order`: 0 for the order of their numbers; else warps and lanes begin somewhere else in each turn, and go backwards in
// half of them.
inline bool run_block(unsigned count, unsigned& order) {
    for (unsigned number = 0; number < count; number++) prepare(number);
    const unsigned warps = (count + 31) / 32;
    for (;;) {
        if (order) order = order * 1664525u + 1013904223u;
        const unsigned start = order ? order >> 8 : 0;
        bool moved = false;
        for (unsigned turn = 0; turn < warps; turn++) {
            const unsigned first = (turn + start / 32) % warps * 32;
            moved |= run_warp(first, count - first < 32 ? count - first : 32, start, order >> 31);
        }
        unsigned ended = 0, plain = 0, any = 0;
        for (unsigned number = 0; number < count; number++) {
            const Wait wait = state->threads[number].wait;
            ended += wait == END, plain += wait == BARRIER, any += wait == BARRIER_OR;
        }
        if (plain && any) fail("threads meet in different barriers");
        if (state->fault || ended == count) return !state->fault;
        if (plain + any && ended + plain + any == count) {
            for (unsigned number = 0; number < count; number++)
                if (state->threads[number].wait != END) state->threads[number].wait = NOTHING;
        } else if (!moved) {
            fail("threads wait for each other");
            return false;
        }
    }
}

// What every lane of `mask` shows; `use` looks at it while they all wait.
template <class Use> auto together(Wait what, unsigned mask, unsigned long long number, Use use) {
    self().number = number;
    wait(what, mask);
    const auto result = use(state->threads + threadIdx.x / 32 * 32);
    wait(what, mask);
    return result;
}
template <class T> unsigned long long bits_of(T number) {
    static_assert(sizeof(T) <= 8, "");
    unsigned long long bits = 0;
    memcpy(&bits, &number, sizeof(T));
    return bits;
}
template <class T> T number_of(unsigned long long bits) {
    T number;
    memcpy(&number, &bits, sizeof(T));
    return number;
}
template <class T, class Add> T folded(Wait what, unsigned mask, T own, Add add) {
    return together(what, mask, bits_of(own), [&](const Thread* lanes) {
        bool first = true;
        T sum = own;
        for (unsigned lane = 0; lane < 32; lane++) {
            if (!(mask >> lane & 1)) continue;
            const T number = number_of<T>(lanes[lane].number);
            sum = first ? number : add(sum, number);
            first = false;
        }
        return sum;
    });
}
template <class T> T shown_by(unsigned mask, T own, int lane) {
    const bool there = lane >= 0 && lane < 32;
    const T result = together(SHUFFLE, mask, bits_of(own), [&](const Thread* lanes) {
        return there ? number_of<T>(lanes[lane].number) : own;
    });
    if (there && !(mask >> lane & 1)) fail("a lane asks one that is not in the mask");
    return result;
}

// The instructions of F16C, without the header of all of them, which takes longer to compile than a kernel.
typedef float Floats __attribute__((vector_size(16)));
typedef short Halves __attribute__((vector_size(16)));
inline unsigned short to_f16(float x) {
    return x != x ? 0x7fff : (unsigned short)((Halves)__builtin_ia32_vcvtps2ph(Floats{x}, 0))[0];
}
inline float from_f16(unsigned short bits) { return ((Floats)__builtin_ia32_vcvtph2ps(Halves{short(bits)}))[0]; }
inline unsigned short to_bf16(float x) {
    const unsigned bits = number_of<unsigned>(bits_of(x));
    return x != x ? 0x7fff : (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// What an approximation may be: a little more or less than the number, as its bits would have it.
inline float about(float x) {
    const unsigned kind = unsigned(bits_of(x)) % 3;
    return kind == 0 ? x : nextafterf(x, kind == 1 ? INFINITY : -INFINITY);
}

// Copies happen as late as they may: when somebody waits for them.
inline void copy_later(unsigned to, const void* from, unsigned bytes) {
    if ((to | unsigned((unsigned long long)from)) % bytes) fail("a copy to shared memory at an odd address");
    self().copies.push_back({at<void>(to), from, bytes, self().group});
}
inline void await_copies(unsigned left) {
    Thread& thread = self();
    std::vector<Copy> still;
    for (const Copy& copy : thread.copies) {
        if (copy.group + left < thread.group) memcpy(copy.to, copy.from, copy.bytes);
        else still.push_back(copy);
    }
    thread.copies.swap(still);
}

inline bool make_state() {
    if (state != (State*)~0ull) return state->stacks && state->dynamic;
    const auto map = [](size_t bytes) {
        void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return memory == MAP_FAILED ? nullptr : (unsigned char*)memory;
    };
    state = new State();
    state->stacks = map((MOST_THREADS + 1) * size_t(STACK_BYTES));
    state->dynamic = map(SHARED_BYTES + 2 * PAGE);
    return state->stacks && state->dynamic;
}

// Shared memory as a block finds it: spoiled, and with pages behind it that nobody can touch.
inline unsigned spoil_shared(unsigned bytes) {
    const unsigned usable = (bytes + PAGE - 1) / PAGE * PAGE, all = (SHARED_BYTES + PAGE - 1) / PAGE * PAGE + PAGE;
    mprotect(state->dynamic, usable, PROT_READ | PROT_WRITE);
    mprotect(state->dynamic + usable, all - usable, PROT_NONE);
    memset(state->dynamic, SPOILED, usable);
    memset(__bss_start, SPOILED, _end - __bss_start);
    return usable;
}

inline bool run_one(unsigned count, unsigned bytes, unsigned& order) {
    const unsigned usable = spoil_shared(bytes);
    if (!run_block(count, order)) return false;
    for (unsigned place = bytes; place < usable; place++)
        if (state->dynamic[place] != SPOILED) fail("shared memory was written behind what the launch asked for");
    return !state->fault;
}

HOST_STATE static const void* argument = (const void*)~0ull;

template <class Argument, void (*KERNEL)(Argument)>
int launch(const void* given, unsigned blocks, unsigned count, unsigned bytes, unsigned order) {
    if (count > MOST_THREADS || bytes > SHARED_BYTES || !make_state()) {
        fprintf(stderr, "fake CUDA: no room for %u threads and %u bytes\n", count, bytes);
        return 1;
    }
    argument = given;
    state->body = [] { KERNEL(*(const Argument*)argument); };
    state->fault = nullptr;
    gridDim = {blocks, 1, 1};
    blockDim = {count, 1, 1};
    for (unsigned block = 0; block < blocks; block++) {
        blockIdx.x = block;
        if (run_one(count, bytes, order)) continue;
        fprintf(stderr, "fake CUDA: block %u of %u: %s\n", block, blocks, state->fault);
        return 1;
    }
    return 0;
}

template <class Argument> Argument argument_of(void (*)(Argument));

}  // namespace host

inline void __syncthreads() { host::wait(host::BARRIER); }
inline int __syncthreads_or(int own) {
    host::state->any = 0;
    host::wait(host::BARRIER_OR);
    host::state->any |= own;
    host::wait(host::BARRIER_OR);
    const int all = host::state->any;
    host::wait(host::BARRIER_OR);
    return all;
}
inline void __syncwarp(unsigned mask = ~0u) { host::wait(host::SYNC, mask); }
template <class T> T __shfl_sync(unsigned mask, T own, int lane) { return host::shown_by(mask, own, lane & 31); }
template <class T> T __shfl_xor_sync(unsigned mask, T own, int bits) {
    return host::shown_by(mask, own, int(threadIdx.x % 32) ^ bits);
}
template <class T> T __shfl_up_sync(unsigned mask, T own, unsigned lanes) {
    return host::shown_by(mask, own, int(threadIdx.x % 32) - int(lanes));
}
template <class T> T __shfl_down_sync(unsigned mask, T own, unsigned lanes) {
    return host::shown_by(mask, own, int(threadIdx.x % 32) + int(lanes));
}
inline unsigned __ballot_sync(unsigned mask, int own) {
    return host::folded(host::VOTE, mask, own ? 1u << threadIdx.x % 32 : 0, [](unsigned a, unsigned b) { return a | b; });
}
inline int __any_sync(unsigned mask, int own) { return __ballot_sync(mask, own) != 0; }
inline int __all_sync(unsigned mask, int own) { return __ballot_sync(mask, own) == mask; }
template <class T> unsigned __match_any_sync(unsigned mask, T own) {
    return host::together(host::MATCH, mask, host::bits_of(own), [&](const host::Thread* lanes) {
        unsigned equal = 0;
        for (unsigned lane = 0; lane < 32; lane++)
            if (mask >> lane & 1 && lanes[lane].number == host::bits_of(own)) equal |= 1u << lane;
        return equal;
    });
}
template <class T> T __reduce_add_sync(unsigned mask, T own) {
    return host::folded(host::REDUCE, mask, own, [](T a, T b) { return T(a + b); });
}
template <class T> T __reduce_max_sync(unsigned mask, T own) {
    return host::folded(host::REDUCE, mask, own, [](T a, T b) { return a < b ? b : a; });
}
template <class T> T __reduce_min_sync(unsigned mask, T own) {
    return host::folded(host::REDUCE, mask, own, [](T a, T b) { return b < a ? b : a; });
}
inline void __threadfence_system() {}

template <class T> T __ldg(const T* place) { return *place; }
template <class T> T __ldcg(const T* place) { return *place; }
template <class T> void __stcs(T* place, host::Same<T> number) { *place = number; }
template <class T> T atomicAdd(T* place, host::Same<T> number) { const T old = *place; *place = old + number; return old; }
template <class T> T atomicOr(T* place, host::Same<T> number) { const T old = *place; *place = old | number; return old; }
template <class T> T atomicMax(T* place, host::Same<T> number) { const T old = *place; *place = old < number ? number : old; return old; }
template <class T> T atomicMin(T* place, host::Same<T> number) { const T old = *place; *place = number < old ? number : old; return old; }

template <class A, class B> typename std::common_type<A, B>::type min(A a, B b) {
    typedef typename std::common_type<A, B>::type Both;
    return Both(b) < Both(a) ? Both(b) : Both(a);
}
template <class A, class B> typename std::common_type<A, B>::type max(A a, B b) {
    typedef typename std::common_type<A, B>::type Both;
    return Both(a) < Both(b) ? Both(b) : Both(a);
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __clz(int bits) { return bits ? __builtin_clz(unsigned(bits)) : 32; }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline float __fdividef(float a, float b) { return host::about(a / b); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline int __float2int_rz(float x) {
    return x != x ? 0 : x >= 2147483648.0f ? 2147483647 : x < -2147483648.0f ? -2147483647 - 1 : int(x);
}
inline float __int_as_float(int bits) { return host::number_of<float>(host::bits_of(bits)); }
inline float __uint_as_float(unsigned bits) { return host::number_of<float>(bits); }
inline unsigned __float_as_uint(float x) { return unsigned(host::bits_of(x)); }
inline double __longlong_as_double(long long bits) { return host::number_of<double>((unsigned long long)bits); }
inline long long __double_as_longlong(double x) { return (long long)host::bits_of(x); }
inline double __hiloint2double(int high, int low) {
    return host::number_of<double>((unsigned long long)unsigned(high) << 32 | unsigned(low));
}
inline int __double2loint(double x) { return int(host::bits_of(x)); }
inline int __double2hiint(double x) { return int(host::bits_of(x) >> 32); }
inline unsigned __cvta_generic_to_shared(const void* place) { return host::near_of(place); }
