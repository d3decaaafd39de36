//! The fields of requests that a model has refused.

use super::Learned;
use crate::provider::fault::Field;

impl Learned {
    /// Whether the model has refused the field.
    #[must_use]
    pub fn has_refused(&self, field: Field) -> bool {
        self.lock().refused.contains(&field)
    }

    /// The model refuses the field: it is left out from now on.
    pub fn refuses(&self, field: Field) {
        let mut figures = self.lock();
        if !figures.refused.contains(&field) {
            figures.refused.push(field);
        }
    }

    /// The model is gone; the one that comes may take what it refused.
    pub fn model_gone(&self) {
        self.unloaded();
        self.lock().refused.clear();
    }
}
