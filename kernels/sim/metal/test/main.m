// Runs a case, or lists all: name, a tab, and the message that it must end with.
#import "test.h"

test_case *test_cases;

// The shaders of the cases.
const char test_shaders[] =
    "#include <metal_stdlib>\n"
    "using namespace metal;\n"
    "struct scale_args { float factor; uint n; };\n"
    "kernel void scale(device float* x [[buffer(0)]], constant scale_args& a [[buffer(1)]], uint i [[thread_position_in_grid]]) {\n"
    "  if (i < a.n) x[i] *= a.factor;\n"
    "}\n"
    "kernel void reversed(device float* x [[buffer(0)]], threadgroup float* t [[threadgroup(0)]],\n"
    "                     uint i [[thread_position_in_threadgroup]], uint n [[threads_per_threadgroup]]) {\n"
    "  t[i] = x[i];\n"
    "  threadgroup_barrier(mem_flags::mem_threadgroup);\n"
    "  x[i] = t[n - 1 - i];\n"
    "}\n"
    "[[max_total_threads_per_threadgroup(64)]] kernel void few(device float* x [[buffer(0)]]) { x[0] = 1; }\n"
    "kernel void declared(device float* x [[buffer(0)]], threadgroup float* t [[threadgroup(0)]]) {\n"
    "  threadgroup float mine[512];\n"
    "  mine[0] = t[0] = 1;\n"
    "  x[0] = mine[0];\n"
    "}\n"
    "kernel void beside(device float* x [[buffer(0)]], constant int& away [[buffer(1)]]) { x[away] = 1; }\n"
    "kernel void options(device float* x [[buffer(0)]]) {\n"
    "#ifdef __FAST_MATH__\n"
    "  x[0] = 1;\n"
    "#endif\n"
    "#ifdef FLAG\n"
    "  x[1] = FLAG;\n"
    "#endif\n"
    "  x[2] = __METAL_VERSION__;\n"
    "}\n"
    "kernel void split(device float* x [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {\n"
    "  if (i < 5) threadgroup_barrier(mem_flags::mem_threadgroup);\n"
    "  else threadgroup_barrier(mem_flags::mem_none);\n"
    "  x[i] = 1;\n"
    "}\n";

setup test_setup(void) {
  setup s;
  s.device = test_device();
  s.queue = [s.device newCommandQueue];
  NSError *e = nil;
  s.library = test_compile(s.device, test_shaders, &e);
  if (!s.library) printf("%s\n", [[e localizedDescription] UTF8String]);
  REQUIRE(s.queue && s.library);
  return s;
}
id<MTLDevice> test_device(void) {
  id<MTLDevice> d = MTLCreateSystemDefaultDevice();
  REQUIRE(d);
  return d;
}
id<MTLLibrary> test_compile(id<MTLDevice> device, const char *text, NSError **error) {
  MTLCompileOptions *o = [[[MTLCompileOptions alloc] init] autorelease];
  o.mathMode = MTLMathModeSafe;
  return [device newLibraryWithSource:[NSString stringWithUTF8String:text] options:o error:error];
}
id<MTLComputePipelineState> test_pipeline(setup s, const char *kernel) {
  id<MTLFunction> f = [[s.library newFunctionWithName:[NSString stringWithUTF8String:kernel]] autorelease];
  REQUIRE(f);
  id<MTLComputePipelineState> p = [s.device newComputePipelineStateWithFunction:f error:NULL];
  REQUIRE(p);
  return p;
}
id<MTLBuffer> test_buffer(setup s, NSUInteger bytes) {
  id<MTLBuffer> b = [s.device newBufferWithLength:bytes options:MTLResourceStorageModeShared];
  REQUIRE(b);
  return b;
}
void test_scale(setup s, id<MTLComputeCommandEncoder> e, id<MTLBuffer> x, NSUInteger offset, float factor, unsigned n) {
  struct {
    float factor;
    unsigned n;
  } args = {factor, n};
  [e setComputePipelineState:[test_pipeline(s, "scale") autorelease]];
  [e setBuffer:x offset:offset atIndex:0];
  [e setBytes:&args length:sizeof args atIndex:1];
  [e dispatchThreadgroups:MTLSizeMake((n + 31) / 32, 1, 1) threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
}
void test_run(id<MTLCommandBuffer> c, MTLCommandBufferStatus status) {
  [c commit];
  [c waitUntilCompleted];
  if (c.status != status) printf("status %lu: %s\n", (unsigned long)c.status, [[c.error localizedDescription] UTF8String]);
  REQUIRE(c.status == status);
}
bool test_says(NSError *e, const char *text) {
  const char *said = e ? [[e localizedDescription] UTF8String] : "no error";
  if (strstr(said, text)) return true;
  printf("said: %s\n", said);
  return false;
}

int main(int argc, char **argv) {
  for (test_case *c = test_cases; c; c = c->next) {
    if (argc == 1) printf("%s\t%s\n", c->name, c->message ? c->message : "");
    if (argc == 1 || strcmp(argv[1], c->name)) continue;
    setvbuf(stdout, NULL, _IOLBF, 0);
    @autoreleasepool {
      c->run();
    }
    return 0;
  }
  return argc == 1 ? 0 : 3;
}
