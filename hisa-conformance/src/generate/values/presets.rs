//! Combinations of kinds that are worth a name.

use super::{CodeKind, Codes, RowKind, ScaleKind, Scales, Values, WeightKind};

/// A combination of kinds with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// The word after `v=`.
    pub name: &'static str,
    /// Kinds of q, k, `k_scale`, weights and x.
    pub kinds: (CodeKind, CodeKind, ScaleKind, WeightKind, RowKind),
    /// What the combination is for.
    pub about: &'static str,
}

impl Preset {
    /// The combination as values.
    #[must_use]
    pub const fn values(&self) -> Values {
        let (q, k, s, w, x) = self.kinds;
        Values {
            q,
            k: Codes::Kind(k),
            s: Scales::Kind(s),
            w,
            x,
        }
    }

    /// True where strict mode refuses the values a kind of this preset can draw.
    #[must_use]
    pub const fn is_permissive(&self) -> bool {
        let (q, k, s, w, _) = self.kinds;
        matches!(q, CodeKind::All | CodeKind::Nan)
            || matches!(k, CodeKind::All | CodeKind::Nan)
            || matches!(s, ScaleKind::Special)
            || matches!(w, WeightKind::Special)
    }
}

/// The named combinations. Names and meanings are part of the address grammar: append only.
pub const PRESETS: &[Preset] = {
    use CodeKind as C;
    use RowKind as X;
    use ScaleKind as S;
    use WeightKind as W;
    const fn preset(name: &'static str, kinds: (C, C, S, W, X), about: &'static str) -> Preset {
        Preset { name, kinds, about }
    }
    &[
        preset(
            "normal",
            (C::Normal, C::Normal, S::Random, W::Normal, X::Normal),
            "Plain random data: everything at once, nothing in particular.",
        ),
        preset(
            "real",
            (C::Amax, C::Amax, S::Own, W::Normal, X::Bf16),
            "What a model feeds: rows quantised to 448 with scales near 0.01 (BR-89).",
        ),
        preset(
            "pow2",
            (C::Amax, C::Amax, S::Pow2, W::Normal, X::Bf16),
            "Quantised rows with power-of-two scales, as Ue8m0 leaves them.",
        ),
        preset(
            "heavy",
            (C::Heavy, C::Heavy, S::Random, W::Normal, X::Heavy),
            "Few elements carry a dot: alignment to the largest product loses the rest.",
        ),
        preset(
            "uniform",
            (C::Uniform, C::Uniform, S::Random, W::Normal, X::Normal),
            "Every finite code in every role.",
        ),
        preset(
            "zeros",
            (C::Normal, C::Zeros, S::Block, W::Normal, X::Zeros),
            "Zero rows, zero blocks and blocks that cancel to zero (BR-79).",
        ),
        preset(
            "ties",
            (C::Few, C::Few, S::One, W::One, X::Bf16),
            "Small integer scores: exact ties at every rank (BR-12).",
        ),
        preset(
            "dup",
            (C::Normal, C::Dup, S::One, W::Normal, X::Normal),
            "Four distinct keys: ties between keys far apart.",
        ),
        preset(
            "plateau",
            (C::Positive, C::Plateau, S::Random, W::Positive, X::Zeros),
            "Most scores exactly 0, few above: the k-th place lies in the plateau (BR-10).",
        ),
        preset(
            "ulp",
            (C::E0, C::E0, S::Ulp, W::First, X::Boundary),
            "Scores one unit in the last place apart, many of them equal (BR-07).",
        ),
        preset(
            "extreme",
            (C::Extreme, C::Extreme, S::Random, W::Normal, X::Boundary),
            "The ends of the format meet in one dot.",
        ),
        preset(
            "subnormal",
            (C::Subnormal, C::Subnormal, S::Tiny, W::Normal, X::Small),
            "Subnormal codes with subnormal scales: scores down to the last bit and to zero.",
        ),
        preset(
            "cancel",
            (C::Paired, C::Cancel, S::Random, W::Cancel, X::Boundary),
            "Terms that dwarf their sum, within a dot and across heads (BR-91).",
        ),
        preset(
            "tiny",
            (C::Normal, C::Normal, S::Tiny, W::Tiny, X::Small),
            "Subnormal scales and weights: what flushing to zero loses.",
        ),
        preset(
            "huge",
            (C::Normal, C::Normal, S::Huge, W::Huge, X::Heavy),
            "Scores, head sums and block means that overflow.",
        ),
        preset(
            "wide",
            (C::Normal, C::Normal, S::Wide, W::Wide, X::Heavy),
            "Every exponent: sums that no f64 holds exactly.",
        ),
        preset(
            "zeroscale",
            (C::Normal, C::Normal, S::Zeros, W::Normal, X::Zeros),
            "Scales of +0.0 and -0.0 among others (BR-81, BR-32).",
        ),
        preset(
            "allzero",
            (C::Normal, C::Normal, S::Zero, W::Normal, X::Zeros),
            "Every scale zero: every score ties, every pooled scale is the floor (BR-81).",
        ),
        preset(
            "zeroweight",
            (C::Normal, C::Normal, S::Random, W::Zero, X::Zeros),
            "Heads of weight +0.0 and -0.0 (BR-101).",
        ),
        preset(
            "bf16weight",
            (C::Few, C::Few, S::One, W::Bf16, X::Bf16),
            "Weights that bf16 rounds onto each other (BR-92).",
        ),
        preset(
            "pooltie",
            (C::Normal, C::PoolTie, S::Block, W::Normal, X::Boundary),
            "Block means halfway between two codes: a reciprocal shows (BR-85).",
        ),
        preset(
            "pooltie2",
            (C::Normal, C::PoolTie, S::Pow2, W::Normal, X::Boundary),
            "The same under scales that differ by powers of two within a block.",
        ),
        preset(
            "floor",
            (C::Normal, C::PoolTie, S::Floor, W::Normal, X::Small),
            "Pooled scales on both sides of 1e-10, amax on both sides of 1e-4.",
        ),
        preset(
            "nan",
            (C::Normal, C::Nan, S::Random, W::Normal, X::Special),
            "Some keys hold a NaN code: it must reach their scores and no others.",
        ),
        preset(
            "nanq",
            (C::Nan, C::Normal, S::Random, W::Normal, X::Special),
            "Some heads of some queries hold a NaN code: their whole rows are NaN.",
        ),
        preset(
            "all",
            (C::All, C::All, S::Random, W::Normal, X::Special),
            "All 256 codes.",
        ),
        preset(
            "special",
            (C::Normal, C::Normal, S::Special, W::Normal, X::Special),
            "NaN, infinite, negative and -0.0 scales among others (BR-17, BR-88).",
        ),
        preset(
            "specialw",
            (C::Normal, C::Normal, S::Special, W::Special, X::Special),
            "NaN and infinite weights as well (BR-18).",
        ),
    ]
};

/// The named combination with this name.
#[must_use]
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn presets_are_distinct_and_found_by_name_and_by_kinds() {
        let names: HashSet<_> = PRESETS.iter().map(|preset| preset.name).collect();
        assert_eq!(names.len(), PRESETS.len());
        for entry in PRESETS {
            assert_eq!(preset(entry.name), Some(entry));
            assert_eq!(entry.values().preset_name(), Some(entry.name));
            assert!(entry.about.ends_with('.'));
        }
        assert_eq!(preset("none"), None);
    }

    #[test]
    fn every_kind_is_in_a_preset_or_serves_programs() {
        let used = |kind: CodeKind| {
            PRESETS
                .iter()
                .any(|p| p.kinds.0 == kind || p.kinds.1 == kind)
        };
        for &kind in CodeKind::ALL {
            assert!(
                used(kind) || matches!(kind, CodeKind::Zero | CodeKind::Basis),
                "{kind}"
            );
        }
        for &kind in ScaleKind::ALL {
            assert!(
                PRESETS.iter().any(|preset| preset.kinds.2 == kind),
                "{kind}"
            );
        }
        for &kind in WeightKind::ALL {
            let used = PRESETS.iter().any(|preset| preset.kinds.3 == kind);
            assert!(used || kind == WeightKind::Minus, "{kind}");
        }
        for &kind in RowKind::ALL {
            assert!(
                PRESETS.iter().any(|preset| preset.kinds.4 == kind),
                "{kind}"
            );
        }
    }
}
