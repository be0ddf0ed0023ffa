// Kernels that are right give the right numbers, in every order of threads.
#include <math.h>
#include <string.h>

#include "../../device/half.h"
#include "shader.h"

#define RIGHT library("right.metal")
#define RUNS(call) CHECK((call) == "")

static bool near(float got, float want, float tolerance) { return fabsf(got - want) <= tolerance * fmaxf(1.0f, fabsf(want)); }

CASE(vectors, "right/vectors") {
  Buffer out(160), odd(std::vector<float>{9, 1, 2, 3, 4, 5, 6, 7, 8});
  lf_msl_args a{};
  a.buffer[0] = out.begin(), a.length[0] = out.bytes();
  a.buffer[1] = &odd.at<float>(1), a.length[1] = 32;
  for (int i = 0; i < 3; i++) a.grid[i] = a.threads[i] = 1;
  RUNS(RIGHT.run("vectors", a));
  float tenth = lfsim::widen_f16(lfsim::narrow_f16(0.1f));
  auto half = [](float f) { return lfsim::widen_f16(lfsim::narrow_f16(f)); };
  const float want[40] = {2, 1, 4, 3, 7, 3, 2, 255, 2.5f, 4.5f, 6.5f, 8.5f, half(tenth), half(2 * tenth), half(3 * tenth), half(4 * tenth), 6, 8, 10, 12, 1, 2, 44, 6,
                          1, 2, 0, 0, 1, 0, 30, -7, 1.0f / 3, 1.5f, 16, 16, 1, 20, 300, 4};
  for (size_t i = 0; i < 40; i++) check(out.at<float>(i) == want[i], __FILE__, __LINE__, "vectors " + std::to_string(i) + ": " + std::to_string(out.at<float>(i)));
}

CASE(spaces, "right/spaces") {
  in_all_orders([](const char*) {
    Buffer out(20), x(std::vector<float>{1, 2, 3});
    RUNS(RIGHT.run("spaces", 1, 32, {&out, &x}));
    CHECK(out.at<float>(0) == 3 && out.at<float>(1) == 3 && out.at<float>(2) == 1 && out.at<float>(3) == 1001 && out.at<float>(4) == 6);
  });
}

CASE(grid, "right/grid") {
  struct {
    uint32_t bound, wide;
    int64_t n;
    float scale;
  } args = {0, 0, 3 * 5 * 4 * 2 * 2 * 3 - 1, 2};
  Buffer numbers(24);
  memcpy(numbers.begin(), &args, 24);
  in_all_orders([&](const char*) {
    Buffer out(4 * 720);
    lf_msl_args a{};
    a.buffer[0] = out.begin(), a.length[0] = out.bytes();
    a.buffer[1] = numbers.begin(), a.length[1] = 24;
    a.grid[0] = 3, a.grid[1] = 2, a.grid[2] = 2;
    a.threads[0] = 5, a.threads[1] = 4, a.threads[2] = 3;
    RUNS(RIGHT.run("grid", a));
    for (uint32_t i = 0; i < 719; i++) CHECK(out.at<uint32_t>(i) == 2 * i);
    CHECK(out.at<uint32_t>(719) == 0xffffffffu);
  });
}

CASE(sum, "right/sum") {
  Buffer x(noise(4 * 96, 1));
  in_all_orders([&](const char*) {
    Buffer out(16);
    RUNS(RIGHT.run("sum", 4, 96, {&out, &x}));
    for (size_t g = 0; g < 4; g++) {
      double want = 0;
      for (size_t i = 0; i < 96; i++) want += x.at<float>(g * 96 + i);
      CHECK(near(out.at<float>(g), (float)want, 1e-6f));
    }
  });
}

CASE(dynamic, "right/threadgroup argument") {
  in_all_orders([](const char*) {
    std::vector<float> v = noise(48, 2);
    Buffer x(v);
    lf_msl_args a{};
    a.buffer[0] = x.begin(), a.length[0] = x.bytes();
    a.threadgroup[1] = 192;
    for (int i = 0; i < 3; i++) a.grid[i] = a.threads[i] = 1;
    a.threads[0] = 48;
    RUNS(RIGHT.run("reverse", a));
    for (size_t i = 0; i < 48; i++) CHECK(x.at<float>(i) == v[47 - i]);
  });
}

CASE(lanes, "right/lanes") {
  int v[32], sum = 0, all_or = 0, all_xor = 0, all_and = -1, positive = 0;
  for (int i = 0; i < 32; i++) {
    v[i] = i * i - 100;
    all_or |= v[i] & 7, all_xor ^= v[i], all_and &= v[i] | 1024;
    positive |= (int)((unsigned)(v[i] > 0) << i);
  }
  in_all_orders([&](const char*) {
    Buffer out(16 * 32 * 4), sums(128);
    RUNS(RIGHT.run("lanes", 1, 32, {&out, &sums}));
    sum = 0;
    for (int i = 0; i < 32; i++) {
      int want[16] = {v[31 - i], v[i ^ 5], i < 3 ? v[i] : v[i - 3], i > 28 ? v[i] : v[i + 3], v[7], v[0], v[31], v[0], sum, sum + v[i], positive, 1, 1, all_and + all_or + all_xor, 2 * v[i ^ 1], 496};
      for (int k = 0; k < 16; k++) check(out.at<int>((size_t)(k * 32 + i)) == want[k], __FILE__, __LINE__, "lane " + std::to_string(i) + ", result " + std::to_string(k) + ": " + std::to_string(out.at<int>((size_t)(k * 32 + i))));
      CHECK(sums.at<uint32_t>((size_t)i) == sums.at<uint32_t>(0));
      sum += v[i];
    }
    CHECK(near(sums.at<float>(0), (float)sum * 0.1f, 1e-6f));
  });
}

CASE(neighbours, "right/simdgroup barrier") {
  in_all_orders([](const char*) {
    std::vector<float> v = noise(64, 3);
    Buffer x(v);
    RUNS(RIGHT.run("neighbours", 1, 64, {&x}));
    for (size_t i = 0; i < 64; i++) CHECK(x.at<float>(i) == v[i ^ 1]);
  });
}

// products checks the matrices of right.metal bit for bit: sums are by fma, from k = 0 on.
template <class T>
static void products(const char* kernel, T (*narrow)(float), float (*widen)(T)) {
  std::vector<T> a, b;
  for (float f : noise(16 * 12, 4)) a.push_back(narrow(f));
  for (float f : noise(16 * 24, 5)) b.push_back(narrow(f));
  in_all_orders([&](const char*) {
    Buffer d((96 + 64) * 4), x(a), y(b);
    RUNS(RIGHT.run(kernel, 1, 32, {&d, &x, &y}));
    auto A = [&](int r, int c) { return widen(a[(size_t)((4 + r) * 16 + 8 + c)]); };
    auto B = [&](int r, int c) { return widen(b[(size_t)((8 + c) * 24 + 16 + r)]); };
    for (int r = 0; r < 8; r++) {
      for (int c = 0; c < 8; c++) {
        float s = 0.5f, t = 0;
        for (int k = 0; k < 8; k++) s = fmaf(A(r, k), B(k, c), s), t = fmaf(B(r, k), A(k, c), t);
        CHECK(d.at<float>((size_t)(r * 12 + 4 + c)) == s);
        CHECK(d.at<float>((size_t)(96 + c * 8 + r)) == t);
      }
    }
    CHECK(d.at<uint32_t>(0) == 0xffffffffu);
  });
}
CASE(matrix_float, "right/matrices of float") {
  products<float>("multiply_float", [](float f) { return f; }, [](float f) { return f; });
}
CASE(matrix_half, "right/matrices of half") { products<uint16_t>("multiply_half", lfsim::narrow_f16, lfsim::widen_f16); }
CASE(matrix_bfloat, "right/matrices of bfloat") { products<uint16_t>("multiply_bfloat", lfsim::narrow_bf16, lfsim::widen_bf16); }

CASE(narrow, "right/bfloat") {
  std::vector<float> v = noise(64, 6);
  v[0] = INFINITY, v[1] = 0x1.01p0f, v[2] = 0x1.03p0f, v[3] = 3.4e38f, v[4] = 1e-40f;
  Buffer x(v), out(128);
  RUNS(RIGHT.run("narrow", 2, 32, {&out, &x}));
  for (size_t i = 0; i < 64; i++) CHECK(out.at<uint16_t>(i) == lfsim::narrow_bf16(v[i]));
}

CASE(rounds, "right/half rounds") {
  std::vector<uint16_t> v;
  for (float f : noise(64, 7)) v.push_back(lfsim::narrow_f16(3 * f));
  Buffer x(v), out(128);
  RUNS(RIGHT.run("rounds", 2, 32, {&out, &x}));
  for (size_t i = 0; i < 64; i++) {
    float h = lfsim::widen_f16(v[i]);
    CHECK(out.at<uint16_t>(i) == lfsim::narrow_f16(lfsim::widen_f16(lfsim::narrow_f16(h * h)) + h));
  }
}

CASE(functions, "right/functions") {
  std::vector<float> v = noise(64, 8);
  Buffer x(v), out(64 * 64);
  RUNS(RIGHT.run("functions", 2, 32, {&out, &x}));
  for (size_t i = 0; i < 64; i++) {
    double d = v[i];
    const double want[16] = {exp(d), exp2(d), log(fabs(d)), sqrt(fabs(d)), 1 / sqrt(fabs(d)), tanh(d), sin(d), cos(d), fma(d, d, -1.0), fmin(fmax(d, -0.5), 0.5), rint(d * 4), pow(fabs(d), 1.5), floor(d),
                             fmin(d, 0.25), 1 / d, d};
    for (size_t k = 0; k < 16; k++) check(near(out.at<float>(i * 16 + k), (float)want[k], 5e-7f), __FILE__, __LINE__, "function " + std::to_string(k) + " of " + std::to_string(d) + ": " + std::to_string(out.at<float>(i * 16 + k)));
  }
}

CASE(integers, "right/integers") {
  Buffer out(40);
  RUNS(RIGHT.run("integers", 1, 1, {&out}));
  const uint32_t want[10] = {(uint32_t)((uint64_t)0xdeadbeef * 0x9e3779b9 >> 32), 24, 22, 9, 0xadbeefde, 0xf77db57b, 0xdbe, 5 + 7 + 9, 3, 2 + 7};
  for (size_t i = 0; i < 10; i++) check(out.at<uint32_t>(i) == want[i], __FILE__, __LINE__, "integers " + std::to_string(i) + ": " + std::to_string(out.at<uint32_t>(i)));
}

CASE(about, "right/about") {
  lf_msl_info i = RIGHT.about("grid");
  CHECK(i.buffers == 3 && i.threads == 0 && i.shared == 0 && i.align[0] == 4 && i.bytes[0] == 0 && i.align[1] == 8 && i.bytes[1] == 24);
  i = RIGHT.about("reverse");
  CHECK(i.threadgroups == 2 && i.threads == 128);
  i = RIGHT.about("spaces");
  CHECK(i.shared == 16 + 32);
}
