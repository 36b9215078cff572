//! The setup of a program of chares: makes its arrays before the chares run.

use std::rc::Rc;

use gridloom_chare::balance::Balancer;
use gridloom_chare::{
    AsyncContext, Chare, Context, Element, Elements, Index, Migrate, Packing, Pe, Placement, Proxy, Reducer, Shape,
    Start, Value,
};

use crate::Error;

/// One element of a program of chares, while its arrays are made. Every element makes the same arrays in the same order.
#[derive(Debug)]
pub struct Job<'a> {
    element: &'a mut Element,
}

impl<'a> Job<'a> {
    pub(super) fn new(element: &'a mut Element) -> Job<'a> {
        Job { element }
    }

    /// Makes an array of chares. `make` creates those that begin on this element.
    ///
    /// # Errors
    /// If the placement names an element that does not exist, or the chares' message type is not valid.
    pub fn array<C: Chare>(
        &mut self,
        shape: impl Into<Shape>,
        placement: Placement,
        make: impl FnMut(Index) -> C,
    ) -> Result<Proxy<C>, Error> {
        self.array_named(name_of::<C>(), shape, placement, make)
    }

    /// Makes an array of chares that can move ([`Context::migrate_to`]). `make` creates the chares that begin on this
    /// element, without a state, and those that arrive later, with their state.
    ///
    /// # Errors
    /// As [`Job::array`].
    pub fn migratable_array<C: Migrate>(
        &mut self,
        shape: impl Into<Shape>,
        placement: Placement,
        make: impl Fn(Index, Option<C::State>) -> C + 'static,
    ) -> Result<Proxy<C>, Error> {
        let make = Rc::new(make);
        let again = make.clone();
        let packing = Packing::of_state(move |index, state| again(index, Some(state)));
        self.packed_array(name_of::<C>(), shape, placement, |index| make(index, None), packing)
    }

    /// Like [`Job::array_named`], but the chares can move; `packing` packs and unpacks them.
    ///
    /// # Errors
    /// As [`Job::array`].
    pub fn packed_array<C: Chare>(
        &mut self,
        name: &str,
        shape: impl Into<Shape>,
        placement: Placement,
        make: impl FnMut(Index) -> C,
        packing: Packing<C>,
    ) -> Result<Proxy<C>, Error> {
        Ok(self.element.migratable_array(name, shape.into(), &placement, make, packing)?)
    }

    /// Like [`Job::array`]; errors and traces show `name` instead of the name of the chares' type.
    ///
    /// # Errors
    /// As [`Job::array`].
    pub fn array_named<C: Chare>(
        &mut self,
        name: &str,
        shape: impl Into<Shape>,
        placement: Placement,
        make: impl FnMut(Index) -> C,
    ) -> Result<Proxy<C>, Error> {
        Ok(self.element.array(name, shape.into(), &placement, make)?)
    }

    /// Starts an asynchronous method of each chare of the array with the program: see [`Context::spawn`]. If the
    /// program resumes from a checkpoint, it continues at the callback of that checkpoint, and this does nothing.
    pub fn spawn<C: Chare, F: Future<Output = ()> + 'static>(
        &mut self,
        array: Proxy<C>,
        method: impl Fn(AsyncContext<C>) -> F + 'static,
    ) {
        self.element.spawn(array, method);
    }

    /// Makes an array with one chare on each element; the index of a chare is the element's number.
    ///
    /// # Errors
    /// As [`Job::array`].
    pub fn group<C: Chare>(&mut self, mut make: impl FnMut(Pe) -> C) -> Result<Proxy<C>, Error> {
        let elements = self.elements().count() as usize;
        self.array(elements, Placement::RoundRobin, |index| make(Pe(index[0] as u32)))
    }

    /// True if the chare exchanges messages with other sites, according to [`Placement::by_communication`]; always
    /// false with another placement. Entry methods call [`Context::is_at_border`].
    pub fn is_at_border<C>(&self, array: &Proxy<C>, index: impl Into<Index>) -> bool {
        self.element.is_at_border(array.id(), &index.into())
    }

    /// Returns the element on which the chare begins; `None` if the array has no such index. A program can use it to
    /// run first those chares that exchange messages with other sites ([`Elements::site`]).
    pub fn element_of<C>(&self, array: &Proxy<C>, index: impl Into<Index>) -> Option<Pe> {
        self.element.element_of(array.id(), &index.into())
    }

    /// Registers a reducer of the program. It must be associative, and also commutative unless contributions are ordered.
    pub fn reducer(&mut self, combine: impl Fn(Value, Value) -> Value + 'static) -> Reducer {
        self.try_reducer(move |left, right| Ok(combine(left, right)))
    }

    /// Like [`Job::reducer`], for one that may fail: its error ends the program.
    pub fn try_reducer(&mut self, combine: impl Fn(Value, Value) -> Result<Value, String> + 'static) -> Reducer {
        self.element.reducer(Rc::new(combine))
    }

    /// Sets the load balancer, by name. It moves chares of migratable arrays whenever that pays off. `gridloom chares
    /// run --balance NAME` overrides it.
    ///
    /// # Errors
    /// If there is no balancer of that name.
    pub fn balance(&mut self, name: &str) -> Result<(), Error> {
        self.element.set_balancer(Balancer::by_name(name).map_err(Error::Input)?);
        Ok(())
    }

    /// Limits the bytes of messages from all other elements that are queued at an element (default: 256 MiB); each
    /// sender has an equal share. A sender may queue as much again, up to 64 MiB, at its own element for one receiver.
    /// Beyond that, chares that send do not run until some messages have run. Every element must set the same limit.
    ///
    /// # Errors
    /// If it is 0.
    pub fn mailbox_bytes(&mut self, bytes: u64) -> Result<(), Error> {
        if bytes == 0 {
            return Err(Error::Input("mailbox_bytes 0: the limit must be at least 1 byte".into()));
        }
        self.element.limit_mailbox(bytes);
        Ok(())
    }

    /// Sends the first messages; runs on the first element only.
    pub fn start(&mut self, start: impl FnOnce(&mut Context<'_, Start>)) {
        self.element.start(start);
    }

    /// The number of this element.
    pub fn element(&self) -> Pe {
        self.element.me()
    }

    pub fn elements(&self) -> &Elements {
        self.element.elements()
    }
}

/// Returns the name of a type without the path of its module.
fn name_of<C>() -> &'static str {
    let path = std::any::type_name::<C>();
    path.split('<').next().unwrap_or(path).rsplit("::").next().unwrap_or(path)
}
