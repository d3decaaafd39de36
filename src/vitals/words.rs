//! The vital signs in sentences, for people and for the prompt (pure).

use crate::snapshot::body::VitalSigns;

/// The state of the body in a sentence, in the first person.
#[must_use]
pub fn describe(vitals: &VitalSigns, stressed: bool, online: bool) -> String {
    let mut parts = vec![match (vitals.temperature_c, stressed) {
        (Some(c), true) => format!("I am under stress; my processor has {c:.0} °C"),
        (Some(c), false) => format!("I feel well; my processor has {c:.0} °C"),
        (None, true) => "I am under stress; I have no sensor of temperature".to_owned(),
        (None, false) => "I feel well; I have no sensor of temperature".to_owned(),
    }];
    if let Some(cpu) = vitals.cpu_percent {
        parts.push(format!("it is {cpu:.0} % at work"));
    }
    if let Some(ram) = vitals.ram_percent {
        parts.push(format!("{ram:.0} % of my memory is in use"));
    }
    let mut text = parts.join(", ");
    text.push('.');
    for trouble in troubles(vitals) {
        text.push(' ');
        text.push_str(&trouble);
    }
    if !online {
        text.push_str(" No model answers me.");
    }
    text
}

/// What a person should mend, in sentences; empty when all is well.
#[must_use]
pub fn troubles(vitals: &VitalSigns) -> Vec<String> {
    let mut troubles = Vec::new();
    if vitals.under_voltage == Some(true) {
        troubles.push("The supply's voltage is too low: use the official 27 W supply.".to_owned());
    }
    if vitals.throttling.is_some_and(|bits| bits.throttled || bits.frequency_capped) {
        troubles.push("The firmware slows the processor down.".to_owned());
    }
    if vitals.disk_read_only == Some(true) {
        troubles.push(
            "The disk is mounted read-only, as a worn card ends: nothing can be stored.".to_owned(),
        );
    }
    troubles
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::body::Throttling;

    #[test]
    fn what_is_absent_is_not_mentioned() {
        let nothing = VitalSigns::default();
        assert_eq!(
            describe(&nothing, false, true),
            "I feel well; I have no sensor of temperature."
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_what_to_do() {
        let vitals = VitalSigns {
            cpu_percent: Some(97.4),
            ram_percent: Some(61.2),
            temperature_c: Some(78.6),
            under_voltage: Some(true),
            throttling: Some(Throttling { throttled: true, ..Throttling::default() }),
            disk_read_only: Some(true),
            ..VitalSigns::default()
        };
        assert_eq!(
            describe(&vitals, true, false),
            "I am under stress; my processor has 79 °C, it is 97 % at work, 61 % of my memory is \
             in use. The supply's voltage is too low: use the official 27 W supply. The firmware \
             slows the processor down. The disk is mounted read-only, as a worn card ends: \
             nothing can be stored. No model answers me."
        );
    }
}
