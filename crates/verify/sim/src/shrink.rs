//! Shortens a failing list of operations.

use crate::Failure;

/// Most orders in which `shrink` tries each shorter list.
const ORDERS: u64 = 6;

/// The shortest list found.
#[derive(Clone, Debug)]
pub struct Shrunk<T> {
    /// The items of the shrunk run.
    pub items: Vec<T>,
    /// The order in which the items fail; 0 is the order in which the whole list failed.
    pub order: u64,
    /// The failure of the shrunk run.
    pub failure: Failure,
}

/// Drops items of a failing list as long as the rest still fails, with any failure. `fails` runs a
/// list in an order. After `runs_max` runs no further list is tried.
pub fn shrink<T: Clone>(
    items: Vec<T>,
    failure: Failure,
    runs_max: usize,
    mut fails: impl FnMut(&[T], u64) -> Option<Failure>,
) -> Shrunk<T> {
    let mut size = items.len().div_ceil(2).max(1);
    let mut best = Shrunk { items, order: 0, failure };
    let mut runs = 0;
    loop {
        let mut at = 0;
        let before = best.items.len();
        while at < best.items.len() {
            if runs >= runs_max {
                return best;
            }
            let mut items = best.items.clone();
            items.drain(at..(at + size).min(best.items.len()));
            // Without an item all later draws change, so several orders are tried.
            let found = (best.order..best.order + ORDERS).find_map(|order| {
                runs += 1;
                Some((order, fails(&items, order)?))
            });
            match found {
                Some((order, failure)) => best = Shrunk { items, order, failure },
                None => at += size,
            }
        }
        if size == 1 && best.items.len() == before {
            return best;
        }
        size = size.div_ceil(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(message: String) -> Failure {
        Failure { seed: 1, message, trace: String::new() }
    }

    #[test]
    fn only_what_is_needed_is_left() {
        let fails = |items: &[u32], _| {
            let fours = items.iter().filter(|item| *item % 4 == 0).count();
            (fours > 2).then(|| failure(format!("{fours} fours")))
        };
        let items: Vec<u32> = (0..200).collect();
        let shrunk = shrink(items, failure("50 fours".to_owned()), 10_000, fails);
        assert_eq!((shrunk.items.len(), shrunk.failure.message.as_str()), (3, "3 fours"));
    }

    #[test]
    fn a_list_that_fails_in_another_order_alone_is_found() {
        let needed = |order| order % 3 == 1;
        let fails = |items: &[u32], order| {
            (items.contains(&7) && (items.len() == 50 || needed(order)))
                .then(|| failure(String::new()))
        };
        let shrunk = shrink((0..50).collect(), failure(String::new()), 10_000, fails);
        assert!(shrunk.items == [7] && needed(shrunk.order), "{shrunk:?}");
    }

    #[test]
    fn the_number_of_runs_is_bounded() {
        let mut runs = 0;
        let fails = |_: &[u32], _| {
            runs += 1;
            None
        };
        shrink((0..1_000).collect(), failure(String::new()), 100, fails);
        assert!((100..100 + ORDERS).contains(&runs), "{runs}");
    }
}
