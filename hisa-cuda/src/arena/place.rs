//! Where tensors lie in an arena: the arithmetic, without the memory.

use crate::error::{Error, Result};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Tensors start at multiples of this, so that vector loads see what they see in practice.
pub(super) const ALIGNMENT: usize = 256;

/// Element types without padding or invalid values.
///
/// # Safety
/// Every pattern of bits is a value, there are no padding bytes, and the alignment is at most 256.
pub unsafe trait Plain: Copy {}

// SAFETY: integers and floats are plain.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u16 {}
// SAFETY: as above.
unsafe impl Plain for i32 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for f32 {}
// SAFETY: a transparent byte.
unsafe impl Plain for hisa_ref::E4M3 {}

/// Where a tensor lies in an [`Arena`](super::Arena), until the arena starts anew.
#[derive(Debug)]
pub struct Place<T> {
    start: u64,
    offset: usize,
    len: usize,
    element: PhantomData<T>,
}

impl<T> Clone for Place<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Place<T> {}

impl<T> Place<T> {
    /// Elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// `len` elements from `start` on.
    ///
    /// # Errors
    /// [`Error::Length`] where the tensor ends before.
    pub const fn part(self, start: usize, len: usize) -> Result<Self> {
        let needed = start.saturating_add(len);
        if needed > self.len {
            return Err(Error::Length {
                tensor: "the whole of a part",
                len: self.len,
                needed,
            });
        }
        Ok(Self {
            start: self.start,
            offset: self.offset + start * size_of::<T>(),
            len,
            element: PhantomData,
        })
    }

    /// The same bytes as elements of another type of the same size.
    #[must_use]
    pub const fn cast<U>(self) -> Place<U> {
        const { assert!(size_of::<T>() == size_of::<U>()) };
        Place {
            start: self.start,
            offset: self.offset,
            len: self.len,
            element: PhantomData,
        }
    }
}

/// What is taken of an arena.
#[derive(Debug)]
pub(super) struct Layout {
    /// A number no other start of any arena has: it tells places of now from all others.
    start: u64,
    used: usize,
    capacity: usize,
}

impl Layout {
    /// Nothing of `capacity` bytes.
    pub(super) fn new(capacity: usize) -> Self {
        static STARTS: AtomicU64 = AtomicU64::new(0);
        Self {
            start: STARTS.fetch_add(1, Ordering::Relaxed),
            used: 0,
            capacity,
        }
    }

    pub(super) const fn used(&self) -> usize {
        self.used
    }

    pub(super) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// The next place, and where it and the bytes behind it end.
    ///
    /// # Errors
    /// [`Error::Length`] where there is no room for it.
    pub(super) fn reserve<T: Plain>(&mut self, len: usize) -> Result<(Place<T>, Range<usize>)> {
        let offset = self.used;
        let end = len.checked_mul(size_of::<T>());
        let end = end.and_then(|bytes| offset.checked_add(bytes));
        let next = end.and_then(|end| end.checked_next_multiple_of(ALIGNMENT));
        let (Some(end), Some(next)) = (end, next.filter(|&next| next <= self.capacity)) else {
            return Err(Error::Length {
                tensor: "the arena",
                len: self.capacity,
                needed: next.unwrap_or(usize::MAX),
            });
        };
        self.used = next;
        let place = Place {
            start: self.start,
            offset,
            len,
            element: PhantomData,
        };
        Ok((place, end..next))
    }

    /// The bytes of a place, where it is one of now.
    pub(super) fn range<T>(&self, place: Place<T>) -> Option<Range<usize>> {
        let bytes = place.len.checked_mul(size_of::<T>())?;
        let end = place.offset.checked_add(bytes)?;
        (place.start == self.start && end <= self.used).then_some(place.offset..end)
    }
}

/// What `bytes` in `tensors` take with their alignment; none where no memory is as large.
pub(super) fn needed(bytes: usize, tensors: usize) -> Option<usize> {
    let gaps = tensors.checked_mul(ALIGNMENT)?;
    bytes.checked_add(gaps)
}

/// Sizes to grow to, in the order they are tried: the next power of two, so that little growth
/// follows, then what is needed. None is past what an address can reach.
pub(super) fn sizes(needed: usize) -> impl Iterator<Item = usize> {
    let exact = needed.max(1).checked_next_multiple_of(ALIGNMENT);
    let roomy = exact.and_then(usize::checked_next_power_of_two);
    let fitting = |&size: &usize| isize::try_from(size).is_ok_and(|size| size < isize::MAX);
    let exact = exact.filter(|&exact| Some(exact) != roomy);
    [roomy, exact].into_iter().flatten().filter(fitting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_aligned_apart_and_inside() {
        let mut layout = Layout::new(1024);
        let (codes, gap) = layout.reserve::<u8>(5).unwrap();
        assert_eq!(gap, 5..256);
        let (scores, gap) = layout.reserve::<f32>(65).unwrap();
        assert_eq!(gap, 516..768);
        assert_eq!(layout.range(codes), Some(0..5));
        assert_eq!(layout.range(scores), Some(256..516));
        assert_eq!(layout.range(scores.cast::<i32>()), Some(256..516));
        assert_eq!((layout.used(), layout.capacity()), (768, 1024));
    }

    #[test]
    fn more_than_there_is_room_for_is_refused_and_changes_nothing() {
        let mut layout = Layout::new(512);
        layout.reserve::<u8>(1).unwrap();
        let error = layout.reserve::<f32>(65).unwrap_err();
        let says = "the arena holds 512 elements; 768 are needed";
        assert_eq!(error.to_string(), says);
        for absurd in [usize::MAX, usize::MAX / 4, usize::MAX / 4 + 1] {
            let error = layout.reserve::<f32>(absurd).unwrap_err();
            assert!(matches!(error, Error::Length { len: 512, .. }), "{error}");
        }
        assert_eq!(layout.used(), 256);
        assert!(layout.reserve::<f32>(64).is_ok());
    }

    #[test]
    fn parts_stay_inside_the_whole() {
        let mut layout = Layout::new(1024);
        layout.reserve::<u8>(1).unwrap();
        let (whole, _) = layout.reserve::<f32>(10).unwrap();
        let part = whole.part(3, 7).unwrap();
        assert_eq!(layout.range(part), Some(268..296));
        assert!(layout.range(whole.part(10, 0).unwrap()).is_some());
        for (start, len) in [(3, 8), (11, 0), (usize::MAX, 2), (2, usize::MAX)] {
            let error = whole.part(start, len).unwrap_err();
            assert!(matches!(error, Error::Length { len: 10, .. }), "{error}");
        }
        assert!(part.part(0, 8).is_err());
    }

    #[test]
    fn places_of_another_start_or_arena_are_none() {
        let mut layout = Layout::new(1024);
        let (old, _) = layout.reserve::<u8>(5).unwrap();
        let mut other = Layout::new(1024);
        let (foreign, _) = other.reserve::<u8>(5).unwrap();
        layout = Layout::new(1024);
        layout.reserve::<u8>(5).unwrap();
        assert_eq!(layout.range(old), None);
        assert_eq!(layout.range(foreign), None);
        assert_eq!(layout.range(old.part(0, 0).unwrap()), None);
    }

    #[test]
    fn growth_leaves_room_and_then_takes_what_is_needed() {
        let of = |needed| sizes(needed).collect::<Vec<_>>();
        assert_eq!(of(0), [256]);
        assert_eq!(of(1024), [1024]);
        assert_eq!(of(1025), [2048, 1280]);
        let large = (1 << 62) + 1;
        assert_eq!(of(large), [(1 << 62) + 256]);
        assert_eq!(of(usize::MAX), [0; 0]);
        assert_eq!(needed(10, 2), Some(522));
        assert_eq!(needed(usize::MAX, 1), None);
        assert_eq!(needed(0, usize::MAX), None);
    }
}
