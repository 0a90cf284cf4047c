//! The part of each large suite that runs: the cells of a matrix, the cases of a list, the seeds of a search.
//!
//! `LEASEHOLD_PART=1/2` runs the first of two parts, and `2/2` the other one. Without it everything runs. The checks of a
//! commit run the part that its hash chooses, and `scripts/full` runs everything.

/// A part of the large suites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    number: u64,
    parts: u64,
}

impl Part {
    /// Returns the part that `LEASEHOLD_PART` names.
    ///
    /// # Panics
    /// If the variable is not like `1/2`.
    #[must_use]
    pub fn chosen() -> Self {
        let Ok(text) = std::env::var("LEASEHOLD_PART") else { return Self { number: 1, parts: 1 } };
        Self::parse(&text).unwrap_or_else(|| panic!("LEASEHOLD_PART={text}: it is to be a part, like 1/2"))
    }

    fn parse(text: &str) -> Option<Self> {
        let (number, parts) = text.split_once('/')?;
        let (number, parts) = (number.parse().ok()?, parts.parse().ok()?);
        (1 <= number && number <= parts).then_some(Self { number, parts })
    }

    /// Whether everything runs.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        self.parts == 1
    }

    /// Whether the part has the case with this index.
    #[must_use]
    pub const fn has(self, index: usize) -> bool {
        index as u64 % self.parts == self.number - 1
    }

    /// Returns the cases of the part.
    pub fn of<T>(self, cases: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
        cases.into_iter().enumerate().filter(move |(index, _)| self.has(*index)).map(|(_, case)| case)
    }

    /// Returns how many repetitions the part has, of this many.
    #[must_use]
    pub const fn count(self, all: u64) -> u64 {
        all.div_ceil(self.parts)
    }

    /// Returns the first seed of the part, if all of these seeds begin with 1.
    #[must_use]
    pub const fn first_seed(self, all: u64) -> u64 {
        1 + (self.number - 1) * self.count(all)
    }
}

#[cfg(test)]
mod tests {
    use super::Part;

    fn part(text: &str) -> Part {
        Part::parse(text).expect("a part")
    }

    #[test]
    fn each_case_belongs_to_one_part() {
        for parts in 1..5 {
            let all = (1..=parts).map(|number| part(&format!("{number}/{parts}")));
            let mut cases: Vec<u64> = all.flat_map(|part| part.of(0..10)).collect();
            cases.sort_unstable();
            assert_eq!(cases, (0..10).collect::<Vec<_>>(), "{parts} parts");
        }
    }

    #[test]
    fn the_seeds_of_the_parts_follow_each_other() {
        assert_eq!(
            [part("1/2"), part("2/2")].map(|part| (part.first_seed(300), part.count(300))),
            [(1, 150), (151, 150)]
        );
        assert_eq!((part("1/1").first_seed(300), part("1/1").count(300)), (1, 300));
        assert!(part("1/1").is_whole() && !part("1/2").is_whole());
    }

    #[test]
    fn what_is_no_part_is_rejected() {
        assert_eq!(["", "1", "0/2", "3/2", "1/0", "a/b", "1/2/3"].map(Part::parse), [None; 7]);
    }
}
