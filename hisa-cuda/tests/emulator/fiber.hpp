// One switch of stacks. The assembly saves what the System V ABI says a call preserves; elsewhere
// ucontext does the same work, slower, because it also saves signal masks.
#pragma once

namespace emulator {

#if defined(__x86_64__) && !defined(EMULATOR_UCONTEXT)

struct Context {
    void* stack_pointer = nullptr;
};

extern "C" void emulator_switch(void** save, void* load);
asm(R"(
.text
.local emulator_switch
.type emulator_switch, @function
emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulator_switch, . - emulator_switch
)");

inline void switch_context(Context& from, Context& to) {
    emulator_switch(&from.stack_pointer, to.stack_pointer);
}

// A context that starts `run`, which must never return, on the stack [low, low + bytes).
inline void prepare_context(Context& context, char* low, size_t bytes, void (*run)()) {
    void** top = reinterpret_cast<void**>(low + bytes);
    *--top = nullptr;  // keeps the stack aligned as a call would
    *--top = reinterpret_cast<void*>(run);
    for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
    context.stack_pointer = top;
}

#else

}  // namespace emulator
#include <ucontext.h>
namespace emulator {

struct Context {
    ucontext_t state;
};

inline void switch_context(Context& from, Context& to) { swapcontext(&from.state, &to.state); }

inline void prepare_context(Context& context, char* low, size_t bytes, void (*run)()) {
    getcontext(&context.state);
    context.state.uc_stack.ss_sp = low;
    context.state.uc_stack.ss_size = bytes;
    context.state.uc_link = nullptr;
    makecontext(&context.state, run, 0);
}

#endif

}  // namespace emulator
