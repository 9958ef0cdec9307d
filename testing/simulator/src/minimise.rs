//! Makes a failing history short: fewer clients, servers and wishes, fewer kinds of faults.

use crate::options::{Faults, Options};
use crate::world::simulate;

/// The shortest history found that breaks a promise, with what happens in it written down.
pub fn minimise(options: &Options) -> Options {
    let fails = |options: &Options| simulate(options).violation.is_some();
    let mut best = options.clone();
    loop {
        let fewer_clients = (1..best.clients).map(|clients| Options {
            clients,
            ..best.clone()
        });
        let fewer_servers = (1..best.servers).map(|servers| Options {
            servers,
            ..best.clone()
        });
        let one_metaserver = (best.metaservers > 1).then(|| Options {
            metaservers: 1,
            ..best.clone()
        });
        let no_store = best.stores.then(|| Options {
            stores: false,
            ..best.clone()
        });
        let fewer_hosts = fewer_servers.chain(one_metaserver).chain(no_store);
        let wishes = [
            best.wishes / 2,
            best.wishes * 3 / 4,
            best.wishes.saturating_sub(1),
        ];
        let wishes = wishes
            .into_iter()
            .filter(|wishes| (1..best.wishes).contains(wishes));
        let fewer_wishes = wishes.map(|wishes| Options {
            wishes,
            ..best.clone()
        });
        let without = (0..Faults::COUNT).filter_map(|number| best.faults.without(number));
        let fewer_faults = without.map(|faults| Options {
            faults,
            ..best.clone()
        });
        let mut smaller = fewer_clients
            .chain(fewer_hosts)
            .chain(fewer_faults)
            .chain(fewer_wishes);
        match smaller.find(|options| fails(options)) {
            Some(found) => best = found,
            None => break,
        }
    }
    Options {
        traces: true,
        ..best
    }
}
