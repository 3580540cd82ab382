//! What is hunted: a fault with its job and its check, wherever it is planted.

#[cfg(feature = "cuda")]
use crate::backend::cuda::faults::{self, Fault};
use crate::backend::mutant::{MUTANTS, Mutant};
use crate::backend::{Backend, BackendError, by_name};
use crate::op::Op;

/// A planted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// In the scalar port.
    Port(&'static Mutant),
    /// In a kernel on the GPU.
    #[cfg(feature = "cuda")]
    Kernel(&'static Fault),
}

macro_rules! of_fault {
    ($planted:expr, $field:ident) => {
        match $planted {
            Planted::Port(mutant) => mutant.$field,
            #[cfg(feature = "cuda")]
            Planted::Kernel(fault) => fault.$field,
        }
    };
}

impl Planted {
    /// The fault of that name: that of a mutant, or what is behind `cuda-fault:`.
    ///
    /// # Errors
    /// [`BackendError::Unknown`].
    pub fn by_name(name: &str) -> Result<Self, BackendError> {
        #[cfg(feature = "cuda")]
        if let Some(fault) = name.strip_prefix(faults::PREFIX) {
            let found = faults::named(fault).map(Self::Kernel);
            return found.ok_or_else(|| unknown(name.to_owned()));
        }
        let found = MUTANTS.iter().find(|mutant| mutant.name == name);
        let unknown = || unknown(format!("mutant:{name}"));
        found.map(Self::Port).ok_or_else(unknown)
    }

    /// Its word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        of_fault!(self, name)
    }

    /// Kind of fault: 7 for K7.
    #[must_use]
    pub const fn kind(self) -> u8 {
        of_fault!(self, kind)
    }

    /// The job in which it sits.
    #[must_use]
    pub const fn op(self) -> Op {
        of_fault!(self, op)
    }

    /// Id of the check that is to find it first.
    #[must_use]
    pub const fn caught_by(self) -> &'static str {
        of_fault!(self, caught_by)
    }

    /// What is wrong, in a sentence.
    #[must_use]
    pub const fn about(self) -> &'static str {
        of_fault!(self, about)
    }

    /// The backend it makes.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] for a kernel where there is no GPU.
    pub fn backend(self) -> Result<Box<dyn Backend>, BackendError> {
        match self {
            Self::Port(mutant) => by_name(&format!("mutant:{}", mutant.name)),
            #[cfg(feature = "cuda")]
            Self::Kernel(fault) => by_name(&format!("{}{}", faults::PREFIX, fault.name)),
        }
    }

    /// Whether one backend serves all cases: opening a device takes longer than a case. A port
    /// begins every case anew.
    pub(super) const fn is_kept(self) -> bool {
        !matches!(self, Self::Port(_))
    }
}

const fn unknown(name: String) -> BackendError {
    BackendError::Unknown { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_found_by_name_and_others_named_in_full() {
        let port = Planted::by_name(MUTANTS[0].name).unwrap();
        assert_eq!(port, Planted::Port(&MUTANTS[0]));
        assert_eq!(
            port.backend().unwrap().name().split_once(':').unwrap().0,
            "mutant"
        );
        assert!(!port.is_kept());
        let error = Planted::by_name("none of them").unwrap_err().to_string();
        assert!(error.contains("\"mutant:none of them\""), "{error}");
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn kernels_have_faults_too() {
        let planted = Planted::by_name("cuda-fault:map-absolute").unwrap();
        let told = (planted.name(), planted.kind(), planted.caught_by());
        assert_eq!(told, ("map-absolute", 9, "index_map.range"));
        assert!(planted.is_kept());
        let error = Planted::by_name("cuda-fault:none of them")
            .unwrap_err()
            .to_string();
        assert!(error.contains("\"cuda-fault:none of them\""), "{error}");
    }
}
