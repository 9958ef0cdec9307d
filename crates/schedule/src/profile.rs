//! Predictions of a function's time for each number of processor elements. `predict` has the
//! prediction for one number. A number that was never seen is scaled from the nearest one, with a
//! larger spread. The number of predictors is bounded.

use crate::{Prediction, Predictor};
use smallvec::SmallVec;

/// Most different numbers of processor elements.
const MOST: usize = 16;

/// Learns how long calls of one function take on each number of processor elements.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Predictors by number of processor elements, sorted. Most calls have one element. A decision
    /// looks at the profiles of all servers, so each indirection less saves a cache miss.
    predictors: SmallVec<[(u32, Predictor); 1]>,
}

impl Profile {
    /// The predictors by number of processor elements, sorted.
    pub fn predictors(&self) -> &[(u32, Predictor)] {
        &self.predictors
    }

    /// A profile restored from stored predictors. Duplicates and excess ones are left out.
    pub fn resume(predictors: impl IntoIterator<Item = (u32, Predictor)>) -> Profile {
        let mut profile = Profile::default();
        for (pes, predictor) in predictors {
            let at = profile.at(pes);
            if let Err(index) = at
                && pes > 0
                && profile.predictors.len() < MOST
            {
                profile.predictors.insert(index, (pes, predictor));
            }
        }
        profile
    }

    /// Records that a call with this much work took this many seconds on `pes` processor elements.
    pub fn observe(&mut self, work: f64, pes: u32, seconds: f64) {
        let index = match self.at(pes) {
            Ok(index) => index,
            Err(_) if self.predictors.len() == MOST => return,
            Err(index) => {
                self.predictors.insert(index, (pes, Predictor::default()));
                index
            }
        };
        self.predictors[index].1.observe(work, seconds);
    }

    /// Predicted time of a call with this much work on `pes` processor elements. If that number was
    /// never seen, the nearest one is scaled as if twice as many elements took half the time; each
    /// such octave adds a tenth to the factor.
    pub fn predict(&self, work: f64, pes: u32) -> Option<Prediction> {
        let (predictor, octaves) = self.nearest(pes)?;
        let prediction = predictor.predict(work)?;
        Some(Prediction {
            seconds: prediction.seconds * octaves.exp2(),
            factor: prediction.factor * (0.1 * octaves.abs()).exp(),
        })
    }

    /// The seconds of [`Profile::predict`], at a lower cost.
    pub fn seconds(&self, work: f64, pes: u32) -> Option<f64> {
        let (predictor, octaves) = self.nearest(pes)?;
        let seconds = predictor.seconds(work)?;
        Some(if octaves == 0.0 {
            seconds
        } else {
            seconds * octaves.exp2()
        })
    }

    /// The predictor of the nearest number of processor elements, and how many octaves above this
    /// one it is.
    fn nearest(&self, pes: u32) -> Option<(&Predictor, f64)> {
        if let Ok(index) = self.at(pes) {
            return Some((&self.predictors[index].1, 0.0));
        }
        let distance = |known: u32| f64::from(known.max(1)).log2() - f64::from(pes.max(1)).log2();
        let known = self.predictors.iter();
        let known = known.map(|(known, predictor)| (predictor, distance(*known)));
        known.min_by(|(_, one), (_, other)| one.abs().total_cmp(&other.abs()))
    }

    fn at(&self, pes: u32) -> Result<usize, usize> {
        self.predictors
            .binary_search_by_key(&pes, |(known, _)| *known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_of_processor_elements_has_its_own_times() {
        let mut profile = Profile::default();
        assert_eq!(profile.predict(1e6, 1), None);
        profile.observe(1e6, 1, 1.0);
        let seconds = |profile: &Profile, pes| profile.predict(1e6, pes).expect("known").seconds;
        assert!(
            (seconds(&profile, 4) - 0.25).abs() < 1e-9,
            "nothing better is known"
        );
        profile.observe(1e6, 4, 0.4);
        assert!((seconds(&profile, 4) - 0.4).abs() < 1e-9);
        assert!((seconds(&profile, 8) - 0.2).abs() < 1e-9);
        assert!((seconds(&profile, 1) - 1.0).abs() < 1e-9);
        let far = profile.predict(1e6, 64).expect("known").factor;
        assert!(far > profile.predict(1e6, 4).expect("known").factor);
        let kept = profile.predictors().iter().rev().cloned();
        assert_eq!(Profile::resume(kept), profile);
    }

    #[test]
    fn the_number_of_predictors_is_bounded() {
        let mut profile = Profile::default();
        (1..1000).for_each(|pes| profile.observe(1e6, pes, 1.0));
        assert_eq!(profile.predictors().len(), MOST);
        assert!(profile.predict(1e6, 500).is_some());
    }
}
