// Mistakes of kernels that show when they run: each must be found, and named.
#include <math.h>
#include <string.h>

#include "shader.h"

static std::string planted(const std::string& kernel, unsigned threads, const std::vector<const Buffer*>& buffers) { return library("planted.metal").run(kernel, 1, threads, buffers); }

// fails runs a kernel in all orders: each time the error must have all parts.
static void fails(const std::string& kernel, unsigned threads, const std::vector<const Buffer*>& buffers, const std::vector<std::string>& parts) {
  in_all_orders([&](const char*) {
    std::string error = planted(kernel, threads, buffers);
    CONTAINS(error, kernel + ": ");
    for (const std::string& p : parts) CONTAINS(error, p);
  });
}

// shows runs a kernel that ends well: its results must be wrong in one of the orders.
static void shows(const std::string& kernel, unsigned threads, unsigned flip) {
  int wrong = 0;
  Buffer x(noise(threads, 1));
  in_all_orders([&](const char*) {
    Buffer out(threads * 4);
    CHECK(planted(kernel, threads, {&out, &x}) == "");
    for (size_t i = 0; i < threads; i++) wrong += out.at<float>(i) != x.at<float>(i ^ flip);
  });
  CHECK(wrong > 0);
}

static Buffer ones(size_t n) { return Buffer(std::vector<float>(n, 1.0f)); }

CASE(missing_barrier, "planted/missing barrier") { shows("missing_barrier", 64, 63); }
CASE(missing_simdgroup_barrier, "planted/missing simdgroup barrier") { shows("missing_simdgroup_barrier", 32, 1); }

CASE(barrier_in_branch, "planted/barrier in a branch") {
  Buffer x = ones(64);
  fails("barrier_in_branch", 64, {&x}, {"threads 0-4 at threadgroup_barrier of planted.metal:5 of planted.metal:18, 5-63 returned"});
}
CASE(two_barriers, "planted/two barriers") {
  Buffer x = ones(64);
  fails("two_barriers", 64, {&x}, {"divergent barrier: threadgroup_barrier of planted.metal:5 of planted.metal:2", "others of the threadgroup wait at planted.metal:5 of planted.metal:2", "planted.metal:24", "planted.metal:27"});
}
CASE(early_return, "planted/early return") {
  Buffer x = ones(64);
  fails("early_return", 64, {&x}, {"0-40 at threadgroup_barrier of", "41-63 returned"});
}
CASE(past_threadgroup_memory, "planted/past threadgroup memory") {
  Buffer x = ones(64);
  fails("past_threadgroup_memory", 64, {&x}, {"thread (63,0,0): planted.metal:38: illegal address", "0 bytes past the end of the threadgroup array of planted.metal:36 (256 bytes)"});
}
CASE(past_bounds, "planted/past the bounds of an array") {
  Buffer x = ones(64);
  fails("past_bounds", 64, {&x}, {"thread (63,0,0): planted.metal:42: index 8 is out of the bounds of '__local float[8]'"});
}
CASE(past_dynamic, "planted/past threadgroup memory of the dispatch") {
  Buffer x = ones(64);
  lf_msl_args a{};
  a.buffer[0] = x.begin(), a.length[0] = x.bytes();
  a.threadgroup[0] = 128;
  for (int i = 0; i < 3; i++) a.grid[i] = a.threads[i] = 1;
  a.threads[0] = 33;
  CONTAINS(library("planted.metal").run("past_dynamic", a), "thread (32,0,0): planted.metal:44: illegal address");
  a.threadgroup[0] = 0;
  CONTAINS(library("planted.metal").run("past_dynamic", a), "threadgroup memory 0 (room) has no length");
  a.threadgroup[0] = 20;
  CONTAINS(library("planted.metal").run("past_dynamic", a), "threadgroup memory 0 (room) of 20 bytes, which is no multiple of 16");
  a.threadgroup[0] = 32784;
  CONTAINS(library("planted.metal").run("past_dynamic", a), "32784 bytes of threadgroup memory, of at most 32768");
}
CASE(past_buffer, "planted/past a buffer") {
  Buffer out = ones(64), x = ones(64);
  fails("past_buffer", 64, {&out, &x}, {"thread (63,0,0): planted.metal:46: illegal address", "0 bytes past the end of buffer 1 (x) of 256 bytes"});
  CHECK(library("right.metal").run("rounds", 1, 32, {&out, &x}) == "");  // and the process lives on
}
CASE(null_pointer, "planted/null pointer") {
  Buffer x = ones(64);
  fails("null_pointer", 64, {&x}, {"thread (3,0,0): planted.metal:50: illegal address 0x8"});
}
CASE(misaligned, "planted/misaligned float4") {
  Buffer out = ones(64), x = ones(64);
  fails("misaligned", 8, {&out, &x}, {"planted.metal:53: misaligned: a load of", "which does not lie on 16 bytes"});
  fails("misaligned_threadgroup", 8, {&out}, {"planted.metal:58: misaligned: a store of"});
}
CASE(misbound, "planted/buffers") {
  Buffer out = ones(64), x = ones(64), numbers(8);
  fails("unbound", 64, {&out, &x}, {"buffer 3 (x) is not bound"});
  fails("short_numbers", 1, {&out, &numbers}, {"buffer 1 (a) has 8 bytes, its type 16"});
  lf_msl_args a{};
  a.buffer[0] = static_cast<char*>(out.begin()) + 2, a.length[0] = 16;
  for (int i = 0; i < 3; i++) a.grid[i] = a.threads[i] = 1;
  CONTAINS(library("planted.metal").run("few_threads", a), "buffer 0 (x) does not lie on the 4 bytes of its type");
}
CASE(uninitialised, "planted/uninitialised memory") {
  in_all_orders([](const char*) {
    Buffer out = ones(64);
    CHECK(planted("uninitialised", 64, {&out}) == "");
    CHECK(out.at<float>(62) == 1.0f && isnan(out.at<float>(63)));
    CHECK(planted("uninitialised_local", 64, {&out}) == "");
    CHECK(!(fabsf(out.at<float>(5) - 5.0f) < 1000.0f));
  });
}
CASE(too_much, "planted/too much threadgroup memory") {
  Buffer x = ones(64);
  CHECK(library("planted.metal").about("too_much").shared == 32768 + 16);
  fails("too_much", 64, {&x}, {"32784 bytes of threadgroup memory, of at most 32768"});
}
CASE(diverged, "planted/diverged simdgroups") {
  Buffer x = ones(64);
  fails("diverged_simd", 64, {&x}, {"0-6 at the simdgroup function of planted.metal:79, 7-63 returned"});
  fails("two_simds", 32, {&x}, {"lanes of one simdgroup are at different simdgroup functions", "planted.metal:84", "planted.metal:87"});
  fails("shuffle_of_nobody", 32, {&x}, {"planted.metal:91: simd_shuffle: lane 24 reads lane 32, which takes no part"});
}
CASE(matrices, "planted/diverged matrices") {
  Buffer x = ones(128);
  fails("diverged_load", 32, {&x}, {"planted.metal:95: lanes 0 and 9 have loaded a matrix from different places"});
  fails("half_a_simdgroup", 16, {&x}, {"planted.metal:100: all 32 lanes must take part, of this simdgroup only 0000ffff run"});
}
CASE(threads, "planted/too many threads") {
  Buffer x = ones(2048);
  fails("few_threads", 65, {&x}, {"65 threads in a threadgroup, of at most 64"});
  fails("early_return", 1025, {&x}, {"1025 threads in a threadgroup, of at most 1024"});
  fails("few_threads", 0, {&x}, {"a grid of no threads"});
}
CASE(arithmetic, "planted/arithmetic") {
  Buffer x(std::vector<int>(64, 0));
  fails("zero_division", 1, {&x}, {"planted.metal:104: integer division by zero"});
  fails("wide_shift", 32, {&x}, {"planted.metal:105: a shift of 'int' by 32"});
}
CASE(recursion, "planted/recursion without end") {
  Buffer x(std::vector<int>(64, 1));
  fails("recursion", 1, {&x}, {"the stack of thread 0 has overflown"});
}
