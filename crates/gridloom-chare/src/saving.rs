//! Saves an element's chares, and restores saved ones.

use super::checkpoint::{Saved, SavedArray};
use super::core::Core;
use super::element::Element;
use super::error::ChareError;
use super::id::{ArrayId, Pe};
use super::location_table::Location;
use super::proxy::Callback;
use super::record::Control;
use super::value::Value;

impl Core {
    /// On the first element: handles quiescence for the callbacks that waited for it.
    pub(crate) fn on_quiescence(&mut self, callbacks: Vec<Callback>) {
        let saves = callbacks.iter().any(|callback| callback.saves);
        if saves && self.may_be_migrating() {
            return callbacks.into_iter().for_each(|callback| self.wait_for_quiescence(callback));
        }
        let next = if saves { self.next_elements() } else { None };
        let number = self.checkpoints.begin(saves, callbacks, self.elements.count(), next.is_some());
        let (elements, is_asked) = (next.map(|next| next.elements), next.is_some_and(|next| next.is_asked));
        let save = |number| Control::Save { number, elements, is_asked };
        match number {
            Some(number) => self.elements.clone().all().for_each(|element| self.send_control(element, save(number))),
            None => self.call_all_back(),
        }
    }

    /// On the first element: handles an element's report that it has saved, or cannot. If one cannot, the program
    /// continues once all have tried.
    pub(crate) fn on_saved(&mut self, number: u64, cannot: Option<String>) {
        if let Some(why) = self.checkpoints.saved(number, cannot) {
            self.refuse(&why);
            self.call_all_back();
        }
    }

    fn call_all_back(&mut self) {
        let callbacks = self.checkpoints.take_callbacks();
        callbacks.into_iter().for_each(|callback| self.call_back(callback, Value::Nothing));
    }
}

impl Element {
    /// Enables checkpoints: for every n-th request of chares, the owner gets bytes from [`Element::take_part`].
    /// `next` is the number of the first checkpoint. Only needed on the first element.
    pub fn keep_checkpoints(&mut self, every: u64, next: u64) {
        self.core.checkpoints.set_schedule(every, next);
    }

    /// Returns the number of a checkpoint, and this element's part for the owner to store. The owner then calls
    /// [`Element::saved`].
    ///
    /// # Errors
    /// If a chare cannot be saved.
    pub fn take_part(&mut self) -> Result<Option<(u64, Vec<u8>)>, ChareError> {
        let Some(number) = self.core.checkpoints.take_due() else { return Ok(None) };
        let mut arrays = Vec::new();
        for (at, array) in (0..).map(ArrayId).zip(&mut self.arrays) {
            let chares = array.save(&mut self.core, at)?;
            let roster = self.core.roster(at);
            let rounds = self.core.reductions[at.0 as usize].parts();
            arrays.push(SavedArray { name: roster.name.clone(), count: roster.shape.len() as u32, chares, rounds });
        }
        let saved = Saved { arrays, callbacks: self.core.checkpoints.callbacks().to_vec() };
        Ok(Some((number, postcard::to_allocvec(&saved).expect("serializing this type into a vector cannot fail"))))
    }

    /// Records that the owner has stored this element's part of a checkpoint.
    pub fn saved(&mut self, number: u64) {
        self.core.send_control(Pe(0), Control::Saved(number));
    }

    /// Reports that the owner cannot store this element's part. For a resize requested from outside; the program
    /// continues unchanged.
    pub fn cannot_save(&mut self, number: u64, why: &str) {
        let why = format!("element {} cannot save its chares: {why}", self.me().0);
        self.core.send_control(Pe(0), Control::SaveFailed { number, why });
    }

    /// Returns the number of the checkpoint that [`Element::take_part`] will return.
    pub fn due_checkpoint(&self) -> Option<u64> {
        self.core.checkpoints.due()
    }

    /// On the first element, when all have saved: reports that the owner cannot record the checkpoint. See
    /// [`Element::cannot_save`].
    pub fn cannot_complete(&mut self, why: &str) {
        self.core.refuse(why);
        self.core.call_all_back();
    }

    /// On the first element: returns a checkpoint that all have saved. The owner records it and calls [`Element::resume`].
    pub fn take_complete(&mut self) -> Option<u64> {
        self.core.checkpoints.take_complete()
    }

    /// On the first element: continues the program after a checkpoint, or from one.
    pub fn resume(&mut self) {
        self.core.call_all_back();
    }

    /// Marks the program as restarted from a checkpoint: [`Element::start`] then does nothing.
    pub fn set_restarted(&mut self) {
        self.core.checkpoints.set_restarted();
    }

    /// Splits an element's saved part by the elements on which its chares begin, for [`Element::restore`] there. Call
    /// it after all arrays were created and before any chare has moved.
    ///
    /// # Errors
    /// If `saved` was not written by chares of these arrays.
    pub fn shares(&self, saved: &[u8]) -> Result<Vec<Vec<u8>>, ChareError> {
        let wrong = |why: String| ChareError::Restore { array: "?".into(), why };
        let Saved { arrays, callbacks } = postcard::from_bytes(saved).map_err(|error| wrong(error.to_string()))?;
        if arrays.len() != self.arrays.len() {
            return Err(wrong(format!(
                "{} arrays were saved, but the program has {}",
                arrays.len(),
                self.arrays.len()
            )));
        }
        let empty =
            |of: &SavedArray| SavedArray { name: of.name.clone(), count: of.count, chares: vec![], rounds: vec![] };
        let share = |_| Saved { arrays: arrays.iter().map(empty).collect(), callbacks: Vec::new() };
        let mut shares: Vec<Saved> = self.elements().all().map(share).collect();
        shares[0].callbacks = callbacks;
        for ((at, array), number) in (0..).map(ArrayId).zip(arrays).zip(0..) {
            shares[self.core.root(at).0 as usize].arrays[number].rounds = array.rounds;
            for chare in array.chares {
                let element = match self.core.roster(at).location(chare.0) {
                    Some(Location::Here { .. }) => self.me(),
                    Some(Location::At(element)) => element,
                    None => {
                        return Err(wrong(format!(
                            "chare {} of array {} was saved, which the array does not have",
                            chare.0, array.name
                        )));
                    }
                };
                shares[element.0 as usize].arrays[number].chares.push(chare);
            }
        }
        let bytes = |share| postcard::to_allocvec(share).expect("serializing this type into a vector cannot fail");
        Ok(shares.iter().map(bytes).collect())
    }

    /// Restores the chares of this element from the parts of all elements, after all arrays were created. The first
    /// element then calls [`Element::resume`].
    ///
    /// # Errors
    /// If the parts were not written by chares of these arrays.
    pub fn restore(&mut self, of_all: &[Vec<u8>]) -> Result<(), ChareError> {
        let mut restored = vec![0; self.arrays.len()];
        for bytes in of_all {
            let wrong = |why: String| ChareError::Restore { array: "?".into(), why };
            let Saved { arrays, callbacks } = postcard::from_bytes(bytes).map_err(|error| wrong(error.to_string()))?;
            if arrays.len() != self.arrays.len() {
                return Err(wrong(format!(
                    "{} arrays were saved, but the program has {}",
                    arrays.len(),
                    self.arrays.len()
                )));
            }
            for ((at, saved), restored) in (0..).map(ArrayId).zip(arrays).zip(&mut restored) {
                *restored += self.restore_array(at, saved)?;
            }
            if self.me() == Pe(0) {
                self.core.checkpoints.restore_callbacks(callbacks);
            }
        }
        for (at, restored) in (0..).map(ArrayId).zip(restored) {
            let roster = self.core.roster(at);
            if restored != roster.natives().len() {
                let why = format!("{restored} of {} chares of this element were saved", roster.natives().len());
                return Err(ChareError::Restore { array: roster.name.clone(), why });
            }
        }
        Ok(())
    }

    /// Restores the chares of an array. Returns how many were restored on this element.
    fn restore_array(&mut self, at: ArrayId, saved: SavedArray) -> Result<usize, ChareError> {
        let SavedArray { name, count, chares, rounds } = saved;
        let roster = self.core.roster(at);
        if (&name, count as usize) != (&roster.name, roster.shape.len()) {
            let why = format!("{count} chares of {name} were saved, but it has {}", roster.shape.len());
            return Err(ChareError::Restore { array: roster.name.clone(), why });
        }
        let mut restored = 0;
        for (number, round, state) in chares {
            if let Some(Location::Here { slot }) = self.core.roster(at).location(number) {
                self.arrays[at.0 as usize].restore(&mut self.core, at, slot, &state)?;
                self.core.reductions[at.0 as usize].set_round(slot, round);
                restored += 1;
            }
        }
        if self.core.is_root(at) {
            for (round, part) in rounds {
                let count = self.core.roster(at).shape.len() as u32;
                let learned = self.core.reductions[at.0 as usize].add_part(round, part, count, &self.core.reducers);
                learned.map_err(|why| ChareError::Restore { array: name.clone(), why })?;
            }
        }
        Ok(restored)
    }
}
