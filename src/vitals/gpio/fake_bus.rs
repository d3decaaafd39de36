//! An I2C bus with devices that are nothing but their registers, for tests.

use std::collections::BTreeMap;

use embedded_hal::i2c::{ErrorKind, ErrorType, I2c, NoAcknowledgeSource, Operation};

/// The bus.
#[derive(Debug, Default)]
pub(super) struct FakeBus {
    devices: BTreeMap<u8, Device>,
}

/// One device.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) registers: [u8; 256],
    /// Bits of the register byte that name a register.
    mask: u8,
    at: u8,
}

impl FakeBus {
    /// The device at `address`, which is put there if it is not yet.
    pub(super) fn device(&mut self, address: u8, mask: u8) -> &mut Device {
        self.devices.entry(address).or_insert(Device { registers: [0; 256], mask, at: 0 })
    }

    /// Pulls a device off the bus.
    pub(super) fn unplug(&mut self, address: u8) {
        self.devices.remove(&address);
    }
}

impl ErrorType for FakeBus {
    type Error = ErrorKind;
}

impl I2c for FakeBus {
    fn transaction(
        &mut self,
        address: u8,
        operations: &mut [Operation<'_>],
    ) -> Result<(), ErrorKind> {
        let nobody = ErrorKind::NoAcknowledge(NoAcknowledgeSource::Address);
        let device = self.devices.get_mut(&address).ok_or(nobody)?;
        for operation in operations {
            match operation {
                Operation::Write(bytes) => {
                    device.at = bytes.first().copied().unwrap_or_default() & device.mask;
                    // Registers and values in turn, as both sensors take them.
                    for pair in bytes.chunks_exact(2) {
                        device.registers[usize::from(pair[0] & device.mask)] = pair[1];
                    }
                }
                Operation::Read(bytes) => {
                    for byte in bytes.iter_mut() {
                        *byte = device.registers[usize::from(device.at)];
                        device.at = device.at.wrapping_add(1);
                    }
                }
            }
        }
        Ok(())
    }
}
