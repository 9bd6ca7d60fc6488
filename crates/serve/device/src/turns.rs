//! Turns: clients share a few threads fairly.
//!
//! A client goes to the end of the line when a thread takes one of its jobs. If there are several
//! threads, neither one client nor all clients of one image together may occupy all of them. At
//! least one job of each image may always run, whatever the jobs of other images wait for.

use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asker {
    pub(crate) client: (usize, u64),
    pub(crate) image: usize,
}

#[derive(Debug)]
pub(crate) struct Turns<J> {
    /// The jobs of each asker, in the order of their turns; no list is empty.
    waiting: VecDeque<(Asker, VecDeque<J>)>,
    running: Vec<Asker>,
    /// The most running jobs, not counting the first job of each image.
    further_max: usize,
    of_client_max: usize,
    of_image_max: usize,
}

impl<J> Turns<J> {
    /// One client may occupy half of `threads`, all clients of an image three quarters; each may
    /// occupy at least one.
    pub(crate) fn new(threads: usize) -> Turns<J> {
        Turns {
            waiting: VecDeque::new(),
            running: Vec::new(),
            further_max: threads.saturating_sub(1),
            of_client_max: (threads / 2).max(1),
            of_image_max: (threads * 3 / 4).max(1),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.iter().map(|(_, jobs)| jobs.len()).sum()
    }

    /// Adds a job; returns `true` if one more job of its asker may run now.
    pub(crate) fn push(&mut self, asker: Asker, job: J) -> bool {
        match self.waiting.iter_mut().find(|(waiting, _)| *waiting == asker) {
            Some((_, jobs)) => jobs.push_back(job),
            None => self.waiting.push_back((asker, VecDeque::from([job]))),
        }
        self.may_run(asker)
    }

    fn may_run(&self, asker: Asker) -> bool {
        let of_image = self.running.iter().filter(|other| other.image == asker.image).count();
        let is_within = self.of_client(asker) < self.of_client_max && of_image < self.of_image_max;
        of_image == 0 || is_within && self.further() < self.further_max
    }

    fn further(&self) -> usize {
        let before =
            |at: usize| self.running[..at].iter().any(|it| it.image == self.running[at].image);
        (0..self.running.len()).filter(|at| before(*at)).count()
    }

    fn of_client(&self, asker: Asker) -> usize {
        self.running.iter().filter(|other| other.client == asker.client).count()
    }

    /// Takes a job that may run, of the client that occupies the fewest threads; among several such
    /// clients, the first in the line. `None`: no job may run now. The job counts as running until
    /// [`Turns::end`].
    pub(crate) fn take(&mut self) -> Option<(Asker, J)> {
        let askers = self.waiting.iter().map(|(asker, _)| *asker).enumerate();
        let possible = askers.filter(|(_, asker)| self.may_run(*asker));
        let (next, _) = possible.min_by_key(|(_, asker)| self.of_client(*asker))?;
        let (asker, mut jobs) = self.waiting.remove(next)?;
        let job = jobs.pop_front()?;
        if !jobs.is_empty() {
            self.waiting.push_back((asker, jobs));
        }
        self.running.push(asker);
        Some((asker, job))
    }

    pub(crate) fn end(&mut self, asker: Asker) {
        if let Some(index) = self.running.iter().position(|running| *running == asker) {
            self.running.swap_remove(index);
        }
    }

    pub(crate) fn forget(&mut self, client: (usize, u64)) -> Vec<J> {
        let (gone, stay) = self.waiting.drain(..).partition(|(asker, _)| asker.client == client);
        self.waiting = stay;
        let gone: VecDeque<(Asker, VecDeque<J>)> = gone;
        gone.into_iter().flat_map(|(_, jobs)| jobs).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker(client: u64, image: usize) -> Asker {
        Asker { client: (0, client), image }
    }

    #[test]
    fn each_has_a_turn_before_any_has_two() {
        let mut turns = Turns::new(2);
        for job in 0..3 {
            turns.push(asker(1, 0), (1, job));
        }
        turns.push(asker(2, 0), (2, 0));
        turns.push(asker(3, 9), (3, 0));
        let order: Vec<_> = core::iter::from_fn(|| {
            let (asker, job) = turns.take()?;
            turns.end(asker);
            Some(job)
        })
        .collect();
        assert_eq!(order, [(1, 0), (2, 0), (3, 0), (1, 1), (1, 2)]);
    }

    #[test]
    fn threads_are_left_for_other_clients_and_for_other_images() {
        let mut turns = Turns::new(8);
        let mut taken = |client, image| {
            (0..20).for_each(|job| _ = turns.push(asker(client, image), job));
            core::iter::from_fn(|| turns.take()).count()
        };
        assert_eq!(taken(1, 0), 4, "half of them");
        assert_eq!(taken(2, 0), 2, "with another client of the image three quarters");
        assert_eq!(taken(3, 0), 0);
        assert_eq!(taken(4, 1), 3, "one for the image, and two that are left");
        assert_eq!(taken(5, 2), 1, "nothing is left but that");
        assert_eq!(turns.len(), 100 - 10);
        turns.end(asker(1, 0));
        assert_eq!(turns.take().map(|(asker, _)| asker), Some(asker(3, 0)), "it has none yet");
        assert!(turns.take().is_none());
    }

    #[test]
    fn jobs_of_a_client_that_has_gone_are_removed() {
        let mut turns = Turns::new(1);
        assert!(turns.push(asker(1, 0), 'a'));
        turns.take();
        assert!(!turns.push(asker(1, 0), 'b'), "not now");
        turns.push(asker(2, 0), 'c');
        turns.push(asker(1, 1), 'd');
        assert_eq!(turns.forget((0, 1)), ['b', 'd']);
        turns.end(asker(1, 0));
        assert_eq!(turns.take().map(|(_, job)| job), Some('c'));
    }
}
