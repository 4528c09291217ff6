//! What every Headwater process needs around its services.
//!
//! In here: [`telemetry`], [`signals`], [`serve`] (listen, health, reflection,
//! drain), [`status`] (errors as every service says them), [`deadline`] (how
//! long a request may take) and [`options`] that the binaries share. Not in
//! here: any service, and any decision of the protocol.

pub mod deadline;
pub mod options;
pub mod serve;
pub mod signals;
pub mod status;
pub mod telemetry;
