// The self-tests of the simulator: "selftest --list" names the cases and their
// environments, "selftest NAME" runs one.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <map>
#include <random>

#include "../device/half.h"
#include "cuda.h"

static std::map<std::string, const Case*>& cases() {
  static std::map<std::string, const Case*> all;
  return all;
}

Case::Case(const char* n, const char* e, void (*r)()) : name(n), environment(e), run(r) { cases()[n] = this; }

void failed(const char* file, int line, const std::string& what) {
  const char* slash = strrchr(file, '/');
  fprintf(stderr, "%s:%d: %s\n", slash ? slash + 1 : file, line, what.c_str());
  exit(1);
}

void expect(const char* file, int line, const char* call, int got, int want) {
  if (got == want) return;
  const char *g = nullptr, *w = nullptr;
  cuGetErrorName(got, &g);
  cuGetErrorName(want, &w);
  failed(file, line, std::string(call) + ": " + (g ? g : "?") + ", expected " + (w ? w : "?"));
}

void open_device() {
  void* context;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
}

// Loaded once: modules cannot be loaded while a stream is being captured.
void* function(const char* name) {
  static std::map<std::string, void*> loaded;
  void *module, *&f = loaded[name];
  if (f) return f;
  OK(cuModuleLoadData(&module, (std::string("LFSIM\n") + name + "\n").c_str()));
  OK(cuModuleGetFunction(&f, module, name));
  return f;
}

abi::Result launch(const char* name, unsigned grid, unsigned block, unsigned shared, void* stream, Args args) {
  return cuLaunchKernel(function(name), grid, 1, 1, block, 1, 1, shared, stream, args.get(), nullptr);
}

std::vector<float> noise(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> v(n);
  for (float& x : v) x = (float)(int32_t)random() * 0x1p-31f;
  return v;
}

std::vector<uint16_t> bf16(const std::vector<float>& v) {
  std::vector<uint16_t> h;
  for (float x : v) h.push_back(lfsim::narrow_bf16(x));
  return h;
}

float widen(uint16_t h) { return lfsim::widen_bf16(h); }

int main(int argc, char** argv) {
  if (argc == 2 && !strcmp(argv[1], "--list")) {
    for (auto& [name, c] : cases()) printf("%s %s\n", name.c_str(), c->environment);
    return 0;
  }
  auto it = argc == 2 ? cases().find(argv[1]) : cases().end();
  if (it == cases().end()) {
    fprintf(stderr, "usage: selftest --list | NAME\n");
    return 2;
  }
  it->second->run();
  return 0;
}
