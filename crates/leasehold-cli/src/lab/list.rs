//! `leasehold lab list`: the hazards.

use leasehold_hazards::scene::Scene;
use leasehold_hazards::text;

use crate::exit::{Exit, Failure};
use crate::show;

pub(super) fn run() -> Result<Exit, Failure> {
    let mut cells = vec![["ID", "HAZARD", "LOCK"].map(str::to_owned)];
    cells.extend(Scene::all().iter().map(|scene| [scene.id, scene.title, scene.lock].map(str::to_owned)));
    show::print(&text::table(&cells))
}
