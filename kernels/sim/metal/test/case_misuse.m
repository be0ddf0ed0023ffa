// Misuse of encoders and command buffers.
#import "test.h"

// encoding starts a compute encoder with a pipeline and all its bindings.
static id<MTLComputeCommandEncoder> encoding(setup s, const char *kernel) {
  struct {
    float factor;
    unsigned n;
  } args = {1, 16};
  id<MTLComputeCommandEncoder> e = [[s.queue commandBuffer] computeCommandEncoder];
  [e setComputePipelineState:test_pipeline(s, kernel)];
  [e setBuffer:test_buffer(s, 64) offset:0 atIndex:0];
  [e setBytes:&args length:sizeof args atIndex:1];
  return e;
}
static void dispatch(id<MTLComputeCommandEncoder> e, NSUInteger groups, NSUInteger threads) {
  [e dispatchThreadgroups:MTLSizeMake(groups, 1, 1) threadsPerThreadgroup:MTLSizeMake(threads, 1, 1)];
}

WRONG(no_pipeline, "dispatchThreadgroups: no pipeline is set") {
  setup s = test_setup();
  dispatch([[s.queue commandBuffer] computeCommandEncoder], 1, 1);
}
WRONG(unbound_buffer, "scale: nothing is bound to buffer 0") {
  setup s = test_setup();
  id<MTLComputeCommandEncoder> e = encoding(s, "scale");
  [e setBuffer:nil offset:0 atIndex:0];
  dispatch(e, 1, 16);
}
WRONG(offset_past_end, "setBuffer: offset 64 at index 0, the buffer has 64 bytes") {
  setup s = test_setup();
  [encoding(s, "scale") setBuffer:test_buffer(s, 64) offset:64 atIndex:0];
}
WRONG(offset_of_a_buffer_past_end, "setBuffer: offset 100 at index 0, the buffer has 64 bytes") {
  setup s = test_setup();
  [encoding(s, "scale") setBufferOffset:100 atIndex:0];
}
WRONG(offset_without_buffer, "setBufferOffset: there is no buffer at index 1") {
  setup s = test_setup();
  [encoding(s, "scale") setBufferOffset:0 atIndex:1];
}
WRONG(offset_misaligned, "scale: buffer 0 is bound at offset 6, its type is aligned to 4 bytes") {
  setup s = test_setup();
  id<MTLComputeCommandEncoder> e = encoding(s, "scale");
  [e setBuffer:test_buffer(s, 64) offset:6 atIndex:0];
  dispatch(e, 1, 14);
}
WRONG(less_than_an_element, "scale: buffer 0 has 2 bytes at offset 60, its type 4") {
  setup s = test_setup();
  id<MTLComputeCommandEncoder> e = encoding(s, "scale");
  [e setBuffer:test_buffer(s, 62) offset:60 atIndex:0];
  dispatch(e, 1, 1);
}
WRONG(struct_too_short, "scale: buffer 1 has 4 bytes at offset 0, its type 8") {
  setup s = test_setup();
  id<MTLComputeCommandEncoder> e = encoding(s, "scale");
  [e setBytes:"1234" length:4 atIndex:1];
  dispatch(e, 1, 16);
}
WRONG(buffer_index, "setBuffer: index 31, the last is 30") {
  setup s = test_setup();
  [encoding(s, "scale") setBuffer:test_buffer(s, 64) offset:0 atIndex:31];
}
WRONG(buffers_past_the_last_index, "setBuffer: index 31, the last is 30") {
  setup s = test_setup();
  id<MTLBuffer> both[] = {test_buffer(s, 64), test_buffer(s, 64)};
  NSUInteger offsets[] = {0, 0};
  [encoding(s, "scale") setBuffers:both offsets:offsets withRange:NSMakeRange(30, 2)];
}
WRONG(bytes_too_many, "setBytes: 4097 bytes at index 1, at most 4096") {
  static char bytes[4097];
  [encoding(test_setup(), "scale") setBytes:bytes length:sizeof bytes atIndex:1];
}
WRONG(bytes_none, "setBytes: nothing, at index 1") { [encoding(test_setup(), "scale") setBytes:"" length:0 atIndex:1]; }
WRONG(other_device, "setBuffer: an object of another device") {
  setup s = test_setup();
  id<MTLBuffer> b = [test_device() newBufferWithLength:64 options:0];
  [encoding(s, "scale") setBuffer:b offset:0 atIndex:0];
}
WRONG(other_class, "setComputePipelineState: an object of class LFBuffer, expected LFPipeline") {
  setup s = test_setup();
  [encoding(s, "scale") setComputePipelineState:(id)test_buffer(s, 64)];
}
WRONG(no_object, "setComputePipelineState: nil where an object is expected") { [encoding(test_setup(), "scale") setComputePipelineState:nil]; }

WRONG(too_many_threads, "scale: 1025 × 1 × 1 threads in a threadgroup, the pipeline's most are 1024") { dispatch(encoding(test_setup(), "scale"), 1, 1025); }
WRONG(too_many_threads_of_three_axes, "scale: 16 × 16 × 5 threads in a threadgroup, the pipeline's most are 1024") {
  [encoding(test_setup(), "scale") dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(16, 16, 5)];
}
WRONG(too_many_threads_of_the_pipeline, "few: 65 × 1 × 1 threads in a threadgroup, the pipeline's most are 64") {
  setup s = test_setup();
  REQUIRE(test_pipeline(s, "few").maxTotalThreadsPerThreadgroup == 64);
  REQUIRE(test_pipeline(s, "few").threadExecutionWidth == 32);
  dispatch(encoding(s, "few"), 1, 65);
}
WRONG(no_threads, "scale: 0 × 1 × 1 threads in a threadgroup") { dispatch(encoding(test_setup(), "scale"), 1, 0); }
WRONG(no_groups, "scale: a grid of 0 × 1 × 1 threadgroups") { dispatch(encoding(test_setup(), "scale"), 0, 32); }

WRONG(threadgroup_length_missing, "reversed: threadgroup memory 0 has no length") { dispatch(encoding(test_setup(), "reversed"), 1, 16); }
WRONG(threadgroup_length_odd, "setThreadgroupMemoryLength: 36 is not a multiple of 16") {
  [encoding(test_setup(), "reversed") setThreadgroupMemoryLength:36 atIndex:0];
}
WRONG(threadgroup_length_too_long, "setThreadgroupMemoryLength: 32784, the device has 32768") {
  [encoding(test_setup(), "reversed") setThreadgroupMemoryLength:32784 atIndex:0];
}
WRONG(threadgroup_memory_too_much, "declared: 34816 bytes of threadgroup memory, the device has 32768") {
  setup s = test_setup();
  REQUIRE(test_pipeline(s, "declared").staticThreadgroupMemoryLength == 2048);
  id<MTLComputeCommandEncoder> e = encoding(s, "declared");
  [e setThreadgroupMemoryLength:32768 atIndex:0];
  dispatch(e, 1, 16);
}

WRONG(commit_while_encoding, "commit: an encoder of command buffer 4 \"step\" is open") {
  setup s = test_setup();
  id<MTLCommandBuffer> c = [s.queue commandBuffer];
  c.label = [NSString stringWithUTF8String:"step"];
  [c computeCommandEncoder];
  [c commit];
}
WRONG(two_encoders, "blitCommandEncoder: an encoder of command buffer") {
  setup s = test_setup();
  id<MTLCommandBuffer> c = [s.queue commandBuffer];
  [c computeCommandEncoder];
  [c blitCommandEncoder];
}
WRONG(encoder_ended, "setBytes: the encoder has ended") {
  setup s = test_setup();
  id<MTLComputeCommandEncoder> e = encoding(s, "scale");
  [e endEncoding];
  [e setBytes:"1234" length:4 atIndex:1];
}
WRONG(encoder_ended_twice, "endEncoding: the encoder has ended") {
  setup s = test_setup();
  id<MTLBlitCommandEncoder> e = [[s.queue commandBuffer] blitCommandEncoder];
  [e endEncoding];
  [e endEncoding];
}
WRONG(encoder_released, "was released before endEncoding") {
  setup s = test_setup();
  @autoreleasepool {
    [[s.queue commandBuffer] computeCommandEncoder];
  }
}
WRONG(commit_twice, "is committed already") {
  setup s = test_setup();
  id<MTLCommandBuffer> c = [s.queue commandBuffer];
  [c commit];
  [c commit];
}
WRONG(encode_after_commit, "computeCommandEncoder: command buffer 4 is committed") {
  setup s = test_setup();
  id<MTLCommandBuffer> c = [s.queue commandBuffer];
  [c commit];
  [c computeCommandEncoder];
}
WRONG(enqueue_twice, "enqueue: the command buffer is enqueued already") {
  id<MTLCommandBuffer> c = [test_setup().queue commandBuffer];
  [c enqueue];
  [c enqueue];
}
WRONG(wait_before_commit, "waitUntilCompleted: command buffer") { [[test_setup().queue commandBuffer] waitUntilCompleted]; }
WRONG(handler_after_commit, "addCompletedHandler: the command buffer is committed") {
  id<MTLCommandBuffer> c = [test_setup().queue commandBuffer];
  [c commit];
  [c addCompletedHandler:^(id<MTLCommandBuffer> b){
  }];
}
WRONG(wait_inside_a_handler, "waitUntilCompleted: in a handler of the queue that is to run the command buffer") {
  setup s = test_setup();
  id<MTLCommandBuffer> first = [s.queue commandBuffer], second = [s.queue commandBuffer];
  [first addCompletedHandler:^(id<MTLCommandBuffer> b) {
    [second commit];
    [second waitUntilCompleted];
  }];
  [first commit];
  [first waitUntilCompleted];
}
WRONG(too_many_command_buffers, "commandBuffer: all 64 of the queue are made and none is committed: it waits for ever") {
  setenv("LFSIM_METAL_PATIENCE", "50", 1);
  setup s = test_setup();
  for (int i = 0; i < 65; i++) [s.queue commandBuffer];
}
WRONG(event_goes_back, "an event's value goes back from 2 to 1") {
  id<MTLSharedEvent> e = [test_device() newSharedEvent];
  e.signaledValue = 2;
  e.signaledValue = 1;
}
