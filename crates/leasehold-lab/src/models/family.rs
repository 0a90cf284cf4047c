//! Families of models: pools, condition variables, multi-locks. Each has scenes in which nothing may be found, and cases in
//! which one rule is off.

use std::fmt::Debug;

use leasehold_spec::mutant::Mutant;

use super::check::{Found, alone};
use super::options::Form;
use super::report::{head, print_broken, print_whole};
use super::rules;

pub(super) trait Family: Copy + Debug + Send + Sync + 'static {
    /// The size of a model, and how often each fault may happen in it.
    type Scene: Copy + Debug + Send + Sync;
    /// A flaw of the modeled session.
    type Slip: Copy + Debug + PartialEq + Send + Sync;
    /// A violation of a property.
    type Harm: Copy + Debug + PartialEq + Send + Sync;
    type Act: Copy;

    const TITLE: &'static str;
    const SCENES: &'static [Self::Scene];
    const CASES: &'static [Case<Self>];

    /// Returns the name of a scene, and what it is about.
    fn scene(scene: &Self::Scene) -> (&'static str, &'static str);

    fn harm(harm: Self::Harm) -> &'static str;

    fn explore(play: Play<Self>) -> Found<Self::Act>;

    /// Describes a schedule, line by line.
    fn describe(play: &Play<Self>, acts: &[Self::Act]) -> Vec<String>;
}

/// A scene, with one rule off or none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Play<F: Family> {
    pub(super) scene: &'static F::Scene,
    pub(super) off: Off<F::Slip>,
    /// The only violation that the search looks for; all of them if `None`.
    pub(super) watch: Option<F::Harm>,
}

/// A rule that is switched off: in the store's code, or in the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Off<S> {
    Nothing,
    Store(Mutant),
    Session(S),
}

/// A flaw, the scene that shows it, and the property that it violates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case<F: Family> {
    pub(super) rule: &'static str,
    pub(super) flaw: &'static str,
    pub(super) off: Off<F::Slip>,
    pub(super) scene: &'static F::Scene,
    pub(super) harm: F::Harm,
}

impl<F: Family> Play<F> {
    fn whole(scene: &'static F::Scene) -> Self {
        Self { scene, off: Off::Nothing, watch: None }
    }

    pub(super) fn slips(&self, slip: F::Slip) -> bool {
        self.off == Off::Session(slip)
    }

    /// Runs the search. Returns its result, with the schedule in words.
    fn search(self) -> (Found<F::Act>, Vec<String>) {
        let off = match self.off {
            Off::Store(mutant) => rules::Off::Store(mutant),
            Off::Nothing | Off::Session(_) => rules::Off::Nothing,
        };
        alone(off, || {
            let found = F::explore(self);
            let lines = found.harm.as_ref().map(|schedule| F::describe(&self, &schedule.acts)).unwrap_or_default();
            (found, lines)
        })
    }
}

impl<F: Family> Case<F> {
    fn play(&self) -> Play<F> {
        Play { scene: self.scene, off: self.off, watch: Some(self.harm) }
    }

    fn scene_name(&self) -> &'static str {
        F::scene(self.scene).0
    }
}

/// Returns the names of the scenes of a family.
pub(super) fn names<F: Family>() -> impl Iterator<Item = &'static str> {
    F::SCENES.iter().map(|scene| F::scene(scene).0).chain(F::CASES.iter().map(Case::scene_name))
}

/// Returns the rules of which a family has a flaw.
pub(super) fn rules<F: Family>() -> impl Iterator<Item = &'static str> {
    F::CASES.iter().map(|case| case.rule)
}

/// Runs the requested searches of a family. Returns the number of unexpected results.
pub(super) fn run<F: Family>(form: Form, rule: Option<&str>, is_meant: impl Fn(&str) -> bool) -> usize {
    let is_searched = |scene: &&F::Scene| rule.is_none() && is_meant(F::scene(scene).0);
    let scenes: Vec<_> = F::SCENES.iter().filter(is_searched).collect();
    if !scenes.is_empty() {
        let columns = ["scene", "what it is about", "states", "depth", "verdict"];
        head(form, &format!("{}, every rule on", F::TITLE), &columns);
    }
    let unsound = scenes.into_iter().filter(|scene| {
        let (found, lines) = Play::<F>::whole(scene).search();
        !print_whole(form, F::scene(scene), &found, &lines)
    });
    let unsound = unsound.count();
    let is_asked_for = |case: &&Case<F>| rule.is_none_or(|rule| rule == case.rule) && is_meant(case.scene_name());
    let cases: Vec<_> = F::CASES.iter().filter(is_asked_for).collect();
    if !cases.is_empty() {
        let columns = ["rule", "flaw", "scene", "steps", "states", "what it breaks"];
        head(form, &format!("{}, one rule off", F::TITLE), &columns);
    }
    let missed = cases.into_iter().filter(|case| {
        let (found, lines) = case.play().search();
        print_broken(form, (case.rule, case.flaw, case.scene_name()), &found, &lines);
        found.harm.is_none_or(|schedule| schedule.harm != F::harm(case.harm))
    });
    unsound + missed.count()
}

#[cfg(test)]
pub(super) mod tests {
    use leasehold_testkit::part::Part;

    use super::*;

    const EVIDENCE: &str = include_str!("../../../../docs/evidence.md");

    fn evidence_says(row: &str) {
        assert!(EVIDENCE.lines().any(|line| line.starts_with(row)), "docs/evidence.md does not say: {row}");
    }

    /// Checks that no scene has a counter-example, and that docs/evidence.md has the figures.
    pub(in crate::models) fn check_scenes<F: Family>() {
        for scene in Part::chosen().of(F::SCENES) {
            let (name, about) = F::scene(scene);
            let (found, lines) = Play::<F>::whole(scene).search();
            assert_eq!(found.harm.map(|schedule| schedule.harm), None, "{name}\n{}", lines.join("\n"));
            assert_eq!(found.missed, Vec::<&str>::new(), "{name} never reached it");
            evidence_says(&format!("| {name} | {about} | {} |", found.states));
        }
    }

    /// Checks that each case has a counter-example, that each of these rules has a case, and the figures likewise.
    pub(in crate::models) fn check_cases<F: Family>(modeled: &[&str]) {
        for rule in modeled {
            assert!(rules::<F>().any(|known| known == *rule), "{rule} has no flaw");
        }
        for case in Part::chosen().of(F::CASES) {
            let Case { rule, flaw, harm, .. } = *case;
            let (found, lines) = case.play().search();
            let schedule = found.harm.unwrap_or_else(|| panic!("{rule} {flaw}: nothing found"));
            assert_eq!(schedule.harm, F::harm(harm));
            assert!(lines.len() >= schedule.acts.len());
            evidence_says(&format!("| {rule} | {flaw} | {} | {} |", case.scene_name(), schedule.acts.len()));
        }
    }
}
