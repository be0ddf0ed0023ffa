// Errors of Metal's compiler are reported by this one too, with the shader's file and line.
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "../msl_process.h"
#include "shader.h"

static const std::string head = "#include <metal_stdlib>\nusing namespace metal;\n";

// refused requires an error for line 3 of a file "x.metal".
static void refused(const std::string& line, const std::string& part, const Macros& macros = {}) {
  std::string error = Library("#line 1 \"x.metal\"\n" + head + line + "\n", macros).error;
  check(error.find("x.metal:3:") != std::string::npos && error.find(part) != std::string::npos, __FILE__, __LINE__, line + ": expected an error at x.metal:3 with \"" + part + "\", got \"" + error + "\"");
}

static void accepted(const std::string& line, const Macros& macros = {}) {
  std::string error = Library(head + line + "\n", macros).error;
  check(error.empty(), __FILE__, __LINE__, line + ": " + error);
}

CASE(refused_spaces, "refused/address spaces") {
  refused("kernel void k(device float* x [[buffer(0)]]) { threadgroup float* p = x; p[0] = 1; }", "cannot initialize a variable of type '__local float *'");
  refused("inline void f(threadgroup float* p) { p[0] = 1; } kernel void k(device float* x [[buffer(0)]]) { f(x); }", "no matching function for call to 'f'");
  refused("kernel void k(device float* x [[buffer(0)]]) { float y = 1; device float* p = &y; x[0] = p[0]; }", "cannot initialize a variable of type '__global float *'");
  refused("inline float f(float* p) { return p[0]; }", "a pointer or reference to float without an address space");
  refused("inline float f(const float4& p) { return p.x; }", "a pointer or reference to float4 without an address space");
  accepted("inline float f(thread float& p) { return p; } kernel void k(device float* x [[buffer(0)]]) { float y = 2; x[0] = f(y); }");
}
CASE(refused_constants, "refused/writes to constant") {
  refused("kernel void k(constant float* x [[buffer(0)]]) { x[0] = 1; }", "read-only variable is not assignable");
  refused("struct A { float eps; }; kernel void k(constant A& a [[buffer(0)]]) { a.eps = 1; }", "cannot assign to variable 'a' with const-qualified type");
}
CASE(refused_signatures, "refused/signatures") {
  refused("kernel void k(device float* x) { x[0] = 1; }", "kernel k: parameter x has no attribute");
  refused("kernel void k(float x [[buffer(0)]]) { }", "is a buffer, and neither a pointer nor a reference");
  refused("kernel void k(threadgroup float* x [[buffer(0)]]) { }", "is a buffer, and neither device nor constant");
  refused("kernel void k(device float* x [[buffer(0)]], uint i [[thread_index_in_warp]]) { }", "unknown attribute [[thread_index_in_warp]]");
  refused("kernel int k(device float* x [[buffer(0)]]) { return 0; }", "a kernel returns void, not int");
  CONTAINS(Library(head + "kernel void k(device float* x [[buffer(31)]]) { }").error, "parameter x has index 31, of at most 30");
  CONTAINS(Library(head + "kernel void k(device float* x [[buffer(2)]], device float* y [[buffer(1 + 1)]]) { }").error, "parameter y has the index 2 of another");
}
CASE(refused_language, "refused/language") {
  refused("inline double f(float x) { return x; }", "Metal has no double");
  refused("inline float f(float x) { return std::abs(x); }", "Metal has no std");
  refused("inline long long f(float x) { return 1; }", "Metal has no long long");
  refused("kernel void k(device float* x [[buffer(0)]]) { auto f = [](float y) { return y; }; x[0] = f(1); }", "Metal has no lambdas");
  refused("kernel void k(device float* x [[buffer(0)]]) { static int n = 0; x[0] = n++; }", "Metal has no static variables in functions");
  refused("inline void f() { threadgroup float room[4]; }", "threadgroup arrays are declared in kernels");
  refused("inline float f(float x) { if constexpr (true) return x; return 0; }", "if constexpr is of C++17");
  refused("inline float f(float x) { return erf(x); }", "undeclared identifier 'erf'");
  refused("inline float f(float x) { return max(x, 1); }", "call to 'max' is ambiguous");
  refused("inline uint f(uint x) { return min(x, 1); }", "call to 'min' is ambiguous");
  refused("inline float f(int x) { return exp(x); }", "call to 'exp' is ambiguous");
  refused("inline ulong f(ulong x) { return simd_sum(x); }", "simd functions take half, float and integers of at most 32 bits");
  refused("inline uint f(bool x) { return simd_ballot(x); }", "no viable conversion from returned value of type 'simd_vote'");
  refused("inline float f(simdgroup_float8x8 x) { return x.thread_elements()[0]; }", "no member named 'thread_elements'");
  refused("inline float2 f(float x) { return float2(x, x, x); }", "a vector is made of as many elements as it has");
  refused("inline float f(float x) { return printf(\"%f\", x); }", "undeclared identifier 'printf'");
  CONTAINS(Library("kernel void k(device float* x [[buffer(0)]]) { }").error, "no #include <metal_stdlib>");
}
CASE(refused_devices, "refused/what a device lacks") {
  const std::string simd = "kernel void k(device float* x [[buffer(0)]]) { x[0] = simd_sum(x[0]); }", lane = "kernel void k(device float* x [[buffer(0)]], uint i [[thread_index_in_simdgroup]]) { x[0] = i; }",
                    matrix = "inline void f(simdgroup_float8x8 m) { }", bfloat = "inline bfloat f(bfloat x) { return x; }";
  for (const std::string& s : {simd, lane, matrix}) accepted(s), accepted(s, {"__LF_NO_BFLOAT=1"});
  refused(simd, "undeclared identifier 'simd_sum'", {"__LF_NO_SIMD=1"});
  refused(matrix, "unknown type name 'simdgroup_float8x8'", {"__LF_NO_SIMD=1"});
  CONTAINS(Library(head + lane, {"__LF_NO_SIMD=1"}).error, "thread_index_in_simdgroup");
  accepted(bfloat), accepted(bfloat, {"__LF_NO_SIMD=1"});
  refused(bfloat, "unknown type name 'bfloat'", {"__LF_NO_BFLOAT=1"});
  refused(bfloat, "unknown type name 'bfloat'", {"__METAL_VERSION__=300"});
}

CASE(lines, "refused/lines") {
  // Line numbers in an included file and after the include.
  CONTAINS(Library(head + "#line 10 \"part.h\"\ninline float f() { return y; }\n#line 4 \"x.metal\"\nkernel void k(device float* x [[buffer(0)]]) { x[0] = f(); }\n").error, "part.h:10:");
  std::string error = Library(head + "#line 10 \"part.h\"\ninline float f() { return 1; }\n#line 4 \"x.metal\"\nkernel void k(device float*\n  x [[buffer(0)]]) {\n  threadgroup float a[2],\n    b[3];\n  z = f();\n}\n").error;
  CONTAINS(error, "x.metal:8:3: error: use of undeclared identifier 'z'");
  CONTAINS(Library("float f( {\n").error, "program_source:1:");
}

CASE(macros, "compile/macros") {
  Library l(head + "#ifndef WIDE\n#define WIDE 1\n#endif\nkernel void k(device float* x [[buffer(0)]]) { x[0] = WIDE + __METAL_VERSION__; }", {"WIDE=4"});
  Buffer x(4);
  CHECK(l.run("k", 1, 1, {&x}) == "" && x.at<float>(0) == 314);
}

// A source is compiled once for all callers, and then found at once.
CASE(cache, "compile/once") {
  std::string source = head + "// " + std::to_string(getpid()) + "\nkernel void k(device float* x [[buffer(0)]]) { x[0] = 1; }";
  pid_t children[3];
  for (pid_t& c : children) {
    if ((c = fork()) == 0) _exit(Library(source).error.empty() ? 0 : 1);
  }
  for (pid_t c : children) {
    int status = -1;
    CHECK(waitpid(c, &status, 0) == c && status == 0);
  }
  auto begin = std::chrono::steady_clock::now();
  CHECK(Library(source).error.empty());
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(100));  // no compiler is that fast
}

// Small dispatches are cheap: tests make many thousands.
CASE(cost, "compile/cost of a dispatch") {
  Buffer x(128);
  double best = 1;
  for (int i = 0; i < 200; i++) {
    auto begin = std::chrono::steady_clock::now();
    CHECK(library("planted.metal").run("few_threads", 1, 32, {&x}) == "");
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  CHECK(best < 100e-6);
}
