//! What a program has set for all calls of a function handle. `function` sets it, and `remote` and
//! `grid` obey it.

use crate::output::Output;
use crate::reservation::ReservationName;
use farcall_rpc_proto::TraceContext;
use std::time::Duration;

/// What holds for all calls of a function handle.
#[derive(Clone, Default)]
pub(crate) struct Terms {
    /// Where the text goes that the library prints.
    pub(crate) output: Option<Output>,
    /// The reservation that the calls use.
    pub(crate) reservation: Option<ReservationName>,
    /// The trace that the calls belong to.
    pub(crate) trace: Option<TraceContext>,
    /// The time within which the calls must end.
    pub(crate) before: Option<Duration>,
    /// The time-out of the calls, in place of that of the connection.
    pub(crate) timeout: Option<Duration>,
}
