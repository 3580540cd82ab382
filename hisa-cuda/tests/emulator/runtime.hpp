// What a kernel on the CPU asks of the emulator, and how the entries of a unit are found.
//
// No standard header that adds names to the global namespace: kernels are compiled behind this.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace emulator {

struct Dim3 {
    unsigned x, y, z;
};

// A place in the source of a kernel, and what waits there.
struct Site {
    const char* what;
    const char* file;
    int line;
};

// The thread that runs, its block and the launch.
extern Dim3 thread_index, block_index, block_size, grid_size;

// Ends the launch with this message, in front of which stand kernel, block and thread.
[[noreturn]] void fail(const Site& site, const char* message);

// __syncthreads: waits until all threads of the block are at the same site.
void block_barrier(const Site& site);

// Waits until all 32 lanes of the warp are at the same site with `bytes` bytes each, and returns
// those of lane 0, 1, ... at `stride` bytes from each other. They stay until the next call.
constexpr size_t EXCHANGE_BYTES = 64;
const unsigned char* exchange(const Site& site, unsigned mask, const void* value, size_t bytes);

// The values of all lanes, by lane.
template <typename T>
struct Lanes {
    const unsigned char* bytes;
    T operator[](unsigned lane) const {
        T value;
        __builtin_memcpy(&value, bytes + lane * EXCHANGE_BYTES, sizeof(T));
        return value;
    }
};

template <typename T>
Lanes<T> exchange(const Site& site, unsigned mask, const T& value) {
    static_assert(sizeof(T) <= EXCHANGE_BYTES, "the exchange is too small");
    return {exchange(site, mask, &value, sizeof(T))};
}

// Lane of the thread that runs.
unsigned lane();

// Lets other threads run first, or not, as the schedule says.
void maybe_yield();

// Of the launch: schedules with different seeds must give the same results.
unsigned long long seed();

// Dynamic shared memory of the block.
unsigned char* shared_memory();

// cp.async: bytes arrive in shared memory when their group is waited for, not before.
void copy_async(const Site& site, void* shared, const void* global, unsigned bytes);
void copy_async_commit();
void copy_async_wait(unsigned newer_groups);

// What an entry takes: its parameters in order.
struct Parameter {
    size_t bytes;
    bool pointer, writable;
};

struct Entry {
    const char* name;
    void (*function)();
    void (*call)(void (*function)(), void* const* values);
    const Parameter* parameters;
    unsigned count, threads_max;
    Entry* next;
};

void add(Entry* entry);

template <typename... P, size_t... I>
void call(void (*function)(), void* const* values, std::index_sequence<I...>) {
    auto entry = reinterpret_cast<void (*)(P...)>(function);
    entry(*static_cast<std::remove_cv_t<P>*>(values[I])...);
}

template <typename P>
constexpr Parameter parameter() {
    using Target = std::remove_pointer_t<P>;
    constexpr bool pointer = std::is_pointer_v<P>;
    return {sizeof(P), pointer, pointer && !std::is_const_v<Target>};
}

template <typename... P>
struct Registration {
    static constexpr Parameter parameters[] = {parameter<P>()...};
    Entry entry;
    Registration(const char* name, void (*function)(P...), unsigned threads_max) {
        auto erased = reinterpret_cast<void (*)()>(function);
        entry = {name, erased, run, parameters, sizeof...(P), threads_max, nullptr};
        add(&entry);
    }
    static void run(void (*function)(), void* const* values) {
        call<P...>(function, values, std::index_sequence_for<P...>{});
    }
};

constexpr unsigned first(unsigned threads_max, unsigned = 0) { return threads_max; }

}  // namespace emulator

// The entry and its launch bounds.
#define EMULATOR_ENTRY(name, ...) \
    static emulator::Registration name##_registration(#name, name, emulator::first(__VA_ARGS__));
