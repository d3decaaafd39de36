//! A machine that is always well: the body is not what these worlds are about.

use crate::snapshot::body::VitalSigns;
use crate::vitals::VitalsSource;

/// See the module.
#[derive(Debug)]
pub(super) struct Mild;

impl VitalsSource for Mild {
    fn sample(&mut self) -> VitalSigns {
        VitalSigns {
            cpu_percent: Some(5.0),
            ram_percent: Some(30.0),
            temperature_c: Some(48.0),
            ..VitalSigns::default()
        }
    }
}
