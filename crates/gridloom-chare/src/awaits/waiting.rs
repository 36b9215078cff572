//! The waiting methods of an element's chares, and the state that moves with a chare or is saved.

use std::pin::Pin;
use std::rc::Rc;
use std::task::Waker;

use serde::{Deserialize, Serialize};

use super::AsyncContext;
use super::pipes::Channels;
use super::replies::Replies;
use super::shared::Shared;
use crate::chare::{Chare, Context};
use crate::core::Core;
use crate::id::ArrayId;
use crate::payload::Codec;
use crate::waiting_methods::AnyWaiting;

/// The waiting methods of one chare, and what has arrived for them.
pub(super) struct Waiting<C: Chare> {
    pub(super) shared: Rc<Shared<C>>,
    methods: Vec<Pin<Box<dyn Future<Output = ()>>>>,
}

impl<C: Chare> Waiting<C> {
    /// Adds a method. None of it runs before the chare is lent to it.
    pub(super) fn spawn<F: Future<Output = ()> + 'static>(
        &mut self,
        method: impl FnOnce(AsyncContext<C>) -> F + 'static,
    ) {
        let cx = AsyncContext::new(self.shared.clone());
        self.methods.push(Box::pin(async move { method(cx).await }));
    }

    /// Runs each method until it waits again.
    fn resume(&mut self, chare: &mut Option<C>) {
        let shared = &self.shared;
        shared.wake();
        shared.swap_chare(chare);
        let mut cx = std::task::Context::from_waker(Waker::noop());
        self.methods.retain_mut(|method| method.as_mut().poll(&mut cx).is_pending());
        shared.swap_chare(chare);
    }
}

impl<C: Chare> AnyWaiting for Waiting<C> {
    fn waits_for(&self) -> Option<String> {
        (!self.methods.is_empty()).then(|| self.shared.waits_for())
    }

    fn kept(&self) -> usize {
        self.shared.inbox.borrow().messages.len()
    }
}

/// The state that moves with a chare when none of its methods waits.
#[derive(Serialize, Deserialize)]
struct KeptState {
    messages: Vec<Vec<u8>>,
    replies: Replies,
    pipes: Channels,
}

impl Core {
    pub(super) fn waiting<C: Chare>(&mut self, array: ArrayId, slot: u32) -> &mut Waiting<C> {
        if !self.waits.has(array, slot) {
            let shared = Rc::new(Shared::<C>::new(self, array, slot));
            self.waits.put(array, slot, Box::new(Waiting { shared, methods: Vec::new() }));
        }
        self.waits.get(array, slot).expect("it is there")
    }

    /// Resumes the methods of a chare for which something has arrived. Then runs the actions that they and its entry
    /// method requested.
    pub(crate) fn resume<C: Chare>(&mut self, array: ArrayId, slot: u32, chare: &mut Option<C>) {
        while self.waits.take_woken() {
            let waiting = self.waiting(array, slot);
            waiting.resume(chare);
            let actions = waiting.shared.take_actions();
            // Wake-ups from here on come from these actions.
            self.waits.take_woken();
            actions.into_iter().for_each(|action| action(&mut Context::new(self, array, slot)));
        }
    }

    /// Appends the state that the methods will need to the state of a chare: its bytes, then their length.
    ///
    /// # Errors
    /// Returns an error if a message cannot be serialized.
    pub(crate) fn pack_kept<C: Chare>(&mut self, array: ArrayId, slot: u32, out: &mut Vec<u8>) -> Result<(), String> {
        let state_bytes = out.len();
        if let Some(waiting) = self.waits.get::<Waiting<C>>(array, slot) {
            let shared = waiting.shared.clone();
            let codec = &mut self.mail::<C::Message>(array).codec;
            let encoded = |message: &C::Message| {
                let mut bytes = Vec::new();
                codec.encode(message, &mut bytes).map(|()| bytes)
            };
            let messages =
                shared.inbox.borrow().messages.iter().map(encoded).collect::<Result<Vec<Vec<u8>>, String>>()?;
            let kept = KeptState {
                messages,
                replies: shared.replies.borrow().packed(),
                pipes: shared.pipes.borrow().packed(),
            };
            *out = postcard::to_extend(&kept, std::mem::take(out))
                .expect("serializing this type into a vector cannot fail");
        }
        let kept_bytes = u32::try_from(out.len() - state_bytes).map_err(|_| "it keeps more than 4 GiB of messages")?;
        out.extend_from_slice(&kept_bytes.to_le_bytes());
        Ok(())
    }

    /// Restores the state of a chare that has arrived.
    ///
    /// # Errors
    /// Returns an error if it was not written by [`Core::pack_kept`].
    pub(crate) fn unpack_kept<C: Chare>(&mut self, array: ArrayId, slot: u32, kept: &[u8]) -> Result<(), String> {
        if kept.is_empty() {
            return Ok(());
        }
        let KeptState { messages, replies, pipes } = postcard::from_bytes(kept).map_err(|error| error.to_string())?;
        let codec = &mut self.mail::<C::Message>(array).codec;
        let messages = messages.iter().map(|bytes| codec.decode(bytes)).collect::<Result<Vec<C::Message>, String>>()?;
        let shared = &self.waiting::<C>(array, slot).shared;
        messages.into_iter().for_each(|message| shared.inbox.borrow_mut().put(message));
        (*shared.replies.borrow_mut(), *shared.pipes.borrow_mut()) = (replies, pipes);
        Ok(())
    }
}
