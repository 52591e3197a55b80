//! What the rules claim, without ranks.

use proptest::prelude::*;

use super::super::placement::AxisPlacement::{self, Partial, Replicated, Shard};
use super::super::placement::{AxisRole, MeshShape, PARTIAL_SUM, REPLICATED, Reduction};
use super::super::rules::index::{
    Embedding, EmbeddingGradient, Gather, GatherNd, ScatterAdd, ScatterNd, Select, SelectAdd,
};
use super::super::rules::matmul::{Linear, LinearBiasGradient, LinearInputGradient, LinearWeightGradient, Matmul};
use super::super::rules::module::Named;
use super::super::rules::movement::{Assign, Concatenate, Expand, Permute, Reshape, Touch};
use super::super::rules::pointwise::{Binary, Elementwise, LINEAR, NON_LINEAR};
use super::super::rules::reduce::{Along, AlongAll, Reduce, Rows};
use super::super::rules::{Operand, Plan, Rule, Setting, plan};
use super::draw::Draw;
use super::place::placements;

/// An operand, by its placement on the first axes.
fn operand(shape: &[usize], places: &[AxisPlacement]) -> Operand {
    let mut of_all = REPLICATED;
    of_all[..places.len()].copy_from_slice(places);
    Operand {
        shape: shape.to_vec(),
        places: of_all,
    }
}

fn mesh(axes: &[(AxisRole, usize)]) -> MeshShape {
    MeshShape::new(axes)
}

fn forward(mesh: &MeshShape) -> Setting<'_> {
    Setting {
        mesh,
        sequence_dimension: None,
        is_backward: false,
    }
}

/// The answer on an axis: what the operands need, and the first result.
fn on_axis(plan: &Plan, axis: usize) -> (Vec<AxisPlacement>, AxisPlacement) {
    let needs = plan.needs.iter().map(|places| places[axis]).collect();
    (needs, plan.results[0].places[axis])
}

/// The answer on two ranks of tensor parallelism, in a forward pass.
fn on_tensor_axis(rule: &dyn Rule, operands: Vec<Operand>) -> (Vec<AxisPlacement>, AxisPlacement) {
    on_axis(&plan(rule, operands, forward(&mesh(&[(AxisRole::Tensor, 2)]))), 0)
}

/// The answer on two ranks of data, in a forward pass.
fn on_data_axis(rule: &dyn Rule, operands: Vec<Operand>) -> (Vec<AxisPlacement>, AxisPlacement) {
    on_axis(&plan(rule, operands, forward(&mesh(&[(AxisRole::Data, 2)]))), 0)
}

/// The answer on two ranks of tensor parallelism with activations cut along dimension 1 between the layers.
fn with_sequence(rule: &dyn Rule, operands: Vec<Operand>) -> (Vec<AxisPlacement>, AxisPlacement) {
    let mesh = mesh(&[(AxisRole::Tensor, 2)]);
    let setting = Setting {
        sequence_dimension: Some(1),
        ..forward(&mesh)
    };
    on_axis(&plan(rule, operands, setting), 0)
}

/// The same in a backward pass, without the sequence's cut.
fn in_backward(rule: &dyn Rule, operands: Vec<Operand>) -> (Vec<AxisPlacement>, AxisPlacement) {
    let mesh = mesh(&[(AxisRole::Tensor, 2)]);
    let setting = Setting {
        is_backward: true,
        ..forward(&mesh)
    };
    on_axis(&plan(rule, operands, setting), 0)
}

const HIDDEN: [usize; 3] = [3, 6, 8];

fn layer(input: AxisPlacement, weight: AxisPlacement, bias: AxisPlacement) -> Vec<Operand> {
    vec![
        operand(&HIDDEN, &[input]),
        operand(&[8, 10], &[weight]),
        operand(&[10], &[bias]),
    ]
}

#[test]
fn a_column_parallel_linear_leaves_its_output_cut() {
    let answer = on_tensor_axis(&Linear, layer(Replicated, Shard(1), Shard(0)));
    assert_eq!(answer, (vec![Replicated, Shard(1), Shard(0)], Shard(2)));
}

#[test]
fn a_row_parallel_linear_leaves_a_sum_with_the_bias_once() {
    let answer = on_tensor_axis(&Linear, layer(Shard(2), Shard(0), Replicated));
    assert_eq!(answer, (vec![Shard(2), Shard(0), PARTIAL_SUM], PARTIAL_SUM));
}

#[test]
fn a_row_parallel_linear_takes_its_part_of_a_whole_input() {
    let answer = on_tensor_axis(&Linear, layer(Replicated, Shard(0), Replicated));
    assert_eq!(answer, (vec![Shard(2), Shard(0), PARTIAL_SUM], PARTIAL_SUM));
}

#[test]
fn a_linear_gathers_the_sequence_for_weights_that_are_cut() {
    let answer = with_sequence(&Linear, layer(Shard(1), Shard(1), Shard(0)));
    assert_eq!(answer, (vec![Replicated, Shard(1), Shard(0)], Shard(2)));
}

#[test]
fn a_fully_sharded_weight_is_gathered_on_the_data_axis_and_the_activation_stays() {
    for weight in [Shard(0), Shard(1)] {
        let answer = on_data_axis(&Linear, layer(Shard(0), weight, Shard(0)));
        assert_eq!(answer, (vec![Shard(0), Replicated, Replicated], Shard(0)));
    }
    let operands = vec![operand(&[3, 6, 8], &[Shard(0)]), operand(&[1, 8, 10], &[Shard(1)])];
    assert_eq!(on_data_axis(&Matmul, operands), (vec![Shard(0), Replicated], Shard(0)));
}

#[test]
fn the_fully_sharded_axis_is_the_inner_cut() {
    let mesh = mesh(&[(AxisRole::Data, 2), (AxisRole::Tensor, 2)]);
    let weight = operand(&[8, 12], &[Shard(1), Shard(1)]);
    // The second tensor-parallel rank has the second half, of which the second data rank has the second half.
    assert_eq!(mesh.range(12, &weight.places, 1, &[1, 0]), 3..6);
    assert_eq!(mesh.range(12, &weight.places, 1, &[0, 1]), 6..9);
    // So gathering it for the layer leaves each rank its columns.
    let answer = plan(&Linear, vec![operand(&HIDDEN, &[Shard(0)]), weight], forward(&mesh));
    assert_eq!(answer.needs[1][..2], [Replicated, Shard(1)]);
    assert_eq!(answer.results[0], operand(&[3, 6, 12], &[Shard(0), Shard(2)]));
}

#[test]
fn the_gradient_of_a_weight_is_a_sum_over_ranks_of_data_and_cut_as_the_weight_elsewhere() {
    let tokens = |input, gradient| vec![operand(&HIDDEN, &[input]), operand(&[3, 6, 10], &[gradient])];
    assert_eq!(
        on_data_axis(&LinearWeightGradient, tokens(Shard(0), Shard(0))).1,
        PARTIAL_SUM
    );
    assert_eq!(
        on_tensor_axis(&LinearWeightGradient, tokens(Replicated, Shard(2))).1,
        Shard(1)
    );
    assert_eq!(
        on_tensor_axis(&LinearWeightGradient, tokens(Shard(2), Replicated)).1,
        Shard(0)
    );
    let bias = |place| on_tensor_axis(&LinearBiasGradient, vec![operand(&[3, 6, 10], &[place])]).1;
    assert_eq!(
        [Shard(0), Shard(1), Shard(2)].map(bias),
        [PARTIAL_SUM, PARTIAL_SUM, Shard(0)]
    );
}

#[test]
fn the_gradient_of_a_column_parallel_layers_input_is_a_sum() {
    let operands = vec![operand(&[8, 10], &[Shard(1)]), operand(&[3, 6, 10], &[Shard(2)])];
    assert_eq!(
        on_tensor_axis(&LinearInputGradient, operands),
        (vec![Shard(1), Shard(2)], PARTIAL_SUM)
    );
}

#[test]
fn what_meets_a_sum_is_added_by_all_where_the_next_layer_asks_for_the_sum() {
    let operands = || vec![operand(&HIDDEN, &[PARTIAL_SUM]), operand(&HIDDEN, &[Replicated])];
    assert_eq!(
        on_tensor_axis(&Binary::Add, operands()),
        (vec![Replicated; 2], Replicated)
    );
    // Under sequence parallelism it is scattered to the sequence.
    assert_eq!(with_sequence(&Binary::Add, operands()), (vec![Shard(1); 2], Shard(1)));
    // More terms may follow in a backward pass.
    assert_eq!(
        in_backward(&Binary::Add, operands()),
        (vec![PARTIAL_SUM; 2], PARTIAL_SUM)
    );
}

#[test]
fn a_bias_is_added_to_a_sum_that_has_not_been_made() {
    let operands = vec![operand(&HIDDEN, &[PARTIAL_SUM]), operand(&[1, 1, 8], &[Replicated])];
    assert_eq!(
        on_tensor_axis(&Binary::Add, operands),
        (vec![PARTIAL_SUM; 2], PARTIAL_SUM)
    );
}

#[test]
fn a_norm_makes_a_sum_of_the_sequence_that_each_rank_has() {
    let operands = |place| vec![operand(&HIDDEN, &[place]), operand(&[8], &[Replicated])];
    let scattered = (vec![Shard(1), Replicated], Shard(1));
    assert_eq!(with_sequence(&Rows, operands(PARTIAL_SUM)), scattered);
    assert_eq!(with_sequence(&Rows, operands(Shard(1))), scattered);
    assert_eq!(
        on_tensor_axis(&Rows, operands(Shard(2))),
        (vec![Replicated; 2], Replicated)
    );
}

#[test]
fn a_dropout_mask_is_needed_where_the_activation_is() {
    let operands = |place| vec![operand(&HIDDEN, &[place]), operand(&HIDDEN, &[Replicated])];
    assert_eq!(
        on_tensor_axis(&Binary::Multiply, operands(Shard(1))),
        (vec![Shard(1); 2], Shard(1))
    );
    assert_eq!(
        with_sequence(&Binary::Multiply, operands(PARTIAL_SUM)),
        (vec![Shard(1); 2], Shard(1))
    );
}

#[test]
fn only_what_is_linear_leaves_terms() {
    let terms = || vec![operand(&HIDDEN, &[PARTIAL_SUM])];
    assert_eq!(on_tensor_axis(&LINEAR, terms()).1, PARTIAL_SUM);
    assert_eq!(on_tensor_axis(&NON_LINEAR, terms()).1, Replicated);
    let largest = || vec![operand(&HIDDEN, &[Partial(Reduction::Max)])];
    assert_eq!(on_tensor_axis(&LINEAR, largest()).1, Replicated);
}

#[test]
fn a_reduction_over_what_is_cut_leaves_terms() {
    let over = |reduction, place| on_tensor_axis(&Reduce::over(reduction, 2), vec![operand(&HIDDEN, &[place])]).1;
    assert_eq!(over(Reduction::Sum, Shard(2)), PARTIAL_SUM);
    assert_eq!(over(Reduction::Max, Shard(2)), Partial(Reduction::Max));
    assert_eq!(over(Reduction::Max, PARTIAL_SUM), Replicated);
    assert_eq!(over(Reduction::Sum, Shard(0)), Shard(0));
}

#[test]
fn heads_stay_cut_from_the_projection_to_the_output() {
    let split = Reshape { to: vec![3, 6, 4, 2] };
    assert_eq!(on_tensor_axis(&split, vec![operand(&HIDDEN, &[Shard(2)])]).1, Shard(2));
    let heads = Permute::swap(4, 1, 2);
    assert_eq!(
        on_tensor_axis(&heads, vec![operand(&[3, 6, 4, 2], &[Shard(2)])]).1,
        Shard(1)
    );
    let scores = vec![operand(&[3, 4, 6, 2], &[Shard(1)]), operand(&[3, 4, 2, 6], &[Shard(1)])];
    assert_eq!(on_tensor_axis(&Matmul, scores), (vec![Shard(1); 2], Shard(1)));
    let softmax = Along::new(3);
    assert_eq!(
        on_tensor_axis(&softmax, vec![operand(&[3, 4, 6, 6], &[Shard(1)])]).1,
        Shard(1)
    );
    let join = Reshape { to: vec![3, 6, 8] };
    assert_eq!(
        on_tensor_axis(&join, vec![operand(&[3, 6, 4, 2], &[Shard(2)])]).1,
        Shard(2)
    );
}

#[test]
fn heads_that_the_ranks_do_not_divide_are_gathered() {
    let split = Reshape { to: vec![3, 6, 1, 8] };
    assert_eq!(
        on_tensor_axis(&split, vec![operand(&HIDDEN, &[Shard(2)])]),
        (vec![Shard(2)], Shard(3))
    );
    let split = Reshape { to: vec![3, 6, 3, 4] };
    assert_eq!(
        on_tensor_axis(&split, vec![operand(&[3, 6, 12], &[Shard(2)])]),
        (vec![Replicated], Replicated)
    );
}

#[test]
fn a_table_cut_by_rows_is_looked_up_where_it_is_on_a_tensor_axis() {
    let operands = |table, indices| vec![operand(&[10, 8], &[table]), operand(&[4, 6], &[indices])];
    assert_eq!(
        on_tensor_axis(&Embedding, operands(Shard(0), Replicated)),
        (vec![Shard(0), Replicated], PARTIAL_SUM)
    );
    // Samples stay where they are on a data axis, and the table is gathered.
    assert_eq!(
        on_data_axis(&Embedding, operands(Shard(0), Shard(0))),
        (vec![Replicated, Shard(0)], Shard(0))
    );
    let gradient = |place, gradient| {
        let operands = [
            operand(&[10, 8], &[place]),
            operand(&[4, 6, 8], &[gradient]),
            operand(&[4, 6], &[gradient]),
        ];
        operands.to_vec()
    };
    assert_eq!(
        on_tensor_axis(&EmbeddingGradient, gradient(Shard(0), Replicated)).1,
        Shard(0)
    );
    assert_eq!(
        on_data_axis(&EmbeddingGradient, gradient(Shard(0), Shard(0))).1,
        PARTIAL_SUM
    );
}

#[test]
fn a_convolution_keeps_its_samples_or_its_channels() {
    let rule = Named::new("bi..,oi..,o->bo..")
        .parameters(&[1, 2])
        .added(&[2])
        .linear(&[0, 1]);
    let operands = |x, weight, bias| {
        vec![
            operand(&[4, 6, 9, 9], &[x]),
            operand(&[8, 6, 3, 3], &[weight]),
            operand(&[8], &[bias]),
        ]
    };
    assert_eq!(
        on_data_axis(&rule, operands(Shard(0), Shard(0), Replicated)),
        (vec![Shard(0), Replicated, Replicated], Shard(0))
    );
    assert_eq!(
        on_tensor_axis(&rule, operands(Shard(0), Shard(0), Shard(0))),
        (vec![Replicated, Shard(0), Shard(0)], Shard(1))
    );
    // Input channels that are cut leave a sum, to which one rank adds the bias.
    assert_eq!(
        on_tensor_axis(&rule, operands(Replicated, Shard(1), Replicated)),
        (vec![Shard(1), Shard(1), PARTIAL_SUM], PARTIAL_SUM)
    );
    // Space is not cut.
    assert_eq!(
        on_data_axis(&rule, operands(Shard(2), Replicated, Replicated)),
        (vec![Replicated; 3], Replicated)
    );
}

#[test]
fn where_a_rank_would_have_nothing_everything_is_whole() {
    let mesh = mesh(&[(AxisRole::Tensor, 4)]);
    let operands = vec![operand(&[3, 8], &[Shard(1)]), operand(&[8, 2], &[Shard(1)])];
    let answer = plan(&Matmul, operands, forward(&mesh));
    assert_eq!(on_axis(&answer, 0), (vec![Replicated; 2], Replicated));
}

/// A rule and shapes of operands that it fits, and whether the shape of its result on a rank follows from those of its
/// operands there.
fn any_rule(draw: &mut Draw) -> (Box<dyn Rule>, Vec<Vec<usize>>, bool) {
    let shape = draw.shape(2, 4);
    let rank = shape.len();
    let dimension = draw.below(rank);
    let with = |length: usize| {
        let mut shape = shape.clone();
        shape[dimension] = length;
        shape
    };
    let (n, m) = (draw.length(), draw.length());
    let before = &shape[..rank - 1];
    let last = |length: usize| [before, &[length]].concat();
    let same = |count: usize| vec![shape.clone(); count];
    let reduction = draw.pick(&[Reduction::Sum, Reduction::Max, Reduction::Min]);
    let binary = draw.pick(&[Binary::Add, Binary::Multiply, Binary::Divide, Binary::Other]);
    let (has_zero, is_linear) = (draw.chance(2), draw.chance(2));
    let width = shape[rank - 1];
    let (rule, shapes): (Box<dyn Rule>, _) = match draw.below(29) {
        0 => (Box::new(LINEAR), same(1)),
        1 => (Box::new(NON_LINEAR), same(1)),
        2 => (Box::new(binary), vec![shape.clone(), with(1)]),
        3 => (Box::new(binary), same(2)),
        4 => (Box::new(Elementwise), same(3)),
        5 => (Box::new(Reduce::over(reduction, dimension)), same(1)),
        6 => (Box::new(Reduce::all(reduction).of_wholes()), same(1)),
        7 => (Box::new(Along::new(dimension).with_indices()), same(1)),
        8 => (Box::new(Along::linear(dimension)), same(1)),
        9 => {
            let rule = AlongAll {
                dimension,
                length: None,
            };
            (Box::new(rule), same(2))
        }
        10 => (Box::new(Rows), vec![shape.clone(), vec![width], vec![width]]),
        11 => (Box::new(Permute::swap(rank, 0, dimension)), same(1)),
        12 => {
            let dimensions = vec![dimension];
            (Box::new(Assign { dimensions }), vec![shape.clone(), with(1)])
        }
        13 => (
            Box::new(Concatenate { dimension }),
            vec![shape.clone(), with(n), with(m)],
        ),
        14 => {
            let (mut left, mut right) = (shape.clone(), shape.clone());
            left[rank - 1] = n;
            right[rank - 2] = n;
            (Box::new(Matmul), vec![left, right])
        }
        15 => (Box::new(Linear), vec![shape.clone(), vec![width, n], vec![n]]),
        16 => (Box::new(LinearInputGradient), vec![vec![m, n], last(n)]),
        17 => (Box::new(LinearWeightGradient), vec![last(m), last(n)]),
        18 => (Box::new(LinearBiasGradient), same(1)),
        19 => (Box::new(Select { dimension, has_zero }), vec![shape.clone(), vec![n]]),
        20 => (
            Box::new(SelectAdd { dimension, is_linear }),
            vec![shape.clone(), vec![n], with(n)],
        ),
        21 => (Box::new(Gather { dimension, has_zero }), vec![shape.clone(), with(n)]),
        22 => (
            Box::new(ScatterAdd { dimension, is_linear }),
            vec![shape.clone(), with(n), with(n)],
        ),
        23 => (Box::new(Embedding), vec![vec![n, m], vec![4, 5]]),
        24 => (Box::new(GatherNd), vec![shape.clone(), vec![n, m, rank.min(2)]]),
        25 => (
            Box::new(ScatterNd),
            vec![shape.clone(), vec![n, 1], [&[n], &shape[1..]].concat()],
        ),
        26 => {
            let rule = Named::new("bi..,oi..,o->bo..")
                .parameters(&[1, 2])
                .added(&[2])
                .linear(&[0, 1]);
            (Box::new(rule), vec![vec![n, m, 9, 9], vec![6, m, 3, 3], vec![6]])
        }
        27 => (Box::new(Named::new("bc..->bc..,bc..")), vec![vec![n, m, 6, 6]]),
        _ => (
            Box::new(Named::new("bh..,bh..,bh..,bh..->bh..")),
            vec![vec![n, m, 4, 6]; 4],
        ),
    };
    (rule, shapes, true)
}

/// A rule that is given the shape of the whole result.
fn any_movement(draw: &mut Draw) -> (Box<dyn Rule>, Vec<Vec<usize>>, bool) {
    let shape = draw.shape(2, 4);
    let dimension = draw.below(shape.len());
    let mut to = shape.clone();
    let rule: Box<dyn Rule> = match draw.below(3) {
        0 => {
            let joined = to.remove(0);
            to[0] *= joined;
            Box::new(Reshape { to })
        }
        1 => {
            to.insert(0, draw.length());
            Box::new(Expand { to })
        }
        _ => {
            to[dimension] *= 2;
            let dimensions = vec![dimension];
            Box::new(Touch { dimensions, to })
        }
    };
    (rule, vec![shape], false)
}

/// The number of elements of each dimension that a rank has; those that no rule knows stay unknown.
fn local(mesh: &MeshShape, operand: &Operand, ranks: &[usize]) -> Operand {
    Operand {
        shape: mesh.local_shape(&operand.shape, &operand.places, ranks),
        places: operand.places,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn every_plan_can_be_carried_out(seed in any::<u64>()) {
        let draw = &mut Draw::new(seed);
        let role = |draw: &mut Draw| draw.pick(&[AxisRole::Data, AxisRole::Tensor, AxisRole::Context]);
        let axes: Vec<_> = (0..1 + draw.below(3)).map(|_| (role(draw), 1 + draw.below(4))).collect();
        let mesh = MeshShape::new(axes);
        let (rule, shapes, follows) = if draw.chance(8) { any_movement(draw) } else { any_rule(draw) };
        let reductions = [Reduction::Sum, Reduction::Sum, Reduction::Max];
        let operands: Vec<Operand> = shapes
            .into_iter()
            .map(|shape| {
                let places = placements(draw, &mesh, &shape, &reductions);
                Operand { shape, places }
            })
            .collect();
        let setting = Setting {
            mesh: &mesh,
            sequence_dimension: draw.chance(2).then_some(1),
            is_backward: draw.chance(2),
        };
        let answer = plan(&*rule, operands.clone(), setting);

        let needed: Vec<Operand> = operands
            .iter()
            .zip(&answer.needs)
            .map(|(operand, &places)| Operand { shape: operand.shape.clone(), places })
            .collect();
        for placed in needed.iter().chain(&answer.results) {
            for (axis, place) in placed.places.iter().enumerate() {
                let Some(cut) = place.cut() else { continue };
                prop_assert!(axis < mesh.num_axes() && cut < placed.shape.len(), "{placed:?}");
                prop_assert!(placed.shape[cut] >= mesh.parts(&placed.places, cut), "{placed:?}");
            }
        }
        for axis in 0..mesh.num_axes() {
            if operands.iter().all(|operand| operand.places[axis] == Replicated) {
                prop_assert_eq!(on_axis(&answer, axis), (vec![Replicated; operands.len()], Replicated));
            }
        }
        if follows {
            let last: Vec<usize> = (0..mesh.num_axes()).map(|axis| mesh.size(axis) - 1).collect();
            for ranks in [vec![0; mesh.num_axes()], last] {
                let parts: Vec<Operand> = needed.iter().map(|operand| local(&mesh, operand, &ranks)).collect();
                let results: Vec<Vec<usize>> =
                    answer.results.iter().map(|result| local(&mesh, result, &ranks).shape).collect();
                prop_assert_eq!(rule.shapes(&parts), results, "{:?} {:?}", needed, answer.results);
            }
        }
    }
}
