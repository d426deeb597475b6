//! Next hop objects, and the routes that go with them.

use super::Mirror;
use super::event::Event;
use super::hops::Object;

impl Mirror {
    pub(super) fn new_object(&mut self, id: u32, object: Object, dumped: bool, sink: &mut dyn FnMut(Event<'_>)) {
        if let Object::Single { leg, .. } = &object {
            // The kernel is about to remove it.
            let down = self.interfaces.get(&leg.interface).is_some_and(|known| !known.value.shown.up);
            if dumped && down {
                return;
            }
        }
        if self.paths.sets.put_object(id, object, self.generation) {
            self.doubt |= dumped && self.loaded;
            let numbers = self.paths.sets.numbers_of(id);
            self.refresh(&numbers, &[], sink);
        }
    }

    /// Objects are gone, with groups that have no other member, and all routes by them.
    pub(super) fn remove_objects(&mut self, ids: &[u32], sink: &mut dyn FnMut(Event<'_>)) {
        let (mut numbers, mut gone) = (Vec::new(), Vec::new());
        for id in ids {
            // Before the groups lose it.
            numbers.extend(self.paths.sets.numbers_of(*id));
            let removed = self.paths.sets.remove_object(*id);
            gone.extend(removed.into_iter().filter_map(|id| self.paths.sets.find_object(id)));
        }
        numbers.sort_unstable();
        numbers.dedup();
        self.refresh(&numbers, &gone, sink);
    }
}
