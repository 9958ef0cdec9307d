//! A server and client sites. Each site has a line of its own to the server, with different rates
//! up and down, and a delay.

use crate::line::Line;
use crate::{Lab, LabError};
use farcall_trunk_device::Tap;
use farcall_trunk_proto::Mac;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The rates and the delay of a line between a site and the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineShape {
    /// TCP payload from the site to the server, in bytes a second.
    pub up: f64,
    /// TCP payload from the server to the site, in bytes a second.
    pub down: f64,
    /// Round-trip time.
    pub round_trip: Duration,
}

/// Bytes on the wire for each byte of payload, in full TCP frames with time stamps.
const WIRE: f64 = 1538.0 / 1448.0;
/// The least bytes that the router before a line can queue.
const QUEUE: f64 = 65_536.0;
const MTU: u16 = 1500;

impl LineShape {
    /// Converts bytes of payload a second to bits a second on the wire.
    fn wire(payload: f64) -> u64 {
        (payload * WIRE * 8.0) as u64
    }

    /// The most bytes that wait before the line: what it carries in a round trip, and at least
    /// `QUEUE`.
    fn queue(&self, payload: f64) -> u64 {
        (payload * WIRE * self.round_trip.as_secs_f64()).max(QUEUE) as u64
    }
}

/// A host for the server and one for each site, in network namespaces. Needs root, `ip`, `tc` and
/// `/dev/net/tun`.
#[derive(Debug)]
pub struct Sites {
    // Dropped before the namespaces are removed.
    _lines: Vec<Line>,
    lab: Lab,
}

/// The server's host.
const SERVER: usize = 0;

impl Sites {
    /// Creates a server and a site for each line.
    ///
    /// # Errors
    /// The caller is not root, or a requirement is missing. Nothing is left behind.
    pub fn build(shapes: &[LineShape]) -> Result<Sites, LabError> {
        let lab = Lab::build(&vec![&[][..]; shapes.len() + 1], None)?;
        let lines = (0..shapes.len()).map(|site| {
            let server = end(&lab, SERVER, server_end(site), Sites::address(site), site)?;
            let client = end(
                &lab,
                site + 1,
                SITE_END.into(),
                Sites::site_address(site),
                site,
            )?;
            Line::start([client, server], shapes[site].round_trip / 2)
        });
        let lines = lines.collect::<Result<_, _>>()?;
        let sites = Sites { _lines: lines, lab };
        for (site, shape) in shapes.iter().enumerate() {
            sites.shape(site, *shape)?;
        }
        Ok(sites)
    }

    /// Changes the rates of a site's line; its delay stays the same.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn shape(&self, site: usize, shape: LineShape) -> Result<(), LabError> {
        let near = server_end(site);
        for (host, device, payload) in [
            (site + 1, SITE_END, shape.up),
            (SERVER, near.as_str(), shape.down),
        ] {
            let (rate, queue) = (LineShape::wire(payload), shape.queue(payload));
            let space = self.lab.host(host);
            self.lab.shape_device(&space, device, rate, queue)?;
        }
        Ok(())
    }

    /// The hosts: 0 is the server's, then one for each site.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// The host of a site.
    pub fn host(site: usize) -> usize {
        site + 1
    }

    /// The server's address on a site's line.
    pub fn address(site: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 79, site as u8, 1)
    }

    /// A site's own address on its line.
    pub fn site_address(site: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 79, site as u8, 2)
    }
}

const SITE_END: &str = "line";

fn server_end(site: usize) -> String {
    format!("site{site}")
}

/// Creates one end of a line and brings it up.
fn end(
    lab: &Lab,
    host: usize,
    name: String,
    address: Ipv4Addr,
    site: usize,
) -> Result<Tap, LabError> {
    let mac = Mac([2, 0x66, 0x63, 0, site as u8, host as u8]);
    let made = lab.spawn(host, move || {
        let tap = Tap::create(&name, mac, MTU).map_err(std::io::Error::other)?;
        tap.bring_up(&[(IpAddr::V4(address), 24)])
            .map_err(std::io::Error::other)?;
        Ok(tap)
    })?;
    let tap = made.join().map_err(|_| LabError::Late("an interface"))??;
    Ok(tap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_queues_what_it_carries_in_a_round_trip() {
        let shape = LineShape {
            up: 1e6,
            down: 1e5,
            round_trip: Duration::from_millis(200),
        };
        assert_eq!(LineShape::wire(shape.up), 8_497_237);
        assert_eq!(shape.queue(shape.up), 212_430);
        assert_eq!(shape.queue(shape.down), 65_536);
    }
}
