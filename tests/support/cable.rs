//! Two network namespaces joined by a cable (a veth pair): two nodes on one machine. Needs root and iproute2.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

/// The addresses of the two nodes; each pair of namespaces has its own.
pub const ADDRESSES: [&str; 2] = ["10.213.77.1", "10.213.77.2"];

/// Two namespaces joined by a cable; gone when dropped.
pub struct Cable {
    namespaces: [String; 2],
}

impl Cable {
    /// Makes the namespaces.
    pub fn plug(purpose: &str) -> anyhow::Result<Cable> {
        let namespaces = [0, 1].map(|node| format!("burn-megatron-{}-{purpose}-{node}", std::process::id()));
        let cable = Cable { namespaces };
        let [zero, one] = &cable.namespaces;
        for namespace in &cable.namespaces {
            ip(&["netns", "add", namespace])?;
        }
        ip(&[
            "-n", zero, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", one,
        ])?;
        for (namespace, address) in cable.namespaces.iter().zip(ADDRESSES) {
            ip(&["-n", namespace, "addr", "add", &format!("{address}/24"), "dev", "cable"])?;
            ip(&["-n", namespace, "link", "set", "lo", "up"])?;
            ip(&["-n", namespace, "link", "set", "cable", "up"])?;
        }
        Ok(cable)
    }

    /// Says what a name means on a node, until its namespace is gone.
    pub fn name(&self, node: usize, name: &str, address: &str) -> anyhow::Result<()> {
        // `ip netns exec` mounts the files in this folder over those in /etc.
        let folder = self.configuration(node);
        std::fs::create_dir_all(&folder)?;
        Ok(std::fs::write(
            folder.join("hosts"),
            format!("127.0.0.1 localhost\n{address} {name}\n"),
        )?)
    }

    fn configuration(&self, node: usize) -> PathBuf {
        Path::new("/etc/netns").join(&self.namespaces[node])
    }

    /// A command that runs on a node.
    pub fn command(&self, node: usize, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespaces[node]]).arg(program);
        command
    }

    /// Drops packets between the nodes, like a failed switch: both ends keep sending and receive nothing. The kernel
    /// notices a cut cable, and then retries more often.
    pub fn swallow(&self) -> anyhow::Result<()> {
        self.resolve_neighbours("off")
    }

    /// Ends what `swallow` began.
    pub fn deliver(&self) -> anyhow::Result<()> {
        self.resolve_neighbours("on")
    }

    /// Without ARP each end sends to its own hardware address, which the other end ignores.
    fn resolve_neighbours(&self, state: &str) -> anyhow::Result<()> {
        for namespace in &self.namespaces {
            ip(&["-n", namespace, "link", "set", "cable", "arp", state])?;
        }
        Ok(())
    }

    /// Cuts the cable: no packet passes.
    pub fn cut(&self) -> anyhow::Result<()> {
        ip(&["-n", &self.namespaces[0], "link", "set", "cable", "down"])
    }

    pub fn mend(&self) -> anyhow::Result<()> {
        ip(&["-n", &self.namespaces[0], "link", "set", "cable", "up"])
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for (node, namespace) in self.namespaces.iter().enumerate() {
            // They may not have been made.
            let _ = ip(&["netns", "del", namespace]);
            let _ = std::fs::remove_dir_all(self.configuration(node));
        }
        // The last one to go takes the folder with it: it stays when it is not empty.
        let _ = std::fs::remove_dir("/etc/netns");
    }
}

fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .context("ip (iproute2) cannot be run")?;
    ensure!(
        output.status.success(),
        "ip {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
