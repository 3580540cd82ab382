//! Stage 8, `index_map`.

use super::fault::Fault;
use super::launch::{Launch, Rows, load, store, wrapped};
use crate::backend::Guarded;

pub(super) fn run(
    launch: &Launch,
    slots: &Guarded<i32>,
    ids: &Guarded<i32>,
    rows: &Rows,
    out: &mut Guarded<i32>,
) {
    let (b, kept) = (launch.b as i64, ids.columns());
    let mut columns = slots.columns();
    if launch.is(Fault::MapNarrow) {
        let filled = |row: usize| slots.row(row).iter().filter(|&&slot| slot >= 0).count();
        columns = (0..launch.m).map(filled).max().unwrap_or(columns);
        *out = Guarded::filled(&[launch.m, columns], -1);
    }
    for row in 0..launch.m {
        let window = rows.row(row);
        let origin = match launch.fault {
            Fault::MapAbsolute => 0,
            Fault::MapBlockRelative => window.ks / b * b,
            Fault::MapRowZero => rows.row(0).ks,
            _ => window.ks,
        };
        let mapped = if launch.is(Fault::MapVectorTail) {
            columns / 4 * 4
        } else {
            columns
        };
        let base = wrapped(row * columns, launch.is(Fault::MapU16Row));
        for column in 0..mapped {
            let slot = i64::from(load(slots, (row * slots.columns() + column) as isize));
            let index = if slot < 0 && !launch.is(Fault::MapMinusOne) {
                match launch.fault {
                    Fault::MapPadLength => window.len() as i64,
                    _ => -1,
                }
            } else {
                let block = load(ids, (row * kept) as isize + (slot / b) as isize);
                let lane = if launch.is(Fault::MapOffsetIgnored) {
                    0
                } else {
                    slot % b
                };
                i64::from(block) * b + lane - origin
            };
            store(out, base + column as isize, index as i32);
        }
    }
}
