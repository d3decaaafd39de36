//! Sanitise (placeholder until merge).
/// x
pub fn sanitise(text: &str) -> String {
    text.to_owned()
}
