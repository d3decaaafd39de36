//! Power and heat (pure).

use crate::doctor::{Facts, Finding};

/// What the official supply of a Pi 5 gives, in milliamperes.
const SUPPLY_MA: u32 = 5000;

/// From here on the firmware of a Pi 5 slows the processor down, in degrees Celsius.
const HOT_C: f32 = 80.0;

pub(super) fn supply(facts: &Facts) -> Vec<Finding> {
    let vitals = &facts.vitals;
    let fix = "use the 27 W supply for the Pi 5 and its own cable, without a hub between";
    let why = "the processor is slowed down, and a write to the card may be lost";
    let mut found = Vec::new();
    let before = vitals.throttling.is_some_and(|bits| bits.under_voltage_before);
    if vitals.under_voltage == Some(true) {
        found.push(Finding::fault("the voltage is too low now", why).fix(fix));
    } else if before {
        let what = "the voltage has been too low since the machine started";
        found.push(Finding::warning(what, why).fix(fix));
    }
    if let Some(current) = vitals.supply_ma.filter(|current| *current < SUPPLY_MA) {
        let what = format!("the supply offers {current} mA; a Pi 5 with the AI HAT+ asks for 5000");
        let why = "the USB ports get less, and the NPU may starve at work";
        found.push(Finding::warning(what, why).fix(fix));
    }
    found
}

pub(super) fn heat(facts: &Facts) -> Vec<Finding> {
    let vitals = &facts.vitals;
    let why = "a hot processor is slowed down, and answers with it";
    let fix = "mount the active cooler, give the case air, then: crayfish status";
    let slowed = vitals.throttling.is_some_and(|bits| bits.throttled || bits.soft_limit);
    let slowed_before =
        vitals.throttling.is_some_and(|bits| bits.throttled_before || bits.soft_limit_before);
    let what = match vitals.temperature_c {
        Some(now) if now >= HOT_C => format!("the processor has {now:.0} °C"),
        _ if slowed => "the firmware slows the processor down for heat".to_owned(),
        _ if slowed_before => {
            "the firmware has slowed the processor down for heat since the start".to_owned()
        }
        _ => return Vec::new(),
    };
    vec![Finding::warning(what, why).fix(fix)]
}
