//! What every Headwater process needs around its services.
//!
//! In here: [`telemetry`], [`signals`], [`serve`] (listen, health, reflection,
//! drain), [`status`] (errors as every service says them), [`deadline`] (how
//! long a request may take), [`options`] that the binaries share, [`keys`] and
//! [`trust`] among them. Not in here: any service, and any decision of the protocol.

pub mod deadline;
pub mod keys;
pub mod options;
pub mod serve;
pub mod signals;
pub mod status;
pub mod telemetry;
pub mod trust;
pub mod usage;
