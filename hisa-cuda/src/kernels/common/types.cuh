// Integer and float types by width: NVRTC comes without headers.
#pragma once

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;
using f32 = float;
using f64 = double;

constexpr u32 FULL_WARP = 0xffffffffu;
constexpr int WARP = 32;
