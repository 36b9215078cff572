//! Finds the control groups of this process: the folders of a controller from the process's own group up to the root of the
//! mounted hierarchy.

use std::path::{Path, PathBuf};

use crate::Root;

/// A folder of a control group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Group {
    /// A group of one controller, in version 1.
    V1(PathBuf),
    /// A group of the unified hierarchy, in version 2.
    V2(PathBuf),
}

/// Returns the groups that limit this process for a controller, the innermost first.
pub(crate) fn groups(root: &Root, controller: &str) -> Vec<Group> {
    let (Some(mounts), Some(own)) = (root.text("/proc/self/mountinfo"), root.text("/proc/self/cgroup")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for line in mounts.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let (before, after): (Vec<&str>, Vec<&str>) = (before.split(' ').collect(), after.split(' ').collect());
        let (Some(mounted), Some(mount), &[kind, _, options]) = (before.get(3), before.get(4), &after[..]) else {
            continue;
        };
        let is_one = kind == "cgroup" && options.split(',').any(|option| option == controller);
        if !is_one && kind != "cgroup2" {
            continue;
        }
        let Some(path) = own_path(&own, controller, is_one) else { continue };
        for folder in folders(Path::new(&unescaped(mount)), Path::new(&unescaped(mounted)), Path::new(path)) {
            found.push(if is_one { Group::V1(folder) } else { Group::V2(folder) });
        }
    }
    found
}

/// Returns the path of the process's group. Lines are `number:controllers:path`; the unified hierarchy has no controllers.
fn own_path<'a>(own: &'a str, controller: &str, is_one: bool) -> Option<&'a str> {
    own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let is_it = if is_one { controllers.split(',').any(|one| one == controller) } else { controllers.is_empty() };
        is_it.then_some(path)
    })
}

/// Returns the folders from the group at `path` up to the mount point. `mounted` is the group at the mount point. In a
/// container without its own namespace, `mounted` is the group of the container, and paths start at the machine's root.
fn folders(mount: &Path, mounted: &Path, path: &Path) -> Vec<PathBuf> {
    let inner = path.strip_prefix(mounted).or_else(|_| path.strip_prefix("/")).unwrap_or(Path::new(""));
    // A group outside the namespace has a path that begins with "..": only the mount point is visible.
    let is_outside = inner.components().any(|part| part.as_os_str() == "..");
    let inner = if is_outside { Path::new("") } else { inner };
    inner.ancestors().map(|inner| mount.join(inner)).collect()
}

/// Returns a path of mountinfo with its octal escapes replaced, such as `\040` for a space.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_string();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(char::from(byte));
                plain.push_str(&part[3..]);
            }
            None => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_relative_to_the_group_that_is_mounted() {
        let all = |mounted: &str, path: &str| {
            let all = folders(Path::new("/m"), Path::new(mounted), Path::new(path));
            all.iter().map(|folder| folder.display().to_string().trim_end_matches('/').to_string()).collect::<Vec<_>>()
        };
        assert_eq!(all("/", "/a/b"), ["/m/a/b", "/m/a", "/m"]);
        assert_eq!(all("/docker/1", "/docker/1/b"), ["/m/b", "/m"]);
        assert_eq!(all("/docker/1", "/"), ["/m"]);
        assert_eq!(all("/", "/../x"), ["/m"]);
        assert_eq!(unescaped("/a\\040b\\x"), "/a b\\x");
    }
}
