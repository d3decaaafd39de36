//! temporary
fn main() -> std::process::ExitCode {
    std::process::ExitCode::from(crayfish::daemon::run(crayfish::daemon::Wish::default()))
}
