// In place of CUDA's: `wmma` fragments. Only this file defines which element of a tile is where in a fragment: element
// t of lane l is number 32 t + l of the tile, row by row. A warp loads and stores as one: no lane begins before all
// have arrived, nor continues before all are done.
#pragma once
#include "cooperative_groups.h"
#include "half.hpp"

namespace nvcuda {
namespace wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32;
}

inline float __float_to_tf32(float value) {
    uint32_t bits = emulator::bits_of(value);
    return emulator::float_of((bits + 0x0FFF + ((bits >> 13) & 1)) & 0xFFFFE000);
}

template <class T> struct Stored { using type = T; };
template <> struct Stored<precision::tf32> { using type = float; };
template <class Use, int m, int n, int k> struct Size;
template <int m, int n, int k> struct Size<matrix_a, m, n, k> { static constexpr int rows = m, columns = k; };
template <int m, int n, int k> struct Size<matrix_b, m, n, k> { static constexpr int rows = k, columns = n; };
template <int m, int n, int k> struct Size<accumulator, m, n, k> { static constexpr int rows = m, columns = n; };

template <class Use, int m, int n, int k, class T, class Layout = void> struct fragment : Size<Use, m, n, k> {
    using Size<Use, m, n, k>::rows;
    using Size<Use, m, n, k>::columns;
    static constexpr int num_elements = rows * columns / 32;
    typename Stored<T>::type x[num_elements];
    static int row(int t) { return (32 * t + int(emulator::current->lane)) / columns; }
    static int column(int t) { return (32 * t + int(emulator::current->lane)) % columns; }
};

template <class U, int m, int n, int k, class T, class L, class V> void fill_fragment(fragment<U, m, n, k, T, L>& to, const V& value) {
    for (auto& element : to.x) element = value;
}

template <class U, int m, int n, int k, class T, class L, class V>
void load_rows(fragment<U, m, n, k, T, L>& to, const V* from, unsigned stride, bool by_rows) {
    emulator::exchange("load_matrix_sync", "", 0);
    for (int t = 0; t < to.num_elements; t++)
        to.x[t] = by_rows ? from[to.row(t) * stride + to.column(t)] : from[to.column(t) * stride + to.row(t)];
    emulator::exchange("load_matrix_sync, end", "", 0);
}
template <class U, int m, int n, int k, class T, class L, class V>
void load_matrix_sync(fragment<U, m, n, k, T, L>& to, const V* from, unsigned stride) {
    load_rows(to, from, stride, std::is_same<L, row_major>::value);
}
template <int m, int n, int k, class T, class L, class V>
void load_matrix_sync(fragment<accumulator, m, n, k, T, L>& to, const V* from, unsigned stride, layout_t layout) {
    load_rows(to, from, stride, layout == mem_row_major);
}
template <int m, int n, int k, class T, class L, class V>
void store_matrix_sync(V* to, const fragment<accumulator, m, n, k, T, L>& from, unsigned stride, layout_t layout) {
    emulator::exchange("store_matrix_sync", "", 0);
    for (int t = 0; t < from.num_elements; t++)
        (layout == mem_row_major ? to[from.row(t) * stride + from.column(t)] : to[from.column(t) * stride + from.row(t)]) = from.x[t];
    emulator::exchange("store_matrix_sync, end", "", 0);
}

template <int m, int n, int k, class D, class A, class LA, class B, class LB, class C>
void mma_sync(fragment<accumulator, m, n, k, D>& d, const fragment<matrix_a, m, n, k, A, LA>& a,
              const fragment<matrix_b, m, n, k, B, LB>& b, const fragment<accumulator, m, n, k, C>& c) {
    static thread_local double tiles[32][m * k + k * n];
    double* tile = tiles[cooperative_groups::this_thread_block().thread_rank() / 32];
    for (int t = 0; t < a.num_elements; t++) tile[a.row(t) * k + a.column(t)] = double(a.x[t]);
    for (int t = 0; t < b.num_elements; t++) tile[m * k + b.row(t) * n + b.column(t)] = double(b.x[t]);
    emulator::exchange("mma_sync", "", 0);
    for (int t = 0; t < d.num_elements; t++) {
        double sum = double(c.x[t]);
        for (int i = 0; i < k; i++) sum += tile[d.row(t) * k + i] * tile[m * k + i * n + d.column(t)];
        d.x[t] = typename Stored<D>::type(sum);
    }
    emulator::exchange("mma_sync, end", "", 0);
}

}  // namespace wmma
}  // namespace nvcuda
