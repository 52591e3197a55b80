// `asm` statements: the matrix instructions, by the fragment layouts of the PTX ISA, asynchronous copies, and what else
// CubeCL and kernels write so.
//
// PTX ISA 8.7, sections 9.7.14.5.8 (m16n8k16), 9.7.14.5.15 (ldmatrix), 9.7.14.5.16 (stmatrix), 9.7.9.25.3 (cp.async and its
// groups), 9.7.3.21 (ex2).
#include "emulator.hpp"
#include "half.hpp"

#include <cfloat>
#include <cmath>
#include <cstdlib>

namespace emulator {

void copies_belong_to(const void* barrier);
void commit_copies();
void wait_for_copies(unsigned pending);

namespace {

bool begins(const char* text, const char* with) { return strncmp(text, with, strlen(with)) == 0; }

// The number in a 16-bit half of a register.
template <class Format> float part(uint32_t bits, unsigned which) { return Format::to(uint16_t(bits >> 16 * which)); }

// `mma.sync` of shape m16n8k(8 * halves): each lane gives registers, all lanes compute their parts of the product.
template <class Format> void multiply(const Operand* operands, unsigned halves) {
    struct { uint32_t a[4], b[2]; } mine = {};
    const Operand *d = operands, *a = d + 4, *b = a + 2 * halves, *c = b + halves;
    for (unsigned i = 0; i < 2 * halves; i++) mine.a[i] = uint32_t(a[i].bits);
    for (unsigned i = 0; i < halves; i++) mine.b[i] = uint32_t(b[i].bits);
    // Four lanes hold a row of A, and four a column of B.
    uint32_t all_a[32][4], all_b[32][2];
    const Value* values = exchange("mma.sync", mine.a, 16);
    for (unsigned lane = 0; lane < 32; lane++) memcpy(all_a[lane], values[lane].bytes, 16);
    values = exchange("mma.sync, B", mine.b, 8);
    for (unsigned lane = 0; lane < 32; lane++) memcpy(all_b[lane], values[lane].bytes, 8);
    for (unsigned i = 0; i < 4; i++) {
        // Register i of the accumulator: row lane / 4, eight more in the upper pair; column 2 (lane % 4) + i % 2.
        const unsigned row = current->lane / 4 + 8 * (i / 2), column = 2 * (current->lane % 4) + i % 2;
        float sum;
        const uint32_t bits = uint32_t(c[i].bits);
        memcpy(&sum, &bits, 4);
        // Products are exact in double; the units add with at least float's precision.
        double total = sum;
        for (unsigned k = 0; k < 8 * halves; k++) {
            // A: registers 0 and 1 hold k < 8 of rows r and r + 8, registers 2 and 3 the others; two k to a register.
            const unsigned lane_a = row % 8 * 4 + k % 8 / 2, register_a = row / 8 + 2 * (k / 8);
            // B: register 0 holds k < 8 of column lane / 4.
            const unsigned lane_b = column * 4 + k % 8 / 2, register_b = k / 8;
            total += double(part<Format>(all_a[lane_a][register_a], k % 2)) * part<Format>(all_b[lane_b][register_b], k % 2);
        }
        sum = float(total);
        memcpy(d[i].target, &sum, 4);
    }
}

// `ldmatrix`: lanes 8 m .. 8 m + 7 give the addresses of matrix m's rows; lane l receives elements 2 (l % 4) and the next
// of row l / 4, or, transposed, of column l / 4.
void load_matrices(const Operand* operands, unsigned count, bool transposed) {
    const uint32_t mine = uint32_t(operands[count].bits);
    uint32_t addresses[32];
    const Value* values = exchange("ldmatrix", &mine, 4);
    for (unsigned lane = 0; lane < 32; lane++) memcpy(&addresses[lane], values[lane].bytes, 4);
    const unsigned lane = current->lane;
    for (unsigned matrix = 0; matrix < count; matrix++) {
        uint16_t pair[2];
        for (unsigned i = 0; i < 2; i++) {
            const unsigned row = transposed ? lane % 4 * 2 + i : lane / 4;
            const unsigned column = transposed ? lane / 4 : lane % 4 * 2 + i;
            const uint32_t address = addresses[8 * matrix + row];
            if (address % 16 != 0) fail("ldmatrix: a row at %u is not aligned to 16 bytes", address);
            memcpy(&pair[i], static_cast<uint16_t*>(from_shared(address, 16)) + column, 2);
        }
        memcpy(operands[matrix].target, pair, 4);
    }
}

void store_matrices(const Operand* operands, unsigned count, bool transposed) {
    const uint32_t mine = uint32_t(operands[0].bits);
    uint32_t addresses[32];
    const Value* values = exchange("stmatrix", &mine, 4);
    for (unsigned lane = 0; lane < 32; lane++) memcpy(&addresses[lane], values[lane].bytes, 4);
    const unsigned lane = current->lane;
    for (unsigned matrix = 0; matrix < count; matrix++)
        for (unsigned i = 0; i < 2; i++) {
            const unsigned row = transposed ? lane % 4 * 2 + i : lane / 4;
            const unsigned column = transposed ? lane / 4 : lane % 4 * 2 + i;
            const uint32_t address = addresses[8 * matrix + row];
            if (address % 16 != 0) fail("stmatrix: a row at %u is not aligned to 16 bytes", address);
            const uint16_t value = uint16_t(operands[1 + matrix].bits >> 16 * i);
            memcpy(static_cast<uint16_t*>(from_shared(address, 16)) + column, &value, 2);
        }
}

// What the text has after a comma: a number, or the operand that it names.
size_t number_after_comma(const char*& text, const Operand* operands) {
    text = strchr(text, ',');
    if (!text) fail("cp.async without its sizes");
    text += strspn(text, ", ");
    if (*text != '%') return size_t(strtoul(text, nullptr, 10));
    return size_t(uint32_t(operands[strtoul(text + 1, nullptr, 10)].bits));
}

// `[to], [from], size, taken`: what is not taken of the source is zero.
void copy_asynchronously(const char* text, const Operand* operands) {
    text = strchr(text, ',') + 1;
    const size_t bytes = number_after_comma(text, operands), taken = number_after_comma(text, operands);
    if (taken > bytes) fail("cp.async of %zu bytes takes %zu", bytes, taken);
    char* to = static_cast<char*>(from_shared(uint32_t(operands[0].bits), bytes));
    const char* from = reinterpret_cast<const char*>(operands[1].bits);
    if (operands[0].bits % bytes != 0 || (taken > 0 && operands[1].bits % bytes != 0))
        fail("cp.async of %zu bytes: an address is not aligned to them", bytes);
    if (taken > 0) copy_at_phase_end(current, to, from, taken);
    if (taken < bytes) copy_at_phase_end(current, to + taken, nullptr, bytes - taken);
}

void saturate(const Operand* operands, bool subtract) {
    const int64_t a = int32_t(operands[1].bits), b = int32_t(operands[2].bits);
    int64_t result = subtract ? a - b : a + b;
    if (result > INT32_MAX) result = INT32_MAX;
    if (result < INT32_MIN) result = INT32_MIN;
    const int32_t value = int32_t(result);
    memcpy(operands[0].target, &value, 4);
}

// Numbers below the normal ones count as 0, and so do such results.
void power_of_two(const Operand* operands) {
    const uint32_t bits = uint32_t(operands[1].bits);
    float exponent;
    memcpy(&exponent, &bits, 4);
    float power = exp2f(exponent);
    if (power < FLT_MIN) power = 0;
    memcpy(operands[0].target, &power, 4);
}

// `atom.add` of floats: one thread runs at a time, and none is left in between.
template <class Number> void add_atomically(const Operand* operands, int count = 1) {
    Number* place = reinterpret_cast<Number*>(operands[1].bits);
    Number addends[2];
    memcpy(addends, &operands[2].bits, sizeof(Number) * count);
    memcpy(operands[0].target, place, sizeof(Number) * count);
    for (int i = 0; i < count; i++) place[i] = Number(float(place[i]) + float(addends[i]));
}

void elect(const Operand* operands) {
    exchange("elect.sync", "", 0);
    const unsigned lanes = active_lanes();
    const uint32_t elected = unsigned(__builtin_ctz(lanes)) == current->lane;
    memcpy(operands[0].target, &elected, 4);
}

}  // namespace

void assembly(const char* text, const Operand* operands) {
    while (*text == ' ' || *text == '\n' || *text == '{') text++;
    const char* ldmatrix = "ldmatrix.sync.aligned.m8n8.x";
    const char* stmatrix = "stmatrix.sync.aligned.m8n8.x";
    if (begins(text, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 ")) return multiply<HalfFormat>(operands, 2);
    if (begins(text, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 ")) return multiply<Bfloat16Format>(operands, 2);
    if (begins(text, "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 ")) return multiply<HalfFormat>(operands, 1);
    if (begins(text, "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 ")) return multiply<Bfloat16Format>(operands, 1);
    if (begins(text, ldmatrix)) return load_matrices(operands, unsigned(text[strlen(ldmatrix)] - '0'), strstr(text, ".trans"));
    if (begins(text, stmatrix)) return store_matrices(operands, unsigned(text[strlen(stmatrix)] - '0'), strstr(text, ".trans"));
    if (begins(text, "cp.async.ca.shared::cta.global ") || begins(text, "cp.async.cg.shared::cta.global "))
        return copy_asynchronously(text, operands);
    // The barrier counts the thread's copies until they are made: they are made when its phase ends.
    if (begins(text, "cp.async.mbarrier.arrive.shared::cta.b64 "))
        return copies_belong_to(from_shared(uint32_t(operands[0].bits), 8));
    if (begins(text, "cp.async.commit_group;")) return commit_copies();
    const char* wait_group = "cp.async.wait_group ";
    if (begins(text, wait_group)) return wait_for_copies(unsigned(strtoul(text + strlen(wait_group), nullptr, 10)));
    if (begins(text, "ex2.approx.ftz.f32 ")) return power_of_two(operands);
    if (begins(text, "atom.relaxed.add.f32 ")) return add_atomically<float>(operands);
    if (begins(text, "atom.relaxed.add.noftz.f16 ")) return add_atomically<Sixteen<HalfFormat>>(operands);
    if (begins(text, "atom.relaxed.add.noftz.f16x2 ")) return add_atomically<Sixteen<HalfFormat>>(operands, 2);
    if (begins(text, "atom.relaxed.add.noftz.bf16 ")) return add_atomically<Sixteen<Bfloat16Format>>(operands);
    if (begins(text, "atom.relaxed.add.noftz.bf16x2 ")) return add_atomically<Sixteen<Bfloat16Format>>(operands, 2);
    if (begins(text, "mov.u32 ")) return void(memcpy(operands[0].target, &operands[1].bits, 4));
    if (begins(text, "add.sat.s32 ")) return saturate(operands, false);
    if (begins(text, "sub.sat.s32 ")) return saturate(operands, true);
    if (begins(text, ".reg .pred %%px;") && strstr(text, "elect.sync")) return elect(operands);
    fail("not emulated: %s", text);
}

}  // namespace emulator
