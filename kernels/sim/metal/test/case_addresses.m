// Buffers that kernels reach by their addresses, in a table.
#import "test.h"

// entry is a line of the table of the kernels below.
typedef struct {
  uint64_t at, unused;
} entry;

typedef struct {
  setup s;
  id<MTLBuffer> table, x;
  id<MTLCommandBuffer> c;
  id<MTLComputeCommandEncoder> e;
} through;

// through_table starts an encoder; its table has the address of x, of 16 floats.
static through through_table(void) {
  through t;
  t.s = test_setup();
  NSError *error = nil;
  t.s.library = test_compile(t.s.device,
                             "#include <metal_stdlib>\n"
                             "using namespace metal;\n"
                             "struct entry { device float* at; long unused; };\n"
                             "kernel void increment(device const entry* table [[buffer(0)]], uint i [[thread_position_in_grid]]) {\n"
                             "  table[0].at[i] += 1;\n"
                             "}\n"
                             "kernel void read(device const entry* table [[buffer(0)]], device float* to [[buffer(1)]], uint i [[thread_position_in_grid]]) {\n"
                             "  to[i] = table[0].at[i];\n"
                             "}\n",
                             &error);
  REQUIRE(t.s.library);
  t.table = test_buffer(t.s, sizeof(entry));
  t.x = test_buffer(t.s, 64);
  ((entry *)[t.table contents])->at = t.x.gpuAddress;
  t.c = [t.s.queue commandBuffer];
  t.e = [t.c computeCommandEncoder];
  return t;
}
static void dispatch(through t, const char *kernel, NSUInteger threads) {
  [t.e setComputePipelineState:test_pipeline(t.s, kernel)];
  [t.e setBuffer:t.table offset:0 atIndex:0];
  [t.e dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(threads, 1, 1)];
}
static float *floats(id<MTLBuffer> b) { return [b contents]; }
static void fails(through t, const char *text) {
  [t.e endEncoding];
  test_run(t.c, MTLCommandBufferStatusError);
  REQUIRE([t.c.error code] == MTLCommandBufferErrorPageFault && test_says(t.c.error, text));
}

RIGHT(memory_by_its_address) {
  through t = through_table();
  id<MTLBuffer> y = test_buffer(t.s, 64);
  floats(t.x)[15] = 5;
  [t.e setBuffer:y offset:0 atIndex:1];
  id<MTLResource> both[] = {t.x, y};
  [t.e useResources:both count:2 usage:MTLResourceUsageRead];
  dispatch(t, "read", 16);
  [t.e useResource:t.x usage:MTLResourceUsageRead | MTLResourceUsageWrite];
  dispatch(t, "increment", 16);
  dispatch(t, "increment", 16);
  [t.e endEncoding];
  test_run(t.c, MTLCommandBufferStatusCompleted);
  REQUIRE(floats(t.x)[15] == 7 && floats(t.x)[0] == 2 && floats(y)[15] == 5);
  REQUIRE(t.x.gpuAddress % 16 == 0 && t.x.gpuAddress != y.gpuAddress);
}
RIGHT(pages_by_their_address) {
  through t = through_table();
  size_t n = (size_t)getpagesize();
  float *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(p != MAP_FAILED);
  t.x = [t.s.device newBufferWithBytesNoCopy:p length:n options:0 deallocator:nil];
  ((entry *)[t.table contents])->at = t.x.gpuAddress;
  [t.e useResource:t.x usage:MTLResourceUsageWrite];
  dispatch(t, "increment", 16);
  [t.e endEncoding];
  test_run(t.c, MTLCommandBufferStatusCompleted);
  REQUIRE(p[15] == 1);
}
RIGHT(address_of_a_buffer_not_declared) {
  through t = through_table();
  dispatch(t, "increment", 16);
  fails(t, "inside of buffer 2 of 64 bytes, which is not bound, and not declared by useResource");
}
RIGHT(address_declared_too_late) {
  through t = through_table();
  dispatch(t, "increment", 16);
  [t.e useResource:t.x usage:MTLResourceUsageWrite];
  fails(t, "not declared by useResource");
}
RIGHT(address_declared_to_another_encoder) {
  through t = through_table();
  [t.e useResource:t.x usage:MTLResourceUsageWrite];
  dispatch(t, "increment", 16);
  [t.e endEncoding];
  t.e = [t.c computeCommandEncoder];
  dispatch(t, "increment", 16);
  fails(t, "not declared by useResource");
  REQUIRE(floats(t.x)[0] == 1);
}
RIGHT(address_declared_for_reading) {
  through t = through_table();
  [t.e useResource:t.x usage:MTLResourceUsageRead];
  dispatch(t, "increment", 16);
  fails(t, "inside of buffer 2 of 64 bytes, which useResource has declared for reading only");
}
RIGHT(address_declared_again_for_reading) {
  through t = through_table();
  [t.e useResource:t.x usage:MTLResourceUsageRead | MTLResourceUsageWrite];
  [t.e useResource:t.x usage:MTLResourceUsageRead];
  dispatch(t, "increment", 16);
  fails(t, "declared for reading only");
}
RIGHT(address_past_the_end) {
  through t = through_table();
  [t.e useResource:t.x usage:MTLResourceUsageWrite];
  dispatch(t, "increment", 32);
  fails(t, "bytes past the end of buffer 2 of 64 bytes");
}
RIGHT(address_of_a_released_buffer) {
  through t = through_table();
  [t.x release];
  dispatch(t, "increment", 16);
  fails(t, "use after free of buffer 2 of 64 bytes");
}
WRONG(address_without_metal_3, "gpuAddress: the device has no Metal 3") {
  setenv("LFSIM_METAL_FAMILY", "7", 1);
  through_table();
}
WRONG(usage_of_nothing, "useResource: usage 0") {
  through t = through_table();
  [t.e useResource:t.x usage:0];
}
WRONG(declared_after_the_end, "useResource: the encoder has ended") {
  through t = through_table();
  [t.e endEncoding];
  [t.e useResource:t.x usage:MTLResourceUsageRead];
}
