//! Collective operations between processes, and between threads of one, against plain computation.

use anyhow::{Result, bail, ensure};
use cudarc::nccl::{result, sys};
use sys::ncclDataType_t as Type;
use sys::ncclRedOp_t as Reduction;

use crate::gpu::{allocate, done, download, is_busy, open, pause, stream, synchronize, upload, write};
use crate::rank::{Rank, Try, communicator, reduced, values};
use crate::scene::{Role, Scene};

pub fn scenes() -> Vec<Scene> {
    let of = |name, play, ranks| Scene::new(name, play).ranks(ranks).jitter(100);
    vec![
        of("collectives::all_operations_of_one_rank", operations, 1),
        of("collectives::all_operations_of_two_ranks", operations, 2),
        of("collectives::all_operations_of_three_ranks", operations, 3),
        of("collectives::all_types_and_reductions", types, 3),
        of("collectives::sends_and_receives_of_a_group_are_paired", ring, 3),
        of("collectives::sends_come_in_order", ordered_sends, 2),
        of("collectives::two_communicators_on_two_streams", two_communicators, 2),
        of(
            "collectives::one_communicator_on_two_streams_keeps_the_order_of_calls",
            two_streams,
            2,
        ),
        of("collectives::operations_wait_for_their_stream", after_the_stream, 2).jitter(500),
        of("collectives::large_messages_cross", large, 3),
        of("collectives::a_split_makes_communicators_by_color_and_key", split, 3),
        Scene::new("collectives::ranks_may_be_threads", threads)
            .devices(3)
            .jitter(100),
        Scene::new("collectives::one_thread_may_have_all_ranks", one_thread)
            .devices(2)
            .jitter(100),
    ]
}

fn operations(role: &Role) -> Result<()> {
    let rank = Rank::join(role)?;
    // SAFETY: the handles are there.
    unsafe {
        ensure!(result::comm_count(rank.communicator).ok() == Some(rank.ranks as i32));
        ensure!(result::comm_user_rank(rank.communicator).ok() == Some(rank.rank as i32));
        ensure!(result::comm_cu_device(rank.communicator).ok() == Some(rank.rank as i32));
    }
    for count in [1, 7, 1001] {
        for kind in [Type::ncclFloat32, Type::ncclInt32] {
            for root in 0..rank.ranks {
                every_operation(&rank, count, kind, root)?;
            }
        }
    }
    synchronize(rank.stream)?;
    // SAFETY: destroyed once.
    done(unsafe { result::comm_destroy(rank.communicator) })
}

fn every_operation(rank: &Rank, count: usize, kind: Type, root: usize) -> Result<()> {
    let (sum, communicator, stream) = (Reduction::ncclSum, rank.communicator, rank.stream.cast());
    let all: Vec<Vec<f64>> = (0..rank.ranks).map(|rank| values(rank, count)).collect();
    let total = reduced(sum, &all);
    let of = |what, sent, expected, places| Try {
        what,
        kind,
        sent,
        expected,
        places,
    };
    let mine = rank.values(count);
    let is_root = rank.rank == root;
    // SAFETY: the emulator checks addresses, here and below.
    of("all-reduce", &mine, Some(&total), (0, 0)).run(rank, &|from, to| unsafe {
        done(result::all_reduce(from, to, count, kind, sum, communicator, stream))
    })?;
    // SAFETY: as above.
    of("reduce", &mine, is_root.then_some(&total), (0, 0)).run(rank, &|from, to| unsafe {
        done(result::reduce(
            from,
            to,
            count,
            kind,
            sum,
            root as i32,
            communicator,
            stream,
        ))
    })?;
    // SAFETY: as above.
    of("broadcast", &mine, Some(&all[root]), (0, 0)).run(rank, &|from, to| unsafe {
        done(result::broadcast(
            from,
            to,
            count,
            kind,
            root as i32,
            communicator,
            stream,
        ))
    })?;
    let gathered = all.concat();
    // SAFETY: as above.
    of("all-gather", &mine, Some(&gathered), (rank.rank * count, 0)).run(rank, &|from, to| unsafe {
        done(result::all_gather(from, to, count, kind, communicator, stream))
    })?;
    let whole: Vec<Vec<f64>> = (0..rank.ranks).map(|from| values(from, count * rank.ranks)).collect();
    let part = &reduced(sum, &whole)[rank.rank * count..][..count];
    let places = (0, rank.rank * count);
    // SAFETY: as above.
    of("reduce-scatter", &whole[rank.rank], Some(part), places).run(rank, &|from, to| unsafe {
        done(result::reduce_scatter(from, to, count, kind, sum, communicator, stream))
    })
}

fn types(role: &Role) -> Result<()> {
    let rank = Rank::join(role)?;
    let kinds = [
        Type::ncclInt8,
        Type::ncclUint8,
        Type::ncclInt32,
        Type::ncclUint32,
        Type::ncclInt64,
        Type::ncclUint64,
        Type::ncclFloat16,
        Type::ncclBfloat16,
        Type::ncclFloat32,
        Type::ncclFloat64,
    ];
    let reductions = [
        Reduction::ncclSum,
        Reduction::ncclProd,
        Reduction::ncclMax,
        Reduction::ncclMin,
        Reduction::ncclAvg,
    ];
    let (count, communicator, stream) = (33, rank.communicator, rank.stream.cast());
    let all: Vec<Vec<f64>> = (0..rank.ranks).map(|rank| values(rank, count)).collect();
    for kind in kinds {
        for reduction in reductions {
            let expected = reduced(reduction, &all);
            let tried = Try {
                what: &format!("{reduction:?}"),
                kind,
                sent: &all[rank.rank],
                expected: Some(&expected),
                places: (0, 0),
            };
            // SAFETY: the emulator checks addresses.
            tried.run(&rank, &|from, to| unsafe {
                done(result::all_reduce(
                    from,
                    to,
                    count,
                    kind,
                    reduction,
                    communicator,
                    stream,
                ))
            })?;
        }
    }
    Ok(())
}

fn group(calls: impl FnOnce() -> Result<()>) -> Result<()> {
    done(result::group_start())?;
    calls()?;
    done(result::group_end())
}

fn ring(role: &Role) -> Result<()> {
    let rank = Rank::join(role)?;
    let (kind, count) = (Type::ncclFloat64, 501);
    let (next, previous) = ((rank.rank + 1) % rank.ranks, (rank.rank + rank.ranks - 1) % rank.ranks);
    let from = upload(&rank.values(count), rank.stream)?;
    let to = allocate(count * 8, rank.stream)?;
    let own = allocate(count * 8, rank.stream)?;
    let sum = upload(&[rank.rank as f32], rank.stream)?;
    group(|| {
        rank.send(from, count, kind, next)?;
        rank.receive(to, count, kind, previous)?;
        // To itself, and something of all.
        rank.all_reduce(sum, 1)?;
        rank.receive(own, count, kind, rank.rank)?;
        rank.send(from, count, kind, rank.rank)
    })?;
    ensure!(download::<f64>(to, count, rank.stream)? == values(previous, count));
    ensure!(download::<f64>(own, count, rank.stream)? == rank.values(count));
    ensure!(download::<f32>(sum, 1, rank.stream)? == [3.0]);
    Ok(())
}

fn ordered_sends(role: &Role) -> Result<()> {
    let rank = Rank::join(role)?;
    let buffer = allocate(4, rank.stream)?;
    for turn in 0..20i32 {
        if rank.rank == 0 {
            write(buffer, &[turn], rank.stream)?;
            rank.send(buffer, 1, Type::ncclInt32, 1)?;
        } else {
            rank.receive(buffer, 1, Type::ncclInt32, 0)?;
            ensure!(download::<i32>(buffer, 1, rank.stream)? == [turn]);
        }
    }
    Ok(synchronize(rank.stream)?)
}

fn two_communicators(role: &Role) -> Result<()> {
    let rank = Rank::join(role)?;
    let other = Rank {
        stream: stream()?,
        communicator: communicator(rank.rank, rank.ranks, role.ids[1])?,
        ..rank
    };
    let buffers = [upload(&[1.0f32], rank.stream)?, upload(&[1.0f32], other.stream)?];
    for _ in 0..10 {
        // The ranks call them in different orders, which is well for two communicators.
        if rank.rank == 0 {
            rank.all_reduce(buffers[0], 1)?;
            other.all_reduce(buffers[1], 1)?;
        } else {
            other.all_reduce(buffers[1], 1)?;
            rank.all_reduce(buffers[0], 1)?;
        }
    }
    ensure!(download::<f32>(buffers[0], 1, rank.stream)? == [1024.0]);
    ensure!(download::<f32>(buffers[1], 1, other.stream)? == [1024.0]);
    Ok(())
}

fn two_streams(role: &Role) -> Result<()> {
    let rank = Rank::join(role)?;
    let other = Rank {
        stream: stream()?,
        ..rank
    };
    let (first, second) = (upload(&[1.0f32], rank.stream)?, upload(&[10.0f32], other.stream)?);
    for _ in 0..10 {
        rank.all_reduce(first, 1)?;
        other.all_reduce(second, 1)?;
    }
    // What waits in the first stream holds back what was called after it.
    pause(rank.stream, 300)?;
    rank.all_reduce(first, 1)?;
    other.all_reduce(second, 1)?;
    std::thread::sleep(std::time::Duration::from_millis(100));
    ensure!(is_busy(other.stream), "the second call has overtaken the first");
    // In a group, both are one operation.
    group(|| {
        rank.all_reduce(first, 1)?;
        other.all_reduce(second, 1)
    })?;
    ensure!(download::<f32>(first, 1, rank.stream)? == [4096.0]);
    ensure!(download::<f32>(second, 1, other.stream)? == [40960.0]);
    Ok(())
}

fn after_the_stream(role: &Role) -> Result<()> {
    let rank = Rank::join(role)?;
    let buffer = allocate(4000, rank.stream)?;
    for turn in 0..20 {
        write(buffer, &[turn as f32; 1000], rank.stream)?;
        rank.all_reduce(buffer, 1000)?;
        rank.all_reduce(buffer, 1000)?;
        ensure!(download::<f32>(buffer, 1000, rank.stream)? == [turn as f32 * 4.0; 1000]);
    }
    Ok(())
}

/// More than sockets hold, from each to each at once.
fn large(role: &Role) -> Result<()> {
    let rank = Rank::join(role)?;
    let count = 1 << 19;
    let buffer = upload(&vec![rank.rank as f32; count], rank.stream)?;
    rank.all_reduce(buffer, count)?;
    let sums = download::<f32>(buffer, count, rank.stream)?;
    ensure!(sums.iter().all(|&sum| sum == 3.0));
    Ok(())
}

fn split(role: &Role) -> Result<()> {
    let rank = Rank::join(role)?;
    let split = |color: i32, key: i32| -> Result<sys::ncclComm_t> {
        let mut made = std::ptr::null_mut();
        // SAFETY: the handle is written here.
        let code = unsafe { sys::ncclCommSplit(rank.communicator, color, key, &mut made, std::ptr::null_mut()) };
        ensure!(code == sys::ncclResult_t::ncclSuccess, "{code:?}");
        Ok(made)
    };
    // Ranks 0 and 2, the last first; rank 1 alone.
    let communicator = split(rank.rank as i32 % 2, -(rank.rank as i32))?;
    // SAFETY: the handle is there.
    let (new_rank, count) = unsafe {
        (
            result::comm_user_rank(communicator).ok(),
            result::comm_count(communicator).ok(),
        )
    };
    let expected = [(Some(1), Some(2)), (Some(0), Some(1)), (Some(0), Some(2))][rank.rank];
    ensure!((new_rank, count) == expected, "{new_rank:?} of {count:?}");
    let part = Rank { communicator, ..rank };
    let buffer = upload(&[rank.rank as f32 + 1.0], rank.stream)?;
    part.all_reduce(buffer, 1)?;
    ensure!(download::<f32>(buffer, 1, rank.stream)? == [[4.0], [2.0], [4.0]][rank.rank]);
    let none = split(if rank.rank == 0 { -1 } else { 7 }, 0)?;
    ensure!(none.is_null() == (rank.rank == 0));
    Ok(())
}

fn threads(role: &Role) -> Result<()> {
    let id = role.ids[0];
    let ranks = (0..3).map(|number| {
        std::thread::spawn(move || -> Result<()> {
            let rank = Rank::join_as(number, 3, id)?;
            every_operation(&rank, 5, Type::ncclFloat32, 1)
        })
    });
    let ranks: Vec<_> = ranks.collect();
    for rank in ranks {
        match rank.join() {
            Ok(outcome) => outcome?,
            Err(_) => bail!("a rank panicked"),
        }
    }
    Ok(())
}

fn one_thread(_: &Role) -> Result<()> {
    let streams = [open(0)?, open(1)?];
    let mut communicators = [std::ptr::null_mut(); 2];
    // SAFETY: both handles are written here.
    done(unsafe { result::comm_init_all(communicators.as_mut_ptr(), 2, [0, 1].as_ptr()) })?;
    let buffers = [upload(&[1.0f32], streams[0])?, upload(&[2.0f32], streams[1])?];
    group(|| {
        for rank in 0..2 {
            let (stream, communicator) = (streams[rank], communicators[rank]);
            let one = Rank {
                stream,
                communicator,
                rank,
                ranks: 2,
            };
            one.all_reduce(buffers[rank], 1)?;
        }
        Ok(())
    })?;
    for rank in 0..2 {
        ensure!(download::<f32>(buffers[rank], 1, streams[rank])? == [3.0]);
    }
    Ok(())
}
