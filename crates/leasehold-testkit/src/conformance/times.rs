//! How long each call takes with this store, wherever it is made: the cells of [`crate::times`], on a store that answers.

use super::Verdict;
use super::stage::Stage;
use crate::times::{Call, Cell, Ground, Place, Weather, play};

/// Runs the call with every face, and every kind of runtime that can have connected.
pub(super) async fn run(call: Call, place: Place, stage: &Stage) -> Verdict {
    let backend = stage.running().backend();
    let is_this = |cell: &Cell| cell.weather == Weather::Healthy && cell.call == call && cell.place == place;
    let cells: Vec<Cell> = Cell::all(backend).into_iter().filter(is_this).collect();
    if cells.is_empty() {
        return Verdict::NotApplicable("no runtime has connected before it");
    }
    let (url, hand_over) = (stage.url().to_owned(), stage.running().hand_over());
    let named = cells.into_iter().map(|cell| (cell, stage.name_of(cell))).collect::<Vec<_>>();
    // The call blocks, and has threads of its own.
    let played = tokio::task::spawn_blocking(move || {
        let ground = Ground::new(&url, hand_over);
        let wrong = |(cell, name)| play(cell, &ground, name).wrong.map(|wrong| format!("{cell}: {wrong}"));
        named.into_iter().filter_map(wrong).collect::<Vec<_>>()
    });
    match played.await.expect("no panic") {
        wrong if wrong.is_empty() => Verdict::Passed,
        wrong => Verdict::Failed(wrong.join("; ")),
    }
}
