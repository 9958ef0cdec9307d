//! Clients that reserve processor elements and bandwidth, and make calls that use their
//! reservations. It decides which failures of such requests are allowed. `checker::lanes` checks
//! the bandwidth.

use super::{Client, Purpose, Scene};
use crate::checker::Secret;
use crate::machine::{BANDWIDTH, PES};
use farcall_rpc_proto::{Failure, FailureKind, ReservationPage, ReservationRequest, Reserve};

/// What is asked about reservations.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    Reserve(Reserve),
    Release(u64),
    Attach(u64),
    List,
}

impl Client {
    pub(super) fn act_on_reservations(&mut self, scene: &mut Scene<'_>) {
        let own = self.any_own(scene);
        let (asked, request) = match (scene.random.below(10), own) {
            (0..=2, Some(id)) => {
                scene.checker.lanes.asks((self.life, self.number));
                (Asked::Attach(id), ReservationRequest::Attach(id))
            }
            (3, Some(id)) => {
                scene
                    .checker
                    .reservations
                    .releases(self.life, id, scene.now);
                self.reservations.retain(|known| *known != id);
                (Asked::Release(id), ReservationRequest::Release(id))
            }
            (4, _) => (Asked::List, ReservationRequest::List(0)),
            _ => {
                let wanted = Client::wanted(scene);
                (Asked::Reserve(wanted), ReservationRequest::Reserve(wanted))
            }
        };
        if let Some(connection) = &mut self.connection {
            let made = connection.reservations(request);
            self.asked(made, Purpose::Reservation(asked), Vec::new(), scene.now);
        }
    }

    fn wanted(scene: &mut Scene<'_>) -> Reserve {
        let subjects = scene.options.subjects;
        let random = &mut *scene.random;
        let rate = |random: &mut farcall_random::SplitMix64| match random.chance(0.7) {
            true => BANDWIDTH / 20 + random.below(BANDWIDTH / 2),
            false => 0,
        };
        let (up, down) = match subjects.lanes {
            true => (rate(random), rate(random)),
            false => (0, 0),
        };
        let pes = match subjects.reservations {
            true => 1 + random.below(u64::from(PES)) as u32,
            false => 0,
        };
        let up = up.max(u64::from(pes == 0));
        let start = random.below(2000);
        Reserve {
            pes,
            start,
            length: 20 + random.below(2000),
            up,
            down,
            latest: random.chance(0.5).then(|| start + random.below(5000)),
        }
    }

    fn any_own(&self, scene: &mut Scene<'_>) -> Option<u64> {
        let count = self.reservations.len() as u64;
        (count > 0).then(|| self.reservations[scene.random.below(count) as usize])
    }

    /// The reservation that a call uses, if any.
    pub(super) fn any_reservation(&self, scene: &mut Scene<'_>) -> Option<u64> {
        let is_wanted = !self.reservations.is_empty() && scene.random.chance(0.6);
        is_wanted.then(|| self.any_own(scene)).flatten()
    }

    pub(super) fn told_of_reservations(
        &mut self,
        asked: Asked,
        since: u64,
        page: &ReservationPage,
        scene: &mut Scene<'_>,
    ) {
        let (who, when) = ((self.life, self.user), (since, scene.now));
        let reservations = &mut scene.checker.reservations;
        let told = match asked {
            Asked::Reserve(wanted) => reservations.reserved(who, &wanted, page, when).map(|id| {
                self.reservations.push(id);
                scene.checker.secrets.add(Secret::Reservation(id), who);
            }),
            Asked::List => reservations.listed(who, page, when),
            Asked::Attach(id) => {
                let link = (self.life, self.number);
                scene.checker.lanes.attaches(link, id);
                Ok(())
            }
            Asked::Release(_) => Ok(()),
        };
        if let Err(text) = told {
            scene.checker.fail(text);
        }
    }

    /// A request about reservations has failed. Returns whether this failure is allowed.
    pub(super) fn reservation_failed(
        &mut self,
        asked: Asked,
        failure: &Failure,
        scene: &mut Scene<'_>,
    ) -> bool {
        let reservations = &scene.checker.reservations;
        match (asked, failure.kind) {
            (Asked::Reserve(_), FailureKind::NotFree) => true,
            (Asked::Reserve(_), FailureKind::QuotaExceeded) => true,
            (Asked::Attach(id) | Asked::Release(id), FailureKind::NotFound) => {
                self.reservations.retain(|known| *known != id);
                reservations.may_be_over(self.life, id, scene.now)
            }
            _ => false,
        }
    }
}
