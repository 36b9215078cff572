//! Names for a user who has not chosen any: of the host, of the user, and of a grid.

use gridloom_base::NameKind;

use crate::identity::Role;

/// Returns the name of a grid that is made on this host: the host's name without its domain.
pub fn default_grid() -> String {
    let host = host_name();
    let first = host.split('.').find(|part| !part.is_empty()).unwrap_or("grid");
    NameKind::Grid.mapped(first).into_owned()
}

/// Returns the host's name for agents, servers and relays, and the user's name for clients and administrators.
pub fn default_name(role: Role) -> String {
    match role {
        Role::Agent | Role::Server | Role::Functions | Role::Relay => host_name(),
        Role::Client | Role::Administrator => user_name(),
    }
}

fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    NameKind::Server.mapped(if name.is_empty() { "localhost" } else { &name }).into_owned()
}

/// Returns the name of the user from the environment, otherwise the number.
fn user_name() -> String {
    let set = |name: &str| std::env::var(name).ok().filter(|text| NameKind::User.check(text).is_ok());
    set("USER").or_else(|| set("LOGNAME")).unwrap_or_else(|| format!("user-{}", rustix::process::geteuid().as_raw()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;

    #[test]
    fn default_names_are_valid() {
        for role in Role::ALL {
            Identity::new(&default_grid(), role, &default_name(role)).unwrap();
        }
    }
}
