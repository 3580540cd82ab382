// One launch of one entry: tensors between guards, blocks one after another, faults as errors.
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "guarded.hpp"
#include "scheduler.hpp"

// Where static shared memory lies, if the unit has any.
extern "C" {
extern unsigned char __start_emulated_shared[] __attribute__((weak, visibility("hidden")));
extern unsigned char __stop_emulated_shared[] __attribute__((weak, visibility("hidden")));
}

namespace emulator {
namespace {

enum Kind : int { Scalar, Input, Output, InOut };

struct Argument {
    void* data;
    unsigned long long bytes;
    int kind;
};

struct Request {
    const char* entry;
    const Argument* arguments;
    unsigned long long count;
    unsigned grid[3];
    unsigned block[3];
    unsigned long long shared_bytes;
    unsigned long long seed;
};

Entry* entries = nullptr;
unsigned char* shared_bytes = nullptr;
const std::vector<Guarded>* tensors = nullptr;
bool active = false;
pthread_t owner;
struct sigaction previous[2];

const char* fault_text(const void* address) {
    static char line[200];
    auto at = static_cast<const unsigned char*>(address);
    for (size_t index = 0; index < tensors->size(); ++index) {
        const Guarded& tensor = (*tensors)[index];
        if (!tensor.owns(address)) continue;
        bool shared = index + 1 == tensors->size();
        char name[40] = "dynamic shared memory";
        if (!shared) std::snprintf(name, sizeof name, "tensor %zu", index);
        const unsigned char* end = tensor.data() + tensor.bytes();
        if (at >= end) {
            std::snprintf(line, sizeof line, "%zu bytes past the end of %s (%zu bytes)",
                          static_cast<size_t>(at - end), name, tensor.bytes());
        } else if (at < tensor.data()) {
            std::snprintf(line, sizeof line, "%zu bytes before %s (%zu bytes)",
                          static_cast<size_t>(tensor.data() - at), name, tensor.bytes());
        } else {
            std::snprintf(line, sizeof line, "a write to input %s", name);
        }
        return line;
    }
    std::snprintf(line, sizeof line, "address %p, near no tensor", address);
    return line;
}

void on_fault(int signal, siginfo_t* info, void* context) {
    if (active && pthread_equal(pthread_self(), owner) && scheduler.running != nullptr) {
        fail({"memory fault", scheduler.entry->name, 0}, fault_text(info->si_addr));
    }
    struct sigaction& before = previous[signal == SIGBUS];
    if (before.sa_flags & SA_SIGINFO) return before.sa_sigaction(signal, info, context);
    ::signal(signal, SIG_DFL);  // The instruction runs again and ends the process.
}

// Once per library; handlers of other libraries stay behind this one.
void install_handler() {
    static bool installed = false;
    if (std::exchange(installed, true)) return;
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &previous[0]);
    sigaction(SIGBUS, &action, &previous[1]);
}

// The fault handler leaves its stack for good, so it runs on one of its own.
struct HandlerStack {
    stack_t before{};
    std::vector<char> memory = std::vector<char>(64 << 10);
    HandlerStack() {
        stack_t stack{};
        stack.ss_sp = memory.data();
        stack.ss_size = memory.size();
        sigaltstack(&stack, &before);
    }
    ~HandlerStack() { sigaltstack(&before, nullptr); }
};

std::string check(const Entry& entry, const Request& request) {
    const unsigned* block = request.block;
    if (block[0] == 0 || block[0] % WARP != 0 || block[0] > THREADS_MAX || block[1] * block[2] != 1)
        return "blocks are whole warps of at most 1024 threads, in one dimension";
    if (block[0] > entry.threads_max)
        return "the launch bounds are " + std::to_string(entry.threads_max) + " threads";
    if (request.grid[1] > 65535 || request.grid[2] > 65535) return "the grid is too large";
    if (request.count != entry.count)
        return "the entry takes " + std::to_string(entry.count) + " arguments";
    for (unsigned index = 0; index < entry.count; ++index) {
        const Parameter& parameter = entry.parameters[index];
        const Argument& argument = request.arguments[index];
        bool fits = argument.kind == Scalar
                        ? !parameter.pointer && parameter.bytes == argument.bytes
                        : parameter.pointer && parameter.writable == (argument.kind != Input);
        if (!fits) return "argument " + std::to_string(index) + " is of another type";
    }
    return "";
}

unsigned char poison(const Request& request) { return request.seed & 1 ? 0x7F : 0xC3; }

// Copies of the tensors, with dynamic shared memory as the last.
std::vector<Guarded> place(const Request& request) {
    std::vector<Guarded> placed;
    Flush flush = request.seed & 2 ? Flush::Front : Flush::Back;
    for (unsigned long long index = 0; index < request.count; ++index) {
        const Argument& argument = request.arguments[index];
        if (argument.kind == Scalar) {
            placed.emplace_back(0, flush);
            continue;
        }
        placed.emplace_back(argument.bytes, flush);
        unsigned char* data = placed.back().data();
        if (data == nullptr) continue;
        if (argument.kind == Output) {
            std::memset(data, poison(request), argument.bytes);
        } else if (argument.bytes != 0) {
            std::memcpy(data, argument.data, argument.bytes);
        }
        if (argument.kind == Input) placed.back().make_read_only();
    }
    placed.emplace_back((request.shared_bytes + 15) / 16 * 16, Flush::Back);
    return placed;
}

void run_blocks(const Request& request) {
    const Guarded& shared = tensors->back();
    shared_bytes = shared.data();
    for (unsigned y = 0; y < request.grid[1]; ++y) {
        for (unsigned x = 0; x < request.grid[0] && scheduler.error.empty(); ++x) {
            block_index = {x, y, 0};
            std::memset(shared.data(), poison(request), shared.bytes());
            if (__start_emulated_shared != nullptr)
                std::memset(__start_emulated_shared, poison(request),
                            static_cast<size_t>(__stop_emulated_shared - __start_emulated_shared));
            scheduler.run_block();
        }
    }
}

std::string launch(const Request& request) {
    const Entry* entry = entries;
    while (entry != nullptr && std::strcmp(entry->name, request.entry) != 0) entry = entry->next;
    if (entry == nullptr) return "there is no such entry";
    std::string refusal = check(*entry, request);
    if (!refusal.empty()) return refusal;
    std::vector<Guarded> placed = place(request);
    std::vector<void*> values(request.count);
    std::vector<unsigned char*> pointers(request.count);
    for (size_t index = 0; index < placed.size(); ++index) {
        if (placed[index].data() == nullptr) return "no memory for the tensors";
        if (index == request.count) break;
        pointers[index] = placed[index].data();
        const Argument& argument = request.arguments[index];
        values[index] = argument.kind == Scalar ? argument.data : &pointers[index];
    }
    block_size = {request.block[0], 1, 1};
    grid_size = {request.grid[0], request.grid[1], 1};
    scheduler.count = request.block[0];
    scheduler.entry = entry;
    scheduler.values = values.data();
    scheduler.seed = request.seed;
    scheduler.random = request.seed * 0x9E3779B97F4A7C15ull + 0x2545F4914F6CDD1Dull;
    scheduler.error.clear();
    tensors = &placed;
    install_handler();
    HandlerStack stack;
    owner = pthread_self();
    active = true;
    run_blocks(request);
    active = false;
    for (size_t index = 0; index < placed.size() && scheduler.error.empty(); ++index) {
        if (!placed[index].margins_are_whole())
            scheduler.error = "bytes beside tensor " + std::to_string(index) + " were written";
    }
    for (size_t index = 0; index < request.count && scheduler.error.empty(); ++index) {
        const Argument& argument = request.arguments[index];
        if (argument.kind >= Output && argument.bytes != 0)
            std::memcpy(argument.data, pointers[index], argument.bytes);
    }
    return scheduler.error;
}

}  // namespace

void add(Entry* entry) {
    entry->next = entries;
    entries = entry;
}

unsigned char* shared_memory() { return shared_bytes; }

}  // namespace emulator

// 0, or 1 with a message. Calls must not overlap.
extern "C" __attribute__((visibility("default"))) int emulate(const emulator::Request* request,
                                                              char* error, size_t error_bytes) {
    std::string message = emulator::launch(*request);
    if (message.empty()) return 0;
    std::snprintf(error, error_bytes, "%s: %s", request->entry, message.c_str());
    return 1;
}
