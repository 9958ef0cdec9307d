//! Shortens a failing history: fewer clients, servers and requests, fewer kinds of faults, fewer
//! subjects. A shorter history counts only if it breaks the same invariant.

use crate::options::{Faults, GridFaults, Options, Subjects, SystemFaults};
use crate::world::simulate;

/// The shortest history found that breaks the same invariant. The returned options record it in
/// words.
pub fn minimise(options: &Options) -> Options {
    let broken = |options: &Options| simulate(options).violation.map(|one| one.kind());
    let first = broken(options);
    let fails = |options: &Options| broken(options) == first;
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
        let without = (0..GridFaults::COUNT).filter_map(|number| best.grid_faults.without(number));
        let fewer_grid_faults = without.map(|grid_faults| Options {
            grid_faults,
            ..best.clone()
        });
        let fewer_hosts = fewer_servers.chain(one_metaserver).chain(no_store);
        let fewer_hosts = fewer_hosts.chain(fewer_grid_faults);
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
        let without =
            (0..SystemFaults::COUNT).filter_map(|number| best.system_faults.without(number));
        let fewer_system_faults = without.map(|system_faults| Options {
            system_faults,
            ..best.clone()
        });
        let without = (0..Subjects::COUNT).filter_map(|number| best.subjects.without(number));
        let fewer_subjects = without.map(|subjects| Options {
            subjects,
            ..best.clone()
        });
        let fewer = fewer_clients
            .chain(fewer_hosts)
            .chain(fewer_faults)
            .chain(fewer_system_faults)
            .chain(fewer_subjects);
        let mut smaller = fewer.chain(fewer_wishes);
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
