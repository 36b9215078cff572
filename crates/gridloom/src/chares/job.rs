//! What a program makes before its chares run.

use std::rc::Rc;

use gridloom_chare::balance::Balancer;
use gridloom_chare::{
    AsyncContext, Chare, Context, Element, Elements, Index, Migrate, Packing, Pe, Placement, Proxy, Reducer, Shape,
    Start, Value,
};

use crate::Error;

/// One element of a program of chares, while its arrays are made. Every element makes the same ones, in the same order.
#[derive(Debug)]
pub struct Job<'a> {
    element: &'a mut Element,
}

impl<'a> Job<'a> {
    pub(super) fn new(element: &'a mut Element) -> Job<'a> {
        Job { element }
    }

    /// Makes an array of chares. `make` makes those that begin on this element.
    ///
    /// # Errors
    /// If the placement names an element that there is not, or the chares' message type is none.
    pub fn array<C: Chare>(
        &mut self,
        shape: impl Into<Shape>,
        placement: Placement,
        make: impl FnMut(Index) -> C,
    ) -> Result<Proxy<C>, Error> {
        self.array_named(name_of::<C>(), shape, placement, make)
    }

    /// Makes an array of chares that can move ([`Context::migrate_to`]). `make` makes those that begin on this element, without a
    /// state, and those that arrive later, with theirs.
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

    /// As [`Job::array_named`]; the chares can move, packed as `packing` says.
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

    /// As [`Job::array`]; the name stands in errors and traces instead of that of the chares' type.
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

    /// Has a method that waits begin with the program, of each chare of that array: see [`Context::spawn`]. A program that goes on from a
    /// checkpoint goes on where its callback comes, and this does nothing.
    pub fn spawn<C: Chare, F: Future<Output = ()> + 'static>(
        &mut self,
        array: Proxy<C>,
        method: impl Fn(AsyncContext<C>) -> F + 'static,
    ) {
        self.element.spawn(array, method);
    }

    /// Makes an array with one chare on each element; its index is the element's number.
    ///
    /// # Errors
    /// As [`Job::array`].
    pub fn group<C: Chare>(&mut self, mut make: impl FnMut(Pe) -> C) -> Result<Proxy<C>, Error> {
        let elements = self.elements().count() as usize;
        self.array(elements, Placement::RoundRobin, |index| make(Pe(index[0] as u32)))
    }

    /// Whether that chare exchanges messages with other sites, as stated to [`Placement::by_communication`]; never with another
    /// placement. Entry methods ask [`Context::is_at_border`].
    pub fn is_at_border<C>(&self, array: &Proxy<C>, index: impl Into<Index>) -> bool {
        self.element.is_at_border(array.id(), &index.into())
    }

    /// The element on which that chare begins; `None` if the array has none of that index. So a program can have chares run first that exchange
    /// messages with other sites ([`Elements::site`]).
    pub fn element_of<C>(&self, array: &Proxy<C>, index: impl Into<Index>) -> Option<Pe> {
        self.element.element_of(array.id(), &index.into())
    }

    /// Makes a reducer of the program's own known. It has to be associative, and commutative unless contributions are ordered.
    pub fn reducer(&mut self, combine: impl Fn(Value, Value) -> Value + 'static) -> Reducer {
        self.try_reducer(move |left, right| Ok(combine(left, right)))
    }

    /// As [`Job::reducer`], for one that may fail: its error ends the program.
    pub fn try_reducer(&mut self, combine: impl Fn(Value, Value) -> Result<Value, String> + 'static) -> Reducer {
        self.element.reducer(Rc::new(combine))
    }

    /// Has the load balancer of that name move chares of migratable arrays, whenever that pays. `gridloom chares run --balance NAME`
    /// chooses another one.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn balance(&mut self, name: &str) -> Result<(), Error> {
        self.element.set_balancer(Balancer::named(name).map_err(Error::Input)?);
        Ok(())
    }

    /// Lets not more than so many bytes of messages from all other elements wait at an element, 256 MiB without that; each has an equal share.
    /// Past it, and past as much again, but at most 64 MiB, that waits at their own element for one other, chares that send are run no
    /// further until some messages have run. Every element is to be told the same.
    ///
    /// # Errors
    /// If it is 0.
    pub fn mailbox_bytes(&mut self, bytes: u64) -> Result<(), Error> {
        if bytes == 0 {
            return Err(Error::Input("mailbox_bytes 0: at least 1 byte of messages has to be let wait".into()));
        }
        self.element.bound_mailbox(bytes);
        Ok(())
    }

    /// Sends the first messages: runs on the first element only.
    pub fn start(&mut self, start: impl FnOnce(&mut Context<'_, Start>)) {
        self.element.start(start);
    }

    /// The element that this is.
    pub fn element(&self) -> Pe {
        self.element.me()
    }

    pub fn elements(&self) -> &Elements {
        self.element.elements()
    }
}

/// The name of a type without the path of its module.
fn name_of<C>() -> &'static str {
    let path = std::any::type_name::<C>();
    path.split('<').next().unwrap_or(path).rsplit("::").next().unwrap_or(path)
}
