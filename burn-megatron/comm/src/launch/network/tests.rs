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
        // All ranks are given a loopback address as such: several "hosts" of a test.
        ("127.0.0.1", &["127.0.0.1"], false, "127.0.0.1"),
        // Not this host's address, or only for itself: it is translated on the way.
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
fn store_listens_on_the_interface_that_was_asked_for_or_says_that_no_rank_would_find_it() {
    assert_eq!(
        store_at("node0", &["10.0.0.5", "192.168.1.5"], false, Some("10.0.0.5")),
        Ok(ip("10.0.0.5"))
    );
    assert_eq!(
        store_at("203.0.113.9", &["203.0.113.9"], false, Some("10.0.0.5")),
        Ok(ip("10.0.0.5"))
    );
    // Its own ranks look for it on loopback, those of other hosts on the interface.
    assert_eq!(
        store_at("node0", &["127.0.1.1"], false, Some("10.0.0.5")),
        Ok(ip("0.0.0.0"))
    );
    assert_eq!(
        store_at("node0", &["192.168.1.5"], false, Some("10.0.0.5")).unwrap_err(),
        "the interface that was asked for has the address 10.0.0.5, but the ranks look for the store at \"node0\", \
         which is [192.168.1.5]: another interface of this host; make them agree"
    );
}

#[test]
fn data_never_go_to_the_loopback_address_of_a_name_that_others_know_otherwise() {
    let own = host();
    let only_loopback = &own[..2];
    let one_more = &[&own[..2], &own[4..]].concat();
    let choose = |interfaces: &[Interface], route: Option<&str>| {
        choose_data_address(ip("127.0.1.1"), "node0", interfaces, route.map(ip)).map_err(|error| error.to_string())
    };
    assert_eq!(choose(one_more, None), Ok(ip("10.0.0.5")));
    assert_eq!(choose(&own[..3], None), Ok(ip("2001:db8::7")));
    assert_eq!(choose(&own, Some("192.168.1.5")), Ok(ip("192.168.1.5")));
    assert_eq!(choose(only_loopback, None), Ok(ip("127.0.1.1")));
    for route in [None, Some("172.17.0.1")] {
        assert_eq!(
            choose(&own, route).unwrap_err(),
            "\"node0\" is the loopback address 127.0.1.1 to this host, which the other hosts do not reach, and it is \
             not clear which of eth0 192.168.1.5, ib0 10.0.0.5 they do: choose one by BURN_MEGATRON_INTERFACE or \
             --interface"
        );
    }
}

#[test]
fn data_go_where_the_store_is_reached_otherwise() {
    for (reached_by, master_addr, is_one_host) in [
        ("127.0.1.1", "node0", true),
        ("10.0.0.5", "node0", false),
        ("127.0.0.1", "127.0.0.1", false),
        ("127.0.0.1", "localhost", false),
    ] {
        assert_eq!(
            data_address(ip(reached_by), master_addr, is_one_host).unwrap(),
            ip(reached_by)
        );
    }
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
