//! Leasehold's laboratory.

mod models;

fn main() {
    models::main();
}
