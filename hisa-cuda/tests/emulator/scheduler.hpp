// The threads of one block, as fibers of one thread of the machine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fiber.hpp"
#include "runtime.hpp"

namespace emulator {

constexpr unsigned WARP = 32;
constexpr unsigned THREADS_MAX = 1024;
constexpr size_t STACK_BYTES = 128 << 10;

struct Copy {
    unsigned char* shared;
    const unsigned char* global;
    unsigned bytes;
};

enum class State { Ready, Waiting, Done };

struct Fiber {
    Context context;
    char* stack = nullptr;
    Dim3 index{};
    State state = State::Ready;
    Site site{};
    // Parity of the exchanges so far: which half of the slots the next one uses.
    unsigned parity = 0;
    // Groups of asynchronous copies, oldest first; the last is not committed yet.
    std::vector<std::vector<Copy>> copies;
};

// Lanes that wait in an exchange, and what they brought.
struct Warp {
    unsigned arrived = 0;
    Site site{};
    unsigned char slots[2][WARP][EXCHANGE_BYTES];
};

struct Scheduler {
    std::vector<Fiber> fibers = std::vector<Fiber>(THREADS_MAX);
    std::vector<Warp> warps = std::vector<Warp>(THREADS_MAX / WARP);
    std::vector<Fiber*> ready;
    unsigned count = 0, done = 0, arrived = 0;
    Site barrier{};
    Context home;
    Fiber* running = nullptr;
    const Entry* entry = nullptr;
    void* const* values = nullptr;
    unsigned long long seed = 0, random = 0;
    std::string error;

    // Runs one block; the error says what went wrong, if anything did.
    void run_block();
    unsigned draw(unsigned below);
    void suspend();
};

extern Scheduler scheduler;

}  // namespace emulator
