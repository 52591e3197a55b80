use super::*;
use burn_tensor::TensorData;
use burn_tensor::Tolerance;
use burn_linalg as linalg;

#[test]
fn test_cosine_similarity_zero_vectors() {
    // Cover both zero inputs and a zero input on either side of a nonzero vector.
    let x1 = TestTensor::<2>::placed_from([[0.0, 0.0], [0.0, 0.0], [3.0, 4.0]]);
    let x2 = TestTensor::<2>::placed_from([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]]);
    let expected = TensorData::from([[0.0], [0.0], [0.0]]);

    linalg::cosine_similarity(x1, x2, 1, None)
        .into_data()
        .assert_eq(&expected, false);
}

#[test]
fn test_cosine_similarity_zero_vectors_small_epsilon() {
    let x1 = TestTensor::<2>::placed_from([[0.0, 0.0]]);
    let x2 = TestTensor::<2>::placed_from([[0.0, 0.0]]);
    let expected = TensorData::from([[0.0]]);

    // The epsilon is representable in f32, but its square underflows to zero.
    linalg::cosine_similarity(x1, x2, 1, Some(1e-30))
        .into_data()
        .assert_eq(&expected, false);
}

#[test]
fn test_cosine_similarity_epsilon_clamps_each_norm() {
    let x1 = TestTensor::<2>::placed_from([[0.25, 0.0], [0.25, 0.0]]);
    let x2 = TestTensor::<2>::placed_from([[0.25, 0.0], [1.0, 0.0]]);
    // With eps = 0.5, the normalized vectors are [0.5, 0] and either [0.5, 0]
    // or [1, 0]. Clamp each norm independently, rather than their product.
    let expected = TensorData::from([[0.25], [0.5]]);

    linalg::cosine_similarity(x1, x2, 1, Some(0.5))
        .into_data()
        .assert_approx_eq::<FloatElem>(&expected, Tolerance::default());
}

#[test]
fn test_cosine_similarity_basic() {
    // Create test tensors
    let x1 = TestTensor::<2>::placed_from([[1.0, 2.0, 3.0], [0.5, 1.5, 2.5]]);
    let x2 = TestTensor::<2>::placed_from([[1.5, 2.5, 3.5], [0.7, 1.7, 2.7]]);

    // Test cosine similarity along dimension 1
    let expected = TensorData::from([[0.99983203], [0.99987257]]);
    linalg::cosine_similarity(x1.clone(), x2.clone(), 1, None)
        .into_data()
        .assert_approx_eq::<FloatElem>(&expected, Tolerance::default());

    // Test with explicit epsilon
    linalg::cosine_similarity(x1.clone(), x2.clone(), 1, Some(1e-8))
        .into_data()
        .assert_approx_eq::<FloatElem>(&expected, Tolerance::default());
}

#[test]
fn test_cosine_similarity_orthogonal() {
    // Create orthogonal vectors
    let x1 = TestTensor::<2>::placed_from([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]);
    let x2 = TestTensor::<2>::placed_from([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);

    // Orthogonal vectors should have cosine similarity of 0
    let expected = TensorData::from([[0.0], [0.0]]);
    linalg::cosine_similarity(x1, x2, 1, None)
        .into_data()
        .assert_eq(&expected, false);
}

#[test]
fn test_cosine_similarity_parallel() {
    // Create parallel vectors
    let x1 = TestTensor::<2>::placed_from([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    let x2 = TestTensor::<2>::placed_from([[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]]);

    // Parallel vectors should have cosine similarity of 1
    let expected = TensorData::from([[1.0], [1.0]]);
    linalg::cosine_similarity(x1, x2, 1, None)
        .into_data()
        .assert_approx_eq::<FloatElem>(&expected, Tolerance::default());
}

#[test]
fn test_cosine_similarity_opposite() {
    // Create opposite direction vectors
    let x1 = TestTensor::<2>::placed_from([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    let x2 = TestTensor::<2>::placed_from([[-1.0, -2.0, -3.0], [-4.0, -5.0, -6.0]]);

    // Opposite vectors should have cosine similarity of -1
    let expected = TensorData::from([[-1.0], [-1.0]]);
    linalg::cosine_similarity(x1, x2, 1, None)
        .into_data()
        .assert_approx_eq::<FloatElem>(&expected, Tolerance::default());
}

#[test]
fn test_cosine_similarity_different_dimension() {
    // Test with a 3D tensor
    let x1 = TestTensor::<3>::placed_from([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]]);
    let x2 = TestTensor::<3>::placed_from([[[2.0, 3.0], [4.0, 5.0]], [[6.0, 7.0], [8.0, 9.0]]]);

    // Test along dimension 2
    let expected = TensorData::from([[[0.9959688], [0.9958376]], [[0.9955946], [0.9955169]]]);

    // sensitive to rounding in dot/norm; loosen f16 tolerance
    let tolerance = Tolerance::default().set_half_precision_relative(7e-3);

    linalg::cosine_similarity(x1.clone(), x2.clone(), 2, None)
        .into_data()
        .assert_approx_eq::<FloatElem>(&expected, tolerance);

    // Test with negative dimension (-1 is the last dimension, which is 2 in this case)
    linalg::cosine_similarity(x1.clone(), x2.clone(), -1_i64, None)
        .into_data()
        .assert_approx_eq::<FloatElem>(&expected, tolerance);
}

#[test]
fn test_cosine_similarity_near_zero() {
    // Test with near-zero vectors
    let x1 = TestTensor::<2>::placed_from([[1e-10, 2e-10, 3e-10], [4e-10, 5e-10, 6e-10]]);
    let x2 = TestTensor::<2>::placed_from([[2e-10, 4e-10, 6e-10], [8e-10, 10e-10, 12e-10]]);

    // Update the expected values based on the actual implementation behavior
    let expected = TensorData::from([[0.0028], [0.0154]]);

    // Smaller values result in NaN on metal f16
    let epsilon = Some(1e-2);
    let tolerance = Tolerance::absolute(0.2);

    linalg::cosine_similarity(x1, x2, 1, epsilon)
        .into_data()
        .assert_approx_eq::<FloatElem>(&expected, tolerance);
}
