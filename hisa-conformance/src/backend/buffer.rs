//! Tensors a backend reads and writes, each between guard bands.

use hisa_ref::E4M3;
use ndarray::{Array, ArrayView2, Dimension};

/// Elements of guard on either side of every tensor.
pub const MARGIN: usize = 32;

/// An element type, with the value its guards hold. A backend that reads a guard computes with
/// NaN or with an id far out of range.
pub trait Element: Copy + PartialEq + std::fmt::Debug + 'static {
    /// What guards hold.
    const GUARD: Self;

    /// Whether two elements have the same bits.
    fn same_bits(self, other: Self) -> bool;

    /// Whether all elements of two slices of one length have the same bits.
    fn all_same_bits(a: &[Self], b: &[Self]) -> bool {
        // Without an early exit the compiler uses vectors.
        let pairs = a.iter().zip(b);
        pairs.fold(true, |same, (a, b)| same & a.same_bits(*b))
    }
}

impl Element for E4M3 {
    const GUARD: Self = Self::NAN;
    fn same_bits(self, other: Self) -> bool {
        self == other
    }
}

impl Element for f32 {
    const GUARD: Self = Self::from_bits(0x7FC5_A5A5);
    fn same_bits(self, other: Self) -> bool {
        self.to_bits() == other.to_bits()
    }
}

impl Element for i32 {
    const GUARD: Self = 0x5A5A_5A5A;
    fn same_bits(self, other: Self) -> bool {
        self == other
    }
}

/// A row-major tensor of a known shape, with [`MARGIN`] guard elements before and after it.
#[derive(Debug, Clone)]
pub struct Guarded<T> {
    arena: Vec<T>,
    shape: Vec<usize>,
}

impl<T: Element> Guarded<T> {
    /// A tensor of `shape` that holds `fill` everywhere.
    #[must_use]
    pub fn filled(shape: &[usize], fill: T) -> Self {
        let len: usize = shape.iter().product();
        Self::between_guards(shape, len, |arena| arena.resize(MARGIN + len, fill))
    }

    /// A tensor of `len` elements, which `put` adds.
    fn between_guards(shape: &[usize], len: usize, put: impl FnOnce(&mut Vec<T>)) -> Self {
        let mut arena = Vec::with_capacity(len + 2 * MARGIN);
        arena.resize(MARGIN, T::GUARD);
        put(&mut arena);
        // A tensor of fewer elements than its shape has is filled up, of more cut.
        arena.resize(MARGIN + len, T::GUARD);
        arena.resize(len + 2 * MARGIN, T::GUARD);
        Self {
            arena,
            shape: shape.to_vec(),
        }
    }

    /// A tensor with these elements, in row-major order.
    #[must_use]
    pub fn of<'a>(shape: &[usize], elements: impl IntoIterator<Item = &'a T>) -> Self {
        let len = shape.iter().product();
        Self::between_guards(shape, len, |arena| arena.extend(elements))
    }

    /// A copy of an array.
    #[must_use]
    pub fn from_array<D: Dimension>(array: &Array<T, D>) -> Self {
        match array.as_slice() {
            Some(slice) => Self::of(array.shape(), slice),
            None => Self::of(array.shape(), array.iter()),
        }
    }

    /// The shape, in elements.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements, row-major.
    #[must_use]
    pub fn body(&self) -> &[T] {
        &self.arena[MARGIN..self.arena.len() - MARGIN]
    }

    /// The elements, to be written.
    pub fn body_mut(&mut self) -> &mut [T] {
        let end = self.arena.len() - MARGIN;
        &mut self.arena[MARGIN..end]
    }

    /// Writes elements in row-major order, as many as there are and no more than fit.
    pub fn write(&mut self, elements: impl IntoIterator<Item = T>) {
        for (place, element) in self.body_mut().iter_mut().zip(elements) {
            *place = element;
        }
    }

    /// Tensor and guards: element 0 of the tensor is at [`MARGIN`]. What a kernel with a bare
    /// pointer can reach.
    #[must_use]
    pub fn arena(&self) -> &[T] {
        &self.arena
    }

    /// Tensor and guards, to be written.
    pub fn arena_mut(&mut self) -> &mut [T] {
        &mut self.arena
    }

    /// Rows of a matrix; of a vector, its elements.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(0)
    }

    /// Elements of a row: the product of all axes but the first.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.shape.iter().skip(1).product()
    }

    /// One row; empty where there is none.
    #[must_use]
    pub fn row(&self, row: usize) -> &[T] {
        let columns = self.columns();
        self.body()
            .get(row * columns..(row + 1) * columns)
            .unwrap_or(&[])
    }

    /// The tensor as a matrix of [`Self::rows`] by [`Self::columns`].
    #[must_use]
    pub fn view2(&self) -> ArrayView2<'_, T> {
        ArrayView2::from_shape((self.rows(), self.columns()), self.body())
            .unwrap_or_else(|_| unreachable!("a body has the elements of its shape"))
    }

    /// Where the first changed guard is: below 0 before the tensor, from 0 on after it.
    #[must_use]
    pub fn damaged_guard(&self) -> Option<isize> {
        let changed = |at: &usize| !self.arena[*at].same_bits(T::GUARD);
        let end = self.arena.len() - MARGIN;
        let (guard, margins) = (
            [T::GUARD; MARGIN],
            [&self.arena[..MARGIN], &self.arena[end..]],
        );
        if margins
            .iter()
            .all(|margin| T::all_same_bits(margin, &guard))
        {
            return None;
        }
        let before = (0..MARGIN)
            .rev()
            .find(changed)
            .map(|at| at as isize - MARGIN as isize);
        before.or_else(|| {
            (end..self.arena.len())
                .find(changed)
                .map(|at| (at - end) as isize)
        })
    }

    /// The first element in which two tensors have different bits, among those `looked_at` says
    /// yes to; 0 where their shapes differ.
    #[must_use]
    pub fn first_changed(&self, other: &Self, looked_at: impl Fn(usize) -> bool) -> Option<usize> {
        if self.shape != other.shape {
            return Some(0);
        }
        let (a, b) = (self.body(), other.body());
        if T::all_same_bits(a, b) {
            return None;
        }
        let mut pairs = a.iter().zip(b).enumerate();
        pairs.find_map(|(at, (a, b))| (!a.same_bits(*b) && looked_at(at)).then_some(at))
    }
}

/// A tensor of any of the three element types.
#[derive(Debug, Clone)]
pub enum Buffer {
    /// e4m3 codes.
    Codes(Guarded<E4M3>),
    /// Scores and scales.
    F32(Guarded<f32>),
    /// Ids and windows.
    I32(Guarded<i32>),
}

/// An element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// e4m3 codes.
    Codes,
    /// Scores and scales.
    F32,
    /// Ids and windows.
    I32,
}

impl Kind {
    /// The word of messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Codes => "codes",
            Self::F32 => "f32",
            Self::I32 => "i32",
        }
    }

    /// What the output `name` of a job is made of.
    #[must_use]
    pub fn of_output(name: &str) -> Self {
        match name {
            "codes" | "pooled_k" => Self::Codes,
            "ks" | "ke" | "block_ids" | "slots" | "indices" => Self::I32,
            _ => Self::F32,
        }
    }
}

macro_rules! for_any {
    ($buffer:expr, $tensor:ident => $value:expr) => {
        match $buffer {
            Buffer::Codes($tensor) => $value,
            Buffer::F32($tensor) => $value,
            Buffer::I32($tensor) => $value,
        }
    };
}

impl Buffer {
    /// The element type.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Codes(_) => Kind::Codes,
            Self::F32(_) => Kind::F32,
            Self::I32(_) => Kind::I32,
        }
    }

    /// The shape, in elements.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        for_any!(self, tensor => tensor.shape())
    }

    /// Bytes of the tensor and its guards.
    #[must_use]
    pub fn bytes(&self) -> usize {
        for_any!(self, tensor => size_of_val(tensor.arena()))
    }

    /// As [`Guarded::damaged_guard`].
    #[must_use]
    pub fn damaged_guard(&self) -> Option<isize> {
        for_any!(self, tensor => tensor.damaged_guard())
    }

    /// As [`Guarded::first_changed`]; 0 where the types differ.
    #[must_use]
    pub fn first_changed(&self, other: &Self, looked_at: impl Fn(usize) -> bool) -> Option<usize> {
        match (self, other) {
            (Self::Codes(a), Self::Codes(b)) => a.first_changed(b, looked_at),
            (Self::F32(a), Self::F32(b)) => a.first_changed(b, looked_at),
            (Self::I32(a), Self::I32(b)) => a.first_changed(b, looked_at),
            _ => Some(0),
        }
    }

    /// One element, as its bits and for people.
    #[must_use]
    pub fn show(&self, at: usize) -> String {
        match self {
            Self::Codes(tensor) => tensor.body().get(at).map(|&code| show_code(code)),
            Self::F32(tensor) => tensor.body().get(at).map(|&value| show_f32(value)),
            Self::I32(tensor) => tensor.body().get(at).map(i32::to_string),
        }
        .unwrap_or_else(|| "nothing".to_owned())
    }
}

/// A code with its value: `0x38 (1)`.
#[must_use]
pub fn show_code(code: E4M3) -> String {
    format!("{:#04x} ({})", code.to_bits(), code.to_f32())
}

/// A float as value, exact hexadecimal and bits: `1.5 = 0x1.8p0 (0x3fc00000)`.
#[must_use]
pub fn show_f32(value: f32) -> String {
    let bits = value.to_bits();
    if value.is_finite() {
        format!("{value:e} = {} ({bits:#010x})", hex_float(value))
    } else {
        format!("{value} ({bits:#010x})")
    }
}

/// C's `%a` of a finite f32: sign, significand in hexadecimal, exponent of two.
fn hex_float(value: f32) -> String {
    let bits = value.to_bits();
    let sign = if bits >> 31 == 1 { "-" } else { "" };
    let (field, fraction) = (bits >> 23 & 0xFF, (bits & 0x7F_FFFF) << 1);
    let (lead, exponent) = match (field, fraction) {
        (0, 0) => return format!("{sign}0x0p0"),
        (0, _) => (0, -126),
        _ => (1, field as i32 - 127),
    };
    let digits = format!("{fraction:06x}");
    let digits = digits.trim_end_matches('0');
    let dot = if digits.is_empty() { "" } else { "." };
    format!("{sign}0x{lead}{dot}{digits}p{exponent}")
}

/// Tensors by name, in a fixed order.
#[derive(Debug, Clone, Default)]
pub struct Buffers(Vec<(&'static str, Buffer)>);

impl Buffers {
    /// Adds a tensor, or replaces the one of that name.
    pub fn put(&mut self, name: &'static str, buffer: Buffer) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, place)) => *place = buffer,
            None => self.0.push((name, buffer)),
        }
    }

    /// Takes a tensor out.
    pub fn remove(&mut self, name: &str) -> Option<Buffer> {
        let at = self.0.iter().position(|(known, _)| *known == name)?;
        Some(self.0.remove(at).1)
    }

    /// Names and tensors.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Buffer)> {
        self.0.iter().map(|(name, buffer)| (*name, buffer))
    }

    /// Names and tensors, to be written.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut Buffer)> {
        self.0.iter_mut().map(|(name, buffer)| (*name, buffer))
    }

    /// The tensor of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Buffer> {
        self.iter()
            .find(|(known, _)| *known == name)
            .map(|(_, buffer)| buffer)
    }

    fn get_mut(&mut self, name: &str) -> Option<&mut Buffer> {
        let found = self.0.iter_mut().find(|(known, _)| *known == name);
        found.map(|(_, buffer)| buffer)
    }

    /// The codes of that name.
    #[must_use]
    pub fn codes(&self, name: &str) -> Option<&Guarded<E4M3>> {
        match self.get(name)? {
            Buffer::Codes(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The floats of that name.
    #[must_use]
    pub fn f32(&self, name: &str) -> Option<&Guarded<f32>> {
        match self.get(name)? {
            Buffer::F32(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The ids of that name.
    #[must_use]
    pub fn i32(&self, name: &str) -> Option<&Guarded<i32>> {
        match self.get(name)? {
            Buffer::I32(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The codes of that name, to be written.
    pub fn codes_mut(&mut self, name: &str) -> Option<&mut Guarded<E4M3>> {
        match self.get_mut(name)? {
            Buffer::Codes(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The floats of that name, to be written.
    pub fn f32_mut(&mut self, name: &str) -> Option<&mut Guarded<f32>> {
        match self.get_mut(name)? {
            Buffer::F32(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The ids of that name, to be written.
    pub fn i32_mut(&mut self, name: &str) -> Option<&mut Guarded<i32>> {
        match self.get_mut(name)? {
            Buffer::I32(tensor) => Some(tensor),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_notice_a_write_on_either_side() {
        let mut tensor = Guarded::filled(&[2, 3], 0i32);
        assert_eq!(tensor.damaged_guard(), None);
        tensor.body_mut().fill(7);
        assert_eq!(tensor.damaged_guard(), None);
        tensor.arena_mut()[MARGIN - 1] = 7;
        assert_eq!(tensor.damaged_guard(), Some(-1));
        tensor.arena_mut()[MARGIN - 1] = i32::GUARD;
        tensor.arena_mut()[MARGIN + 6] = 7;
        assert_eq!(tensor.damaged_guard(), Some(0));
    }

    #[test]
    fn floats_are_compared_by_bits() {
        let of = |value: f32| Guarded::filled(&[1], value);
        assert_eq!(of(0.0).first_changed(&of(-0.0), |_| true), Some(0));
        assert_eq!(of(f32::NAN).first_changed(&of(f32::NAN), |_| true), None);
    }

    #[test]
    fn hexadecimal_floats_are_exact() {
        let cases = [
            (1.0, "0x1p0"),
            (-1.5, "-0x1.8p0"),
            (0.1, "0x1.99999ap-4"),
            (0.0, "0x0p0"),
            (f32::from_bits(1), "0x0.000002p-126"),
            (f32::MAX, "0x1.fffffep127"),
        ];
        for (value, text) in cases {
            assert_eq!(hex_float(value), text);
        }
    }
}
