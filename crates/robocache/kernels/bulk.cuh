// The copy engine, from sm_90 on: whole units of 16 bytes between global and shared memory, by the instructions of one thread.
// Who waits for bytes waits at an arrival, which goes through phases: each begins when one thread says how many bytes are to
// come, and ends with the last of them.
#pragma once
#include "rc.cuh"

#if __CUDA_ARCH__ >= 900
namespace rc {

// By one thread; others may wait there behind a barrier.
inline void make_arrival(u64* arrival) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(near_place(arrival)) : "memory");
}
inline void end_making() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
inline void expect(u64* arrival, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(near_place(arrival)), "r"(bytes) : "memory");
}
inline void bring(void* to, const void* from, u32 bytes, u64* arrival) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(near_place(to)), "l"(from), "r"(bytes), "r"(near_place(arrival)) : "memory");
}
// `phase`: whether the number of phases before the one that is waited for is odd.
inline void await(u64* arrival, u32 phase) {
    asm volatile("{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra again; }"
                 ::"r"(near_place(arrival)), "r"(phase) : "memory");
}

// By every thread that read or wrote shared memory, before a barrier behind which the engine gets it.
inline void hand_over() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
inline void send(void* to, const void* from, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 ::"l"(to), "r"(near_place(from)), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until all that this thread sent has left shared memory.
inline void await_sent() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

}  // namespace rc
#endif
