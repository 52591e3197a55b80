//! Tests of the environment parser: every rule, and that messages name variable, value, rule and valid values.

use std::collections::HashMap;

use super::*;

/// Parses the variables of a launcher; with `changes` (`None` removes a variable).
pub(super) fn parse_changed(
    variables: &[(&str, &str)],
    changes: &[(&str, Option<&str>)],
) -> Result<Option<Environment>, String> {
    let mut values: HashMap<&str, &str> = variables.iter().copied().collect();
    for (name, value) in changes {
        match value {
            Some(value) => values.insert(name, value),
            None => values.remove(name),
        };
    }
    Environment::from_lookup(|name| values.get(name).map(|value| value.to_string())).map_err(|error| error.to_string())
}

/// Checks that a value is refused by a rule, or that a variable is missed that goes with `sign`.
pub(super) fn check_refusal(
    parsed: Result<Option<Environment>, String>,
    sign: &str,
    (name, value, rule): (&str, Option<&str>, &str),
) {
    let message = parsed.unwrap_err();
    let expected = match value {
        Some(value) => format!("environment variable {name}={value:?}: {rule}"),
        None => format!("environment variable {name} is not set although {sign} is"),
    };
    assert!(message.starts_with(&expected), "{message}");
}

/// Rank 1 of 4, two ranks per host, under torchrun, with changes.
fn parse(changes: &[(&str, Option<&str>)]) -> Result<Option<Environment>, String> {
    let variables = [
        ("RANK", "1"),
        ("WORLD_SIZE", "4"),
        ("LOCAL_RANK", "1"),
        ("LOCAL_WORLD_SIZE", "2"),
        ("MASTER_ADDR", "node0"),
        ("MASTER_PORT", "29500"),
    ];
    parse_changed(&variables, changes)
}

#[test]
fn torchrun_variables_are_read() {
    let environment = parse(&[("TORCHELASTIC_RUN_ID", Some("abc"))]).unwrap().unwrap();
    assert_eq!((environment.rank, environment.world_size), (1, 4));
    assert_eq!((environment.local_rank, environment.local_world_size), (1, 2));
    assert_eq!(
        (environment.master_addr.as_str(), environment.master_port),
        ("node0", 29500)
    );
    assert_eq!(
        (environment.job_id.as_ref(), environment.job_token.as_ref()),
        (None, None)
    );
    assert!(!environment.store_hosted_elsewhere);
    assert_eq!(environment.store_port().unwrap(), 29501);
    assert_eq!(environment.token(), JobToken::derived("abc", 29500, ""));
}

#[test]
fn own_launcher_variables_are_read() {
    let environment = parse(&[
        ("BURN_MEGATRON_JOB_ID", Some("0123456789abcdef")),
        ("BURN_MEGATRON_JOB_TOKEN", Some("a secret of enough bytes")),
        ("BURN_MEGATRON_STORE_HOSTED", Some("1")),
        ("BURN_MEGATRON_HOST", Some("pretended")),
    ])
    .unwrap()
    .unwrap();
    assert_eq!(environment.job_id.as_deref(), Some("0123456789abcdef"));
    assert_eq!(environment.token(), JobToken::from_text("a secret of enough bytes"));
    assert_eq!(environment.store_port().unwrap(), 29500);
    assert_eq!(environment.host.as_deref(), Some("pretended"));
}

#[test]
fn no_rank_means_no_launcher() {
    assert_eq!(parse(&[("RANK", None)]), Ok(None));
}

#[test]
fn a_pod_of_one_process_is_no_rank() {
    let pod = [
        ("RANK", Some("0")),
        ("WORLD_SIZE", Some("1")),
        ("LOCAL_RANK", None),
        ("LOCAL_WORLD_SIZE", None),
    ];
    assert_eq!(parse(&pod), Ok(None));
    let local_rank = [("LOCAL_RANK", Some("0"))];
    assert_eq!(parse(&[&pod[..], &local_rank].concat()), Ok(None));
    // torchrun and our own launcher say how many ranks the host has.
    let rank = [("LOCAL_RANK", Some("0")), ("LOCAL_WORLD_SIZE", Some("1"))];
    assert!(parse(&[&pod[..2], &rank].concat()).unwrap().is_some());
    let message = parse(&[&pod[..], &[("RANK", Some("1"))]].concat()).unwrap_err();
    assert!(message.contains("RANK=\"1\": must be below WORLD_SIZE=1"), "{message}");
    let message = parse(&[&pod[..], &[("WORLD_SIZE", Some("2"))]].concat()).unwrap_err();
    assert!(
        message.contains("unset it (env -u RANK)") && message.contains("--node-rank"),
        "{message}"
    );
    // DeepSpeed's launcher has a name of its own.
    let deepspeed = [("LOCAL_WORLD_SIZE", None), ("LOCAL_SIZE", Some("2"))];
    assert_eq!(parse(&deepspeed), parse(&[]));
}

#[test]
fn addresses_have_brackets_and_ports_as_people_write_them() {
    for (text, host) in [
        ("node0", "node0"),
        (" 10.0.0.1 ", "10.0.0.1"),
        ("::1", "::1"),
        ("[2001:db8::7]", "2001:db8::7"),
        ("fe80::1%eth0", "fe80::1%eth0"),
    ] {
        assert_eq!(host_alone(text).as_deref(), Ok(host));
        assert_eq!(
            parse(&[("MASTER_ADDR", Some(text))]).unwrap().unwrap().master_addr,
            host
        );
    }
    for (text, rest) in [
        (
            "node0:29500",
            " alone; write node0 here and the port 29500 in MASTER_PORT (--master-port)",
        ),
        (
            "[::1]:4000",
            " alone; write ::1 here and the port 4000 in MASTER_PORT (--master-port)",
        ),
        (
            "tcp://10.0.0.1:1",
            " alone; write 10.0.0.1 here and the port 1 in MASTER_PORT (--master-port)",
        ),
        ("node0:http", "; valid: node0, 10.0.0.1 or 2001:db8::7"),
        ("", "; valid: node0, 10.0.0.1 or 2001:db8::7"),
    ] {
        let rule = format!("must be the name or address of the host of rank 0{rest}");
        assert_eq!(host_alone(text), Err(rule.clone()));
        check_refusal(
            parse(&[("MASTER_ADDR", Some(text))]),
            "RANK",
            ("MASTER_ADDR", Some(text), &rule),
        );
    }
}

#[test]
fn each_missing_partner_is_named() {
    for name in [
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
    ] {
        check_refusal(parse(&[(name, None)]), "RANK", (name, None, ""));
    }
}

#[test]
fn each_invalid_value_is_named_with_its_rule() {
    let cases = [
        ("RANK", "4", "must be below WORLD_SIZE=4; valid: 0 to 3"),
        ("RANK", "one", "must be a whole number; valid: 0 to 3"),
        ("RANK", "-1", "must be a whole number; valid: 0 to 3"),
        ("WORLD_SIZE", "0", "must be at least 1; valid: 1 or more"),
        ("WORLD_SIZE", "", "must be a whole number; valid: 1 or more"),
        ("WORLD_SIZE", "1048577", "must be at most 1048576; valid: 1 to 1048576"),
        ("LOCAL_RANK", "2", "must be below LOCAL_WORLD_SIZE=2; valid: 0 to 1"),
        ("LOCAL_WORLD_SIZE", "5", "must be at most WORLD_SIZE=4; valid: 1 to 4"),
        ("MASTER_PORT", "0", "must be a port number; valid: 1 to 65535"),
        ("MASTER_PORT", "70000", "must be a port number; valid: 1 to 65535"),
        ("BURN_MEGATRON_STORE_HOSTED", "yes", "must be a switch; valid: 0 or 1"),
        (
            "BURN_MEGATRON_JOB_ID",
            "../../etc/passwd",
            "must be 16 hexadecimal digits in lower case; valid: 0123456789abcdef",
        ),
        ("MASTER_ADDR", "", "must be the name or address of the host of rank 0"),
        (
            "MASTER_PORT",
            "65535",
            "the store's port, MASTER_PORT + 1, would be above 65535; valid: at most 65534",
        ),
    ];
    for (name, value, rule) in cases {
        check_refusal(parse(&[(name, Some(value))]), "RANK", (name, Some(value), rule));
    }
}

#[test]
fn store_port_can_be_chosen() {
    let changes = [
        ("MASTER_PORT", Some("65535")),
        ("BURN_MEGATRON_STORE_PORT", Some("4000")),
    ];
    assert_eq!(parse(&changes).unwrap().unwrap().store_port().unwrap(), 4000);
}

#[test]
fn refused_token_is_not_shown() {
    let message = parse(&[("BURN_MEGATRON_JOB_TOKEN", Some("hunter2"))]).unwrap_err();
    assert!(
        message.contains("(7 bytes)") && !message.contains("hunter2"),
        "{message}"
    );
}
