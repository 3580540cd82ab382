//! What a kernel is compiled for.

use crate::{Error, Result};
use std::fmt;

/// A real architecture, never a virtual one: what is compiled is what gets loaded.
///
/// Shown as the compiler takes it: `sm_80`, and from 9.0 on with the suffix of the architecture's
/// own instructions, `sm_90a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Arch {
    /// Of the compute capability.
    pub major: u32,
    /// Of the compute capability.
    pub minor: u32,
}

impl Arch {
    /// What every kernel is compiled for where there is no GPU.
    pub const CI: [Self; 5] = [
        Self::new(8, 0),
        Self::new(8, 9),
        Self::new(9, 0),
        Self::new(10, 0),
        Self::new(12, 0),
    ];

    const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// The architecture of the GPU `name`, from its compute capability.
    ///
    /// # Errors
    /// [`Error::DeviceTooOld`] below 8.0.
    pub fn from_capability(name: &str, major: u32, minor: u32) -> Result<Self> {
        if major < 8 {
            return Err(Error::DeviceTooOld {
                name: name.to_owned(),
                major,
                minor,
            });
        }
        Ok(Self::new(major, minor))
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = if self.major >= 9 { "a" } else { "" };
        write!(f, "sm_{}{}{suffix}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_compiler() {
        let names = Arch::CI.map(|arch| arch.to_string());
        assert_eq!(names, ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"]);
        let found = Arch::from_capability("B300", 10, 3).map(|arch| arch.to_string());
        assert_eq!(found.as_deref(), Ok("sm_103a"));
    }

    #[test]
    fn gpus_before_8_0_are_refused() {
        assert!(Arch::from_capability("A100", 8, 0).is_ok());
        let error = Arch::from_capability("T4", 7, 5).unwrap_err();
        assert_eq!(
            error.to_string(),
            "T4 has compute capability 7.5; kernels need 8.0 or later"
        );
    }
}
