//! The connections that have the bandwidth of reservations. Each reservation with bandwidth has its
//! own connection, so that other transfers do not use its share. An entry is removed when its
//! reservation ends.

use crate::address::Address;
use crate::error::Error;
use crate::options::Options;
use crate::remote::connection::Connection;
use crate::remote::requests::reservations;
use crate::timeout::Timeout;
use farcall_rpc_proto::ReservationRequest;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The connections of reservations, by reservation number.
#[derive(Default)]
pub(super) struct Reserved(HashMap<u64, Own>);

/// What a reservation has for itself.
struct Own {
    ends: Instant,
    /// The connection with its bandwidth. `None` if it has no bandwidth, or needs none.
    connection: Option<Arc<Connection>>,
}

impl Reserved {
    /// The connection of a reservation with bandwidth. `None` for other reservations, and for
    /// unknown ones, which the server refuses. `timeout` is that of the call.
    pub(super) fn connection(
        &mut self,
        id: u64,
        first: &Arc<Connection>,
        (address, options): (&Address, &Options),
        timeout: Timeout,
    ) -> Result<Option<Arc<Connection>>, Error> {
        let now = Instant::now();
        self.0.retain(|_, own| own.ends > now);
        if let Some(own) = self.0.get(&id)
            && !own.connection.as_ref().is_some_and(|one| one.is_stale())
        {
            return Ok(own.connection.clone());
        }
        let asked = ReservationRequest::List(id.saturating_sub(1));
        let page = reservations::ask_within(first, asked, timeout)?;
        let record = page.reservations.first().filter(|record| record.id == id);
        let Some(record) = record else {
            return Ok(None);
        };
        let mut connection = None;
        if record.up > 0 || record.down > 0 {
            let mut options = options.clone();
            // A login takes its time.
            if !matches!(address, Address::Ssh(_)) {
                options.connect_timeout = options.connect_timeout.min(timeout.patience());
            }
            let fresh = Connection::open(address, &options)?;
            connection = reservations::attach(&fresh, id, timeout)?.then_some(fresh);
        }
        let ends = Duration::from_millis(record.ends).min(Duration::from_secs(1 << 30));
        let ends = now + ends;
        let own = Own { ends, connection };
        let own = self.0.entry(id).insert_entry(own);
        Ok(own.get().connection.clone())
    }

    /// Forgets a reservation that has ended.
    pub(super) fn release(&mut self, id: u64) {
        if let Some(own) = self.0.remove(&id)
            && let Some(connection) = own.connection
        {
            reservations::detach(&connection);
        }
    }
}
