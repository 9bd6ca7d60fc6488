//! A queue whose items can be taken out of the middle.

use std::collections::VecDeque;

/// Items in the order added. Each has a number, by which it can be taken out without a search.
#[derive(Debug)]
pub(crate) struct Line<T> {
    /// The first and the last entry are never `None`.
    items: VecDeque<Option<T>>,
    first: u64,
}

impl<T> Default for Line<T> {
    fn default() -> Line<T> {
        Line { items: VecDeque::new(), first: 0 }
    }
}

impl<T> Line<T> {
    /// Adds an item at the end and returns its number. No other item has this number while the item
    /// is inside, and items that [`Line::pop`] has taken had smaller numbers.
    pub(crate) fn push(&mut self, item: T) -> u64 {
        self.items.push_back(Some(item));
        self.first + self.items.len() as u64 - 1
    }

    pub(crate) fn pop(&mut self) -> Option<(T, u64)> {
        let item = self.items.pop_front()??;
        let number = self.first;
        self.first += 1;
        self.trim();
        Some((item, number))
    }

    pub(crate) fn take(&mut self, number: u64) -> Option<T> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let item = self.items.get_mut(index)?.take();
        self.trim();
        item
    }

    fn trim(&mut self) {
        while let Some(None) = self.items.back() {
            self.items.pop_back();
        }
        while let Some(None) = self.items.front() {
            self.items.pop_front();
            self.first += 1;
        }
    }

    pub(crate) fn first(&self) -> Option<&T> {
        self.items.front()?.as_ref()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter().flatten()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_number_finds_nothing_once_its_item_had_its_turn() {
        let mut line = Line::default();
        let first = line.push("first");
        assert_eq!((line.pop(), line.take(first)), (Some(("first", first)), None));
        let second = line.push("second");
        assert!(second != first && line.take(first).is_none());
        assert_eq!(
            (line.take(second), line.take(second), line.pop()),
            (Some("second"), None, None)
        );
    }

    #[test]
    fn what_was_taken_out_behind_one_that_waits_leaves_no_room_behind() {
        let mut line = Line::default();
        line.push(0);
        for item in 1..10_000 {
            let number = line.push(item);
            line.take(number);
        }
        assert_eq!((line.items.len(), line.pop()), (1, Some((0, 0))));
    }

    proptest! {
        #[test]
        fn a_line_agrees_with_a_map(
            steps in prop::collection::vec((0u8..3, any::<prop::sample::Index>()), 0..200),
        ) {
            let (mut line, mut model) = (Line::default(), BTreeMap::new());
            for (item, (step, index)) in steps.into_iter().enumerate() {
                match step {
                    0 => {
                        let number = line.push(item);
                        prop_assert!(model.last_key_value().is_none_or(|(last, _)| *last < number));
                        model.insert(number, item);
                    }
                    1 => {
                        let next = model.pop_first().map(|(number, item)| (item, number));
                        prop_assert_eq!(line.pop(), next);
                    }
                    _ if model.is_empty() => {}
                    _ => {
                        let number = *model.keys().nth(index.index(model.len())).unwrap();
                        prop_assert_eq!(line.take(number), model.remove(&number));
                    }
                }
                prop_assert!(line.iter().eq(model.values()));
                prop_assert_eq!(line.first(), model.values().next());
                prop_assert_eq!(line.is_empty(), model.is_empty());
            }
        }
    }
}
