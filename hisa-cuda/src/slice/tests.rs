use super::*;
use crate::Error;

#[test]
fn tails_move_the_address_by_whole_elements_past_four_gigabytes() {
    // SAFETY: the address is never followed.
    let slice = unsafe { DeviceSlice::<f32>::from_raw(1 << 40, 3 << 31) };
    let tail = slice.tail(1 << 31);
    assert_eq!(tail.pointer(), (1 << 40) + (1 << 33));
    assert_eq!(tail.len(), 2 << 31);
    assert_eq!(slice.tail(usize::MAX).len(), 0);
}

#[test]
fn short_tensors_are_named() {
    // SAFETY: the address is never followed.
    let slice = unsafe { DeviceSlice::<u8>::from_raw(256, 7) };
    assert_eq!(slice.holding("q", 7).map(|q| q.pointer), Ok(256));
    let error = slice.holding("q", 8).unwrap_err();
    assert_eq!(error.to_string(), "q holds 7 elements; 8 are needed");
}

#[test]
fn heads_end_where_the_tensor_does() {
    // SAFETY: the address is never followed.
    let mut slice = unsafe { DeviceSliceMut::<f32>::from_raw(256, 7) };
    let head = slice.reborrow().first(3);
    assert_eq!((head.pointer(), head.len()), (256, 3));
    assert_eq!(slice.reborrow().first(8).len(), 7);
    let part = slice.read().tail(2).first(3);
    assert_eq!((part.pointer(), part.len()), (264, 3));
    assert_eq!(part.first(8).len(), 3);
}

#[test]
fn parts_of_a_tensor_stay_with_its_stream() {
    let id = |stream| StreamId::numbered(1, stream);
    // SAFETY: the address is never followed.
    let mut slice = unsafe { DeviceSliceMut::<f32>::ordered(256, 9, Order::Stream(id(5))) };
    let parts = [
        slice.holding("q", 9),
        slice.reborrow().holding("q", 9),
        slice.tail(2).holding("q", 7),
        slice.reborrow().first(7).holding("q", 7),
        slice.read().holding("q", 9),
        slice.read().tail(2).holding("q", 7),
        slice.read().first(7).holding("q", 7),
    ];
    for address in parts.map(Result::unwrap) {
        assert_eq!(address.of_stream(id(5)), Ok(address.pointer));
        let foreign = address.of_stream(id(6));
        assert_eq!(foreign, Err(Error::Stream { tensor: "q" }));
        let other_context = StreamId::numbered(2, 5);
        assert!(address.of_stream(other_context).is_err());
    }
}

#[test]
fn the_caller_orders_what_came_as_an_address() {
    // SAFETY: the address is never followed.
    let slice = unsafe { DeviceSlice::<u8>::from_raw(256, 7) };
    let id = StreamId::numbered(1, 5);
    assert_eq!(slice.holding("q", 7).unwrap().of_stream(id), Ok(256));
}

#[test]
fn no_tensor_is_refused_even_where_nothing_is_needed() {
    let nothing = DeviceSlice::<u8>::refused();
    let error = nothing.tail(0).first(0).holding("q", 0).unwrap_err();
    assert_eq!(error, Error::Place { tensor: "q" });
    assert_eq!(error.to_string(), "q is no tensor that the arena holds");
    assert!(DeviceSliceMut::<u8>::refused().holding("q", 0).is_err());
}
