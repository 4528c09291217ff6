//! The way from one writer to another, as a [`Line`]: the network between
//! processes, with everything that it does to messages.

use std::fmt;
use std::sync::{Arc, Weak};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use headwater_core::id::WriterAddress;
use headwater_writer::{Handed, Line, LineError, Taken, WriterConfig};

use crate::world::World;

/// Where the process of this number is reached.
fn address(index: usize) -> String {
    format!("http://process-{index}:1")
}

fn index_of(address: &WriterAddress) -> Option<usize> {
    address.host().strip_prefix("process-")?.parse().ok()
}

/// Has the writer of this number be reached by others, and reach them.
pub(crate) fn link_up(index: usize, config: &mut WriterConfig) {
    config.advertise = address(index);
    config.forward_to = vec!["*".to_owned()];
}

/// The way from one process to the others.
pub(crate) struct Way {
    world: Weak<World>,
    from: usize,
}

impl Way {
    pub(crate) fn new(world: &Arc<World>, from: usize) -> Self {
        Self { world: Arc::downgrade(world), from }
    }
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Way").field(&self.from).finish()
    }
}

impl Line for Way {
    fn hand(
        &self,
        address: WriterAddress,
        handed: Handed,
    ) -> BoxFuture<'static, Result<Taken, LineError>> {
        let (world, from, to) = (self.world.upgrade(), self.from, index_of(&address));
        async move {
            let (Some(world), Some(to)) = (world, to) else { return Err(LineError::NotTaken) };
            world.hand(from, to, handed).await
        }
        .boxed()
    }
}
