// The watchdog, counts of command buffers, and residency.
#import "test.h"

// work runs dispatches that scale 320 numbers in one command buffer.
static id<MTLCommandBuffer> work(setup s, id<MTLBuffer> x, int dispatches, MTLCommandBufferStatus status) {
  id<MTLCommandBuffer> c = [s.queue commandBuffer];
  id<MTLComputeCommandEncoder> e = [c computeCommandEncoder];
  for (int i = 0; i < dispatches; i++) test_scale(s, e, x, 0, 2, 320);
  [e endEncoding];
  test_run(c, status);
  return c;
}
RIGHT(watchdog_stops_a_command_buffer) {
  setenv("LFSIM_METAL_WATCHDOG", "1000", 1);
  setup s = test_setup();
  id<MTLBuffer> x = test_buffer(s, 1280);
  float *v = [x contents];
  *v = 1;
  for (int i = 0; i < 3; i++) work(s, x, 3, MTLCommandBufferStatusCompleted);  // each begins anew
  REQUIRE(*v == 512);
  *v = 1;
  NSError *e = work(s, x, 5, MTLCommandBufferStatusError).error;
  REQUIRE([e code] == MTLCommandBufferErrorTimeout && test_says(e, "kIOGPUCommandBufferCallbackErrorTimeout), work 1280 of at most 1000"));
  REQUIRE(*v == 16);
  work(s, x, 1, MTLCommandBufferStatusCompleted);
}
RIGHT(injected_texts_of_the_driver) {
  setenv("LFSIM_METAL_FAIL", "command:interactivity:1,command:victim:2", 1);
  setup s = test_setup();
  id<MTLBuffer> x = test_buffer(s, 1280);
  REQUIRE(test_says(work(s, x, 1, MTLCommandBufferStatusError).error, "Impacting Interactivity (0000000e:"));
  REQUIRE(test_says(work(s, x, 1, MTLCommandBufferStatusError).error, "InnocentVictim"));
}
RIGHT(counts_of_command_buffers) {
  setup s = test_setup();
  id<MTLBuffer> x = test_buffer(s, 1280);
  id<MTLCommandBuffer> one = [s.queue commandBuffer], two = [s.queue commandBuffer];
  test_run(one, MTLCommandBufferStatusCompleted);
  test_run(two, MTLCommandBufferStatusCompleted);
  work(s, x, 1, MTLCommandBufferStatusCompleted);
  work(s, x, 2, MTLCommandBufferStatusCompleted);
  lf_metal_live();
  lf_metal_work w = lf_metal_commands();
  REQUIRE(w.command_buffers == 4 && w.work == 960 && w.most_work == 640 && w.most_on_the_way == 2);
  w = lf_metal_commands();
  REQUIRE(w.command_buffers == 0 && w.work == 0 && w.most_work == 0 && w.most_on_the_way == 0);
}

static id<MTLResidencySet> resident(setup s) {
  NSError *e = nil;
  id<MTLResidencySet> set = [s.device newResidencySetWithDescriptor:[[[MTLResidencySetDescriptor alloc] init] autorelease] error:&e];
  REQUIRE(set && !e);
  return set;
}
RIGHT(residency_set) {
  setup s = test_setup();
  id<MTLResidencySet> set = resident(s);
  [s.queue addResidencySet:set];
  id<MTLBuffer> a = test_buffer(s, 100), b = test_buffer(s, 20);
  [set addAllocation:a];
  [set addAllocation:b];
  REQUIRE([set containsAllocation:a] && set.allocationCount == 0);
  [set commit];
  [set requestResidency];
  REQUIRE(set.allocationCount == 2 && set.allocatedSize == 120);
  lf_metal_work w = lf_metal_commands();
  REQUIRE(w.requests == 1 && w.resident_buffers == 2 && w.resident_bytes == 120);
  [set removeAllocation:a];
  [a release];
  REQUIRE(![set containsAllocation:a] && lf_metal_live().buffers == 2);  // until the commit
  [set commit];
  REQUIRE(set.allocationCount == 1 && lf_metal_live().buffers == 1);
  [set endResidency];
  [s.queue removeResidencySet:set];
  [set release];
  [b release];
  lf_metal_counts n = lf_metal_live();
  REQUIRE(n.buffers == 0 && n.residency_sets == 0);
}
RIGHT(no_residency_sets) {
  setenv("LFSIM_METAL_NO_RESIDENCY", "1", 1);
  NSError *e = nil;
  REQUIRE(![test_device() newResidencySetWithDescriptor:[[[MTLResidencySetDescriptor alloc] init] autorelease] error:&e]);
  REQUIRE(test_says(e, "no residency sets"));
}
WRONG(residency_of_changes, "requestResidency: changes of the residency set are not committed") {
  setup s = test_setup();
  id<MTLResidencySet> set = resident(s);
  [set addAllocation:test_buffer(s, 16)];
  [set requestResidency];
}
WRONG(residency_twice, "addAllocation: the residency set has buffer") {
  setup s = test_setup();
  id<MTLResidencySet> set = resident(s);
  id<MTLBuffer> x = test_buffer(s, 16);
  [set addAllocation:x];
  [set addAllocation:x];
}
WRONG(residency_of_nothing, "removeAllocation: the residency set has no such buffer") {
  setup s = test_setup();
  [resident(s) removeAllocation:test_buffer(s, 16)];
}
WRONG(residency_of_another_queue, "removeResidencySet: the queue has no such residency set") {
  setup s = test_setup();
  [s.queue removeResidencySet:resident(s)];
}
