//! Head sums of random shapes against the bound of any order.
