//! Damage at random: whatever the bytes, an answer.

use super::{bits_of, i32s, open, outputs, tensor, valid, with};
use hisa_conformance::dump::{Data, InputDump, Options, OutputDump, Tensor, to_bytes};
use std::collections::BTreeMap;

/// splitmix64: the mutations are the same on every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Replaces the digits of one number in the header by another number.
fn renumber(bytes: &mut Vec<u8>, random: &mut Random) {
    const NUMBERS: [&str; 10] = [
        "0",
        "1",
        "3",
        "4294967296",
        "2147483647",
        "18446744073709551615",
        "-1",
        "1e3",
        "9223372036854775807",
        "99999999999999999999",
    ];
    let end = bytes.len() - 8;
    let header = 8..end.min(8 + u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize);
    let starts: Vec<_> = header
        .filter(|&at| bytes[at].is_ascii_digit() && !bytes[at - 1].is_ascii_digit())
        .collect();
    if starts.is_empty() {
        return;
    }
    let start = starts[random.below(starts.len())];
    let len = bytes[start..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let number = NUMBERS[random.below(NUMBERS.len())];
    bytes.splice(start..start + len, number.bytes());
    // Half of the time the header keeps an honest length, so that the number is looked at.
    if random.below(2) == 0 {
        let length = u64::from_le_bytes(*bytes.first_chunk().unwrap());
        let honest = (length + number.len() as u64).wrapping_sub(len as u64);
        bytes[..8].copy_from_slice(&honest.to_le_bytes());
    }
}

/// Swaps one word of the header for another of the same length, so that the sizes stay honest.
fn reword(bytes: &mut [u8], random: &mut Random) {
    const WORDS: [[&str; 2]; 7] = [
        ["F32", "I32"],
        ["I32", "F32"],
        ["I32", "U32"],
        ["U8", "I8"],
        ["U16", "F16"],
        ["ks", "ke"],
        ["\"k\"", "\"q\""],
    ];
    let [from, to] = WORDS[random.below(WORDS.len())];
    let found = bytes.windows(from.len()).enumerate();
    let places: Vec<_> = found
        .filter_map(|(at, window)| (window == from.as_bytes()).then_some(at))
        .collect();
    if !places.is_empty() {
        let at = places[random.below(places.len())];
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
}

/// Changes bytes behind the header only.
fn change_data(bytes: &mut [u8], random: &mut Random) {
    let start = 8 + u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    for _ in 0..=random.below(8) {
        let at = start + random.below(bytes.len() - start);
        bytes[at] = random.next() as u8;
    }
}

fn mutate(valid: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = valid.to_vec();
    match random.below(4) {
        0 => change_data(&mut bytes, random),
        1 => reword(&mut bytes, random),
        _ => mutate_anywhere(&mut bytes, random),
    }
    bytes
}

fn mutate_anywhere(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(3) {
        if bytes.len() < 24 {
            break;
        }
        let at = random.below(bytes.len());
        match random.below(8) {
            0 => bytes[at] = random.next() as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, random.next() as u8),
            4 => bytes[random.below(8)] = random.next() as u8,
            5 => {
                let from = random.below(bytes.len());
                let len = random.below(16).min(bytes.len() - at.max(from));
                bytes.copy_within(from..from + len, at);
            }
            _ => renumber(bytes, random),
        }
    }
}

/// Whatever the bytes, an answer: no panic, and nothing larger than the file.
#[test]
fn mutated_files_never_panic_and_never_outgrow_themselves() {
    let metadata = BTreeMap::from([("block_size".to_owned(), "2".to_owned())]);
    let rows = with(&[
        ("ks", i32s(&[0, 0, 1])),
        ("ke", i32s(&[1, 2, 3])),
        ("x", u16s()),
    ]);
    let inputs = [valid(), rows].map(|tensors| to_bytes(&tensors, &metadata).unwrap());
    let files = [&inputs[0], &inputs[1], &bits_of(&outputs())].map(Clone::clone);
    let mut random = Random(20_260_328);
    let (mut opened, mut read) = (0, 0);
    for round in 0..9_000 {
        let bytes = mutate(&files[round % 3], &mut random);
        let theirs = safetensors::SafeTensors::deserialize(&bytes);
        let Ok(mut file) = open(&bytes) else { continue };
        opened += 1;
        assert!(
            theirs.is_ok(),
            "what is accepted here is a safetensors file"
        );
        let names: Vec<String> = file.names().map(str::to_owned).collect();
        let sizes = names.iter().map(|name| file.info(name).unwrap().bytes());
        assert!(sizes.sum::<u64>() < bytes.len() as u64);
        for name in &names {
            let _ = file.tensor(name, Data::DTYPES);
        }
        let _ = OutputDump::from_file(&mut file);
        if let Ok(dump) = InputDump::from_file(&mut file, &Options::default()) {
            read += 1;
            assert!(dump.windows().len() * 8 < bytes.len());
            dump.as_input().unwrap();
        }
    }
    assert!(
        opened > 3_000 && read > 500,
        "{opened} opened, {read} read: too few get past the header"
    );
}

fn u16s() -> Tensor<'static> {
    tensor(&[1, 2], Data::U16(vec![0x3F80, 0].into()))
}
