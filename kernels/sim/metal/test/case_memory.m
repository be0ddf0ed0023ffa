// Buffers: creation and misuse.
#import "test.h"

static char *page_of(size_t bytes) {
  char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(p != MAP_FAILED);
  return p;
}

RIGHT(zeros_exact_to_the_end) {
  setup s = test_setup();
  for (NSUInteger n = 1; n < 20000; n = n * 3 + 1) {
    id<MTLBuffer> b = test_buffer(s, n);
    char *p = [b contents];
    REQUIRE(b.length == n && (uintptr_t)p % 16 == 0);
    for (NSUInteger i = 0; i < n; i++) REQUIRE(p[i] == 0);
    memset(p, 1, n);
    [b release];
  }
  REQUIRE(lf_metal_live().buffers == 0 && lf_metal_allocated() == 0);
}
RIGHT(private_buffers) {
  setup s = test_setup();
  id<MTLBuffer> b = [s.device newBufferWithLength:64 options:MTLResourceStorageModePrivate];
  REQUIRE([b contents] == NULL && b.storageMode == MTLStorageModePrivate && b.length == 64);
}
RIGHT(copied_bytes) {
  id<MTLBuffer> b = [test_device() newBufferWithBytes:"abcde" length:5 options:0];
  REQUIRE(!memcmp([b contents], "abcde", 5) && lf_metal_allocated() == 5);
}
RIGHT(bytes_not_copied) {
  id<MTLDevice> d = test_device();
  size_t page = (size_t)getpagesize();
  char *p = page_of(2 * page);
  __block int calls = 0;
  REQUIRE([d newBufferWithBytesNoCopy:p + 16 length:page options:0 deallocator:nil] == nil);
  REQUIRE([d newBufferWithBytesNoCopy:p length:page + 4 options:0 deallocator:nil] == nil);
  id<MTLBuffer> b = [d newBufferWithBytesNoCopy:p
                                         length:2 * page
                                        options:0
                                    deallocator:^(void *q, NSUInteger n) {
                                      REQUIRE(q == p && n == 2 * page);
                                      calls++;
                                    }];
  id<MTLBuffer> overlapping = [d newBufferWithBytesNoCopy:p + page length:page options:0 deallocator:nil];
  REQUIRE([b contents] == p && [overlapping contents] == p + page);
  REQUIRE(lf_metal_borrowed() == 3 * page && lf_metal_allocated() == 0 && d.currentAllocatedSize == 3 * page);
  [b release];
  [overlapping release];
  REQUIRE(calls == 1 && lf_metal_borrowed() == 0);
}
RIGHT(pages_of_16_kib) {
  setenv("LFSIM_METAL_PAGE", "16K", 1);
  id<MTLDevice> d = test_device();
  char *p = (char *)(((uintptr_t)page_of(65536) + 16383) & ~16383ul);
  REQUIRE([d newBufferWithBytesNoCopy:p + 4096 length:16384 options:0 deallocator:nil] == nil);
  REQUIRE([d newBufferWithBytesNoCopy:p length:4096 options:0 deallocator:nil] == nil);
  REQUIRE([d newBufferWithBytesNoCopy:p length:32768 options:0 deallocator:nil] != nil);
}
RIGHT(limits) {
  setenv("LFSIM_METAL_MAX_BUFFER", "1M", 1);
  setenv("LFSIM_METAL_MEMORY", "2M", 1);
  id<MTLDevice> d = test_device();
  REQUIRE(d.maxBufferLength == 1 << 20 && d.recommendedMaxWorkingSetSize == 2 << 20);
  REQUIRE([d newBufferWithLength:(1 << 20) + 1 options:0] == nil);
  REQUIRE([d newBufferWithBytesNoCopy:page_of(2 << 20) length:2 << 20 options:0 deallocator:nil] == nil);
  id<MTLBuffer> a = [d newBufferWithLength:1 << 20 options:0], b = [d newBufferWithLength:1 << 20 options:0];
  REQUIRE(a && b && [d newBufferWithLength:1 options:0] == nil);
  [a release];
  REQUIRE([d newBufferWithLength:1 options:0] != nil);
}
RIGHT(injected_allocations) {
  setenv("LFSIM_METAL_FAIL", "alloc:2", 1);
  id<MTLDevice> d = test_device();
  REQUIRE([d newBufferWithLength:1 options:0] && ![d newBufferWithLength:1 options:0] && [d newBufferWithLength:1 options:0]);
  setenv("LFSIM_METAL_FAIL", "alloc:2+", 1);
  d = test_device();
  REQUIRE([d newBufferWithLength:1 options:0] && ![d newBufferWithLength:1 options:0] && ![d newBufferWithLength:1 options:0]);
}
RIGHT(no_copies_by_the_environment) {
  setenv("LFSIM_METAL_NO_COPY", "0", 1);
  char *p = page_of(65536);
  REQUIRE([test_device() newBufferWithBytesNoCopy:p length:65536 options:0 deallocator:nil] == nil);
  setenv("LFSIM_METAL_NO_COPY", "empty", 1);
  id<MTLBuffer> b = [test_device() newBufferWithBytesNoCopy:p length:65536 options:0 deallocator:nil];
  REQUIRE(b && b.length == 0 && [b contents] == NULL);
}

WRONG(no_length, "newBufferWithLength: length 0") { [test_device() newBufferWithLength:0 options:0]; }
WRONG(private_bytes, "newBufferWithBytes: a private buffer has no bytes") {
  [test_device() newBufferWithBytes:"a" length:1 options:MTLResourceStorageModePrivate];
}
WRONG(private_pages, "newBufferWithBytesNoCopy: a private buffer has no bytes") {
  [test_device() newBufferWithBytesNoCopy:page_of(65536) length:65536 options:MTLResourceStorageModePrivate deallocator:nil];
}
WRONG(written_past_the_end, "a write 1 bytes past the end of buffer 1 of 30 bytes") {
  id<MTLBuffer> b = [test_device() newBufferWithLength:30 options:0];
  ((volatile char *)[b contents])[30 + 2 - 1] = 1;
  [b release];
}
WRONG(written_before_the_start, "a write 3 bytes before buffer 1 of 32 bytes") {
  id<MTLBuffer> b = [test_device() newBufferWithLength:32 options:0];
  ((volatile char *)[b contents])[-3] = 1;
  [b release];
}
