// Valid uses.
#import "test.h"

RIGHT(dispatches) {
  setup s = test_setup();
  id<MTLBuffer> x = test_buffer(s, 100 * sizeof(float));
  float *v = [x contents];
  for (int i = 0; i < 100; i++) {
    REQUIRE(v[i] == 0);
    v[i] = (float)i;
  }
  id<MTLCommandBuffer> c = [s.queue commandBuffer];
  id<MTLComputeCommandEncoder> e = [c computeCommandEncoder];
  test_scale(s, e, x, 0, 2, 100);
  test_scale(s, e, x, 40, 3, 90);
  [e endEncoding];
  test_run(c, MTLCommandBufferStatusCompleted);
  for (int i = 0; i < 100; i++) REQUIRE(v[i] == (float)i * (i < 10 ? 2 : 6));
  REQUIRE(c.error == nil && c.GPUEndTime >= c.GPUStartTime && c.GPUStartTime >= c.kernelStartTime && c.kernelStartTime > 0);
}

RIGHT(threadgroup_memory) {
  setup s = test_setup();
  id<MTLBuffer> x = test_buffer(s, 64 * sizeof(float));
  float *v = [x contents];
  for (int i = 0; i < 64; i++) v[i] = (float)i;
  id<MTLCommandBuffer> c = [s.queue commandBuffer];
  id<MTLComputeCommandEncoder> e = [c computeCommandEncoder];
  [e setComputePipelineState:test_pipeline(s, "reversed")];
  [e setBuffer:x offset:0 atIndex:0];
  [e setThreadgroupMemoryLength:256 atIndex:0];
  [e dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(64, 1, 1)];
  [e endEncoding];
  test_run(c, MTLCommandBufferStatusCompleted);
  for (int i = 0; i < 64; i++) REQUIRE(v[i] == (float)(63 - i));
}
