// CUDA's words for the host: a launch computes its blocks one after the other, each thread of a block in a stack of its
// own. A thread runs until it waits for others, so whatever needs a barrier that is not there sees stale memory; the
// order in which threads take turns can be chosen. x86-64 with FMA and F16C.
#pragma once
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <type_traits>
#include <vector>

#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) longlong2 { long long x, y; };

inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline longlong2 make_longlong2(long long x, long long y) { return {x, y}; }
struct dim3 { unsigned x = 0, y = 0, z = 0; };
static dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace host {

const unsigned SHARED_BYTES = 232448, STACK_BYTES = 1 << 17, MOST_THREADS = 1024;
alignas(1024) static unsigned char dynamic[SHARED_BYTES];

// Addresses of 32 bits, as in shared memory; statics lie near enough to what a launch asked for.
inline unsigned near_of(const void* place) { return unsigned((const unsigned char*)place - dynamic); }
template <class T> T* at(unsigned place) { return (T*)(dynamic + int(place)); }

// Does not take part in finding out what T is.
template <class T> using Same = typename std::common_type<T>::type;

struct Copy { void* to; const void* from; unsigned bytes, group; };

enum Wait { NOTHING, WARP, BLOCK, MEMORY, END };

struct Thread {
    void* place;  // where its stack goes on
    Wait wait;
    unsigned mask;  // of the lanes that it waits for
    unsigned long long number;  // what it shows to them
    unsigned group;
    std::vector<Copy> copies;  // on their way to shared memory
};

static Thread threads[MOST_THREADS];
static unsigned char* stacks;
static void* scheduler;
static void (*body)();
static int any;  // of what threads brought to the barrier
static std::vector<std::pair<unsigned long long*, Copy>> bulk;  // copies of the copy engine, and who waits for them
static const char* fault;

// Goes on in another stack, and keeps what a called function must keep.
extern "C" __attribute__((visibility("hidden"))) void host_switch(void** from, void* to);
asm(".text\n.hidden host_switch\n.globl host_switch\nhost_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");

inline Thread& self() { return threads[threadIdx.x]; }

__noinline__ inline void wait(Wait what, unsigned mask = 0) {
    Thread& thread = self();
    thread.wait = what;
    thread.mask = mask;
    host_switch(&thread.place, scheduler);
}

inline void begin() {
    body();
    wait(END);
}

inline void prepare(unsigned number) {
    Thread& thread = threads[number];
    thread.wait = NOTHING;
    thread.group = 0;
    thread.copies.clear();
    void** top = (void**)(stacks + (number + 1) * size_t(STACK_BYTES));
    // As if it had been called: where it would return to, where it goes on, and room for six registers.
    *--top = nullptr;
    *--top = (void*)begin;
    top -= 6;
    thread.place = top;
}

// Lets lanes go on that have all come to the same place.
inline bool release_warp(unsigned first, unsigned count) {
    bool released = false;
    for (unsigned lane = 0; lane < count; lane++) {
        const Thread& thread = threads[first + lane];
        if (thread.wait != WARP) continue;
        const unsigned mask = thread.mask;
        bool all = mask >> lane & 1;
        if (!all) fault = "a lane is not in its own mask";
        for (unsigned other = 0; other < 32 && all; other++) {
            if (!(mask >> other & 1)) continue;
            const bool there = other < count && threads[first + other].wait != END;
            if (!there) fault = "a lane waits for one that has ended";
            all = there && threads[first + other].wait == WARP && threads[first + other].mask == mask;
        }
        if (!all) continue;
        released = true;
        for (unsigned other = 0; other < count; other++)
            if (mask >> other & 1) threads[first + other].wait = NOTHING;
    }
    return released;
}

inline bool run_block(unsigned count, unsigned& order) {
    for (unsigned number = 0; number < count; number++) prepare(number);
    for (;;) {
        bool moved = false;
        unsigned ended = 0, waiting = 0;
        // 0: in the order of their numbers; else somewhere else in each turn, and every other turn backwards.
        if (order) order = order * 1664525u + 1013904223u;
        const unsigned start = order ? order >> 8 : 0, backwards = order >> 31;
        for (unsigned turn = 0; turn < count; turn++) {
            const unsigned number = ((backwards ? count - 1 - turn : turn) + start) % count;
            Thread& thread = threads[number];
            if (thread.wait == MEMORY) thread.wait = NOTHING;
            if (thread.wait == NOTHING) {
                threadIdx.x = number;
                host_switch(&scheduler, thread.place);
                moved |= thread.wait != MEMORY;
            }
            ended += thread.wait == END;
            waiting += thread.wait == BLOCK;
        }
        for (unsigned first = 0; first < count; first += 32)
            moved |= release_warp(first, count - first < 32 ? count - first : 32);
        if (fault) return false;
        if (ended == count) return true;
        if (waiting && ended + waiting == count) {
            for (unsigned number = 0; number < count; number++)
                if (threads[number].wait == BLOCK) threads[number].wait = NOTHING;
        } else if (!moved) {
            fault = "threads wait for each other";
            return false;
        }
    }
}

// What every lane of `mask` shows; `use` looks at it while they all wait.
template <class Use> auto together(unsigned mask, unsigned long long number, Use use) {
    self().number = number;
    wait(WARP, mask);
    const auto result = use(threads + threadIdx.x / 32 * 32);
    wait(WARP, mask);
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
template <class T, class Add> T folded(unsigned mask, T own, Add add) {
    return together(mask, bits_of(own), [&](const Thread* lanes) {
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
    const T result = together(mask, bits_of(own), [&](const Thread* lanes) {
        return there ? number_of<T>(lanes[lane].number) : own;
    });
    if (there && !(mask >> lane & 1)) fault = "a lane asks one that is not in the mask";
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
inline float from_bf16(unsigned short bits) { return number_of<float>((unsigned long long)bits << 16); }
template <class To, class From> unsigned fma_pair(unsigned a, unsigned b, unsigned c, To to, From from) {
    const auto one = [&](int shift) { return unsigned(to(fmaf(from(a >> shift), from(b >> shift), from(c >> shift)))); };
    return one(0) | one(16) << 16;
}
inline unsigned fma_bf16(unsigned a, unsigned b, unsigned c) { return fma_pair(a, b, c, to_bf16, from_bf16); }
inline unsigned fma_f16(unsigned a, unsigned b, unsigned c) { return fma_pair(a, b, c, to_f16, from_f16); }

// Copies happen as late as they may: when somebody waits for them.
inline void copy_later(unsigned to, const void* from, unsigned bytes) {
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
const unsigned long long OPEN = 1ull << 63;
inline void bulk_later(unsigned to, const void* from, unsigned bytes, unsigned arrival) {
    if ((to | bytes | unsigned((unsigned long long)from)) % 16) fault = "the copy engine takes whole units of 16 bytes";
    bulk.push_back({at<unsigned long long>(arrival), {at<void>(to), from, bytes, 0}});
}
inline void await_bulk(unsigned arrival) {
    unsigned long long* const left = at<unsigned long long>(arrival);
    for (auto& [barrier, copy] : bulk) {
        if (barrier != left || !copy.bytes) continue;
        memcpy(copy.to, copy.from, copy.bytes);
        *left -= copy.bytes;
        copy.bytes = 0;
    }
    while (*left) wait(MEMORY);
}

template <class Argument> int launch(void (*kernel)(Argument), const void* argument, unsigned blocks, unsigned count,
                                     unsigned bytes, unsigned order) {
    if (count > MOST_THREADS || bytes > SHARED_BYTES) return 1;
    if (!stacks) {
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void* const memory = mmap(nullptr, size_t(STACK_BYTES) * MOST_THREADS, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (memory == MAP_FAILED) return 1;
        stacks = (unsigned char*)memory;
    }
    typedef typename std::remove_const<Argument>::type Plain;
    static void (*entry)(Argument);
    static const Plain* given;
    entry = kernel;
    given = (const Plain*)argument;
    body = [] { entry(*given); };
    gridDim = {blocks, 1, 1};
    blockDim = {count, 1, 1};
    fault = nullptr;
    for (unsigned block = 0; block < blocks; block++) {
        blockIdx.x = block;
        memset(dynamic, 0xa5, SHARED_BYTES);
        bulk.clear();
        if (run_block(count, order)) continue;
        fprintf(stderr, "fake CUDA: block %u of %u: %s\n", block, blocks, fault);
        return 1;
    }
    return 0;
}

}  // namespace host

inline void __syncthreads() { host::wait(host::BLOCK); }
inline int __syncthreads_or(int own) {
    host::any = 0;
    host::wait(host::BLOCK);
    host::any |= own;
    host::wait(host::BLOCK);
    const int all = host::any;
    host::wait(host::BLOCK);
    return all;
}
inline void __syncwarp(unsigned mask = ~0u) { host::wait(host::WARP, mask); }
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
    return host::folded(mask, own ? 1u << threadIdx.x % 32 : 0, [](unsigned a, unsigned b) { return a | b; });
}
inline int __any_sync(unsigned mask, int own) { return __ballot_sync(mask, own) != 0; }
inline int __all_sync(unsigned mask, int own) { return __ballot_sync(mask, own) == mask; }
template <class T> unsigned __match_any_sync(unsigned mask, T own) {
    return host::together(mask, host::bits_of(own), [&](const host::Thread* lanes) {
        unsigned equal = 0;
        for (unsigned lane = 0; lane < 32; lane++)
            if (mask >> lane & 1 && lanes[lane].number == host::bits_of(own)) equal |= 1u << lane;
        return equal;
    });
}
template <class T> T __reduce_add_sync(unsigned mask, T own) {
    return host::folded(mask, own, [](T a, T b) { return T(a + b); });
}
template <class T> T __reduce_max_sync(unsigned mask, T own) {
    return host::folded(mask, own, [](T a, T b) { return a < b ? b : a; });
}
template <class T> T __reduce_min_sync(unsigned mask, T own) {
    return host::folded(mask, own, [](T a, T b) { return b < a ? b : a; });
}
inline void __threadfence() {}
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
inline float __fdividef(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline int __float2int_rz(float x) { return int(x); }
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
