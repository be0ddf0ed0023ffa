// Buffers: memory of their own, or the program's.
#import "fake.h"

@implementation LFBuffer
- (void)dealloc {
  lf_memory_free(serial);
  if (deallocator) {
    deallocator(memory, length);
    Block_release(deallocator);
  }
  [super dealloc];
}
- (NSUInteger)length {
  return length;
}
- (void *)contents {
  return options & MTLResourceStorageModePrivate || !length ? NULL : memory;
}
- (uint64_t)gpuAddress {
  if (![device supportsFamily:MTLGPUFamilyMetal3]) lf_die("gpuAddress: the device has no Metal 3");
  return length ? lf_memory_address(serial) : 0;
}
- (NSUInteger)allocatedSize {
  return length;
}
- (MTLResourceOptions)resourceOptions {
  return options;
}
- (MTLStorageMode)storageMode {
  return options >> 4 & 3;
}
@end
