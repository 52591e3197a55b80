//! Tests of the choice of an interface, on made-up hosts, and of listening, on this one.

use std::net::TcpStream;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn interface(name: &str, address: &str) -> Interface {
    Interface {
        name: name.into(),
        address: ip(address),
    }
}

fn host() -> Vec<Interface> {
    vec![
        interface("lo", "127.0.0.1"),
        interface("lo", "::1"),
        interface("eth0", "2001:db8::7"),
        interface("eth0", "192.168.1.5"),
        interface("ib0", "10.0.0.5"),
    ]
}

#[test]
fn interfaces_are_chosen_by_name_address_and_network() {
    for (wish, address) in [
        ("eth0", "192.168.1.5"),
        ("ib0", "10.0.0.5"),
        ("10.0.0.5", "10.0.0.5"),
        ("::1", "::1"),
        ("10.0.0.0/8", "10.0.0.5"),
        ("2001:db8::/32", "2001:db8::7"),
        ("0.0.0.0/0", "127.0.0.1"),
    ] {
        assert_eq!(address_among(wish, &host()).unwrap(), ip(address), "{wish}");
    }
}

#[test]
fn an_interface_that_is_not_there_lists_those_that_are() {
    for wish in ["eth7", "10.0.0.6", "172.16.0.0/12", "10.0.0.0/33", "ETH0"] {
        let message = address_among(wish, &host()).unwrap_err().to_string();
        assert_eq!(
            message,
            format!(
                "this host has no interface {wish:?} (BURN_MEGATRON_INTERFACE); it has lo 127.0.0.1, lo ::1, eth0 \
                 2001:db8::7, eth0 192.168.1.5, ib0 10.0.0.5"
            )
        );
    }
}

#[test]
fn this_hosts_loopback_interface_is_found() {
    assert_eq!(chosen_address(Some("127.0.0.1")).unwrap(), Some(ip("127.0.0.1")));
    assert_eq!(chosen_address(Some("127.0.0.0/8")).unwrap(), Some(ip("127.0.0.1")));
    let message = chosen_address(Some("none7")).unwrap_err().to_string();
    assert!(message.contains("127.0.0.1"), "{message}");
}

/// Where the store listens on [`host`].
fn store_at(master: &str, resolved: &[&str], is_one_host: bool, interface: Option<&str>) -> Result<IpAddr, String> {
    let resolved: Vec<IpAddr> = resolved.iter().map(|text| ip(text)).collect();
    let own: Vec<IpAddr> = host().into_iter().map(|interface| interface.address).collect();
    choose_store_address(master, &resolved, &own, is_one_host, interface.map(ip)).map_err(|error| error.to_string())
}

#[test]
fn store_listens_where_the_ranks_look_for_it_and_nowhere_else() {
    let cases = [
        ("localhost", &["127.0.0.1"][..], true, "127.0.0.1"),
        ("node0", &["192.168.1.5"], false, "192.168.1.5"),
        ("node0", &["192.168.1.5"], true, "192.168.1.5"),
        ("::1", &["::1"], true, "::1"),
        // Debian's name of this host in /etc/hosts: of no use to the others.
        ("node0", &["127.0.1.1", "10.0.0.5"], false, "10.0.0.5"),
        ("node0", &["127.0.1.1"], true, "127.0.1.1"),
        // All ranks are told a loopback address as such: several "hosts" of a test.
        ("127.0.0.1", &["127.0.0.1"], false, "127.0.0.1"),
        // Not this host's, or only for itself: behind some translation.
        ("node0", &["127.0.1.1"], false, "0.0.0.0"),
        ("203.0.113.9", &["203.0.113.9"], false, "0.0.0.0"),
        ("2001:db8::9", &["2001:db8::9"], false, "::"),
    ];
    for (master, resolved, is_one_host, expected) in cases {
        assert_eq!(
            store_at(master, resolved, is_one_host, None),
            Ok(ip(expected)),
            "{master} {resolved:?}"
        );
    }
}

#[test]
fn store_listens_on_the_interface_that_was_asked_for_or_says_that_nobody_would_find_it() {
    assert_eq!(
        store_at("node0", &["10.0.0.5", "192.168.1.5"], false, Some("10.0.0.5")),
        Ok(ip("10.0.0.5"))
    );
    assert_eq!(
        store_at("203.0.113.9", &["203.0.113.9"], false, Some("10.0.0.5")),
        Ok(ip("10.0.0.5"))
    );
    assert_eq!(
        store_at("node0", &["192.168.1.5"], false, Some("10.0.0.5")).unwrap_err(),
        "the interface that was asked for has the address 10.0.0.5, but the ranks look for the store at \"node0\", which \
         is [192.168.1.5]: another interface of this host; make them agree"
    );
}

#[test]
fn a_listener_takes_only_connections_to_its_own_address() {
    for (address, other) in [("127.0.0.2", "127.0.0.1"), ("::1", "127.0.0.1")] {
        let listener = listen(SocketAddr::new(ip(address), 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(TcpStream::connect((ip(address), port)).is_ok());
        assert!(TcpStream::connect((ip(other), port)).is_err());
    }
}
