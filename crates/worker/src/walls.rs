//! Which walls this machine allows around workers: what `farcall doctor` and the first lines of a
//! server's log report. It tries them out and builds none. The server decides whether to start
//! without one.

use crate::groups::Groups;
use crate::namespaces::Namespaces;

/// The walls that this machine allows.
#[derive(Clone, Debug, Default)]
pub struct Walls {
    /// Namespaces of workers.
    pub namespaces: Namespaces,
    /// Control groups of workers.
    pub groups: Groups,
    /// Why a wall is missing, one sentence each.
    pub missing: Vec<String>,
    /// Why a wall is replaced by a weaker one.
    pub weaker: Vec<String>,
    /// Whether the kernel has Landlock.
    landlock: bool,
}

impl Walls {
    /// Tries them out.
    pub fn available() -> Walls {
        let (namespaces, refused) = Namespaces::available();
        let (groups, weaker) = Groups::available();
        let mut missing: Vec<String> = refused.iter().map(ToString::to_string).collect();
        let landlock = has_landlock();
        if !landlock {
            missing.push("the kernel has no Landlock (Linux 5.13)".to_string());
        }
        if !namespaces.processes {
            missing.push("processes that a function starts may outlive the worker".to_string());
        }
        if !groups.bound_processes() && !namespaces.user {
            missing.push("nothing bounds the number of processes of a worker".to_string());
        }
        Walls {
            namespaces,
            groups,
            missing,
            weaker,
            landlock,
        }
    }

    /// The walls that stand, in words.
    pub fn standing(&self) -> String {
        let Namespaces {
            user,
            processes,
            ipc,
            mounts,
            network,
        } = self.namespaces;
        let walls = [
            (processes, "own processes"),
            (ipc, "own shared memory"),
            (mounts, "own /tmp and /dev/shm"),
            (network, "own network"),
            (self.landlock, "Landlock"),
            (true, "seccomp"),
            (self.groups.bound_memory(), "a group that bounds memory"),
            (
                self.groups.bound_processes() || user,
                "a bound on processes",
            ),
        ];
        let standing = walls.into_iter().filter(|(stands, _)| *stands);
        let names: Vec<&str> = standing.map(|(_, name)| name).collect();
        names.join(", ")
    }
}

fn has_landlock() -> bool {
    const VERSION: libc::c_int = 1;
    // SAFETY: the system call reads no memory; it returns the version of Landlock.
    let version = unsafe {
        let none: *const u8 = std::ptr::null();
        libc::syscall(libc::SYS_landlock_create_ruleset, none, 0usize, VERSION)
    };
    version > 0
}
