//! Slurm's dialect: the tasks that `srun` starts. Where rank 0 is stands in the step's list of hosts.

use std::net::Ipv4Addr;

use super::reader::{Job, Place, Reader, invalid, number, present};
use super::slurm_lists::{first_host, tasks_per_node};
use super::{Environment, names};
use crate::launch::error::LaunchError;

pub(super) const STEP_ID: &str = "SLURM_STEP_ID";
const JOB_ID: &str = "SLURM_JOB_ID";
const RANK: &str = "SLURM_PROCID";
const LOCAL_RANK: &str = "SLURM_LOCALID";
const NODE: &str = "SLURM_NODEID";
const HOSTS: &str = "SLURM_STEP_NODELIST";
/// The step's number of tasks; that of the job where an old Slurm does not give it.
const WORLD_SIZES: [&str; 2] = ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"];
/// The tasks of each node of the step; as asked for where an old Slurm does not give it.
const TASKS_PER_NODE: [&str; 2] = ["SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"];

/// The lowest id that Slurm gives to what is no step of `srun`: batch scripts, interactive shells and the like.
const FIRST_SPECIAL_STEP: u64 = 0xffff_fff0;

/// Returns this process's place in its step, if it is one of several tasks that `srun` started.
///
/// Batch scripts and interactive shells have SLURM_PROCID, too, but no SLURM_STEP_ID, or a special one.
///
/// MASTER_ADDR is that of the environment, or the first host of the step, or the loopback address when all tasks are on
/// this host. MASTER_PORT likewise, or 20000 + (10 times the job's id + the step's id) modulo 10000.
pub(super) fn read(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Option<Environment>, LaunchError> {
    let reader = Reader {
        lookup,
        sign: STEP_ID,
        partners: &[
            STEP_ID,
            JOB_ID,
            RANK,
            LOCAL_RANK,
            NODE,
            HOSTS,
            WORLD_SIZES[0],
            TASKS_PER_NODE[0],
        ],
    };
    let step = match reader.optional(STEP_ID).map(|text| text.parse::<u64>()) {
        Some(Ok(step)) if step < FIRST_SPECIAL_STEP => step,
        _ => return Ok(None),
    };
    let world_size_name = present(lookup, WORLD_SIZES);
    let world_size = reader.at_least_one(world_size_name)?;
    if world_size == 1 {
        return Ok(None);
    }
    let place = place(&reader, (world_size_name, world_size))?;
    let master_addr = match reader.optional(names::MASTER_ADDR) {
        Some(address) => address,
        None if place.local_world_size == world_size => Ipv4Addr::LOCALHOST.to_string(),
        None => {
            let hosts = reader.required(HOSTS)?;
            first_host(&hosts).map_err(|rule| invalid(HOSTS, &hosts, rule))?
        }
    };
    let job_text = reader.required(JOB_ID)?;
    let job: u64 = number(JOB_ID, &job_text, "0 or more")?;
    let master_port = reader.port_or_derived(job.wrapping_mul(10).wrapping_add(step))?;
    reader
        .environment(Job {
            place,
            master_addr,
            master_port,
            run_id: Some(format!("slurm/{job}/{step}")),
            restart_count: reader.optional("SLURM_RESTART_COUNT"),
        })
        .map(Some)
}

fn place(reader: &Reader<'_>, world_size: (&'static str, usize)) -> Result<Place, LaunchError> {
    let rank = reader.index_below(RANK, world_size)?;
    let tasks_name = present(reader.lookup, TASKS_PER_NODE);
    let tasks = reader.required(tasks_name)?;
    let node_text = reader.required(NODE)?;
    let node: usize = number(NODE, &node_text, "0 or more")?;
    let is_exact = tasks_name == TASKS_PER_NODE[0];
    // What was asked for is one number for all nodes.
    let (local_world_size, total) =
        tasks_per_node(&tasks, if is_exact { node } else { 0 }).map_err(|rule| invalid(tasks_name, &tasks, rule))?;
    if is_exact && total != world_size.1 || local_world_size > world_size.1 {
        let (name, size) = world_size;
        return Err(invalid(
            tasks_name,
            tasks,
            format!("must agree with {name}={size}, but makes {total} tasks"),
        ));
    }
    let local_rank = reader.index_below(LOCAL_RANK, (tasks_name, local_world_size))?;
    Ok(Place {
        rank,
        world_size: world_size.1,
        local_rank,
        local_world_size,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check_refusal, parse_changed};
    use super::*;

    /// Task 7 of 7 on four nodes, with changes.
    fn parse(changes: &[(&str, Option<&str>)]) -> Result<Option<Environment>, String> {
        let variables = [
            (STEP_ID, "3"),
            (JOB_ID, "421337"),
            (RANK, "6"),
            (LOCAL_RANK, "0"),
            (NODE, "3"),
            (HOSTS, "dgx[03-05,9]"),
            ("SLURM_STEP_NUM_TASKS", "7"),
            ("SLURM_NTASKS", "8"),
            ("SLURM_STEP_TASKS_PER_NODE", "2(x3),1"),
        ];
        parse_changed(&variables, changes)
    }

    #[test]
    fn step_of_srun_is_read() {
        let environment = parse(&[]).unwrap().unwrap();
        assert_eq!((environment.rank, environment.world_size), (6, 7));
        assert_eq!((environment.local_rank, environment.local_world_size), (0, 1));
        assert_eq!(environment.master_addr, "dgx03");
        // 10 * 421337 + 3, modulo 10000.
        assert_eq!(
            (environment.master_port, environment.store_port().unwrap()),
            (23373, 23374)
        );
        assert_ne!(
            environment.token(),
            parse(&[(STEP_ID, Some("4"))]).unwrap().unwrap().token()
        );
        let chosen = parse(&[("MASTER_ADDR", Some("10.0.0.1")), ("MASTER_PORT", Some("4000"))]);
        let chosen = chosen.unwrap().unwrap();
        assert_eq!((chosen.master_addr.as_str(), chosen.master_port), ("10.0.0.1", 4000));
    }

    #[test]
    fn old_slurm_gives_less() {
        let environment = parse(&[
            ("SLURM_STEP_NUM_TASKS", None),
            ("SLURM_STEP_TASKS_PER_NODE", None),
            ("SLURM_NTASKS_PER_NODE", Some("2")),
        ]);
        let environment = environment.unwrap().unwrap();
        assert_eq!((environment.world_size, environment.local_world_size), (8, 2));
    }

    #[test]
    fn batch_scripts_interactive_shells_and_single_tasks_are_no_ranks() {
        for step in [None, Some("4294967291"), Some("4294967290"), Some("batch")] {
            assert_eq!(parse(&[(STEP_ID, step)]), Ok(None), "{step:?}");
        }
        assert_eq!(parse(&[("SLURM_STEP_NUM_TASKS", Some("1"))]), Ok(None));
    }

    #[test]
    fn one_host_meets_at_loopback() {
        let changes = [
            ("SLURM_STEP_TASKS_PER_NODE", Some("7")),
            (NODE, Some("0")),
            (LOCAL_RANK, Some("6")),
        ];
        assert_eq!(parse(&changes).unwrap().unwrap().master_addr, "127.0.0.1");
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let cases = [
            (RANK, Some("7"), "must be below SLURM_STEP_NUM_TASKS=7; valid: 0 to 6"),
            (RANK, None, ""),
            (LOCAL_RANK, Some("1"), "must be below SLURM_STEP_TASKS_PER_NODE=1"),
            (HOSTS, Some("dgx[03"), "a bracket is not closed"),
            (HOSTS, None, ""),
            (JOB_ID, Some("x"), "must be a whole number"),
            (
                TASKS_PER_NODE[0],
                Some("2(x4)"),
                "must agree with SLURM_STEP_NUM_TASKS=7, but makes 8 tasks",
            ),
        ];
        for case in cases {
            check_refusal(parse(&[(case.0, case.1)]), STEP_ID, case);
        }
        let message = parse(&[(NODE, Some("4"))]).unwrap_err();
        let expected = "SLURM_STEP_TASKS_PER_NODE=\"2(x3),1\": has fewer nodes than SLURM_NODEID says";
        assert!(message.contains(expected), "{message}");
    }
}
