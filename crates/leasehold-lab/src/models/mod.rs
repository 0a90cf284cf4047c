//! The protocol as a model.

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
mod check;

pub(crate) use check::main;
