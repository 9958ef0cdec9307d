//! Users of this host.

use nix::unistd::User;
use std::io;

/// The numbers of a user of this host and of its group, by all the ways in which the host knows
/// users; none where it knows no such user.
///
/// # Errors
/// The host cannot say.
pub fn host_user(name: &str) -> io::Result<Option<(u32, u32)>> {
    let user = User::from_name(name)?;
    Ok(user.map(|user| (user.uid.as_raw(), user.gid.as_raw())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_this_host_have_names() {
        assert_eq!(host_user("root").unwrap(), Some((0, 0)));
        assert_eq!(host_user("nobody of that name").unwrap(), None);
        assert_eq!(host_user("a\0b").ok().flatten(), None);
    }
}
