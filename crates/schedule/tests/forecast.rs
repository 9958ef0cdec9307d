//! Compares the chosen forecasting method with the best one, on series from seeds. On every shape
//! of series, the chosen one must not be much worse. About two thirds of the values must lie within
//! the stated spread.

use farcall_random::SplitMix64;
use farcall_schedule::forecast::{Method, Series};

const LENGTH: usize = 400;
/// Values after which forecasts are judged.
const WARM: usize = 20;

/// Of a normal distribution, near enough.
fn noise(random: &mut SplitMix64) -> f64 {
    let parts = (0..12).map(|_| random.below(1 << 30) as f64 / f64::from(1 << 30));
    parts.sum::<f64>() - 6.0
}

/// The value at a step.
type Shape = fn(usize, &mut SplitMix64) -> f64;

/// The shapes that the value of a link takes in the course of time, around 1.
const SHAPES: [(&str, Shape); 7] = [
    ("steady", |_, random| (0.1 * noise(random)).exp()),
    ("level shift", |step, random| {
        let level = if step < LENGTH / 2 { 1.0 } else { 0.25 };
        level * (0.1 * noise(random)).exp()
    }),
    ("periodic load", |step, random| {
        let load = 0.5 * (step as f64 / 40.0 * std::f64::consts::TAU).sin();
        (load + 0.1 * noise(random)).exp()
    }),
    ("busy and idle in turn", |step, random| {
        let level = if step / 10 % 2 == 0 { 1.0 } else { 0.5 };
        level * (0.05 * noise(random)).exp()
    }),
    ("outliers", |_, random| match random.below(10) {
        0 => 0.05,
        _ => (0.1 * noise(random)).exp(),
    }),
    ("trend", |step, random| {
        (0.02 * step as f64 + 0.05 * noise(random)).exp()
    }),
    ("no noise", |_, _| 1.0),
];

struct Judged {
    /// Mean absolute error of the logarithm, by predictor.
    singles: Vec<(Method, f64)>,
    chosen: f64,
    /// Part of the values within the error bar.
    covered: f64,
}

fn judge(shape: Shape, seed: u64) -> Judged {
    let mut random = SplitMix64::new(seed);
    let mut series = Series::default();
    let (mut singles, mut chosen, mut covered) = (vec![0.0; Method::ALL.len()], 0.0, 0.0);
    let part = 1.0 / (LENGTH - WARM) as f64;
    for step in 0..LENGTH {
        let value = shape(step, &mut random);
        if step >= WARM {
            let forecast = series.forecast().expect("warm");
            let off = |said: f64| part * (value / said).ln().abs();
            chosen += off(forecast.value);
            if off(forecast.value) <= part * forecast.factor.ln() {
                covered += part;
            }
            for (error, method) in singles.iter_mut().zip(Method::ALL) {
                *error += off(series.forecast_by(method).expect("warm"));
            }
        }
        series.observe(value);
    }
    Judged {
        singles: Method::ALL.into_iter().zip(singles).collect(),
        chosen,
        covered,
    }
}

#[test]
fn the_chosen_predictor_is_never_much_worse_than_the_best() {
    for (name, shape) in SHAPES {
        let mut worst: f64 = 0.0;
        for seed in 0..40 {
            let judged = judge(shape, seed);
            let singles = judged.singles.iter();
            let (method, best) = singles
                .min_by(|(_, one), (_, other)| one.total_cmp(other))
                .expect("predictors");
            worst = worst.max(judged.chosen / best.max(1e-9));
            assert!(
                judged.chosen <= 1.15 * best + 1e-9,
                "{name}, seed {seed}: {} where {method:?} errs by {best}",
                judged.chosen
            );
        }
        println!("{name}: at worst {worst:.3} of the best predictor's error");
    }
}

#[test]
fn every_predictor_but_the_best_is_bad_somewhere() {
    for method in Method::ALL {
        let bad = SHAPES.iter().any(|(_, shape)| {
            let judged = judge(*shape, 1);
            let (_, error) = judged.singles[Method::ALL.iter().position(|m| *m == method).unwrap()];
            error > 1.2 * judged.chosen
        });
        assert!(bad, "{method:?} alone would do as well");
    }
}

#[test]
fn about_two_thirds_lie_within_the_error_bar() {
    for (name, shape) in &SHAPES[..6] {
        let covered: f64 = (0..40).map(|seed| judge(*shape, seed).covered).sum::<f64>() / 40.0;
        println!("{name}: {covered:.2} within the error bar");
        assert!((0.55..=0.95).contains(&covered), "{name}: {covered}");
    }
}
