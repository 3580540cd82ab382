//! Reports whose trigger is a size: offsets beyond 32 bits, repeats at full occupancy.

use super::{Entry, entry};

pub(super) const TABLE: &[Entry] = &[
    entry(
        &[65],
        &[],
        "M*H*D just above 2^31: the last row must equal the same row alone",
        "hisa:M=262145,N=64,H=64,D=128,B=16,m=2,K=16/win=0:64x262145/v=ties/seed=1",
    ),
    entry(
        &[65],
        &[],
        "M*S at 2^31",
        "hisa:M=262144,N=8192,H=1,D=16,B=128,m=64,K=16/win=0:128x262143.0:8192/v=normal",
    ),
    entry(
        &[66],
        &[],
        "block 131072 starts 2^31 bytes into the keys",
        "hisa:M=2,N=16777217,H=1,D=128,B=128,m=4,K=16/win=16777000:16777217.0:16777217/v=ties",
    ),
    entry(
        &[67],
        &[],
        "M*N just above 2^31",
        "hisa:M=46341,N=46341,H=1,D=16,B=128,m=2,K=16/cu=0.46341/v=normal",
    ),
    entry(
        &[68],
        &[],
        "a billion scores",
        "hisa:M=2120,N=500000,H=1,D=16,B=128,m=3907,K=64/win=0:500000x2120/v=normal",
    ),
    entry(
        &[97],
        &[],
        "128 rows of DeepSeek heads over 4096 keys, to be run twenty times",
        "hisa:M=128,N=4096,H=64,D=128,B=128,m=8,K=256/win=0:4096x128/v=real",
    ),
    entry(
        &[100],
        &[],
        "D = 16 over 8192 keys",
        "hisa:M=4,N=8192,H=16,D=16,B=128,m=16,K=512/win=0:8192x4/v=real",
    ),
    entry(
        &[100],
        &[],
        "D = 32 over 8192 keys",
        "hisa:M=4,N=8192,H=16,D=32,B=128,m=16,K=512/win=0:8192x4/v=real",
    ),
    entry(
        &[100],
        &[],
        "D = 64 over 8192 keys",
        "hisa:M=4,N=8192,H=16,D=64,B=128,m=16,K=512/win=0:8192x4/v=real",
    ),
    entry(
        &[100],
        &[],
        "D = 96 over 8192 keys",
        "hisa:M=4,N=8192,H=16,D=96,B=128,m=16,K=512/win=0:8192x4/v=real",
    ),
    entry(
        &[100],
        &[],
        "D = 128 over 8192 keys",
        "hisa:M=4,N=8192,H=16,D=128,B=128,m=16,K=512/win=0:8192x4/v=real",
    ),
    entry(
        &[100],
        &[],
        "D = 256 over 8192 keys",
        "hisa:M=4,N=8192,H=16,D=256,B=128,m=16,K=512/win=0:8192x4/v=real",
    ),
];
