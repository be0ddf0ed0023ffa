// Residency sets: allocations that are added and removed by the next commit.
#import "fake.h"

@implementation MTLResidencySetDescriptor
- (NSUInteger)initialCapacity {
  return _initialCapacity;
}
- (void)setInitialCapacity:(NSUInteger)n {
  _initialCapacity = n;
}
@end

@implementation LFResidencySet
- (id)initWithKind:(int)k device:(LFDevice *)d {
  if ((self = [super initWithKind:k device:d])) {
    allocations = [[NSMutableSet alloc] init];
    added = [[NSMutableSet alloc] init];
    removed = [[NSMutableSet alloc] init];
  }
  return self;
}
- (void)dealloc {
  [allocations release];
  [added release];
  [removed release];
  [super dealloc];
}
- (void)addAllocation:(id<MTLAllocation>)allocation {
  lf_check_kind(allocation, [LFBuffer class], device, "addAllocation");
  if ([self containsAllocation:allocation]) lf_die("addAllocation: the residency set has buffer %llu already", (unsigned long long)((LFObject *)allocation)->number);
  [removed removeObject:allocation];
  [added addObject:allocation];
}
- (void)removeAllocation:(id<MTLAllocation>)allocation {
  lf_check_kind(allocation, [LFBuffer class], device, "removeAllocation");
  if (![self containsAllocation:allocation]) lf_die("removeAllocation: the residency set has no such buffer");
  [removed addObject:allocation];
  [added removeObject:allocation];
}
- (BOOL)containsAllocation:(id<MTLAllocation>)allocation {
  return [added containsObject:allocation] || ([allocations containsObject:allocation] && ![removed containsObject:allocation]);
}
- (void)commit {
  [allocations unionSet:added];
  [allocations minusSet:removed];
  [added removeAllObjects];
  [removed removeAllObjects];
}
- (void)requestResidency {
  if ([added count] || [removed count]) lf_die("requestResidency: changes of the residency set are not committed");
  lf_requested([allocations count], [self allocatedSize]);
}
- (void)endResidency {
  lf_requested(0, 0);
}
- (NSUInteger)allocationCount {
  return [allocations count];
}
- (uint64_t)allocatedSize {
  uint64_t bytes = 0;
  for (LFBuffer *b in allocations) bytes += b->length;
  return bytes;
}
@end
