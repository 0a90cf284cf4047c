//! Every lock of the tutorials breaks by a schedule of the recorded length, and Leasehold breaks by none.

use leasehold_hazards::judge::{Harm, Observable};
use leasehold_hazards::scene::{Scene, Timeline};
use leasehold_testkit::part::Part;

/// The scenes, and the length of the shortest schedule that breaks the lock of the tutorial.
const STEPS: &[(&str, usize)] = &[
    ("S0a", 2),
    ("S0b", 2),
    ("H1", 18),
    ("H2", 18),
    ("H3", 23),
    ("H4", 24),
    ("H5", 13),
    ("H6", 11),
    ("H7", 24),
    ("H8", 16),
    ("H9", 6),
    ("H10", 11),
    ("H11", 11),
    ("H12", 6),
    ("H13", 12),
    ("H14", 13),
    ("H15", 13),
    ("H16", 4),
    ("H17", 15),
    ("H18", 30),
    ("S6", 3),
    ("S8", 16),
    ("S10", 11),
    ("N7", 16),
    ("N8", 27),
    ("N9", 9),
];

fn steps(id: &str) -> usize {
    STEPS.iter().find(|(scene, _)| *scene == id).unwrap_or_else(|| panic!("{id} has no recorded length")).1
}

#[test]
fn each_lock_of_the_tutorials_breaks_by_a_schedule_of_the_recorded_length() {
    for scene in Scene::all() {
        let found = scene.break_it();
        assert_eq!(found.steps(), Some(steps(scene.id)), "{}: {}", scene.id, scene.title);
    }
    assert_eq!(STEPS.len(), Scene::all().len(), "a recorded length belongs to no scene");
}

#[test]
fn a_timeline_ends_with_the_harm_of_its_scene() {
    for scene in Scene::all().iter().filter(|scene| scene.seeks.is_exclusion()) {
        let (schedule, _) = scene.break_it().schedule.expect("the lock breaks");
        let rows = Timeline::of(&scene.flawed_search(), &schedule).rows;
        let inside = |row: usize| rows[row].inside.len();
        assert_eq!(inside(rows.len() - 1), 2, "{}: two threads are inside at the end", scene.id);
        if scene.seeks == Observable::Overstay {
            assert!((0..rows.len() - 1).all(|row| inside(row) < 2), "{}: and not before", scene.id);
        }
    }
}

/// The scenes of a quorum take some seconds, so they are a test of their own that runs beside this one.
fn ours_holds(is_chosen: impl Fn(&Scene) -> bool) {
    let mut chosen = 0;
    for scene in Part::chosen().of(Scene::all().iter().filter(|scene| is_chosen(scene))) {
        chosen += 1;
        let found = scene.try_ours();
        assert_eq!(found.schedule, None, "{}: {}", scene.id, scene.title);
        assert!(found.is_whole, "{}: the search reached all of its {} states", scene.id, found.states);
        let overlaps = found.overlaps();
        assert_eq!(overlaps > 0, scene.ours.permits.is_some(), "{}: {overlaps} overlaps", scene.id);
        // Of two threads that may hold at once, the first to enter can have the larger token.
        if scene.ours.permits.is_none() {
            let late = found.count(|harm| matches!(harm, Harm::StaleWrite(_)));
            assert_eq!(found.refused(), late, "{}: the fence refuses each late write, and no other", scene.id);
        }
    }
    assert!(chosen > 0);
}

#[test]
fn no_schedule_breaks_leasehold_on_one_server() {
    ours_holds(|scene| scene.ours.store == "redis://");
}

#[test]
fn no_schedule_breaks_leasehold_on_a_quorum() {
    ours_holds(|scene| scene.ours.store == "quorum:");
}

#[test]
fn a_search_finds_the_same_schedule_again() {
    let scene = Scene::find("h4").expect("H4 is a scene");
    let (first, second) = (scene.break_it(), scene.break_it());
    assert_eq!(first.schedule, second.schedule);
    assert_eq!(first.states, second.states);
}
