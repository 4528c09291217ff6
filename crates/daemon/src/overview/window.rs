//! Which of the open histories are meant: a page of their names, in order.

use std::collections::BTreeMap;
use std::ops::Bound;

use headwater_core::id::HistoryName;

/// A page of open histories, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Only names that begin so.
    pub prefix: String,
    /// Only names after this one.
    pub after: String,
    /// So many of them at most.
    pub limit: usize,
}

impl Window {
    /// Histories on a page, where nobody asks for another number.
    pub const LIMIT_DEFAULT: usize = 50;
    /// Most histories on a page: about 300 KiB of HTML.
    pub const LIMIT_MAX: usize = 200;

    /// What of an ordered map is in the window. Looks at that and nothing else.
    pub fn of<'a, T>(
        &'a self,
        map: &'a BTreeMap<HistoryName, T>,
    ) -> impl Iterator<Item = (&'a HistoryName, &'a T)> {
        let begin = if self.after < self.prefix {
            Bound::Included(self.prefix.as_str())
        } else {
            Bound::Excluded(self.after.as_str())
        };
        map.range::<str, _>((begin, Bound::Unbounded))
            .take_while(|(name, _)| name.as_str().starts_with(&self.prefix))
            .take(self.limit)
    }

    /// One more than fits, so that it shows whether there is another page.
    #[must_use]
    pub fn and_one_more(&self) -> Self {
        Self { limit: self.limit.saturating_add(1), ..self.clone() }
    }
}

impl Default for Window {
    fn default() -> Self {
        Self { prefix: String::new(), after: String::new(), limit: Self::LIMIT_DEFAULT }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(prefix: &str, after: &str, limit: usize) -> Vec<String> {
        let all = ["a", "b/1", "b/2", "b/3", "c"];
        let map = all.map(|it| (HistoryName::parse(it).unwrap(), ())).into();
        let window = Window { prefix: prefix.into(), after: after.into(), limit };
        window.of(&map).map(|(name, ())| name.to_string()).collect()
    }

    #[test]
    fn a_page_is_what_comes_after_a_name_and_begins_so() {
        assert_eq!(names("", "", 2), ["a", "b/1"]);
        assert_eq!(names("", "b/1", 9), ["b/2", "b/3", "c"]);
        assert_eq!(names("b/", "", 9), ["b/1", "b/2", "b/3"]);
        assert_eq!(names("b/", "b/1", 1), ["b/2"]);
        assert_eq!(names("b/", "b/3", 9), [""; 0]);
        assert_eq!(names("b/", "z", 9), [""; 0]);
        assert_eq!(names("x", "", 9), [""; 0]);
    }
}
