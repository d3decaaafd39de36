//! What errors of SQLite and of the file system mean for the caller (pure).

use rusqlite::ErrorCode;

use super::StoreError;

/// What an error means for the caller.
pub(super) fn classify(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Corrupt(error.to_string())
        }
        Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig) => {
            StoreError::Refused(error.to_string())
        }
        Some(_) => StoreError::Io(error.to_string()),
        // Not from SQLite: a row does not have the types that were written.
        None => StoreError::Corrupt(error.to_string()),
    }
}

/// What an error of the file system means for the caller.
pub(super) fn io_error(error: &std::io::Error) -> StoreError {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => StoreError::Full,
        _ => StoreError::Io(error.to_string()),
    }
}
