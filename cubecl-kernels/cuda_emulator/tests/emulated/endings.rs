//! Wrong calls and ranks are reported, or never end except by an abort, as with the library.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cudarc::nccl::{result, sys};
use sys::ncclDataType_t::{ncclFloat8e4m3, ncclFloat32};
use sys::ncclResult_t as Code;

use crate::gpu::{Address, allocate, done, download, is_busy, open, synchronize, text, upload};
use crate::rank::Rank;
use crate::scene::{Role, Scene};

pub fn scenes() -> Vec<Scene> {
    vec![
        Scene::new("endings::an_abort_ends_an_operation_that_waits", abort).ranks(2),
        Scene::new("endings::an_abort_is_reported_to_the_others", abort_of_another).devices(2),
        Scene::new("endings::calls_that_do_not_match_never_end", mismatch).ranks(2),
        Scene::new("endings::sends_in_a_ring_without_a_group_never_end", ring_without_group).ranks(2),
        Scene::new("endings::a_killed_rank_is_an_asynchronous_error", killed)
            .ranks(3)
            .dies(1),
        Scene::new("endings::a_rank_killed_amid_its_operation_is_too", killed_amid)
            .ranks(2)
            .dies(1),
        Scene::new("endings::two_ranks_on_a_device_are_refused", duplicate)
            .ranks(2)
            .devices(1),
        Scene::new("endings::ranks_that_count_differently_are_refused", counts).ranks(2),
        Scene::new("endings::a_communicator_that_does_not_block_is_polled", polled).ranks(2),
        Scene::new("endings::calls_that_do_not_block_are_polled", polled_calls)
            .ranks(2)
            .jitter(100)
            .in_progress(),
        Scene::new("endings::a_call_in_progress_can_be_aborted", abort_in_progress)
            .ranks(2)
            .in_progress(),
        Scene::new("endings::a_rank_that_never_comes_can_be_aborted", never_comes).devices(1),
        Scene::new("endings::an_end_without_the_device_is_refused", without_device).devices(2),
        Scene::new("endings::wrong_arguments_are_refused", refused).devices(2),
        Scene::new("endings::ranks_that_end_in_order_leave_no_error", in_order).ranks(2),
    ]
}

fn asynchronous_error(communicator: sys::ncclComm_t) -> Result<Code> {
    let mut error = Code::ncclSuccess;
    // SAFETY: the handle is one of the scene's, and the code is written here.
    let code = unsafe { sys::ncclCommGetAsyncError(communicator, &mut error) };
    ensure!(code == Code::ncclSuccess, "{code:?}");
    Ok(error)
}

/// Waits up to ten seconds for an asynchronous error, or for the end of one.
fn until(communicator: sys::ncclComm_t, wanted: Code) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let error = asynchronous_error(communicator)?;
        if error == wanted {
            return Ok(());
        }
        ensure!(Instant::now() < end, "is {error:?}, not {wanted:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Checks that a stream is still busy, aborts, and checks that the device works as before.
fn abort_what_hangs(rank: &Rank) -> Result<()> {
    std::thread::sleep(Duration::from_millis(300));
    ensure!(is_busy(rank.stream), "the operation has ended");
    // SAFETY: aborted once.
    done(unsafe { result::comm_abort(rank.communicator) })?;
    synchronize(rank.stream)?;
    let buffer = upload(&[5.0f32], rank.stream)?;
    ensure!(download::<f32>(buffer, 1, rank.stream)? == [5.0]);
    Ok(())
}

fn abort(role: &Role) -> Result<()> {
    let rank = Rank::join(role)?;
    if rank.rank == 0 {
        let buffer = upload(&[1.0f32], rank.stream)?;
        rank.all_reduce(buffer, 1)?;
        ensure!(asynchronous_error(rank.communicator)? == Code::ncclSuccess);
        return abort_what_hangs(&rank);
    }
    // The other one is gone.
    until(rank.communicator, Code::ncclRemoteError)?;
    // SAFETY: aborted once.
    done(unsafe { result::comm_abort(rank.communicator) })
}

/// In one process, whose end does not close the connections.
fn abort_of_another(role: &Role) -> Result<()> {
    let id = role.ids[0];
    let join =
        move |rank| std::thread::spawn(move || Rank::join_as(rank, 2, id).map(|rank| rank.communicator as usize));
    let mut communicators = Vec::new();
    for thread in [join(0), join(1)] {
        let joined = thread.join().map_err(|_| anyhow::anyhow!("a rank panicked"))??;
        communicators.push(joined as sys::ncclComm_t);
    }
    open(0)?;
    // SAFETY: both are aborted once.
    unsafe {
        done(result::comm_abort(communicators[0]))?;
        until(communicators[1], Code::ncclRemoteError)?;
        open(1)?;
        done(result::comm_abort(communicators[1]))
    }
}

fn mismatch(role: &Role) -> Result<()> {
    let rank = Rank::join(role)?;
    let buffer = upload(&[1.0f32; 8], rank.stream)?;
    rank.all_reduce(buffer, 4)?;
    ensure!(download::<f32>(buffer, 8, rank.stream)? == [2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0]);
    rank.all_reduce(buffer, 4 + rank.rank)?;
    std::thread::sleep(Duration::from_millis(300));
    // Both see that neither ends before one of them leaves.
    ensure!(is_busy(rank.stream), "the operation has ended");
    std::thread::sleep(Duration::from_millis(500));
    abort_what_hangs(&rank)
}

fn ring_without_group(role: &Role) -> Result<()> {
    let rank = Rank::join(role)?;
    let (from, to) = (upload(&[1.0f32], rank.stream)?, allocate(4, rank.stream)?);
    rank.send(from, 1, ncclFloat32, 1 - rank.rank)?;
    rank.receive(to, 1, ncclFloat32, 1 - rank.rank)?;
    std::thread::sleep(Duration::from_millis(500));
    abort_what_hangs(&rank)
}

fn killed(role: &Role) -> Result<()> {
    let rank = Rank::join(role)?;
    let buffer = upload(&[1.0f32], rank.stream)?;
    rank.all_reduce(buffer, 1)?;
    ensure!(download::<f32>(buffer, 1, rank.stream)? == [3.0]);
    if rank.rank == 1 {
        // The others have called theirs by then: afterwards a call is refused.
        std::thread::sleep(Duration::from_millis(700));
        std::process::abort();
    }
    rank.all_reduce(buffer, 1)?;
    until(rank.communicator, Code::ncclRemoteError)?;
    abort_what_hangs(&rank)
}

fn killed_amid(role: &Role) -> Result<()> {
    let rank = Rank::join(role)?;
    let buffer = upload(&[1.0f32; 1000], rank.stream)?;
    if rank.rank == 1 {
        // Its data is sent when the other comes to its receive: never.
        rank.send(buffer, 1000, ncclFloat32, 0)?;
        std::thread::sleep(Duration::from_millis(200));
        std::process::abort();
    }
    until(rank.communicator, Code::ncclRemoteError)?;
    let error = rank.receive(buffer, 1000, ncclFloat32, 1);
    ensure!(text(error).contains("ncclRemoteError"));
    // SAFETY: aborted once.
    done(unsafe { result::comm_abort(rank.communicator) })
}

/// Returns the code of a call, and what the library says of it.
fn refusal(role: &Role, ranks: usize) -> Result<(Code, String)> {
    let mut communicator = std::ptr::null_mut();
    // SAFETY: the handle is written here, and the text lives until the next error.
    unsafe {
        let code = sys::ncclCommInitRank(&mut communicator, ranks as i32, role.ids[0], role.rank as i32);
        let text = std::ffi::CStr::from_ptr(sys::ncclGetLastError(communicator));
        Ok((code, text.to_string_lossy().into_owned()))
    }
}

fn duplicate(role: &Role) -> Result<()> {
    open(0)?;
    let (code, text) = refusal(role, role.ranks)?;
    ensure!(
        code == Code::ncclInvalidUsage && text.contains("Duplicate GPU detected"),
        "{code:?}: {text}"
    );
    Ok(())
}

fn counts(role: &Role) -> Result<()> {
    open(role.rank)?;
    let (code, text) = refusal(role, 2 + 2 * role.rank)?;
    ensure!(
        code == Code::ncclInvalidUsage && text.contains("mismatch in rank count"),
        "{code:?}: {text}"
    );
    Ok(())
}

fn configuration() -> sys::ncclConfig_t {
    let undefined = i32::MIN;
    sys::ncclConfig_t {
        size: size_of::<sys::ncclConfig_t>(),
        magic: 0xcafe_beef,
        version: 22203,
        blocking: 0,
        cgaClusterSize: undefined,
        minCTAs: undefined,
        maxCTAs: undefined,
        netName: std::ptr::null(),
        splitShare: undefined,
        trafficClass: undefined,
        commName: std::ptr::null(),
        collnetEnable: undefined,
        CTAPolicy: undefined,
        shrinkShare: undefined,
        nvlsCTAs: undefined,
        nChannelsPerNetPeer: undefined,
        nvlinkCentricSched: undefined,
        graphUsageMode: undefined,
        numRmaCtx: undefined,
        maxP2pPeers: undefined,
    }
}

/// Joins without waiting for the others.
fn join_at_once(role: &Role, ranks: usize) -> Result<Rank> {
    let (stream, mut communicator) = (open(role.rank)?, std::ptr::null_mut());
    let (mut configuration, rank) = (configuration(), role.rank);
    // SAFETY: the handle is written here.
    let code = unsafe {
        sys::ncclCommInitRankConfig(
            &mut communicator,
            ranks as i32,
            role.ids[0],
            rank as i32,
            &mut configuration,
        )
    };
    ensure!(code == Code::ncclInProgress && !communicator.is_null(), "{code:?}");
    Ok(Rank {
        stream,
        communicator,
        rank,
        ranks,
    })
}

fn polled(role: &Role) -> Result<()> {
    if role.rank == 1 {
        std::thread::sleep(Duration::from_millis(400));
    }
    let rank = join_at_once(role, 2)?;
    let buffer = upload(&[1.0f32], rank.stream)?;
    if rank.rank == 0 {
        ensure!(asynchronous_error(rank.communicator)? == Code::ncclInProgress);
        let error = text(rank.all_reduce(buffer, 1));
        ensure!(error.contains("ncclInvalidArgument"), "{error}");
    }
    until(rank.communicator, Code::ncclSuccess)?;
    rank.all_reduce(buffer, 1)?;
    ensure!(download::<f32>(buffer, 1, rank.stream)? == [2.0]);
    // SAFETY: the handle is there, and destroyed once.
    unsafe {
        ensure!(sys::ncclCommFinalize(rank.communicator) == Code::ncclInProgress);
        until(rank.communicator, Code::ncclSuccess)?;
        done(result::comm_destroy(rank.communicator))
    }
}

/// Calls, and waits until the operation is in its stream.
fn settled(rank: &Rank, code: Code) -> Result<()> {
    ensure!(code == Code::ncclInProgress, "{code:?}");
    until(rank.communicator, Code::ncclSuccess)
}

fn sum_at_once(rank: &Rank, buffer: Address) -> Code {
    let (kind, sum) = (ncclFloat32, sys::ncclRedOp_t::ncclSum);
    let (from, to) = (buffer as *const _, buffer as *mut _);
    // SAFETY: the emulator checks addresses.
    unsafe { sys::ncclAllReduce(from, to, 1, kind, sum, rank.communicator, rank.stream.cast()) }
}

fn polled_calls(role: &Role) -> Result<()> {
    let rank = join_at_once(role, 2)?;
    until(rank.communicator, Code::ncclSuccess)?;
    let (buffer, other) = (upload(&[1.0f32], rank.stream)?, upload(&[5.0f32], rank.stream)?);
    let pause = Duration::from_millis(500);
    if rank.rank == 1 {
        std::thread::sleep(pause);
    }
    let begun = Instant::now();
    let code = sum_at_once(&rank, buffer);
    // Nothing else may be called meanwhile.
    ensure!(sum_at_once(&rank, other) == Code::ncclInvalidArgument);
    settled(&rank, code)?;
    // The first connects the ranks: it waits for the others.
    ensure!(rank.rank == 1 || begun.elapsed() > pause / 2, "{:?}", begun.elapsed());
    ensure!(download::<f32>(buffer, 1, rank.stream)? == [2.0]);
    if rank.rank == 1 {
        std::thread::sleep(pause);
    }
    let begun = Instant::now();
    settled(&rank, sum_at_once(&rank, buffer))?;
    ensure!(begun.elapsed() < pause / 2, "{:?}", begun.elapsed());
    ensure!(download::<f32>(buffer, 1, rank.stream)? == [4.0]);
    // SAFETY: the emulator checks addresses.
    unsafe {
        let (peer, stream) = (1 - rank.rank as i32, rank.stream.cast());
        done(result::group_start())?;
        for code in [
            sys::ncclSend(buffer as *const _, 1, ncclFloat32, peer, rank.communicator, stream),
            sys::ncclRecv(other as *mut _, 1, ncclFloat32, peer, rank.communicator, stream),
        ] {
            ensure!(code == Code::ncclSuccess, "{code:?}");
        }
        settled(&rank, sys::ncclGroupEnd())?;
        ensure!(download::<f32>(other, 1, rank.stream)? == [4.0]);
        ensure!(sys::ncclCommFinalize(rank.communicator) == Code::ncclInProgress);
        until(rank.communicator, Code::ncclSuccess)?;
        done(result::comm_destroy(rank.communicator))
    }
}

fn abort_in_progress(role: &Role) -> Result<()> {
    let rank = join_at_once(role, 2)?;
    until(rank.communicator, Code::ncclSuccess)?;
    if rank.rank == 1 {
        until(rank.communicator, Code::ncclRemoteError)?;
    } else {
        let buffer = upload(&[1.0f32], rank.stream)?;
        ensure!(sum_at_once(&rank, buffer) == Code::ncclInProgress);
        std::thread::sleep(Duration::from_millis(300));
        ensure!(asynchronous_error(rank.communicator)? == Code::ncclInProgress);
    }
    // SAFETY: aborted once.
    done(unsafe { result::comm_abort(rank.communicator) })?;
    Ok(synchronize(rank.stream)?)
}

fn without_device(role: &Role) -> Result<()> {
    let rank = Rank::join(role)?;
    let communicator = rank.communicator as usize;
    let refused = move || {
        let communicator = communicator as sys::ncclComm_t;
        // SAFETY: refused, so that it is still there.
        unsafe {
            [
                sys::ncclCommFinalize(communicator),
                sys::ncclCommDestroy(communicator),
                sys::ncclCommAbort(communicator),
            ]
        }
    };
    let elsewhere = move || open(1).map(|_| refused());
    for codes in [
        std::thread::spawn(move || Ok(refused())).join(),
        std::thread::spawn(elsewhere).join(),
    ] {
        let codes = codes.map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        ensure!(codes == [Code::ncclUnhandledCudaError; 3], "{codes:?}");
    }
    // SAFETY: destroyed once.
    done(unsafe { result::comm_destroy(rank.communicator) })
}

fn never_comes(role: &Role) -> Result<()> {
    let rank = join_at_once(role, 2)?;
    std::thread::sleep(Duration::from_millis(200));
    ensure!(asynchronous_error(rank.communicator)? == Code::ncclInProgress);
    // SAFETY: aborted once.
    done(unsafe { result::comm_abort(rank.communicator) })
}

fn refused(role: &Role) -> Result<()> {
    let other = upload(&[1.0f32; 4], open(1)?)?;
    let rank = Rank::join(role)?;
    let (good, host) = (upload(&[1.0f32; 4], rank.stream)?, [1.0f32; 4]);
    let reduce = |address: u64, count: usize, kind, root: i32, communicator| {
        let sum = sys::ncclRedOp_t::ncclSum;
        // SAFETY: the emulator checks all of them.
        unsafe {
            sys::ncclReduce(
                address as *const _,
                address as *mut _,
                count,
                kind,
                sum,
                root,
                communicator,
                rank.stream.cast(),
            )
        }
    };
    let communicator = rank.communicator;
    ensure!(reduce(good, 4, ncclFloat32, 0, communicator) == Code::ncclSuccess);
    let wrong = [
        (
            "the host's memory",
            reduce(host.as_ptr() as u64, 4, ncclFloat32, 0, communicator),
        ),
        ("another device's", reduce(other, 4, ncclFloat32, 0, communicator)),
        ("too much", reduce(good, 5, ncclFloat32, 0, communicator)),
        ("a type", reduce(good, 4, ncclFloat8e4m3, 0, communicator)),
        ("a root", reduce(good, 4, ncclFloat32, 1, communicator)),
        ("no root", reduce(good, 4, ncclFloat32, -1, communicator)),
        ("no communicator", reduce(good, 4, ncclFloat32, 0, std::ptr::null_mut())),
    ];
    for (what, code) in wrong {
        ensure!(code == Code::ncclInvalidArgument, "{what}: {code:?}");
    }
    ensure!(result::group_end().is_err(), "no group has begun");
    // An error in a group is reported at the group's end, and nothing of the group is done.
    done(result::group_start())?;
    ensure!(reduce(good, 5, ncclFloat32, 0, communicator) == Code::ncclInvalidArgument);
    let error = text(done(result::group_end()));
    ensure!(error.contains("ncclInvalidArgument"), "{error}");
    // SAFETY: destroyed once, and then not known.
    unsafe {
        done(result::comm_destroy(communicator))?;
        ensure!(result::comm_destroy(communicator).is_err());
    }
    let version = result::get_nccl_version().ok().context("a version")?;
    ensure!((23000..24000).contains(&version), "{version}");
    Ok(())
}

fn in_order(role: &Role) -> Result<()> {
    let rank = Rank::join(role)?;
    let buffer = upload(&[1.0f32], rank.stream)?;
    rank.all_reduce(buffer, 1)?;
    if rank.rank == 0 {
        // SAFETY: destroyed once.
        return done(unsafe { result::comm_destroy(rank.communicator) });
    }
    synchronize(rank.stream)?;
    std::thread::sleep(Duration::from_millis(300));
    ensure!(asynchronous_error(rank.communicator)? == Code::ncclSuccess);
    // SAFETY: destroyed once.
    done(unsafe { result::comm_destroy(rank.communicator) })
}
