// Order of events: queues, events, handlers, lifetimes of objects.
#import "test.h"

#include <pthread.h>
#include <signal.h>

static void fill(id<MTLCommandBuffer> c, id<MTLBuffer> b, uint8_t value) {
  id<MTLBlitCommandEncoder> e = [c blitCommandEncoder];
  [e fillBuffer:b range:NSMakeRange(0, b.length) value:value];
  [e endEncoding];
}

RIGHT(blits) {
  setup s = test_setup();
  id<MTLBuffer> a = test_buffer(s, 64), b = test_buffer(s, 64);
  id<MTLCommandBuffer> c = [s.queue commandBuffer];
  id<MTLBlitCommandEncoder> e = [c blitCommandEncoder];
  [e fillBuffer:a range:NSMakeRange(4, 8) value:7];
  [e copyFromBuffer:a sourceOffset:0 toBuffer:b destinationOffset:32 size:32];
  [e copyFromBuffer:b sourceOffset:32 toBuffer:b destinationOffset:0 size:32];
  [e endEncoding];
  test_run(c, MTLCommandBufferStatusCompleted);
  const uint8_t *v = [b contents];
  for (int i = 0; i < 64; i++) REQUIRE(v[i] == (i % 32 >= 4 && i % 32 < 12 ? 7 : 0));
}
static id<MTLBlitCommandEncoder> blit(setup s) { return [[s.queue commandBuffer] blitCommandEncoder]; }
WRONG(copy_past_the_source, "copyFromBuffer: source: 36 bytes at offset 32, the buffer has 64") {
  setup s = test_setup();
  [blit(s) copyFromBuffer:test_buffer(s, 64) sourceOffset:32 toBuffer:test_buffer(s, 64) destinationOffset:0 size:36];
}
WRONG(copy_past_the_destination, "copyFromBuffer: destination: 64 bytes at offset 4, the buffer has 64") {
  setup s = test_setup();
  [blit(s) copyFromBuffer:test_buffer(s, 64) sourceOffset:0 toBuffer:test_buffer(s, 64) destinationOffset:4 size:64];
}
WRONG(copy_of_odd_bytes, "copyFromBuffer: source: 6 bytes at offset 0, both must be multiples of 4") {
  setup s = test_setup();
  [blit(s) copyFromBuffer:test_buffer(s, 64) sourceOffset:0 toBuffer:test_buffer(s, 64) destinationOffset:0 size:6];
}
WRONG(copy_onto_itself, "copyFromBuffer: source and destination overlap") {
  setup s = test_setup();
  id<MTLBuffer> b = test_buffer(s, 64);
  [blit(s) copyFromBuffer:b sourceOffset:0 toBuffer:b destinationOffset:16 size:32];
}
WRONG(copy_from_nothing, "copyFromBuffer: nil where an object is expected") {
  setup s = test_setup();
  [blit(s) copyFromBuffer:nil sourceOffset:0 toBuffer:test_buffer(s, 64) destinationOffset:16 size:32];
}
WRONG(fill_past_the_end, "fillBuffer: 64 bytes at offset 4, the buffer has 64") {
  setup s = test_setup();
  [blit(s) fillBuffer:test_buffer(s, 64) range:NSMakeRange(4, 64) value:1];
}

RIGHT(order_of_enqueue) {
  setup s = test_setup();
  id<MTLBuffer> b = test_buffer(s, 4);
  id<MTLCommandBuffer> first = [s.queue commandBuffer], second = [s.queue commandBuffer];
  fill(second, b, 2);
  [first enqueue];
  [second commit];  // waits for the first, which is not even written down
  usleep(20000);
  REQUIRE(first.status == MTLCommandBufferStatusEnqueued && second.status == MTLCommandBufferStatusCommitted);
  fill(first, b, 1);
  [first commit];
  [second waitUntilCompleted];
  REQUIRE(first.status == MTLCommandBufferStatusCompleted && *(uint8_t *)[b contents] == 2);
}
RIGHT(events_between_queues) {
  setup s = test_setup();
  id<MTLCommandQueue> other = [s.device newCommandQueue];
  id<MTLBuffer> a = test_buffer(s, 1 << 16), b = test_buffer(s, 1 << 16);
  id<MTLSharedEvent> e = [s.device newSharedEvent];
  for (uint64_t i = 1; i < 40; i++) {
    id<MTLCommandBuffer> reader = [other commandBuffer], writer = [s.queue commandBuffer];
    [reader encodeWaitForEvent:e value:i];
    id<MTLBlitCommandEncoder> copy = [reader blitCommandEncoder];
    [copy copyFromBuffer:a sourceOffset:0 toBuffer:b destinationOffset:0 size:1 << 16];
    [copy endEncoding];
    [reader commit];
    fill(writer, a, (uint8_t)i);
    [writer encodeSignalEvent:e value:i];
    [writer commit];
    [reader waitUntilCompleted];
    const uint8_t *v = [b contents];
    REQUIRE(v[0] == i && v[(1 << 16) - 1] == i && e.signaledValue == i);
  }
}
RIGHT(events_of_the_program) {
  setup s = test_setup();
  id<MTLSharedEvent> e = [s.device newSharedEvent];
  id<MTLCommandBuffer> c = [s.queue commandBuffer];
  [c encodeWaitForEvent:e value:1];
  [c encodeSignalEvent:e value:2];
  [c commit];
  REQUIRE(![e waitUntilSignaledValue:2 timeoutMS:20]);
  e.signaledValue = 1;
  REQUIRE([e waitUntilSignaledValue:2 timeoutMS:UINT64_MAX]);
  [c waitUntilCompleted];
}

RIGHT(handlers) {
  setup s = test_setup();
  pthread_t mine = pthread_self();
  __block int said = 0;
  id<MTLCommandBuffer> c = [s.queue commandBuffer];
  for (int i = 0; i < 10; i++) {
    [c addCompletedHandler:^(id<MTLCommandBuffer> b) {
      REQUIRE(b == c && !pthread_equal(pthread_self(), mine));
      REQUIRE(b.status == MTLCommandBufferStatusCompleted && said == 1 + i);
      [NSString stringWithFormat:@"%d", i];  // has a pool
      [b waitUntilCompleted];
      said++;
    }];
  }
  [c addScheduledHandler:^(id<MTLCommandBuffer> b) {
    REQUIRE(said == 0);
    said++;
  }];
  test_run(c, MTLCommandBufferStatusCompleted);
  REQUIRE(said == 11);
}
RIGHT(no_more_command_buffers_than_the_queue_has) {
  setup s = test_setup();
  id<MTLCommandQueue> q = [s.device newCommandQueueWithMaxCommandBufferCount:2];
  for (int i = 0; i < 50; i++) [[q commandBuffer] commit];
  id<MTLCommandBuffer> c = [q commandBuffer];
  test_run(c, MTLCommandBufferStatusCompleted);
}

static void on_fault(int signal) { _exit(signal == SIGSEGV ? 0 : 1); }
RIGHT(freed_memory_faults) {
  id<MTLBuffer> b = [test_device() newBufferWithLength:64 options:0];
  volatile char *p = [b contents];
  *p = 1;
  [b release];
  signal(SIGSEGV, on_fault);
  *p = 1;
  REQUIRE(false);
}
RIGHT(memory_past_the_end_faults) {
  id<MTLBuffer> b = [test_device() newBufferWithLength:64 options:0];
  signal(SIGSEGV, on_fault);
  ((volatile char *)[b contents])[64] = 1;
  REQUIRE(false);
}

// held makes a command buffer wait, releases the objects that it uses, and lets it run.
static void held(bool retains) {
  setup s = test_setup();
  id<MTLSharedEvent> e = [s.device newSharedEvent];
  id<MTLBuffer> b = test_buffer(s, 64);
  id<MTLCommandBuffer> c;
  @autoreleasepool {
    c = [(retains ? [s.queue commandBuffer] : [s.queue commandBufferWithUnretainedReferences]) retain];
    REQUIRE(c.retainedReferences == retains);
    [c encodeWaitForEvent:e value:1];
    id<MTLComputeCommandEncoder> encoder = [c computeCommandEncoder];
    test_scale(s, encoder, b, 0, 2, 16);
    [encoder endEncoding];
    [c commit];
  }
  [b release];
  REQUIRE(lf_metal_live().buffers == (retains ? 1 : 0));
  e.signaledValue = 1;
  [c waitUntilCompleted];
  REQUIRE(c.status == MTLCommandBufferStatusCompleted);
  REQUIRE(lf_metal_live().buffers == 0);
}
RIGHT(command_buffers_retain) { held(true); }
WRONG(command_buffers_that_do_not_retain, "buffer 1 was released before command buffer") { held(false); }

RIGHT(nothing_is_left) {
  for (int i = 0; i < 3; i++) {
    @autoreleasepool {
      setup s = test_setup();
      id<MTLSharedEvent> event = [s.device newSharedEvent];
      id<MTLBuffer> x = test_buffer(s, 64);
      for (int j = 0; j < 5; j++) {
        id<MTLCommandBuffer> c = [s.queue commandBuffer];
        id<MTLComputeCommandEncoder> e = [c computeCommandEncoder];
        test_scale(s, e, x, 0, 2, 16);
        [e endEncoding];
        [c encodeSignalEvent:event value:(uint64_t)j];
        [c addCompletedHandler:^(id<MTLCommandBuffer> b) {
          usleep(1000);
        }];
        [c commit];
        if (j == 4) [c waitUntilCompleted];
      }
      lf_metal_counts n = lf_metal_live();
      REQUIRE(n.devices == 1 && n.queues == 1 && n.libraries == 1 && n.buffers == 1 && n.events == 1 && n.command_buffers == 5 && n.encoders == 5);
      [x release];
      [event release];
      [s.library release];
      [s.queue release];
      [s.device release];
    }
    lf_metal_counts n = lf_metal_live(), none = {0};
    REQUIRE(!memcmp(&n, &none, sizeof n) && lf_metal_allocated() == 0);
  }
}

// concurrent runs two dispatches on the same numbers, which only a barrier orders.
static float concurrent(bool barrier) {
  setup s = test_setup();
  id<MTLBuffer> a = test_buffer(s, 64);
  id<MTLCommandBuffer> c = [s.queue commandBuffer];
  id<MTLComputeCommandEncoder> e = [c computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
  [e setComputePipelineState:test_pipeline(s, "few")];
  [e setBuffer:a offset:0 atIndex:0];
  [e dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
  if (barrier) [e memoryBarrierWithScope:MTLBarrierScopeBuffers];
  test_scale(s, e, a, 0, 3, 1);
  [e endEncoding];
  test_run(c, MTLCommandBufferStatusCompleted);
  return *(float *)[a contents];
}
RIGHT(concurrent_dispatches) {
  const char *orders[] = {"reverse", "forward", "random"};
  for (int i = 0; i < 3; i++) {
    setenv("LFSIM_ORDER", orders[i], 1);
    REQUIRE(concurrent(true) == 3);
    if (i < 2) REQUIRE(concurrent(false) == (i ? 3 : 1));
  }
}

// Threads that share a device, each with queues of its own, and one queue that all use.
typedef struct {
  setup s;
  id<MTLCommandQueue> shared;
  int rank;
} share;
static void *load(void *argument) {
  share *mine = argument;
  setup s = mine->s;
  @autoreleasepool {
    s.queue = [s.device newCommandQueue];
  }
  for (int i = 0; i < 30; i++) {
    @autoreleasepool {
      id<MTLBuffer> x = test_buffer(s, 400);
      float *v = [x contents];
      for (int j = 0; j < 100; j++) v[j] = (float)(j + mine->rank);
      __block int completed = 0;
      id<MTLCommandBuffer> a = [s.queue commandBuffer], b = [mine->shared commandBuffer];
      id<MTLSharedEvent> e = [s.device newSharedEvent];
      [b encodeWaitForEvent:e value:1];
      id<MTLComputeCommandEncoder> encoder = [b computeCommandEncoder];
      test_scale(s, encoder, x, 0, 3, 100);
      [encoder endEncoding];
      [b addCompletedHandler:^(id<MTLCommandBuffer> c) {
        completed++;
      }];
      encoder = [a computeCommandEncoder];
      test_scale(s, encoder, x, 0, 2, 100);
      [encoder endEncoding];
      [a encodeSignalEvent:e value:1];
      [a commit];
      [b commit];
      [e release];
      [b waitUntilCompleted];
      [a waitUntilCompleted];
      REQUIRE(completed == 1 && b.status == MTLCommandBufferStatusCompleted && a.status == MTLCommandBufferStatusCompleted);
      for (int j = 0; j < 100; j++) REQUIRE(v[j] == 6 * (float)(j + mine->rank));
      [x release];
    }
  }
  [s.queue release];
  return NULL;
}
RIGHT(threads_and_queues) {
  enum { n = 6 };
  setup s = test_setup();
  share shares[n];
  pthread_t threads[n];
  for (int i = 0; i < n; i++) {
    shares[i] = (share){s, s.queue, i};
    pthread_create(&threads[i], NULL, load, &shares[i]);
  }
  for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
  lf_metal_counts left = lf_metal_live();
  REQUIRE(left.buffers == 0 && left.queues == 1 && left.command_buffers == 0 && left.encoders == 0 && left.pipelines == 0 && left.events == 0);
}
