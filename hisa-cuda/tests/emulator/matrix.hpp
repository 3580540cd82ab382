// One dot of 16 products of a matrix unit, in integers: the step model of docs/NUMERICS.md.
#pragma once

#include "runtime.hpp"

// Fraction bits that survive alignment and products per step: 25 and 16 on sm_90 and sm_100,
// 24 and 8 on sm_80 and sm_89.
#ifndef EMULATOR_FRACTION_BITS
#define EMULATOR_FRACTION_BITS 25
#define EMULATOR_GROUP 16
#endif

namespace emulator {

using Half = unsigned short;

// row . column + c, k ascending.
float multiply_add(const Site& site, const Half* row, const Half* column, float c);

}  // namespace emulator
