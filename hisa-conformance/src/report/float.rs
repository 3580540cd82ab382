//! Floats in JSON: a number where JSON has one, else a word. Without this, infinity would become
//! `null`, which does not read back (BR-109).

use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// Writes `0.25`, `"inf"`, `"-inf"` or `"NaN"`.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.is_finite() {
        serializer.serialize_f64(*value)
    } else {
        serializer.serialize_str(&value.to_string())
    }
}

/// Reads what [`serialize`] writes.
///
/// # Errors
/// Anything else.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(f64),
        Word(String),
    }
    match Either::deserialize(deserializer)? {
        Either::Number(value) => Ok(value),
        Either::Word(word) => match word.as_str() {
            "inf" => Ok(f64::INFINITY),
            "-inf" => Ok(f64::NEG_INFINITY),
            "NaN" => Ok(f64::NAN),
            _ => Err(D::Error::custom(format!("{word:?} is no float"))),
        },
    }
}
