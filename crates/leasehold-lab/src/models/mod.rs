//! The protocol as a model.

mod cases;
mod check;
mod hear;
mod ledger;
mod network;
mod properties;
mod rules;
mod scene;
mod scenes;
mod server;
mod session;
mod words;
mod world;

pub(crate) use check::main;
