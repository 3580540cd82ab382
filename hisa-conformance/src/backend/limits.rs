//! The sizes a backend takes.

use serde::{Deserialize, Serialize};

/// The values one size may have.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Sizes {
    /// Every value.
    #[default]
    Any,
    /// This value and those below.
    Max(usize),
    /// These values.
    Only(Vec<usize>),
}

/// Most values of a list.
const VALUES_MAX: usize = 256;

impl Sizes {
    /// Whether it may have this value.
    #[must_use]
    pub fn takes(&self, value: usize) -> bool {
        match self {
            Self::Any => true,
            Self::Max(most) => value <= *most,
            Self::Only(values) => values.contains(&value),
        }
    }

    /// The value itself where it is taken, else one that is: the largest, or one of the list, all
    /// of which come up.
    #[must_use]
    pub fn fit(&self, value: usize) -> usize {
        match self {
            Self::Max(most) => value.min(*most),
            Self::Only(values) if !values.contains(&value) => {
                let at = value % values.len().max(1);
                values.get(at).copied().unwrap_or(value)
            }
            _ => value,
        }
    }

    /// Why a size of this name is not taken.
    fn complaint(&self, name: &str) -> String {
        match self {
            Self::Any => format!("{name} is taken"),
            Self::Max(most) => format!("{name} above {most}"),
            Self::Only(values) => {
                let values: Vec<String> = values.iter().map(usize::to_string).collect();
                format!("{name} not one of {}", values.join(", "))
            }
        }
    }

    fn check(&self, name: &str, least: usize) -> Result<(), String> {
        let values = match self {
            Self::Any => return Ok(()),
            Self::Max(most) => std::slice::from_ref(most),
            Self::Only(values) => values,
        };
        if values.is_empty() || values.len() > VALUES_MAX {
            let (found, most) = (values.len(), VALUES_MAX);
            return Err(format!(
                "limits: {name} lists {found} values; allowed are 1 to {most}"
            ));
        }
        match values.iter().find(|&&value| value < least) {
            Some(value) => Err(format!("limits: {name} is {value}; the least is {least}")),
            None => Ok(()),
        }
    }
}

/// What a backend takes of every size; everything by default. The names are those of SPEC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// H.
    #[serde(rename = "H")]
    pub heads: Sizes,
    /// D.
    #[serde(rename = "D")]
    pub dims: Sizes,
    /// D is a multiple of this.
    #[serde(rename = "D_multiple")]
    pub dims_multiple: usize,
    /// B.
    #[serde(rename = "B")]
    pub block_size: Sizes,
    /// M.
    #[serde(rename = "M")]
    pub rows: Sizes,
    /// N.
    #[serde(rename = "N")]
    pub keys: Sizes,
    /// K.
    #[serde(rename = "K")]
    pub topk: Sizes,
    /// m.
    #[serde(rename = "m")]
    pub blocks: Sizes,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            heads: Sizes::Any,
            dims: Sizes::Any,
            dims_multiple: 1,
            block_size: Sizes::Any,
            rows: Sizes::Any,
            keys: Sizes::Any,
            topk: Sizes::Any,
            blocks: Sizes::Any,
        }
    }
}

/// The sizes of a case or problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extents {
    /// H.
    pub heads: usize,
    /// D.
    pub dims: usize,
    /// B.
    pub block_size: usize,
    /// M.
    pub rows: usize,
    /// N.
    pub keys: usize,
    /// K.
    pub topk: usize,
    /// m.
    pub blocks: usize,
}

impl Limits {
    /// Why a size is not taken; `None` where all are.
    #[must_use]
    pub fn refuses(&self, sizes: &Extents) -> Option<String> {
        let all = [
            ("H", &self.heads, sizes.heads),
            ("D", &self.dims, sizes.dims),
            ("B", &self.block_size, sizes.block_size),
            ("M", &self.rows, sizes.rows),
            ("N", &self.keys, sizes.keys),
            ("K", &self.topk, sizes.topk),
            ("m", &self.blocks, sizes.blocks),
        ];
        let beyond = all.iter().find(|(_, limit, size)| !limit.takes(*size));
        if let Some((name, limit, _)) = beyond {
            return Some(limit.complaint(name));
        }
        let multiple = self.dims_multiple.max(1);
        let odd = !sizes.dims.is_multiple_of(multiple);
        odd.then(|| format!("D not a multiple of {multiple}"))
    }

    /// A number of dimensions that is taken, near this one or one of the list.
    #[must_use]
    pub fn fit_dims(&self, dims: usize) -> usize {
        let multiple = self.dims_multiple.max(1);
        match &self.dims {
            Sizes::Only(values) => {
                let fine = values
                    .iter()
                    .copied()
                    .filter(|value| value.is_multiple_of(multiple));
                Sizes::Only(fine.collect()).fit(dims)
            }
            Sizes::Any => dims.next_multiple_of(multiple),
            Sizes::Max(most) => dims
                .min(*most / multiple * multiple)
                .next_multiple_of(multiple),
        }
    }

    /// Whether there are sizes within the limits at all.
    ///
    /// # Errors
    /// Which limit is none.
    pub fn check(&self) -> Result<(), String> {
        self.heads.check("H", 1)?;
        self.dims.check("D", 1)?;
        self.block_size.check("B", 1)?;
        self.rows.check("M", 0)?;
        self.keys.check("N", 0)?;
        self.topk.check("K", 1)?;
        self.blocks.check("m", 1)?;
        if self.dims_multiple == 0 {
            return Err("limits: D_multiple is 0; the least is 1".to_owned());
        }
        let dims = self.fit_dims(1);
        if dims == 0 || !self.dims.takes(dims) || !dims.is_multiple_of(self.dims_multiple) {
            let multiple = self.dims_multiple;
            return Err(format!("limits: no D allowed is a multiple of {multiple}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_a_limit_of_its_own() {
        let sizes = Extents {
            heads: 3,
            dims: 24,
            block_size: 5,
            rows: 6,
            keys: 7,
            topk: 8,
            blocks: 9,
        };
        assert_eq!(Limits::default().refuses(&sizes), None);
        for (text, refused) in [
            (r#"{"H":2}"#, "H above 2"),
            (r#"{"D":[8,16]}"#, "D not one of 8, 16"),
            (r#"{"B":4}"#, "B above 4"),
            (r#"{"M":5}"#, "M above 5"),
            (r#"{"N":6}"#, "N above 6"),
            (r#"{"K":[7]}"#, "K not one of 7"),
            (r#"{"m":8}"#, "m above 8"),
            (r#"{"D_multiple":16}"#, "D not a multiple of 16"),
        ] {
            let limits: Limits = serde_json::from_str(text).unwrap();
            limits.check().unwrap();
            assert_eq!(limits.refuses(&sizes).as_deref(), Some(refused));
            let again = serde_json::to_string(&limits).unwrap();
            assert_eq!(serde_json::from_str::<Limits>(&again).unwrap(), limits);
        }
    }

    #[test]
    fn values_are_fitted_into_the_limits() {
        let only = Sizes::Only(vec![32, 64]);
        assert_eq!([32, 1, 2].map(|value| only.fit(value)), [32, 64, 32]);
        assert_eq!([3, 9].map(|value| Sizes::Max(4).fit(value)), [3, 4]);
        let dims = |dims: Sizes, multiple| Limits {
            dims,
            dims_multiple: multiple,
            ..Limits::default()
        };
        assert_eq!(dims(Sizes::Any, 16).fit_dims(17), 32);
        assert_eq!(dims(Sizes::Max(40), 16).fit_dims(100), 32);
        assert_eq!(dims(Sizes::Max(40), 16).fit_dims(1), 16);
        let listed = dims(Sizes::Only(vec![8, 48]), 16);
        assert_eq!([8, 9].map(|value| listed.fit_dims(value)), [48, 48]);
        assert!(dims(Sizes::Max(8), 16).check().is_err());
    }
}
