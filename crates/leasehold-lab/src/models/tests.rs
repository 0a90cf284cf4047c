//! The part of the models that is quick enough for every change.
