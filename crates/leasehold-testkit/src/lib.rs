//! Real servers, faults and checks for Leasehold's tests.
