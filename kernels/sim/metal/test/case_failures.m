// Errors that a program must be able to take: of compilation, of shaders, injected ones.
#import "test.h"

RIGHT(no_device) {
  setenv("LFSIM_METAL_NO_DEVICE", "1", 1);
  REQUIRE(MTLCreateSystemDefaultDevice() == nil);
}
RIGHT(compile_error_has_its_line) {
  NSError *e = nil;
  REQUIRE(!test_compile(test_device(), "#include <metal_stdlib>\nkernel void f(device float* x [[buffer(0)]]) {\n  x[0] = nothing;\n}\n", &e));
  REQUIRE([[e domain] isEqual:MTLLibraryErrorDomain] && [e code] == MTLLibraryErrorCompileFailure);
  REQUIRE(test_says(e, ":3:") && test_says(e, "nothing"));
}
RIGHT(no_such_function) {
  setup s = test_setup();
  REQUIRE(![s.library newFunctionWithName:[NSString stringWithUTF8String:"scal"]]);
  REQUIRE([s.library.functionNames containsObject:[NSString stringWithUTF8String:"scale"]]);
}
RIGHT(injected_compile_error) {
  setenv("LFSIM_METAL_FAIL", "library:1", 1);
  id<MTLDevice> d = test_device();
  NSError *e = nil;
  REQUIRE(!test_compile(d, test_shaders, &e) && test_says(e, "injected") && [e code] == MTLLibraryErrorCompileFailure);
  REQUIRE(test_compile(d, test_shaders, &e));
}
RIGHT(injected_pipeline_error) {
  setenv("LFSIM_METAL_FAIL", "pipeline:few:2", 1);
  setup s = test_setup();
  id<MTLFunction> few = [s.library newFunctionWithName:[NSString stringWithUTF8String:"few"]];
  test_pipeline(s, "scale");
  test_pipeline(s, "few");
  NSError *e = nil;
  REQUIRE(![s.device newComputePipelineStateWithFunction:few error:&e] && test_says(e, "few: injected"));
  test_pipeline(s, "few");
}

static id<MTLCommandBuffer> scaled(setup s, id<MTLBuffer> x, MTLCommandBufferStatus status) {
  id<MTLCommandBuffer> c = [s.queue commandBuffer];
  id<MTLComputeCommandEncoder> e = [c computeCommandEncoder];
  test_scale(s, e, x, 0, 2, 1);
  test_scale(s, e, x, 0, 2, 1);
  [e endEncoding];
  test_run(c, status);
  return c;
}
RIGHT(injected_command_errors) {
  setenv("LFSIM_METAL_FAIL", "command:memory:2,command:timeout:3,command:fault:4,command:5", 1);
  setup s = test_setup();
  id<MTLBuffer> x = test_buffer(s, 4);
  float *v = [x contents];
  const NSInteger codes[] = {0, MTLCommandBufferErrorOutOfMemory, MTLCommandBufferErrorTimeout, MTLCommandBufferErrorPageFault, MTLCommandBufferErrorInternal, 0};
  const float after[] = {4, 1, 2, 2, 2, 4};  // a command buffer that fails has done half of its work, or none
  for (int i = 0; i < 6; i++) {
    *v = 1;
    id<MTLCommandBuffer> c = scaled(s, x, codes[i] ? MTLCommandBufferStatusError : MTLCommandBufferStatusCompleted);
    REQUIRE(*v == after[i]);
    REQUIRE(codes[i] ? [c.error code] == codes[i] && [[c.error domain] isEqual:MTLCommandBufferErrorDomain] : c.error == nil);
  }
}
RIGHT(injected_loss_of_the_device) {
  setenv("LFSIM_METAL_FAIL", "lost:2", 1);
  setup s = test_setup();
  id<MTLBuffer> x = test_buffer(s, 4);
  scaled(s, x, MTLCommandBufferStatusCompleted);
  for (int i = 0; i < 3; i++) REQUIRE([scaled(s, x, MTLCommandBufferStatusError).error code] == MTLCommandBufferErrorDeviceRemoved);
  setenv("LFSIM_METAL_FAIL", "", 1);
  setup t = test_setup();
  scaled(t, test_buffer(t, 4), MTLCommandBufferStatusCompleted);
}

RIGHT(barrier_that_some_threads_miss) {
  setup s = test_setup();
  id<MTLCommandBuffer> c = [s.queue commandBuffer];
  id<MTLComputeCommandEncoder> e = [c computeCommandEncoder];
  [e setComputePipelineState:test_pipeline(s, "split")];
  [e setBuffer:test_buffer(s, 256) offset:0 atIndex:0];
  [e dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(64, 1, 1)];
  [e endEncoding];
  test_run(c, MTLCommandBufferStatusError);
  REQUIRE([c.error code] == MTLCommandBufferErrorInternal && test_says(c.error, "divergent barrier: threadgroup_barrier of program_source:3"));
}

static NSError *beside(setup s, id<MTLBuffer> x, int away) {
  id<MTLCommandBuffer> c = [s.queue commandBuffer];
  id<MTLComputeCommandEncoder> e = [c computeCommandEncoder];
  [e setComputePipelineState:test_pipeline(s, "beside")];
  [e setBuffer:x offset:0 atIndex:0];
  [e setBytes:&away length:sizeof away atIndex:1];
  [e dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
  [e endEncoding];
  test_run(c, MTLCommandBufferStatusError);
  return c.error;
}
RIGHT(shader_outside_of_a_buffer) {
  setup s = test_setup();
  NSError *e = beside(s, test_buffer(s, 64), 16);
  REQUIRE([e code] == MTLCommandBufferErrorPageFault && test_says(e, "beside") && test_says(e, "0 bytes past the end of buffer"));
  e = beside(s, test_buffer(s, 8192), -2);
  REQUIRE([e code] == MTLCommandBufferErrorPageFault && test_says(e, "8 bytes before buffer"));
}
RIGHT(shader_in_a_buffer_that_was_released) {
  setup s = test_setup();
  id<MTLBuffer> freed = test_buffer(s, 1 << 20), x = test_buffer(s, 64);
  int away = (int)((float *)[freed contents] - (float *)[x contents]);
  [freed release];
  NSError *e = beside(s, x, away + 100);
  REQUIRE([e code] == MTLCommandBufferErrorPageFault && test_says(e, "use after free of buffer 1 of 1048576 bytes"));
}
RIGHT(shader_in_pages_that_are_gone) {
  setup s = test_setup();
  char *p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  id<MTLBuffer> x = [s.device newBufferWithBytesNoCopy:p length:65536 options:0 deallocator:nil];
  REQUIRE(x && mprotect(p, 65536, PROT_NONE) == 0);  // as munmap, but nothing else gets the addresses
  NSError *e = beside(s, x, 4);
  REQUIRE([e code] == MTLCommandBufferErrorPageFault && test_says(e, "inside of buffer 1 of 65536 bytes, which was not copied"));
}
RIGHT(event_that_nobody_signals) {
  setenv("LFSIM_METAL_PATIENCE", "20", 1);
  setup s = test_setup();
  id<MTLCommandBuffer> c = [s.queue commandBuffer];
  [c encodeWaitForEvent:[s.device newSharedEvent] value:3];
  test_run(c, MTLCommandBufferStatusError);
  REQUIRE([c.error code] == MTLCommandBufferErrorTimeout && test_says(c.error, "waited 20 ms for an event to come to 3, it is at 0"));
}

// fast runs the kernel of options and gives what it has written.
static const float *fast(id<MTLDevice> d, MTLCompileOptions *options) {
  NSError *e = nil;
  setup s = {d, [d newCommandQueue], [d newLibraryWithSource:[NSString stringWithUTF8String:test_shaders] options:options error:&e]};
  if (!s.library) printf("%s\n", [[e localizedDescription] UTF8String]);
  REQUIRE(s.library);
  id<MTLBuffer> x = test_buffer(s, 12);
  id<MTLCommandBuffer> c = [s.queue commandBuffer];
  id<MTLComputeCommandEncoder> encoder = [c computeCommandEncoder];
  [encoder setComputePipelineState:test_pipeline(s, "options")];
  [encoder setBuffer:x offset:0 atIndex:0];
  [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
  [encoder endEncoding];
  test_run(c, MTLCommandBufferStatusCompleted);
  return [x contents];
}
RIGHT(options_of_the_compiler) {
  id<MTLDevice> d = test_device();
  REQUIRE(fast(d, nil)[0] == 1);  // fast math, unless it is turned off
  MTLCompileOptions *o = [[[MTLCompileOptions alloc] init] autorelease];
  REQUIRE(o.fastMathEnabled && fast(d, o)[0] == 1);
  o.mathMode = MTLMathModeSafe;
  REQUIRE(!o.fastMathEnabled && fast(d, o)[0] == 0);
  o.mathMode = MTLMathModeFast;
  o.fastMathEnabled = NO;
  o.languageVersion = MTLLanguageVersion3_1;
  o.preprocessorMacros = @{[NSString stringWithUTF8String:"FLAG"] : [NSNumber numberWithInt:7]};
  const float *v = fast(d, o);
  REQUIRE(v[0] == 0 && v[1] == 7 && v[2] == 310);
}
RIGHT(languages) {
  setenv("LFSIM_METAL_LANGUAGE", "3.0", 1);
  id<MTLDevice> d = test_device();
  MTLCompileOptions *o = [[[MTLCompileOptions alloc] init] autorelease];
  o.languageVersion = MTLLanguageVersion3_1;
  NSError *e = nil;
  REQUIRE(![d newLibraryWithSource:[NSString stringWithUTF8String:test_shaders] options:o error:&e]);
  REQUIRE([e code] == MTLLibraryErrorUnsupported && test_says(e, "language version 3.1 is not supported, the highest is 3.0"));
  o.languageVersion = 0;
  REQUIRE(fast(d, o)[2] == 300);
}

static const char simd[] =
    "#include <metal_stdlib>\nusing namespace metal;\n"
    "kernel void sum(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = simd_sum(x[i]); }\n";
static const char brain[] =
    "#include <metal_stdlib>\nusing namespace metal;\n"
    "kernel void widen(device float* x [[buffer(0)]], device const bfloat* y [[buffer(1)]]) { x[0] = float(y[0]); }\n";
RIGHT(families) {
  const struct {
    const char *family;
    bool simd, brain, metal3;
  } all[] = {{"5", false, false, false}, {"6", false, true, false}, {"7", true, true, false}, {"9", true, true, true}};
  for (int i = 0; i < 4; i++) {
    setenv("LFSIM_METAL_FAMILY", all[i].family, 1);
    id<MTLDevice> d = test_device();
    int n = all[i].family[0] - '0';
    for (int f = 1; f <= 10; f++) REQUIRE([d supportsFamily:1000 + f] == (f <= n));
    REQUIRE([d supportsFamily:MTLGPUFamilyMetal3] == all[i].metal3 && [d supportsFamily:MTLGPUFamilyCommon3] && ![d supportsFamily:MTLGPUFamilyMetal4]);
    NSError *e = nil;
    REQUIRE(!!test_compile(d, simd, &e) == all[i].simd);
    REQUIRE(!!test_compile(d, brain, &e) == all[i].brain);
  }
}
WRONG(bad_family, "LFSIM_METAL_FAMILY=4: expected 5 … 10") {
  setenv("LFSIM_METAL_FAMILY", "4", 1);
  MTLCreateSystemDefaultDevice();
}
WRONG(bad_failure, "LFSIM_METAL_FAIL=command:often: expected entries kind[:name][:n[+]]") {
  setenv("LFSIM_METAL_FAIL", "command:often", 1);
  MTLCreateSystemDefaultDevice();
}
