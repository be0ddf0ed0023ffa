// Planted bugs in kernels: each must be seen, and be called by its name.
#include <math.h>
#include <string.h>

#include "cuda.h"

// fails launches and expects the error, at the launch or when waiting for it.
static void fails(const char* name, unsigned block, unsigned shared, Args args, int want, const char* message) {
  abi::Result r = launch(name, 1, block, shared, nullptr, args);
  if (r == abi::Success) r = cuCtxSynchronize();
  expect(__FILE__, __LINE__, name, r, want);
  MESSAGE(message);
  expect(__FILE__, __LINE__, "the error stays", cuCtxSynchronize(), want);
}

static Ptr zeros(size_t n) { return upload(std::vector<float>(n)); }

CASE("planted/missing_syncthreads", "") {
  open_device();
  auto x = noise(64, 1);
  Ptr y = zeros(64);
  OK(launch("bug_missing_syncthreads", 1, 64, 0, nullptr, Args(upload(x), y)));
  auto v = download<float>(y, 64);
  int wrong = 0;
  for (size_t i = 0; i < 64; i++) wrong += !(v[i] == x[63 - i]);
  CHECK(wrong > 0);
}

CASE("planted/wait_count", "LFSIM_EAGER_CP=0") {
  open_device();
  auto x = noise(8 * 32, 1);
  Ptr y = zeros(8 * 32);
  OK(launch("bug_wait_count", 1, 32, 0, nullptr, Args(upload(x), y, 8)));
  int nan = 0;
  for (float v : download<float>(y, 8 * 32)) nan += v != v;
  CHECK(nan > 0);
}

CASE("planted/missing_commit", "") {
  open_device();
  fails("bug_missing_commit", 32, 0, Args(upload(noise(32, 1)), zeros(32)), abi::LaunchFailed, "they were never committed");
}

CASE("planted/unwaited_copy", "") {
  open_device();
  fails("bug_unwaited_copy", 32, 0, Args(upload(noise(32, 1)), zeros(32)), abi::LaunchFailed, "a wait is missing");
}

CASE("planted/one_row_more", "") {
  open_device();
  Ptr x = zeros(4 * 64);
  void* f = function("bug_one_row_more");
  Args args(x, 4, 64);
  OK(cuLaunchKernel(f, 8, 1, 1, 64, 1, 1, 0, nullptr, args.get(), nullptr));
  RESULT(IllegalAddress, cuCtxSynchronize());
  MESSAGE("bug_one_row_more: block (4,0,0) thread (");
  MESSAGE("bytes past the end of device allocation 1 of 1024 bytes");
}

CASE("planted/lane_not_in_mask", "") {
  open_device();
  fails("bug_lane_not_in_mask", 32, 0, Args(zeros(64)), abi::LaunchFailed, "is not in its mask 0000ffff");
}

CASE("planted/reads_lane_outside", "") {
  open_device();
  fails("bug_reads_lane_outside", 32, 0, Args(zeros(64)), abi::LaunchFailed, "reads lane 20, which takes no part");
}

CASE("planted/different_primitives", "") {
  open_device();
  fails("bug_different_primitives", 32, 0, Args(zeros(64)), abi::LaunchFailed, "different warp primitives");
}

CASE("planted/divergent_barrier", "") {
  open_device();
  fails("bug_divergent_barrier", 64, 0, Args(zeros(64)), abi::LaunchFailed, "divergent barrier: __syncthreads of planted.cu");
}

CASE("planted/barrier_never_met", "") {
  open_device();
  fails("bug_barrier_never_met", 64, 0, Args(zeros(64)), abi::LaunchFailed, "deadlock");
}

CASE("planted/mma_of_half_a_warp", "") {
  open_device();
  fails("bug_mma_of_half_a_warp", 32, 0, Args(zeros(64)), abi::LaunchFailed, "all 32 lanes must take part");
}

CASE("planted/shared_overflow", "") {
  open_device();
  fails("bug_shared_overflow", 32, 4096, Args(zeros(64), 1024), abi::IllegalAddress, "0 bytes past the end of dynamic shared memory (4096 bytes)");
}

// The end of the array is not at the guard: the padding tells.
CASE("planted/shared_overflow_into_padding", "") {
  open_device();
  fails("bug_shared_overflow", 32, 4000, Args(zeros(64), 1000), abi::LaunchFailed, "a write 0 bytes past the end of dynamic shared memory (4000 bytes)");
}

CASE("planted/static_shared_overflow", "") {
  open_device();
  fails("bug_static_overflow", 32, 0, Args(zeros(64), 1), abi::IllegalAddress, "0 bytes past the end of the shared array of planted.cu");
}

CASE("planted/static_shared_underflow", "") {
  open_device();
  fails("bug_static_overflow", 32, 0, Args(zeros(64), -1), abi::LaunchFailed, "4 bytes before the shared array of planted.cu");
}

CASE("planted/uninitialised_shared", "") {
  open_device();
  Ptr y = zeros(32);
  OK(launch("bug_uninitialised_shared", 1, 32, 0, nullptr, Args(y)));
  CHECK(isnan(download<float>(y, 32)[31]));
}

CASE("planted/misaligned_ldmatrix", "") {
  open_device();
  fails("bug_misaligned_ldmatrix", 32, 0, Args(zeros(32)), abi::MisalignedAddress, "does not lie on 16 bytes");
}

CASE("planted/misaligned_vector", "") {
  open_device();
  fails("bug_misaligned_vector", 32, 0, Args(zeros(132), zeros(128), 1), abi::MisalignedAddress, "'const struct float4' at");
}

CASE("planted/ldmatrix_of_global", "") {
  open_device();
  fails("bug_ldmatrix_of_global", 32, 0, Args(zeros(64), zeros(32)), abi::LaunchFailed, "is not shared memory of this block");
}

CASE("planted/register_array", "") {
  open_device();
  fails("bug_register_array", 32, 0, Args(zeros(32), 5), abi::LaunchFailed, "index 4 is out of the bounds of 'float [4]'");
}

CASE("planted/shift", "") {
  open_device();
  fails("bug_shift", 32, 0, Args(zeros(32), 1), abi::LaunchFailed, "a shift of 'unsigned int' by 32");
}

CASE("planted/division", "") {
  open_device();
  fails("bug_division", 32, 0, Args(zeros(32), 0), abi::LaunchFailed, "integer division by zero");
}

CASE("planted/stack", "") {
  open_device();
  fails("bug_stack", 32, 0, Args(zeros(32), 100), abi::LaunchFailed, "has overflown");
}

CASE("planted/null", "") {
  open_device();
  fails("bug_null", 32, 0, Args((Ptr)0, 4ll), abi::IllegalAddress, "a null pointer, or near one");
}

CASE("planted/host_pointer", "") {
  open_device();
  std::vector<float> host(64);
  fails("test_scale", 32, 0, Args(host.data(), zeros(32), 2.f, 32), abi::IllegalAddress, "is no device pointer, nor pinned or registered");
}

CASE("planted/use_after_free", "") {
  open_device();
  Ptr x = zeros(32);
  OK(cuMemFree_v2(x));
  RESULT(InvalidValue, launch("test_scale", 1, 32, 0, nullptr, Args(x, zeros(32), 2.f, 32)));
  MESSAGE("use after free of device allocation 1 of 128 bytes");
}

// The pointer lies in memory, so that only the access itself can tell.
CASE("planted/use_after_free_in_kernel", "") {
  open_device();
  Ptr x = zeros(32);
  std::vector<Ptr> table{x};
  Ptr t = upload(table);
  OK(launch("bug_stored_pointer", 1, 32, 0, nullptr, Args(t)));
  OK(cuCtxSynchronize());
  OK(cuMemFree_v2(x));
  OK(launch("bug_stored_pointer", 1, 32, 0, nullptr, Args(t)));
  RESULT(IllegalAddress, cuCtxSynchronize());
  MESSAGE("use after free of device allocation 1 of 128 bytes");
}

CASE("planted/write_behind_allocation", "") {
  open_device();
  Ptr x = upload(std::vector<float>(60));  // 240 bytes: 16 more before the guard
  OK(launch("bug_one_row_more", 1, 61, 0, nullptr, Args(x, 1, 60)));
  OK(cuMemFree_v2(x));
  MESSAGE("a write 0 bytes past the end of device allocation 1 of 240 bytes");
}

CASE("planted/too_much_shared", "LFSIM_CC=8.0") {
  open_device();
  void* f = function("test_big_shared");
  Args args(zeros(32), 32);
  RESULT(InvalidValue, cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 48 * 1024 + 4, nullptr, args.get(), nullptr));
  MESSAGE("above 48 KiB it must be asked for by cuFuncSetAttribute");
  RESULT(InvalidValue, cuFuncSetAttribute(f, abi::MaxDynamicSharedSizeBytes, 164 * 1024));
  MESSAGE("of at most 166912 on sm_80");
}

CASE("planted/no_shared_asked_for", "") {
  open_device();
  fails("test_big_shared", 32, 0, Args(zeros(32), 32), abi::LaunchFailed, "the launch asked for none");
}

CASE("planted/launch_limits", "") {
  open_device();
  void* f = function("test_scale");
  Args args(zeros(32), zeros(32), 1.f, 32);
  RESULT(InvalidValue, cuLaunchKernel(f, 1, 1, 1, 1025, 1, 1, 0, nullptr, args.get(), nullptr));
  RESULT(InvalidValue, cuLaunchKernel(f, 1, 65536, 1, 32, 1, 1, 0, nullptr, args.get(), nullptr));
  RESULT(InvalidValue, cuLaunchKernel(f, 0, 1, 1, 32, 1, 1, 0, nullptr, args.get(), nullptr));
  MESSAGE("an empty grid (0,1,1)");
}

CASE("planted/parameters", "") {
  open_device();
  void* f = function("test_scale");
  Ptr x = zeros(32), y = zeros(32);
  float by = 2;
  int n = 32;
  void* few[] = {&x, &y, &by, nullptr};
  RESULT(InvalidValue, cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, nullptr, few, nullptr));
  MESSAGE("test_scale takes 4 parameters, number 3 of 4 bytes cannot be read");
  RESULT(InvalidValue, cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr));
  struct {
    Ptr x, y;
    double by;  // 8 bytes, the kernel declares 4
    int n;
  } wide{x, y, 2, 32};
  size_t size = sizeof wide;
  void* extra[] = {(void*)1, &wide, (void*)2, &size, nullptr};
  RESULT(InvalidValue, cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, extra));
  MESSAGE("test_scale takes 24 bytes of parameters, the launch brings 32");
  struct {
    Ptr x, y;
    float by;
    int n;
  } right{x, y, by, n};
  size = sizeof right;
  extra[1] = &right;
  OK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, extra));
  size_t offset, bytes;
  OK(cuFuncGetParamInfo(f, 3, &offset, &bytes));
  CHECK(offset == 20 && bytes == 4);
  RESULT(InvalidValue, cuFuncGetParamInfo(f, 4, &offset, &bytes));
}
