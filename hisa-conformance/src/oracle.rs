//! Second, independent implementation.
