// In place of CUDA's: the block as a group.
#pragma once
#include "emulator.hpp"

namespace cooperative_groups {

struct thread_block {
    unsigned thread_rank() const {
        const uint3 index = emulator::current->index, size = emulator::block_size;
        return index.x + size.x * (index.y + size.y * index.z);
    }
    void sync() const { emulator::block_barrier(); }
};
inline thread_block this_thread_block() { return {}; }

struct thread {};
inline thread this_thread() { return {}; }
// The thread's copies are made when it waits for them.
inline void memcpy_async(const thread&, void* to, const void* from, size_t bytes) {
    emulator::copy_at_phase_end(emulator::current, to, from, bytes);
}
inline void wait(const thread&) { emulator::phase_ends(emulator::current); }

}  // namespace cooperative_groups
