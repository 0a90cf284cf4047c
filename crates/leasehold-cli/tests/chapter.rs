//! The timelines of docs/why-redis-locks-break.md are those that `leasehold lab show` prints.
#![cfg(feature = "lab")]

use std::fs;
use std::path::Path;

use leasehold_hazards::scene::{Scene, Timeline};

#[test]
fn each_timeline_of_the_chapter_is_what_the_search_finds() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/why-redis-locks-break.md");
    let page = fs::read_to_string(page).expect("the chapter exists");
    let mut blocks = page.split("<!-- timeline: ").skip(1);
    let mut ids = Vec::new();
    for block in &mut blocks {
        let (id, rest) = block.split_once(" -->\n```text\n").expect("a block follows its name");
        let (printed, _) = rest.split_once("\n```").expect("the block ends");
        let scene = Scene::find(id).expect("the block names a scene");
        let (schedule, _) = scene.break_it().schedule.expect("the lock breaks");
        let lines = Timeline::of(&scene.flawed_search(), &schedule).lines();
        assert_eq!(printed, lines.join("\n"), "{id} (print it again with: leasehold lab show {id})");
        ids.push(id);
    }
    let missing: Vec<_> = (1..=18).map(|n| format!("H{n}")).filter(|id| !ids.contains(&id.as_str())).collect();
    assert_eq!(missing, ["H17"], "H17 is about a setting, and the chapter does not tell it");
}
