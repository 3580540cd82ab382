#include "scheduler.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace emulator {

Dim3 thread_index, block_index, block_size, grid_size;
Scheduler scheduler;

namespace {

bool same(const Site& a, const Site& b) {
    return a.line == b.line && std::strcmp(a.what, b.what) == 0 && std::strcmp(a.file, b.file) == 0;
}

std::string text(const Site& site) {
    const char* name = std::strrchr(site.file, '/');
    return std::string(site.what) + " at " + (name ? name + 1 : site.file) + ":" +
           std::to_string(site.line);
}

std::string text(const Fiber& fiber) {
    char line[96];
    std::snprintf(line, sizeof line, "thread %u of block (%u, %u)", fiber.index.x, block_index.x,
                  block_index.y);
    return line;
}

unsigned number(const Fiber& fiber) {
    return static_cast<unsigned>(&fiber - scheduler.fibers.data());
}

void run_thread() {
    scheduler.entry->call(scheduler.entry->function, scheduler.values);
    scheduler.running->state = State::Done;
    ++scheduler.done;
    scheduler.suspend();
}

// Stacks are made once; below each lies a page that cannot be touched.
void prepare(Fiber& fiber, unsigned index) {
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    if (fiber.stack == nullptr) {
        void* map = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        fiber.stack = static_cast<char*>(map);
        mprotect(fiber.stack, page, PROT_NONE);
    }
    fiber.index = {index, 0, 0};
    fiber.state = State::Ready;
    fiber.parity = 0;
    fiber.copies.assign(1, {});
    prepare_context(fiber.context, fiber.stack + page, STACK_BYTES - page, run_thread);
}

std::string deadlock() {
    Fiber* waiting = nullptr;
    Fiber* missing = nullptr;
    for (unsigned index = 0; index < scheduler.count; ++index) {
        Fiber& fiber = scheduler.fibers[index];
        if (fiber.state == State::Waiting && waiting == nullptr) waiting = &fiber;
    }
    for (unsigned index = 0; index < scheduler.count; ++index) {
        Fiber& fiber = scheduler.fibers[index];
        bool meets = fiber.state == State::Waiting && same(fiber.site, waiting->site);
        bool concerned = std::strcmp(waiting->site.what, "__syncthreads") == 0 ||
                         index / WARP == number(*waiting) / WARP;
        if (!meets && concerned && missing == nullptr) missing = &fiber;
    }
    std::string end = "others never come";
    if (missing != nullptr) {
        end = text(*missing) + (missing->state == State::Done ? " has ended"
                                                              : " waits in " + text(missing->site));
    }
    return "deadlock: " + text(*waiting) + " waits in " + text(waiting->site) + ", and " + end;
}

void release(unsigned first, unsigned count) {
    for (unsigned index = first; index < first + count; ++index) {
        scheduler.fibers[index].state = State::Ready;
        scheduler.ready.push_back(&scheduler.fibers[index]);
    }
    for (unsigned left = count; left > 1; --left) {
        size_t last = scheduler.ready.size() - 1;
        std::swap(scheduler.ready[last - (left - 1)],
                  scheduler.ready[last - scheduler.draw(left)]);
    }
}

}  // namespace

unsigned Scheduler::draw(unsigned below) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return static_cast<unsigned>((random >> 32) % below);
}

void Scheduler::suspend() { switch_context(running->context, home); }

// Even seeds take any thread that can run. Odd seeds take the one released last, so that a warp
// runs as far ahead of the others as barriers let it.
void Scheduler::run_block() {
    done = arrived = 0;
    ready.clear();
    for (Warp& warp : warps) warp.arrived = 0;
    for (unsigned index = 0; index < count; ++index) prepare(fibers[index], index);
    release(0, count);
    while (!ready.empty() && error.empty()) {
        size_t chosen = seed & 1 ? ready.size() - 1 : draw(static_cast<unsigned>(ready.size()));
        running = ready[chosen];
        ready[chosen] = ready.back();
        ready.pop_back();
        thread_index = running->index;
        switch_context(home, running->context);
    }
    if (error.empty() && done != count) error = deadlock();
    running = nullptr;
}

void fail(const Site& site, const char* message) {
    scheduler.error = text(*scheduler.running) + ": " + text(site) + ": " + message;
    scheduler.suspend();
    __builtin_unreachable();
}

unsigned lane() { return thread_index.x % WARP; }

unsigned long long seed() { return scheduler.seed; }

void block_barrier(const Site& site) {
    if (scheduler.done != 0) fail(site, "another thread of the block has ended before");
    if (scheduler.arrived++ == 0) {
        scheduler.barrier = site;
    } else if (!same(scheduler.barrier, site)) {
        fail(site, ("others wait in " + text(scheduler.barrier)).c_str());
    }
    Fiber& self = *scheduler.running;
    self.state = State::Waiting;
    self.site = site;
    if (scheduler.arrived == scheduler.count) {
        scheduler.arrived = 0;
        release(0, scheduler.count);
    }
    scheduler.suspend();
}

const unsigned char* exchange(const Site& site, unsigned mask, const void* value, size_t bytes) {
    if (mask != ~0u) fail(site, "the mask leaves lanes out");
    Fiber& self = *scheduler.running;
    unsigned own = number(self);
    Warp& warp = scheduler.warps[own / WARP];
    if (warp.arrived++ == 0) {
        warp.site = site;
    } else if (!same(warp.site, site)) {
        fail(site, ("other lanes of the warp wait in " + text(warp.site)).c_str());
    }
    auto& slots = warp.slots[self.parity ^= 1];
    std::memcpy(slots[own % WARP], value, bytes);
    self.state = State::Waiting;
    self.site = site;
    if (warp.arrived == WARP) {
        warp.arrived = 0;
        release(own / WARP * WARP, WARP);
    }
    scheduler.suspend();
    return slots[0];
}

void maybe_yield() {
    if (scheduler.draw(4) != 0) return;
    scheduler.ready.push_back(scheduler.running);
    scheduler.suspend();
}

void copy_async(const Site& site, void* shared, const void* global, unsigned bytes) {
    auto to = static_cast<unsigned char*>(shared);
    auto from = static_cast<const unsigned char*>(global);
    if (reinterpret_cast<size_t>(to) % bytes != 0 || reinterpret_cast<size_t>(from) % bytes != 0)
        fail(site, "an address is not aligned to the size of the copy");
    std::memset(to, 0xEE, bytes);
    scheduler.running->copies.back().push_back({to, from, bytes});
}

void copy_async_commit() { scheduler.running->copies.emplace_back(); }

void copy_async_wait(unsigned newer_groups) {
    auto& groups = scheduler.running->copies;
    while (groups.size() > newer_groups + 1) {
        for (const Copy& copy : groups.front()) std::memcpy(copy.shared, copy.global, copy.bytes);
        groups.erase(groups.begin());
    }
}

}  // namespace emulator
