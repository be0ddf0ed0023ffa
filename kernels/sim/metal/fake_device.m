// The device: its properties, set by the environment, and its factory methods.
#import "fake.h"

#include <string.h>

// A program that finds GNUstep's _Block_copy before that of the blocks' runtime keeps
// handlers on stacks that are gone when they are called.
static void check_blocks(void) {
  int here = 1;
  int (^on_stack)(void) = ^{
    return here;
  };
  int (^copied)(void) = Block_copy(on_stack);
  if (copied == on_stack) lf_die("blocks are not copied: link -lBlocksRuntime before -lgnustep-base");
  Block_release(copied);
}

id<MTLDevice> MTLCreateSystemDefaultDevice(void) {
  check_blocks();
  lf_settings settings = lf_settings_read();
  if (settings.no_device) {
    lf_settings_free(&settings);
    return nil;
  }
  LFDevice *d = [[LFDevice alloc] initWithKind:LF_DEVICE device:nil];
  d->settings = settings;
  d->name = [[NSString alloc] initWithFormat:@"Fake Metal (Apple%d)", settings.family];
  return d;
}

@implementation LFDevice
- (void)dealloc {
  lf_settings_free(&settings);
  [name release];
  [super dealloc];
}
- (id<MTLDevice>)device {
  return self;
}
- (NSString *)name {
  return name;
}
- (uint64_t)registryID {
  return 0x100000000 + number;
}
- (BOOL)hasUnifiedMemory {
  return YES;
}
- (uint64_t)recommendedMaxWorkingSetSize {
  return settings.memory;
}
- (NSUInteger)maxBufferLength {
  return settings.max_buffer;
}
- (NSUInteger)maxThreadgroupMemoryLength {
  return LF_MOST_THREADGROUP_MEMORY;
}
- (MTLSize)maxThreadsPerThreadgroup {
  return MTLSizeMake(LF_MOST_THREADS, LF_MOST_THREADS, LF_MOST_THREADS);
}
// Memory that was not copied counts too, as on Apple's devices.
- (NSUInteger)currentAllocatedSize {
  return lf_memory_mapped() + lf_memory_borrowed();
}

- (BOOL)supportsFamily:(MTLGPUFamily)family {
  if (family >= MTLGPUFamilyApple1 && family <= MTLGPUFamilyApple10) return family - 1000 <= settings.family;
  if (family >= MTLGPUFamilyCommon1 && family <= MTLGPUFamilyCommon3) return YES;
  // Metal 3 is the devices' with Apple7 and later, but not of the system of the one that
  // says Apple7 here.
  return (family == MTLGPUFamilyMetal3 || family == MTLGPUFamilyMac2) && settings.family >= 8;
}

- (id<MTLCommandQueue>)newCommandQueue {
  return [self newCommandQueueWithMaxCommandBufferCount:64];
}
- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)most {
  if (!most) lf_die("newCommandQueueWithMaxCommandBufferCount: 0");
  return [[LFQueue alloc] initWithDevice:self most:most];
}

// room reports whether memory is available for a buffer, and ends the process if
// the size is never allowed.
- (BOOL)room:(NSUInteger)length own:(BOOL)own method:(const char *)method {
  if (!length) lf_die("%s: length 0", method);
  if (length > settings.max_buffer || lf_injected(settings.failures, "alloc", "")) return NO;
  return !own || lf_memory_mapped() + length <= settings.memory;
}

- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
  if (![self room:length own:YES method:"newBufferWithLength"]) return nil;
  uint64_t serial;
  char *memory = lf_memory_map(length, &serial);
  if (!memory) return nil;
  LFBuffer *b = [[LFBuffer alloc] initWithKind:LF_BUFFER device:self];
  b->memory = memory;
  b->length = length;
  b->serial = serial;
  b->options = options;
  return b;
}

- (id<MTLBuffer>)newBufferWithBytes:(const void *)bytes length:(NSUInteger)length options:(MTLResourceOptions)options {
  if (options & MTLResourceStorageModePrivate) lf_die("newBufferWithBytes: a private buffer has no bytes");
  if (!bytes) lf_die("newBufferWithBytes: NULL");
  LFBuffer *b = (LFBuffer *)[self newBufferWithLength:length options:options];
  if (b) memcpy(b->memory, bytes, length);
  return b;
}

- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void *)bytes
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(void (^)(void *pointer, NSUInteger length))deallocator {
  if (options & MTLResourceStorageModePrivate) lf_die("newBufferWithBytesNoCopy: a private buffer has no bytes");
  if (!bytes) lf_die("newBufferWithBytesNoCopy: NULL");
  if (![self room:length own:NO method:"newBufferWithBytesNoCopy"]) return nil;
  if ((uintptr_t)bytes % settings.page || length % settings.page || settings.no_copy == LF_NO_COPY_NIL) return nil;
  LFBuffer *b = [[LFBuffer alloc] initWithKind:LF_BUFFER device:self];
  b->memory = bytes;
  b->length = settings.no_copy == LF_NO_COPY_EMPTY ? 0 : length;
  b->options = options;
  if (deallocator) b->deallocator = Block_copy(deallocator);
  lf_memory_borrow(bytes, b->length, &b->serial);
  return b;
}

- (id<MTLLibrary>)newLibraryWithSource:(NSString *)source options:(MTLCompileOptions *)options error:(NSError **)error {
  return [LFLibrary compile:source options:options device:self error:error];
}
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function error:(NSError **)error {
  lf_check_kind(function, [LFFunction class], self, "newComputePipelineStateWithFunction");
  return [LFPipeline of:(LFFunction *)function error:error];
}

- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor *)descriptor error:(NSError **)error {
  if (!descriptor) lf_die("newResidencySetWithDescriptor: nil");
  if (settings.no_residency) {
    if (error) *error = lf_error(@"MTLResidencySetErrorDomain", 1, "the device has no residency sets: LFSIM_METAL_NO_RESIDENCY");
    return nil;
  }
  return [[LFResidencySet alloc] initWithKind:LF_RESIDENCY_SET device:self];
}

- (id<MTLEvent>)newEvent {
  return [self newSharedEvent];
}
- (id<MTLSharedEvent>)newSharedEvent {
  return [[LFEvent alloc] initWithKind:LF_EVENT device:self];
}
@end
