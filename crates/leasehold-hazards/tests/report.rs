//! The page of the report is well-formed, complete and self-contained, and it shows what the model found.
//!
//! A test leaves the page in the temporary directory of the build, as `report.html`, to look at it.

use std::collections::HashSet;
use std::sync::OnceLock;

use leasehold_hazards::report;
use leasehold_hazards::scene::{Findings, Ours, Scene, Timeline};
use roxmltree::{Document, Node, ParsingOptions};

/// The searches of Leasehold end after this many states, so that the tests end soon. The figures do not need more.
const MOST_STATES: usize = 60_000;

fn search(scene: &Scene) -> Findings {
    Findings { flawed: scene.break_it(), ours: scene.try_ours_up_to(MOST_STATES) }
}

fn results() -> &'static [(&'static Scene, Findings)] {
    static RESULTS: OnceLock<Vec<(&Scene, Findings)>> = OnceLock::new();
    RESULTS.get_or_init(|| Scene::all().iter().map(|scene| (scene, search(scene))).collect())
}

fn page() -> &'static str {
    static PAGE: OnceLock<String> = OnceLock::new();
    PAGE.get_or_init(|| report::page(results()))
}

fn parse(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(page, options).unwrap_or_else(|error| panic!("the page is not well-formed: {error}"))
}

fn all<'a>(node: Node<'a, 'a>, tag: &'static str) -> impl Iterator<Item = Node<'a, 'a>> {
    node.descendants().filter(move |node| node.has_tag_name(tag))
}

fn is_of(node: Node<'_, '_>, class: &str) -> bool {
    node.attribute("class").is_some_and(|classes| classes.split(' ').any(|other| other == class))
}

fn text(node: Node<'_, '_>) -> String {
    node.descendants().filter(Node::is_text).filter_map(|node| node.text()).collect()
}

fn section<'a>(document: &'a Document<'a>, id: &str) -> Node<'a, 'a> {
    let found: Vec<_> = all(document.root(), "section").filter(|node| node.attribute("id") == Some(id)).collect();
    assert_eq!(found.len(), 1, "{id} has one section");
    found[0]
}

/// Returns the figure with this ID, if there is one.
fn figure<'a>(document: &'a Document<'a>, id: &str) -> Option<Node<'a, 'a>> {
    all(document.root(), "figure").find(|node| node.attribute("id") == Some(id))
}

#[test]
fn each_hazard_has_one_section_and_a_figure_of_its_schedule() {
    std::fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/report.html"), page()).unwrap();
    let document = parse(page());
    let ids: Vec<_> = Scene::all().iter().map(|scene| scene.id).collect();
    let sections = all(document.root(), "section").filter_map(|node| node.attribute("id"));
    assert_eq!(sections.collect::<Vec<_>>(), ids);
    let contents: Vec<_> = all(document.root(), "nav").flat_map(|nav| all(nav, "a")).collect();
    let links = contents.iter().filter_map(|link| link.attribute("href")?.strip_prefix('#'));
    assert_eq!(links.collect::<Vec<_>>(), ids, "the contents have one line for each hazard");
    for scene in Scene::all() {
        let section = section(&document, scene.id);
        let breaks = format!("{}-breaks", scene.id);
        let figures: Vec<_> = all(section, "figure").filter_map(|node| node.attribute("id")).collect();
        assert_eq!(figures.iter().filter(|id| **id == breaks).count(), 1, "{}", scene.id);
        assert!(figures.len() <= 2, "{}: {figures:?}", scene.id);
        let words = text(section);
        for part in [scene.lock, scene.story, scene.remedy, scene.ours.store] {
            assert!(words.contains(part), "{}: {part}", scene.id);
        }
    }
}

#[test]
fn red_is_where_the_model_found_an_overlap_and_nowhere_else() {
    let document = parse(page());
    for (scene, findings) in results() {
        let (schedule, _) = findings.flawed.schedule.as_ref().expect("the lock breaks");
        let timeline = Timeline::of(&scene.flawed_search(), schedule);
        let figure = figure(&document, &format!("{}-breaks", scene.id)).expect("the hazard has a figure");
        assert_red(scene, figure, &timeline);
        assert_eq!(is_red(figure), scene.seeks.is_exclusion(), "{}", scene.id);
        let chips: Vec<_> = all(section(&document, scene.id), "span").filter(|node| is_of(*node, "chip")).collect();
        assert_eq!(chips.len(), 1, "{}", scene.id);
        assert_eq!(is_of(chips[0], "overlap"), scene.seeks.is_exclusion(), "{}", scene.id);
    }
    // Nothing but an overlap may use a red.
    let style = all(document.root(), "style").map(text).collect::<String>();
    for rule in style.split('}').filter(|rule| rule.contains("var(--red")) {
        assert!(rule.contains("overlap"), "a rule that is not about overlaps is red: {rule}");
    }
}

fn is_red(figure: Node<'_, '_>) -> bool {
    figure.descendants().any(|node| is_of(node, "overlap"))
}

/// Checks that each thread has red bars if and only if it is inside together with another one.
fn assert_red(scene: &Scene, figure: Node<'_, '_>, timeline: &Timeline) {
    let steps = timeline.rows.chunk_by(|row, next| row.step == next.step).filter_map(<[_]>::last);
    let together: HashSet<_> =
        steps.filter(|row| row.inside.len() > 1).flat_map(|row| row.inside.iter().map(|it| it.thread)).collect();
    let bars = all(figure, "rect").filter(|node| is_of(*node, "overlap") && !is_of(*node, "band"));
    let heights: HashSet<_> = bars.filter_map(|node| node.attribute("y")).collect();
    assert_eq!(heights.len(), together.len(), "{}: a red bar for each thread of the overlap", scene.id);
    let bands = all(figure, "rect").filter(|node| is_of(*node, "band") && is_of(*node, "overlap")).count();
    assert_eq!(bands > 0, !together.is_empty(), "{}: the overlap is a region", scene.id);
    let says = text(figure).contains("hold at once");
    assert_eq!(says, !together.is_empty(), "{}: the overlap has a label", scene.id);
}

#[test]
fn leasehold_has_a_figure_where_a_guarantee_permits_an_overlap_or_the_fence_refuses_a_write() {
    let document = parse(page());
    for (scene, findings) in results() {
        let id = format!("{}-leasehold", scene.id);
        let Some(figure) = figure(&document, &id) else {
            assert!(!["H5", "H9", "H11"].contains(&scene.id), "{id} is missing");
            continue;
        };
        let noted = findings.ours.noted.iter();
        let shown = noted.map(|(.., schedule)| Timeline::of(&scene.our_search(), schedule));
        let shown = shown.max_by_key(|timeline| timeline.rows.len()).expect("the search noted a schedule");
        assert_red(scene, figure, &shown);
        assert_eq!(is_red(figure), scene.ours.permits.is_some(), "{id}");
        assert!(text(figure).contains("holds, token 1"), "{id}: the bars carry tokens");
        let guarantee = scene.ours.permits.unwrap_or("by its own clock");
        assert!(text(figure).contains(guarantee), "{id}: {guarantee}");
    }
    for id in ["H5-leasehold", "H9-leasehold"] {
        let figure = figure(&document, id).expect("the figure was found above");
        assert!(text(figure).contains("refused"), "{id}: the fence refuses the late write");
    }
}

#[test]
fn the_page_loads_nothing() {
    let document = parse(page());
    for node in document.descendants().filter(Node::is_element) {
        assert!(!["script", "link", "img", "image", "iframe"].contains(&node.tag_name().name()), "{node:?}");
        for attribute in node.attributes() {
            let value = attribute.value();
            assert!(!["src", "srcset", "data"].contains(&attribute.name()), "{node:?}");
            assert!(attribute.name() != "href" || value.starts_with('#'), "{value}");
            assert!(!attribute.name().starts_with("on"), "{}", attribute.name());
        }
    }
    let style = all(document.root(), "style").map(text).collect::<String>();
    assert!(!style.contains("@import") && !style.contains("http"));
    assert!(style.match_indices("url(").all(|(at, _)| style[at..].starts_with("url(#")));
    // A browser does not unescape the text of a style sheet.
    assert!(!style.contains(['&', '<', '>', '"']));
}

#[test]
fn each_picture_is_described_and_each_id_is_unique() {
    let document = parse(page());
    let ids: Vec<_> = document.descendants().filter_map(|node| node.attribute("id")).collect();
    let unique: HashSet<_> = ids.iter().copied().collect();
    assert_eq!(unique.len(), ids.len(), "an ID occurs twice");
    for link in all(document.root(), "a").filter_map(|node| node.attribute("href")) {
        assert!(unique.contains(&link[1..]), "{link} leads nowhere");
    }
    for picture in all(document.root(), "svg").filter(|node| node.attribute("aria-hidden") != Some("true")) {
        assert_eq!(picture.attribute("role"), Some("img"));
        let labels = picture.attribute("aria-labelledby").expect("a picture has a label").split(' ');
        let found: Vec<_> = labels.map(|id| picture.children().find(|node| node.attribute("id") == Some(id))).collect();
        let tags: Vec<_> =
            found.into_iter().flatten().map(|node| (node.tag_name().name(), !text(node).is_empty())).collect();
        assert_eq!(tags, [("title", true), ("desc", true)]);
    }
}

#[test]
fn texts_of_a_scene_are_escaped() {
    let title = "</title><script>alert('&amp;')</script> \"";
    let scene = Scene { title, story: title, lock: title, remedy: title, ..*Scene::find("H9").unwrap() };
    let page = report::page(&[(&scene, search(&scene))]);
    let document = parse(&page);
    assert_eq!(all(document.root(), "script").count(), 0);
    let story = all(section(&document, "H9"), "p").find(|node| text(*node) == title);
    assert!(story.is_some(), "the story is in the page as it was written");
}

#[test]
fn an_unfinished_search_is_reported_as_unfinished() {
    let scene = Scene::find("H3").unwrap();
    let findings = Findings { ours: scene.try_ours_up_to(10), ..search(scene) };
    let page = report::page(&[(scene, findings)]);
    let words = text(section(&parse(&page), "H3"));
    assert!(words.contains("10, unfinished") && words.contains("no overlap so far"), "{words}");
}

#[test]
fn a_schedule_that_breaks_leasehold_is_reported() {
    let scene = Scene::find("H4").unwrap();
    let scene = Scene { ours: Ours { stage: scene.flawed, ..scene.ours }, ..*scene };
    let page = report::page(&[(&scene, search(&scene))]);
    let document = parse(&page);
    let figure = figure(&document, "H4-leasehold").expect("the schedule has a figure");
    assert!(is_red(figure));
    assert!(text(figure).contains("This schedule breaks Leasehold"));
    assert!(text(section(&document, "H4")).contains("broken: overlap"));
}
