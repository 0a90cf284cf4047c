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
mod cases;
mod check;

pub(crate) use check::main;
