//! f64 arithmetic on numbers >= 0 that never comes out too small.
//!
//! A result to nearest is below the real one by at most half a step of the grid it lies on, so the
//! next number up is not below it, and infinity stands for anything beyond the range. A zero that
//! is exact stays zero.

/// At least `a + b`.
pub(super) fn add(a: f64, b: f64) -> f64 {
    if a == 0.0 || b == 0.0 {
        return a + b;
    }
    (a + b).next_up()
}

/// At least `a * b`, for finite factors or infinite ones that do not meet a zero.
pub(super) fn mul(a: f64, b: f64) -> f64 {
    if a == 0.0 || b == 0.0 {
        return 0.0;
    }
    (a * b).next_up()
}

/// At least `integer`.
pub(super) fn from_integer(integer: u64) -> f64 {
    let nearest = integer as f64;
    // Up to 2^53 the conversion is exact.
    if integer >> 53 == 0 {
        nearest
    } else {
        nearest.next_up()
    }
}
