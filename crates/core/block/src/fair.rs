//! Fair turns between flows, when there is more work than can run at once.

use crate::line::Line;
use std::collections::{HashMap, VecDeque};

/// Items of several flows, taken one of each flow in turn: a flow with ten thousand items delays
/// the single item of another flow by one item.
#[derive(Debug)]
pub struct Fair<T> {
    urgent: VecDeque<T>,
    flows: HashMap<u64, Line<T>>,
    /// The flows that have items, each once; the first one is next.
    turns: VecDeque<u64>,
    spare: Vec<Line<T>>,
}

const SPARE_MAX: usize = 16;

impl<T> Default for Fair<T> {
    fn default() -> Fair<T> {
        Fair {
            urgent: VecDeque::new(),
            flows: HashMap::new(),
            turns: VecDeque::new(),
            spare: Vec::new(),
        }
    }
}

impl<T> Fair<T> {
    /// Adds an item at the end of its flow; returns its number there, for [`Fair::take`].
    pub fn push(&mut self, flow: u64, item: T) -> u64 {
        let queue = self.flows.entry(flow).or_insert_with(|| {
            self.turns.push_back(flow);
            self.spare.pop().unwrap_or_default()
        });
        queue.push(item)
    }

    /// Adds an item that [`Fair::pop`] takes before the items of all flows.
    pub fn push_urgent(&mut self, item: T) {
        self.urgent.push_back(item);
    }

    /// Takes the next item.
    pub fn pop(&mut self) -> Option<T> {
        if let Some(item) = self.urgent.pop_front() {
            return Some(item);
        }
        let flow = self.turns.pop_front()?;
        let queue = self.flows.get_mut(&flow)?;
        let item = queue.pop().map(|(item, _)| item);
        if queue.is_empty() {
            self.forget(flow);
        } else {
            self.turns.push_back(flow);
        }
        item
    }

    /// Takes the next urgent item if `is` accepts it.
    pub fn pop_urgent_if(&mut self, is: impl FnOnce(&T) -> bool) -> Option<T> {
        self.urgent.front().is_some_and(is).then(|| self.urgent.pop_front()).flatten()
    }

    /// Takes an item out before its turn. The item must still be inside: later its number may
    /// belong to another item.
    pub fn take(&mut self, flow: u64, number: u64) -> Option<T> {
        let queue = self.flows.get_mut(&flow)?;
        let item = queue.take(number);
        if queue.is_empty() {
            self.turns.retain(|turn| *turn != flow);
            self.forget(flow);
        }
        item
    }

    fn forget(&mut self, flow: u64) {
        let emptied = self.flows.remove(&flow);
        if self.spare.len() < SPARE_MAX {
            self.spare.extend(emptied);
        }
    }

    /// Returns all items, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.urgent.iter().chain(self.flows.values().flat_map(Line::iter))
    }

    /// Takes all items out.
    pub fn take_all(&mut self) -> Vec<T> {
        core::iter::from_fn(|| self.pop()).collect()
    }

    /// Returns `true` if there is no item.
    pub fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.turns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_flow_with_many_items_delays_another_by_one() {
        let mut fair = Fair::default();
        for item in 0..10_000 {
            fair.push(1, item);
        }
        assert_eq!(fair.pop(), Some(0));
        fair.push(2, -1);
        let next: Vec<_> = (0..2).filter_map(|_| fair.pop()).collect();
        assert!(next.contains(&-1), "{next:?}");
        fair.push_urgent(-2);
        assert_eq!((fair.pop(), fair.pop()), (Some(-2), Some(2)));
    }

    #[test]
    fn an_item_taken_out_has_no_turn() {
        let mut fair = Fair::default();
        let numbers = [1, 2, 2].map(|flow| fair.push(flow, flow));
        assert_eq!(fair.take(1, numbers[0]), Some(1));
        assert_eq!((fair.take(2, numbers[1]), fair.take(2, numbers[1])), (Some(2), None));
        assert_eq!((fair.push(1, 3), fair.pop(), fair.pop()), (numbers[0], Some(2), Some(3)));
        assert!(fair.pop().is_none() && fair.is_empty());
    }

    proptest! {
        #[test]
        fn turns_go_round(steps in prop::collection::vec((0u64..4, 0u8..3), 0..200)) {
            let (mut fair, mut model) = (Fair::default(), HashMap::<u64, VecDeque<u32>>::new());
            let mut waited = HashMap::<u64, usize>::new();
            for (number, (flow, step)) in steps.into_iter().enumerate() {
                let number = number as u32;
                if step < 2 {
                    fair.push(flow, (flow, number));
                    model.entry(flow).or_default().push_back(number);
                    continue;
                }
                let Some((flow, item)) = fair.pop() else {
                    prop_assert!(model.values().all(VecDeque::is_empty));
                    continue;
                };
                prop_assert_eq!(model.get_mut(&flow).and_then(VecDeque::pop_front), Some(item));
                for other in model.iter().filter(|(_, items)| !items.is_empty()) {
                    *waited.entry(*other.0).or_default() += 1;
                }
                waited.insert(flow, 0);
                prop_assert!(waited.values().all(|turns| *turns <= 4));
            }
            let left = model.values().map(VecDeque::len).sum::<usize>();
            prop_assert_eq!(fair.take_all().len(), left);
            prop_assert!(fair.is_empty());
        }
    }
}
