//! `farcall._native`: the client for Python.
//!
//! Everything between the user's arrays and [`farcall_client`] happens here: which argument is
//! meant, whether it fits, and which memory the call reads and fills.

mod array;
mod call_status;
mod callback;
#[cfg(target_os = "linux")]
mod channel;
mod completion;
mod durable_call;
mod error;
mod estimate;
mod flow;
mod function;
mod future;
mod handle;
mod interface;
mod memory;
mod notebook;
mod object;
mod origin;
mod reservation;
mod result;
mod scalar;
mod server;
#[cfg(target_os = "linux")]
mod serving;
mod source;
mod texts;
mod times;
mod trace;
mod transaction;
mod transaction_plan;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::call_status::{CallStatus, Expected};
    #[cfg(target_os = "linux")]
    #[pymodule_export]
    use crate::channel::Channel;
    #[pymodule_export]
    use crate::durable_call::{DurableCall, DurableStatus};
    #[pymodule_export]
    use crate::estimate::Estimate;
    #[pymodule_export]
    use crate::flow::{FlowPattern, FlowPlatform, simulate_flow, write_flow_trace};
    #[pymodule_export]
    use crate::function::{Function, show_progress};
    #[pymodule_export]
    use crate::future::Future;
    #[pymodule_export]
    use crate::handle::{Data, Handle, Keep, KnownData, data, keep};
    #[pymodule_export]
    use crate::interface::{Interface, Parameter};
    #[pymodule_export]
    use crate::memory::SharedMemory;
    #[pymodule_export]
    use crate::object::Object;
    #[pymodule_export]
    use crate::reservation::Reservation;
    #[pymodule_export]
    use crate::server::{FunctionSummary, Server, connect, connect_for};
    #[pymodule_export]
    use crate::source::{Receipt, Source, url};
    #[pymodule_export]
    use crate::times::Times;
    #[pymodule_export]
    use crate::transaction::{RemoteArray, Transaction, is_recording, transaction};
    #[pymodule_export]
    use crate::transaction_plan::{TransactionPlan, load_plan};

    #[pymodule_export]
    use crate::array::store_result;
    #[cfg(target_os = "linux")]
    #[pymodule_export]
    use crate::serving::run_worker;

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        server::know_main_thread(module)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
