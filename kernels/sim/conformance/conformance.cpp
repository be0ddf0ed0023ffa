// Runs the kernels of wrappers.cu on two drivers and compares what they give:
//
//   conformance SIMULATOR.so DRIVER.so WRAPPERS.fatbin
//
// The first argument is the simulator built with these kernels, the second
// usually libcuda.so.1. Without a GPU, a run of the simulator against itself
// tests this program. Its status is the number of kernels that differ.
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "../device/half.h"

namespace {

constexpr size_t words = 8192;
using Words = std::vector<uint32_t>;

// Driver is a driver library, loaded by its path.
class Driver {
 public:
  Driver(const char* path, const std::string& image) : path_(path) {
    library_ = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library_) die(dlerror());
    void* context;
    int device;
    check("cuInit", call<int(unsigned)>("cuInit")(0));
    check("cuDeviceGet", call<int(int*, int)>("cuDeviceGet")(&device, 0));
    char name[128] = "";
    check("cuDeviceGetName", call<int(char*, int, int)>("cuDeviceGetName")(name, sizeof name, device));
    fprintf(stderr, "conformance: %s: %s\n", path, name);
    check("cuDevicePrimaryCtxRetain", call<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, device));
    check("cuCtxSetCurrent", call<int(void*)>("cuCtxSetCurrent")(context));
    check("cuModuleLoadData", call<int(void**, const void*)>("cuModuleLoadData")(&module_, image.data()));
    auto allocate = call<int(unsigned long long*, size_t)>("cuMemAlloc_v2");
    check("cuMemAlloc", allocate(&in_, words * 4));
    check("cuMemAlloc", allocate(&out_, words * 4));
  }

  Words run(const char* kernel, const Words& in) {
    void* f;
    check(kernel, call<int(void**, void*, const char*)>("cuModuleGetFunction")(&f, module_, kernel));
    check("cuMemcpyHtoD", call<int(unsigned long long, const void*, size_t)>("cuMemcpyHtoD_v2")(in_, in.data(), words * 4));
    check("cuMemsetD8", call<int(unsigned long long, unsigned char, size_t)>("cuMemsetD8_v2")(out_, 0, words * 4));
    void* params[] = {&in_, &out_};
    check(kernel, call<int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**)>("cuLaunchKernel")(f, 1, 1, 1, 64, 1, 1, 0, nullptr, params, nullptr));
    Words out(words);
    check(kernel, call<int(void*, unsigned long long, size_t)>("cuMemcpyDtoH_v2")(out.data(), out_, words * 4));
    return out;
  }

 private:
  template <class F>
  F* call(const char* name) {
    void* f = dlsym(library_, name);
    if (!f) die(name);
    return reinterpret_cast<F*>(f);
  }
  void check(const char* what, int result) {
    if (result) die((std::string(what) + ": error " + std::to_string(result)).c_str());
  }
  [[noreturn]] void die(const char* what) {
    fprintf(stderr, "conformance: %s: %s\n", path_, what);
    exit(255);
  }

  const char* path_;
  void *library_ = nullptr, *module_ = nullptr;
  unsigned long long in_ = 0, out_ = 0;
};

// The kinds of input words, and the comparison of outputs.
enum class Input { Bits, Floats, Moderate, Bf16, F16, WholeBf16, WholeF16 };
enum class Compare { Bits, Float, Close, PairBf16, PairF16 };

struct Test {
  const char* kernel;
  Input input;
  Compare compare;
  double tolerance;  // of Close: absolute, and relative to the value
};

const Test tests[] = {
    {"conform_ldmatrix", Input::Bits, Compare::Bits, 0},
    {"conform_mma_bf16", Input::WholeBf16, Compare::Bits, 0},  // exact sums: layouts
    {"conform_mma_f16", Input::WholeF16, Compare::Bits, 0},
    {"conform_mma_bf16", Input::Bf16, Compare::Close, 1e-5},  // the order of sums is the device's own
    {"conform_mma_f16", Input::F16, Compare::Close, 1e-5},
    {"conform_cp_async", Input::Bits, Compare::Bits, 0},
    {"conform_pack_bf16", Input::Floats, Compare::PairBf16, 0},
    {"conform_pack_f16", Input::Floats, Compare::PairF16, 0},
    {"conform_pack_f16", Input::Moderate, Compare::PairF16, 0},
    {"conform_unpack", Input::Bits, Compare::Float, 0},
    {"conform_warp", Input::Bits, Compare::Bits, 0},
    {"conform_named_barriers", Input::Bits, Compare::Bits, 0},
    {"conform_reductions", Input::Moderate, Compare::Float, 0},
    {"conform_integers", Input::Bits, Compare::Bits, 0},
    {"conform_to_integers", Input::Floats, Compare::Bits, 0},
    {"conform_rounded", Input::Moderate, Compare::Float, 0},
    {"conform_functions", Input::Moderate, Compare::Close, 2e-5},
};

Words input(Input kind, std::mt19937& random) {
  Words w(words);
  auto number = [&] { return (float)(int32_t)random() * 0x1p-31f; };
  auto whole = [&] { return (float)(int)(random() % 15) - 7; };
  for (uint32_t& u : w) {
    float lo = number(), hi = number();
    switch (kind) {
      case Input::Bits:
      case Input::Floats:  // of all sizes, infinities and NaNs too
        u = random();
        break;
      case Input::Moderate:
        u = lfsim::float_bits(lo * 8);
        break;
      case Input::Bf16:
        u = lfsim::narrow_bf16(lo) | (uint32_t)lfsim::narrow_bf16(hi) << 16;
        break;
      case Input::F16:
        u = lfsim::narrow_f16(lo) | (uint32_t)lfsim::narrow_f16(hi) << 16;
        break;
      case Input::WholeBf16:
        u = lfsim::narrow_bf16(whole()) | (uint32_t)lfsim::narrow_bf16(whole()) << 16;
        break;
      case Input::WholeF16:
        u = lfsim::narrow_f16(whole()) | (uint32_t)lfsim::narrow_f16(whole()) << 16;
        break;
    }
  }
  return w;
}

// equal treats all NaNs as equal, since payloads depend on the device.
bool equal(const Test& t, uint32_t a, uint32_t b) {
  if (a == b) return true;
  float x = lfsim::bits_float(a), y = lfsim::bits_float(b);
  auto half = [&](bool bf16, uint16_t p, uint16_t q) {
    float v = bf16 ? lfsim::widen_bf16(p) : lfsim::widen_f16(p), w = bf16 ? lfsim::widen_bf16(q) : lfsim::widen_f16(q);
    return p == q || (v != v && w != w);
  };
  switch (t.compare) {
    case Compare::Float:
      return x != x && y != y;
    case Compare::Close:
      return (x != x && y != y) || fabs((double)x - y) <= t.tolerance * std::max(1.0, fabs((double)x));
    case Compare::PairBf16:
    case Compare::PairF16: {
      bool bf16 = t.compare == Compare::PairBf16;
      return half(bf16, (uint16_t)a, (uint16_t)b) && half(bf16, (uint16_t)(a >> 16), (uint16_t)(b >> 16));
    }
    default:
      return false;
  }
}

std::string read(const char* path) {
  std::string s;
  FILE* f = fopen(path, "rb");
  if (!f) {
    fprintf(stderr, "conformance: %s cannot be read\n", path);
    exit(255);
  }
  char buffer[1 << 16];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, f)) > 0;) s.append(buffer, n);
  fclose(f);
  return s + '\0';
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: conformance SIMULATOR.so DRIVER.so WRAPPERS.fatbin\n");
    return 255;
  }
  std::string image = read(argv[3]);
  Driver twin(argv[1], image), driver(argv[2], image);
  int different = 0;
  for (const Test& t : tests) {
    std::mt19937 random(1);
    size_t bad = 0;
    std::string first;
    for (int round = 0; round < 20; round++) {
      Words in = input(t.input, random), a = twin.run(t.kernel, in), b = driver.run(t.kernel, in);
      for (size_t i = 0; i < words; i++) {
        if (equal(t, a[i], b[i])) continue;
        char text[128];
        snprintf(text, sizeof text, ": round %d, result %zu of thread %zu: twin %08x (%g), driver %08x (%g)", round, i / 64, i % 64, a[i], lfsim::bits_float(a[i]), b[i], lfsim::bits_float(b[i]));
        if (!bad++) first = text;
      }
    }
    printf("%-26s %s%s\n", t.kernel, bad ? "DIFFERS" : "same", first.c_str());
    different += bad != 0;
  }
  return different;
}
