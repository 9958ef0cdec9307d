//! A server and client sites. Each site has a line of its own, with different rates up and down,
//! and a delay. The lines end at the server, or at a router before it. Then all sites share the
//! line between the router and the server.

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

    /// Shapes a line between two hosts, the server's side first. Its end there has this name.
    pub(crate) fn shape_ends(
        &self,
        lab: &Lab,
        hosts: [usize; 2],
        near: &str,
    ) -> Result<(), LabError> {
        let ends = [(hosts[0], near, self.down), (hosts[1], SITE_END, self.up)];
        for (host, device, payload) in ends {
            let (rate, queue) = (LineShape::wire(payload), self.queue(payload));
            lab.shape_device(&lab.host(host), device, rate, queue)?;
        }
        Ok(())
    }
}

/// A host for the server and one for each site, in network namespaces. Needs root, `ip`, `tc` and
/// `/dev/net/tun`.
#[derive(Debug)]
pub struct Sites {
    // Dropped before the namespaces are removed.
    lines: Vec<Line>,
    lab: Lab,
    is_shared: bool,
}

/// The server's host.
const SERVER: usize = 0;
/// The number of the shared line among the addresses of lines.
const SHARED: usize = 255;

impl Sites {
    /// Creates a server and a site for each line.
    ///
    /// # Errors
    /// The caller is not root, or a requirement is missing. Nothing is left behind.
    pub fn build(shapes: &[LineShape]) -> Result<Sites, LabError> {
        Sites::build_before(shapes, None)
    }

    /// Creates sites whose lines meet at a router, and a server behind the line that they share.
    ///
    /// # Errors
    /// As [`Sites::build`].
    pub fn build_shared(shapes: &[LineShape], shared: LineShape) -> Result<Sites, LabError> {
        Sites::build_before(shapes, Some(shared))
    }

    fn build_before(shapes: &[LineShape], shared: Option<LineShape>) -> Result<Sites, LabError> {
        let router = shared.map(|_| shapes.len() + 1);
        let hosts = shapes.len() + 1 + usize::from(router.is_some());
        let mut sites = Sites {
            lines: Vec::new(),
            lab: Lab::build(&vec![&[][..]; hosts], None)?,
            is_shared: router.is_some(),
        };
        let near = router.unwrap_or(SERVER);
        for (site, shape) in shapes.iter().enumerate() {
            sites.connect([near, site + 1], server_end(site), site, *shape)?;
            sites.shape(site, *shape)?;
        }
        if let (Some(router), Some(shape)) = (router, shared) {
            sites.connect([SERVER, router], SITE_END.into(), SHARED, shape)?;
            shape.shape_ends(&sites.lab, [SERVER, router], SITE_END)?;
            sites.route(router, shapes.len())?;
        }
        Ok(sites)
    }

    /// Creates a line between two hosts. The first end has this name.
    fn connect(
        &mut self,
        hosts: [usize; 2],
        name: String,
        line: usize,
        shape: LineShape,
    ) -> Result<(), LabError> {
        let addresses = [Sites::address(line), Sites::site_address(line)];
        let near = end(&self.lab, hosts[0], name, addresses[0], line)?;
        let far = end(&self.lab, hosts[1], SITE_END.into(), addresses[1], line)?;
        self.lines
            .push(Line::start([near, far], shape.round_trip / 2)?);
        Ok(())
    }

    /// Lets the sites reach each other through the server's host, at [`Sites::site_address`].
    ///
    /// # Errors
    /// The system refuses it.
    pub fn join(&self) -> Result<(), LabError> {
        self.lab.forward(SERVER)?;
        (1..self.lab.hosts()).try_for_each(|host| {
            let by = Sites::address(host - 1);
            self.lab.via(host, "10.79.0.0/16", by)
        })
    }

    /// Lets the router forward packets between the sites and the server.
    fn route(&self, router: usize, sites: usize) -> Result<(), LabError> {
        self.lab.forward(router)?;
        self.lab
            .via(SERVER, "10.79.0.0/16", Sites::site_address(SHARED))?;
        (0..sites).try_for_each(|site| {
            self.lab
                .via(site + 1, "10.79.255.0/24", Sites::address(site))
        })
    }

    /// Changes the rates of a site's line; its delay stays the same.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn shape(&self, site: usize, shape: LineShape) -> Result<(), LabError> {
        let near = if self.is_shared {
            self.lab.hosts() - 1
        } else {
            SERVER
        };
        shape.shape_ends(&self.lab, [near, site + 1], &server_end(site))
    }

    /// The hosts: 0 is the server's, then one for each site.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// The host of a site.
    pub fn host(site: usize) -> usize {
        site + 1
    }

    /// The address at which a site reaches the server.
    pub fn server_address(&self, site: usize) -> Ipv4Addr {
        Sites::address(if self.is_shared { SHARED } else { site })
    }

    /// The address at the other end of a site's line.
    pub fn address(site: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 79, site as u8, 1)
    }

    /// A site's own address on its line.
    pub fn site_address(site: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 79, site as u8, 2)
    }
}

/// The name of a line's far end.
pub(crate) const SITE_END: &str = "line";

fn server_end(site: usize) -> String {
    format!("site{site}")
}

/// Creates one end of a line and brings it up.
pub(crate) fn end(
    lab: &Lab,
    host: usize,
    name: String,
    address: Ipv4Addr,
    site: usize,
) -> Result<Tap, LabError> {
    let mac = Mac([2, 0x66, 0x63, 0, site as u8, host as u8]);
    let made = lab.spawn(host, move || {
        let mut tap = Tap::create(&name, mac, MTU).map_err(std::io::Error::other)?;
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
