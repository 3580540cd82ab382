// Where the sanitizer of undefined behaviour reports: shifts past the width, overflow of signed
// numbers, indices past an array, and loads that are not aligned, which fault on a device.
#include "runtime.hpp"

namespace {

// The first fields of what the compiler passes to every handler.
struct Location {
    const char* file;
    unsigned line, column;
};

[[noreturn]] void report(const char* what, const void* data) {
    auto at = static_cast<const Location*>(data);
    emulator::fail({"undefined behaviour", at->file, int(at->line)}, what);
}

}  // namespace

#define HANDLER(name, what)                                                  \
    extern "C" void __ubsan_handle_##name(const void* data, ...) {          \
        report(what, data);                                                  \
    }                                                                        \
    extern "C" void __ubsan_handle_##name##_abort(const void* data, ...) {  \
        report(what, data);                                                  \
    }

HANDLER(shift_out_of_bounds, "a shift by more bits than there are")
HANDLER(out_of_bounds, "an index past the end of an array")
HANDLER(add_overflow, "an addition overflows")
HANDLER(sub_overflow, "a subtraction overflows")
HANDLER(mul_overflow, "a multiplication overflows")
HANDLER(negate_overflow, "a negation overflows")
HANDLER(divrem_overflow, "a division by zero, or one that overflows")
HANDLER(type_mismatch_v1, "an access through a null or misaligned pointer")
HANDLER(float_cast_overflow, "a float that the integer type does not hold")
