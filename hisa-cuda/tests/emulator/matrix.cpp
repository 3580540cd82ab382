#include "matrix.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace emulator {
namespace {

constexpr int FRACTION = EMULATOR_FRACTION_BITS, GROUP = EMULATOR_GROUP, KEPT = 23;

// significand * 2^(exponent - width)
struct Term {
    int64_t significand;
    int exponent, width;
};

float from_bits(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

bool finite(Half x) { return (x >> 10 & 31) != 31; }

bool nan(Half x) { return !finite(x) && (x & 0x3ff) != 0; }

Term decode(Half x) {
    int field = x >> 10 & 31, fraction = x & 0x3ff;
    int64_t magnitude = field == 0 ? fraction : 1024 + fraction;
    return {x >> 15 ? -magnitude : magnitude, field == 0 ? -14 : field - 15, 10};
}

Term decode(float c) {
    uint32_t bits;
    std::memcpy(&bits, &c, sizeof bits);
    int field = bits >> 23 & 255;
    int64_t fraction = bits & 0x7fffff;
    int64_t magnitude = field == 0 ? fraction : (1 << 23) + fraction;
    return {bits >> 31 ? -magnitude : magnitude, field == 0 ? -126 : field - 127, 23};
}

int64_t cut_to(const Term& term, int grid) {
    int shift = term.exponent - term.width - grid;
    int64_t magnitude = std::llabs(term.significand);
    magnitude = shift >= 0 ? magnitude << shift : shift < -62 ? 0 : magnitude >> -shift;
    return term.significand < 0 ? -magnitude : magnitude;
}

// sum * 2^grid, cut toward zero to the bits of a result.
float cut_to_float(int64_t sum, int grid) {
    if (sum == 0) return 0.0f;
    int64_t magnitude = std::llabs(sum);
    int top = 63 - __builtin_clzll(static_cast<unsigned long long>(magnitude));
    int lowest = std::max(top - KEPT, -126 - KEPT - grid);
    int dropped = std::min(std::max(lowest, 0), 63);
    magnitude = magnitude >> dropped << dropped;
    float value = static_cast<float>(std::ldexp(static_cast<double>(magnitude), grid));
    return value == 0.0f ? 0.0f : sum < 0 ? -value : value;
}

float step(const Half* row, const Half* column, float c) {
    if (std::isinf(c)) return c;
    Term terms[GROUP + 1];
    int count = 0, top = INT32_MIN;
    auto add = [&](Term term) {
        if (term.significand == 0) return;
        terms[count++] = term;
        top = std::max(top, term.exponent);
    };
    for (int k = 0; k < GROUP; ++k) {
        Term a = decode(row[k]), b = decode(column[k]);
        add({a.significand * b.significand, a.exponent + b.exponent, 20});
    }
    add(decode(c));
    if (count == 0) return 0.0f;
    int64_t sum = 0;
    for (int term = 0; term < count; ++term) sum += cut_to(terms[term], top - FRACTION);
    return cut_to_float(sum, top - FRACTION);
}

}  // namespace

float multiply_add(const Site& site, const Half* row, const Half* column, float c) {
    bool any_nan = std::isnan(c);
    for (int k = 0; k < 16; ++k) any_nan |= nan(row[k]) || nan(column[k]);
    if (any_nan) return from_bits(0x7fffffff);
    for (int k = 0; k < 16; ++k)
        if (!finite(row[k]) || !finite(column[k]))
            fail(site, "an operand is infinite, and e4m3 has no infinity");
    for (int k = 0; k < 16; k += GROUP) c = step(row + k, column + k, c);
    return c;
}

}  // namespace emulator
