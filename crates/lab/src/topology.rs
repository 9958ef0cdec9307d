//! The topologies of the RI2N paper (Fig. 4).

/// A server, host 0, and its clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Topology {
    /// Its letter in the paper.
    pub name: &'static str,
    /// For each host, the switches that it is linked to.
    pub links: &'static [&'static [usize]],
    /// Max-min fair shares of the clients, as multiples of a link's rate.
    pub ideal: &'static [f64],
}

const THIRD: f64 = 2.0 / 3.0;

/// (a) to (h).
pub const TOPOLOGIES: [Topology; 8] = [
    Topology {
        name: "a",
        links: &[&[0], &[0]],
        ideal: &[1.0],
    },
    Topology {
        name: "b",
        links: &[&[0, 1], &[0, 1]],
        ideal: &[2.0],
    },
    Topology {
        name: "c",
        links: &[&[0, 1], &[0, 1], &[0, 1]],
        ideal: &[1.0, 1.0],
    },
    Topology {
        name: "d",
        links: &[&[0, 1], &[0], &[0, 1]],
        ideal: &[1.0, 1.0],
    },
    Topology {
        name: "e",
        links: &[&[0, 1], &[0, 1], &[0, 1], &[0, 1]],
        ideal: &[THIRD; 3],
    },
    Topology {
        name: "f",
        links: &[&[0, 1], &[0], &[0, 1], &[0, 1]],
        ideal: &[THIRD; 3],
    },
    Topology {
        name: "g",
        links: &[&[0, 1], &[0], &[0, 1], &[1]],
        ideal: &[THIRD; 3],
    },
    Topology {
        name: "h",
        links: &[&[0, 1], &[0], &[0, 1], &[0]],
        ideal: &[0.5, 1.0, 0.5],
    },
];

/// Jain's index of the rates relative to their ideal values: 1 if all have the same share.
pub fn jain(rates: &[f64], ideal: &[f64]) -> f64 {
    let ratios: Vec<f64> = rates
        .iter()
        .zip(ideal)
        .map(|(rate, ideal)| rate / ideal)
        .collect();
    let sum: f64 = ratios.iter().sum();
    let squares: f64 = ratios.iter().map(|ratio| ratio * ratio).sum();
    sum * sum / (ratios.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_is_one_for_equals_and_one_nth_for_a_winner() {
        assert_eq!(jain(&[1.0, 2.0], &[0.5, 1.0]), 1.0);
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0], &[1.0; 4]), 0.25);
    }
}
