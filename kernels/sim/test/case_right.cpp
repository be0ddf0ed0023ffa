// Correct kernels must give correct results in every order and mode.
#include <math.h>
#include <string.h>

#include "cuda.h"

CASE("right/elementwise", "") {
  open_device();
  for (size_t n : {1u, 255u, 1000u}) {
    auto x = noise(n, 1), y = noise(n, 2);
    Ptr dx = upload(x), dy = upload(y);
    OK(launch("probe_axpy_f32", 3, 128, 0, nullptr, Args(0.5f, dx, dy, (int)n)));
    auto got = download<float>(dy, n);
    for (size_t i = 0; i < n; i++) CHECK(got[i] == fmaf(0.5f, x[i], y[i]));
    OK(cuMemFree_v2(dx));
    OK(cuMemFree_v2(dy));
  }
  CHECK(lfsim_leaks() == 0);
}

CASE("right/block_sum", "") {
  open_device();
  const int blocks = 40, threads = 256;
  auto x = noise(blocks * threads, 3);
  Ptr dx = upload(x), out = upload(std::vector<float>(blocks));
  OK(launch("test_block_sum", blocks, threads, 0, nullptr, Args(dx, out)));
  auto got = download<float>(out, blocks);
  for (int b = 0; b < blocks; b++) {
    double s = 0;
    for (int i = 0; i < threads; i++) s += x[(size_t)(b * threads + i)];
    CHECK(fabs(got[(size_t)b] - s) < 1e-5);
  }
}

CASE("right/warp_primitives", "") {
  open_device();
  Ptr out = upload(std::vector<int>(64 * 12));
  OK(launch("test_warp", 1, 64, 0, nullptr, Args(out)));
  auto v = download<int>(out, 64 * 12);
  for (int t = 0; t < 64; t++) {
    int l = t % 32, *o = &v[(size_t)t * 12];
    CHECK(o[0] == 50);
    CHECK(o[1] == (l < 3 ? l : l - 3));
    CHECK(o[2] == (l > 28 ? l : l + 3));
    CHECK(o[3] == (l ^ 9));
    CHECK(o[4] == (l / 8 * 8 + 3));
    CHECK((unsigned)o[5] == 0x49249249u);
    CHECK(o[6] == 1);
    CHECK((unsigned)o[7] == 0xfu << (l / 4 * 4));
    CHECK(o[8] == 811);
    CHECK(o[9] == 8 + 31 + 4);
    CHECK(o[10] == 0x07050301);
    CHECK(o[11] == 3);
  }
  out = upload(std::vector<int>(32));
  OK(launch("test_halves", 1, 32, 0, nullptr, Args(out)));
  v = download<int>(out, 32);
  for (int l = 0; l < 32; l++) CHECK(l < 16 ? v[(size_t)l] == (l ^ 1) : (unsigned)v[(size_t)l] == 0xaaaa0000u);
}

CASE("right/named_barriers", "") {
  open_device();
  const int n = 20;
  Ptr out = upload(std::vector<float>(n * 32));
  OK(launch("test_named_barriers", 1, 64, 0, nullptr, Args(out, n)));
  auto v = download<float>(out, n * 32);
  for (int i = 0; i < n * 32; i++) CHECK(v[(size_t)i] == (float)(i / 32 * 100 + 31 - i % 32));
}

CASE("right/gemm_bf16", "") {
  open_device();
  void* f = function("probe_gemm_bf16");
  struct Shape {
    int m, n, k;
  };
  for (Shape s : {Shape{64, 32, 32}, {1, 1, 8}, {100, 40, 72}}) {
    auto a = bf16(noise((size_t)(s.m * s.k), 4)), b = bf16(noise((size_t)(s.n * s.k), 5));
    Ptr da = upload(a), db = upload(b), dc = upload(std::vector<float>((size_t)(s.m * s.n)));
    Args args(da, db, dc, s.m, s.n, s.k);
    OK(cuLaunchKernel(f, (unsigned)(s.n + 31) / 32, (unsigned)(s.m + 63) / 64, 1, 128, 1, 1, 15360, nullptr, args.get(), nullptr));
    auto c = download<float>(dc, (size_t)(s.m * s.n));
    for (int i = 0; i < s.m; i++) {
      for (int j = 0; j < s.n; j++) {
        double want = 0;
        for (int l = 0; l < s.k; l++) want += (double)widen(a[(size_t)(i * s.k + l)]) * widen(b[(size_t)(j * s.k + l)]);
        CHECK(fabs(c[(size_t)(i * s.n + j)] - want) <= 1e-5);
      }
    }
  }
}

// Whole numbers: their products and sums are exact, so one wrong place shows.
CASE("right/mma_f16_trans", "") {
  open_device();
  std::vector<uint16_t> a(256), b(128), half;
  int va[256], vb[128];
  auto f16 = [](int i) {  // 0 to 7
    static const uint16_t bits[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700};
    return bits[i];
  };
  for (int i = 0; i < 256; i++) a[(size_t)i] = f16(va[i] = (i * 5 + i / 16) % 8);
  for (int i = 0; i < 128; i++) b[(size_t)i] = f16(vb[i] = (i * 3 + i / 8) % 8);
  Ptr da = upload(a), db = upload(b), dc = upload(std::vector<float>(128));
  OK(launch("test_mma_f16", 1, 32, 0, nullptr, Args(da, db, dc)));
  auto c = download<float>(dc, 128);
  for (int i = 0; i < 16; i++) {
    for (int j = 0; j < 8; j++) {
      int want = 0;
      for (int l = 0; l < 16; l++) want += va[i * 16 + l] * vb[l * 8 + j];
      CHECK(c[(size_t)(i * 8 + j)] == (float)want);
    }
  }
}

CASE("right/zero_fill", "") {
  open_device();
  std::vector<unsigned char> x(512);
  for (size_t i = 0; i < x.size(); i++) x[i] = (unsigned char)(i % 250 + 1);
  for (int n : {0, 1, 7, 16}) {
    Ptr dx = upload(x), dy = upload(x);
    OK(launch("test_zero_fill", 1, 32, 512, nullptr, Args(dx, dy, n)));
    auto y = download<unsigned char>(dy, 512);
    for (size_t i = 0; i < 512; i++) CHECK(y[i] == ((int)(i % 16) < n ? x[i] : 0));
  }
}

CASE("right/half_conversions", "") {
  open_device();
  Ptr out = upload(std::vector<unsigned>(65536));
  OK(launch("test_halves_round_trip", 256, 256, 0, nullptr, Args(out)));
  for (unsigned bad : download<unsigned>(out, 65536)) CHECK(bad == 0);
}

CASE("right/big_shared", "LFSIM_CC=8.0") {
  open_device();
  void* f = function("test_big_shared");
  const int n = 163 * 1024 / 4;
  Ptr out = upload(std::vector<float>(n));
  OK(cuFuncSetAttribute(f, abi::MaxDynamicSharedSizeBytes, n * 4));
  Args args(out, n);
  OK(cuLaunchKernel(f, 1, 1, 1, 256, 1, 1, n * 4, nullptr, args.get(), nullptr));
  auto v = download<float>(out, n);
  for (int i = 0; i < n; i++) CHECK(v[(size_t)i] == (float)(n - 1 - i));
}
