//! The inputs of public bug reports, one line each: numbers, flags, comment, address.
//!
//! Append only: comments may be improved, but an address stands for ever.

use super::{Entry, entry};
use crate::flags::Flag as F;

pub(super) const TABLE: &[Entry] = &[
    // Too many candidates in one coarse bin.
    entry(
        &[1],
        &[F::CoarseBin],
        "8192 scores that share their upper 22 bits",
        "hisa:M=1,N=8192,H=1,D=16,B=128,m=64,K=2048/win=0:8192\
         /q=e0,k=e0,s=prog:3f900000u400x8192,w=first,x=normal/seed=1",
    ),
    entry(
        &[2],
        &[F::CoarseBin],
        "5000 distinct scores in [1, 1.001) around the last place",
        "hisa:M=1,N=8192,H=1,D=16,B=128,m=64,K=2048/win=0:8192\
         /q=e0,k=e0,s=prog:40000000x100.3f800000+1x5000.3f000000x3092.perm,w=first,x=normal",
    ),
    entry(
        &[5],
        &[F::CoarseBin, F::UlpNeighbours],
        "a ladder of single units in the last place over 16448 keys",
        "hisa:M=1,N=16448,H=1,D=16,B=128,m=129,K=2048/win=0:16448\
         /q=e0,k=e0,s=prog:3f800000+1,w=first,x=normal",
    ),
    entry(
        &[5],
        &[F::CoarseBin, F::UlpNeighbours],
        "the same ladder over 16384 keys, the control",
        "hisa:M=1,N=16384,H=1,D=16,B=128,m=128,K=2048/win=0:16384\
         /q=e0,k=e0,s=prog:3f800000+1,w=first,x=normal",
    ),
    entry(
        &[7],
        &[F::UlpNeighbours, F::Ties],
        "scores that differ only in their last byte",
        "hisa:M=1,N=4096,H=1,D=16,B=64,m=64,K=64/win=0:4096\
         /q=e0,k=e0,s=prog:3f800000+1x256p.3f800000,w=first,x=normal",
    ),
    entry(
        &[8],
        &[F::Ties],
        "exactly K scores above a bin edge",
        "hisa:M=1,N=4,H=1,D=16,B=2,m=2,K=2/win=0:4\
         /q=e0,k=e0,s=prog:40000000x2.3f800000,w=first,x=normal",
    ),
    entry(
        &[8],
        &[],
        "the window holds exactly K keys",
        "hisa:M=1,N=10,H=1,D=16,B=4,m=3,K=7/win=2:9/v=real",
    ),
    // Ties, order, determinism.
    entry(
        &[10, 11, 15],
        &[F::ZeroPlateau],
        "100 positive scores, 8220 exact zeros, the last place among the zeros",
        "hisa:M=1,N=8320,H=1,D=16,B=128,m=65,K=2048/win=0:8320\
         /q=e0,k=e0,s=prog:3f800000+1x100.00000000.perm,w=first,x=normal",
    ),
    entry(
        &[10, 11],
        &[F::ZeroPlateau],
        "the same in small: one positive score, seven zeros",
        "hisa:M=1,N=8,H=1,D=16,B=2,m=4,K=4/win=0:8\
         /q=e0,k=e0,s=prog:00000000x5.3f800000.00000000,w=first,x=normal",
    ),
    entry(
        &[10, 11],
        &[F::ZeroPlateau],
        "a plateau made by the ReLU, not by the scales",
        "hisa:M=2,N=8320,H=2,D=16,B=128,m=65,K=2048/win=0:8320x2/v=plateau/seed=10",
    ),
    entry(
        &[12],
        &[F::ZeroPlateau],
        "three positive scores and 61 that the ReLU sets to zero; the lowest zeros are kept",
        "hisa:M=1,N=64,H=2,D=16,B=8,m=8,K=8/win=0:64/q=e0,k=e0,s=one,w=one,x=normal\
         /k._.0=b8,k.9.0=38,k.20.0=40,k.41.0=38",
    ),
    entry(
        &[13],
        &[F::Bf16Ties],
        "64 distinct block scores that all round to bf16 1.0",
        "hisa:M=1,N=128,H=1,D=16,B=2,m=8,K=8/win=0:128\
         /q=basis,k=blocks:3f800000+180x64.perm,s=own,w=first,x=normal",
    ),
    entry(
        &[13],
        &[F::Bf16Ties],
        "the same ranked by f32, where none of them tie",
        "hisa:M=1,N=128,H=1,D=16,B=2,m=8,K=8,rank=f32/win=0:128\
         /q=basis,k=blocks:3f800000+180x64.perm,s=own,w=first,x=normal",
    ),
    // NaN.
    entry(
        &[17],
        &[],
        "six NaN scores and two finite ones: the finite first, then the lowest NaN",
        "hisa:M=1,N=8,H=1,D=16,B=4,m=2,K=4/win=0:8/q=e0,k=e0,s=prog:\
         7fc00000x3.3f800000.7fc00000x2.40000000.7fc00000,w=first,x=normal",
    ),
    entry(
        &[18],
        &[],
        "row 0 is NaN through its weight, row 1 is ordinary",
        "hisa:M=2,N=4,H=1,D=16,B=2,m=2,K=4/win=0:4x2/v=real/w.0.0=7fc00000",
    ),
    entry(
        &[20],
        &[],
        "one place, three NaN: the lowest key, never the length",
        "hisa:M=1,N=3,H=1,D=16,B=4,m=1,K=1/win=0:3\
         /q=e0,k=e0,s=prog:7fc00000,w=first,x=normal",
    ),
    entry(
        &[21],
        &[],
        "one NaN code in a block of ones, one NaN in a row to quantise",
        "hisa:M=1,N=4,H=1,D=16,B=2,m=2,K=4/win=0:4/q=e0,k=zero,s=one,w=one,x=zeros\
         /k._._=38,k.1.3=7f,x._._=00000000,x.0.0=7fc00000,x.0.1=3f800000",
    ),
    entry(
        &[23, 42],
        &[],
        "three lanes of the last block lie past the keys",
        "hisa:M=1,N=5,H=1,D=16,B=4,m=2,K=8/win=0:5/v=real",
    ),
    entry(
        &[112],
        &[],
        "20 NaN among 64 scores",
        "hisa:M=1,N=64,H=1,D=16,B=16,m=4,K=64/win=0:64\
         /q=e0,k=e0,s=prog:7fc00000x20.3f800000+1.perm,w=first,x=normal",
    ),
    // Infinity and sentinels.
    entry(
        &[24],
        &[],
        "three finite scores, the rest true -inf, in a window that starts and ends mid-block",
        "hisa:M=1,N=60,H=1,D=16,B=8,m=8,K=16/win=3:54/q=e0,k=e0,s=prog:3f800000x3.\
         7f800000x7.40000000.7f800000x20.3f800000.7f800000x11.40400000.7f800000x10.3f800000,\
         w=minus,x=normal",
    ),
    entry(
        &[25],
        &[],
        "40 blocks of which the two ends are forced",
        "hisa:M=1,N=160,H=1,D=16,B=4,m=8,K=32/win=0:160\
         /q=basis,k=blocks:3f800000u800000,s=own,w=first,x=normal",
    ),
    entry(
        &[27],
        &[],
        "the only score is below any very negative constant",
        "hisa:M=1,N=1,H=1,D=16,B=4,m=1,K=1/win=0:1\
         /q=e0,k=e0,s=prog:49000000,w=minus,x=normal",
    ),
    entry(
        &[28],
        &[],
        "a true -inf inside the window is still a key",
        "hisa:M=1,N=3,H=1,D=16,B=4,m=1,K=3/win=0:3\
         /q=e0,k=e0,s=prog:3f800000.7f800000.40000000,w=minus,x=normal",
    ),
    entry(
        &[30],
        &[],
        "two forced blocks and room for one",
        "hisa:M=1,N=12,H=1,D=16,B=4,m=1,K=4/win=0:12/v=real",
    ),
    // Signed zero.
    entry(
        &[32],
        &[F::Ties],
        "+0, -0, +0 are one score",
        "hisa:M=1,N=3,H=1,D=16,B=4,m=1,K=2/win=0:3\
         /q=e0,k=e0,s=prog:00000000.80000000.00000000,w=first,x=normal",
    ),
    entry(
        &[33],
        &[F::Ties],
        "a dot of -0 through the ReLU and a weight of -1",
        "hisa:M=1,N=4,H=1,D=16,B=2,m=2,K=3/win=0:4\
         /q=e0,k=e0,s=one,w=minus,x=zeros/q._._.0=80,k.1.0=b8,k.2.0=00",
    ),
    // Fewer candidates than places.
    entry(
        &[34],
        &[],
        "four columns for two candidates",
        "hisa:M=1,N=2,H=1,D=16,B=2,m=1,K=4/win=0:2/v=real",
    ),
    entry(
        &[36],
        &[],
        "the same with more blocks than exist",
        "hisa:M=1,N=6,H=1,D=16,B=2,m=4,K=4/win=3:5/v=real",
    ),
    entry(
        &[37],
        &[],
        "causal rows of 1 to 8 keys, eight columns",
        "hisa:M=8,N=8,H=2,D=16,B=2,m=4,K=8/cu=0.8/v=real",
    ),
    entry(
        &[41],
        &[],
        "windows of 1, 2, 3, 5 and 7 keys, eight columns",
        "hisa:M=5,N=16,H=2,D=16,B=4,m=4,K=8/win=0:1.5:7.2:5.3:8.9:16/v=real",
    ),
    // Ragged tails and alignment.
    entry(
        &[42],
        &[],
        "a single block of which half is missing",
        "hisa:M=1,N=65,H=1,D=16,B=128,m=1,K=65/win=0:65/v=real",
    ),
    entry(
        &[45],
        &[],
        "32 rows, all empty",
        "hisa:M=32,N=1,H=1,D=16,B=4,m=1,K=4/win=0:0x16.1:1x16/v=real",
    ),
    entry(
        &[45, 54],
        &[],
        "32 rows and no key",
        "hisa:M=32,N=0,H=1,D=16,B=4,m=1,K=4/win=0:0x32/v=real",
    ),
    entry(
        &[46],
        &[],
        "rows of 24 bytes in, rows of 12 bytes out",
        "hisa:M=2,N=3,H=1,D=24,B=2,m=2,K=3/win=0:3x2/v=real",
    ),
    // Empty windows, zero-length sequences, empty tensors.
    entry(
        &[50],
        &[],
        "two sequences after an empty one",
        "hisa:M=2,N=2,H=1,D=16,B=2,m=1,K=2/cu=0.0.1.2/v=real",
    ),
    entry(
        &[50],
        &[],
        "one sequence after an empty one, which hides the fault",
        "hisa:M=2,N=2,H=1,D=16,B=2,m=1,K=2/cu=0.1.1.2/v=real",
    ),
    entry(
        &[51],
        &[],
        "repeated offsets at the end",
        "hisa:M=5,N=5,H=1,D=16,B=2,m=2,K=4/cu=0.3.5.5.5/v=real",
    ),
    entry(
        &[54],
        &[],
        "no row",
        "hisa:M=0,N=5,H=1,D=16,B=4,m=1,K=4/win=/v=real",
    ),
    entry(
        &[54],
        &[],
        "neither rows nor keys",
        "hisa:M=0,N=0,H=1,D=16,B=4,m=1,K=4/cu=0/v=real",
    ),
    entry(
        &[55],
        &[],
        "empty windows at both ends and in the middle, and one outside",
        "hisa:M=4,N=16,H=1,D=16,B=4,m=2,K=4/win=8:8.0:0.16:16.9:3/v=real",
    ),
    // Window coordinates, pooling across sequences.
    entry(
        &[57],
        &[],
        "blocks are flat: two of them, where three would start at the sequences",
        "hisa:M=8,N=8,H=1,D=16,B=4,m=2,K=4/cu=0.3.8/v=real",
    ),
    entry(
        &[57],
        &[],
        "64 flat blocks, where 65 would start at the sequences",
        "hisa:M=2048,N=2048,H=1,D=16,B=32,m=4,K=16/cu=0.781.2048/v=real",
    ),
    entry(
        &[59],
        &[],
        "row 3 sees only key 3",
        "hisa:M=6,N=6,H=1,D=16,B=2,m=2,K=4/cu=0.3.6/v=real",
    ),
    entry(
        &[96],
        &[],
        "the same sizes as the case before, cut elsewhere",
        "hisa:M=6,N=6,H=1,D=16,B=2,m=2,K=4/cu=0.2.6/v=real",
    ),
    // fp8 and scales.
    entry(
        &[75],
        &[],
        "1.0625001 between two codes: once in a row of scale 1",
        "hisa:M=1,N=1,H=1,D=16,B=1,m=1,K=1/win=0:1/q=zero,k=zero,s=one,w=one,x=zeros\
         /x.0.0=43e00000,x.0.1=3f880001,x.0.2=3f880000,x.0.3=bf880001,x.0.4=3f87ffff",
    ),
    entry(
        &[78],
        &[],
        "infinities in lanes 0 and 3",
        "hisa:M=1,N=2,H=1,D=16,B=1,m=1,K=1/win=0:1/q=zero,k=zero,s=one,w=one,x=normal\
         /x.0.0=7f800000,x.0.3=ff800000",
    ),
    entry(
        &[79],
        &[],
        "a zero token, a zero block and a block that cancels",
        "hisa:M=1,N=6,H=1,D=16,B=2,m=3,K=6/win=0:6/q=normal,k=normal,s=one,w=one,x=zeros\
         /k.1._=00,k.2._=00,k.3._=80,k.4._=38,k.5._=b8,x.0._=00000000,x.1._=80000000",
    ),
    entry(
        &[81],
        &[],
        "every scale is zero",
        "hisa:M=1,N=8,H=1,D=16,B=4,m=2,K=4/win=0:8/v=allzero",
    ),
    entry(
        &[85],
        &[F::PoolTie],
        "16 and 18 pool to 17, a tie that the scale 0.015 turns into 18",
        "hisa:M=1,N=2,H=1,D=16,B=2,m=1,K=2/win=0:2/q=e0,k=zero,s=one,w=one,x=normal\
         /k._.0=7e,k.0.1=58,k.1.1=59,s._=3c75c28f",
    ),
    // Formula and intermediate precision.
    entry(
        &[87],
        &[],
        "a negative head must not count: key 0 with dots (3, -2) beats key 1 with (2, 0)",
        "hisa:M=1,N=2,H=2,D=16,B=2,m=1,K=1/win=0:2/q=zero,k=zero,s=one,w=one,x=normal\
         /q.0.0.0=38,q.0.1.1=38,k.0.0=44,k.0.1=c0,k.1.0=40",
    ),
    entry(
        &[88],
        &[],
        "negative, NaN and infinite scales against positive, negative and zero dots",
        "hisa:M=1,N=5,H=1,D=16,B=8,m=1,K=5/win=0:5/q=e0,k=e0,s=prog:\
         bf800000x2.7fc00000.7f800000.3f800000,w=first,x=normal/k.1.0=b8,k.3.0=00",
    ),
    entry(
        &[89],
        &[],
        "codes of 1 under a scale of 0.0005: nothing is left if the product goes through fp8",
        "hisa:M=1,N=2,H=1,D=16,B=2,m=1,K=2/win=0:2/q=e0,k=e0,s=prog:3a03126f,w=first,x=normal",
    ),
    entry(
        &[91],
        &[F::Cancellation],
        "a dot of 120 whose terms are 200704, against a plain 60",
        "hisa:M=1,N=2,H=1,D=32,B=2,m=1,K=1/win=0:2/q=zero,k=zero,s=one,w=one,x=normal\
         /q.0.0.0=7e,q.0.0.1=7e,q.0.0.2=40,k.0.0=7e,k.0.1=fe,k.0.2=67,k.1.2=5f",
    ),
    entry(
        &[92],
        &[],
        "weights that bf16 makes equal decide the only place",
        "hisa:M=1,N=2,H=2,D=16,B=2,m=1,K=1/win=0:2/q=zero,k=zero,s=one,w=one,x=normal\
         /q.0.0.0=38,q.0.1.1=38,k.0.1=38,k.1.0=38,w.0.0=3f804000",
    ),
    entry(
        &[93],
        &[F::Bf16Ties],
        "block scores on and beside the ties of bf16",
        "hisa:M=1,N=16,H=1,D=16,B=2,m=4,K=4/win=0:16/q=basis,k=blocks:3f800000.3f808001.\
         3f808000.3f818000.3f810000.3f820000.3f817fff.3f800000,s=own,w=first,x=normal",
    ),
];
