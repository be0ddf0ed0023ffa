// Compute encoders: bindings, and checks of dispatches.
#import "fake.h"

#include <stdlib.h>

@implementation LFEncoder
- (id)initWithCommands:(LFCommandBuffer *)c {
  if ((self = [super initWithKind:LF_ENCODER device:c->device])) commands = [c retain];
  return self;
}
- (void)dealloc {
  if (!ended) lf_die("an encoder of command buffer %llu%s was released before endEncoding", (unsigned long long)commands->number, lf_label(commands));
  [commands release];
  [super dealloc];
}
- (void)check:(const char *)method {
  if (ended) lf_die("%s: the encoder has ended", method);
}
- (void)endEncoding {
  [self check:"endEncoding"];
  ended = YES;
  [commands encoderEnded];
}
@end

@implementation LFComputeEncoder
- (id)initWithCommands:(LFCommandBuffer *)c type:(MTLDispatchType)t {
  if ((self = [super initWithCommands:c])) {
    type = t;
    stage = type == MTLDispatchTypeConcurrent ? ++c->stages : 0;
  }
  return self;
}
- (void)dealloc {
  for (int i = 0; i < LF_MOST_BUFFERS; i++) [bound[i].buffer release];
  [pipeline release];
  [super dealloc];
}
- (MTLDispatchType)dispatchType {
  return type;
}

- (void)setComputePipelineState:(id<MTLComputePipelineState>)state {
  [self check:"setComputePipelineState"];
  lf_check_kind(state, [LFPipeline class], device, "setComputePipelineState");
  [(LFPipeline *)state retain];
  [pipeline release];
  pipeline = (LFPipeline *)state;
}

static void check_index(NSUInteger index, const char *method) {
  if (index >= LF_MOST_BUFFERS) lf_die("%s: index %lu, the last is %d", method, (unsigned long)index, LF_MOST_BUFFERS - 1);
}

- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
  [self check:"setBuffer"];
  check_index(index, "setBuffer");
  LFBuffer *b = (LFBuffer *)buffer;
  if (b) {
    lf_check_kind(b, [LFBuffer class], device, "setBuffer");
    if (offset >= b->length)
      lf_die("setBuffer: offset %lu at index %lu, the buffer has %lu bytes", (unsigned long)offset, (unsigned long)index, (unsigned long)b->length);
  }
  [b retain];
  [bound[index].buffer release];
  bound[index].buffer = b;
  bound[index].bytes = b ? b->memory : NULL;
  bound[index].offset = offset;
  bound[index].length = b ? b->length : 0;
}
- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)index {
  [self check:"setBufferOffset"];
  check_index(index, "setBufferOffset");
  if (!bound[index].buffer) lf_die("setBufferOffset: there is no buffer at index %lu", (unsigned long)index);
  [self setBuffer:bound[index].buffer offset:offset atIndex:index];
}
- (void)setBuffers:(const id<MTLBuffer>[])buffers offsets:(const NSUInteger[])offsets withRange:(NSRange)range {
  for (NSUInteger i = 0; i < range.length; i++) [self setBuffer:buffers[i] offset:offsets[i] atIndex:range.location + i];
}
- (void)setBytes:(const void *)bytes length:(NSUInteger)length atIndex:(NSUInteger)index {
  [self check:"setBytes"];
  check_index(index, "setBytes");
  if (!bytes || !length) lf_die("setBytes: nothing, at index %lu", (unsigned long)index);
  if (length > LF_MOST_BYTES) lf_die("setBytes: %lu bytes at index %lu, at most %d", (unsigned long)length, (unsigned long)index, LF_MOST_BYTES);
  [bound[index].buffer release];
  bound[index].buffer = nil;
  bound[index].bytes = [commands copy:bytes length:length];
  bound[index].offset = 0;
  bound[index].length = length;
}
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index {
  [self check:"setThreadgroupMemoryLength"];
  if (index >= LF_THREADGROUP_SLOTS) lf_die("setThreadgroupMemoryLength: index %lu, the last here is %d", (unsigned long)index, LF_THREADGROUP_SLOTS - 1);
  if (length % 16) lf_die("setThreadgroupMemoryLength: %lu is not a multiple of 16", (unsigned long)length);
  if (length > LF_MOST_THREADGROUP_MEMORY) lf_die("setThreadgroupMemoryLength: %lu, the device has %d", (unsigned long)length, LF_MOST_THREADGROUP_MEMORY);
  threadgroup[index] = length;
}
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
  [self check:"memoryBarrierWithScope"];
  if (type == MTLDispatchTypeConcurrent) stage = ++commands->stages;
}

// useResource lets the dispatches that follow access memory by its gpuAddress.
- (void)useResource:(id<MTLResource>)resource usage:(MTLResourceUsage)usage {
  [self check:"useResource"];
  lf_check_kind(resource, [LFBuffer class], device, "useResource");
  if (!usage || usage & ~(NSUInteger)(MTLResourceUsageRead | MTLResourceUsageWrite)) lf_die("useResource: usage %lu", (unsigned long)usage);
  lf_work *w = [commands add:LF_USE];
  w->value = usage;
  [commands use:(LFBuffer *)resource as:&w->serials[0]];
  declares = YES;
}
- (void)useResources:(const id<MTLResource>[])resources count:(NSUInteger)count usage:(MTLResourceUsage)usage {
  for (NSUInteger i = 0; i < count; i++) [self useResource:resources[i] usage:usage];
}
- (void)endEncoding {
  [super endEncoding];
  if (declares) [commands add:LF_USED];
}

static bool fits(MTLSize s) { return s.width <= UINT32_MAX && s.height <= UINT32_MAX && s.depth <= UINT32_MAX; }

- (void)checkThreads:(MTLSize)t groups:(MTLSize)g {
  const char *name = pipeline->name;
  if (!g.width || !g.height || !g.depth || !fits(g))
    lf_die("%s: a grid of %lu × %lu × %lu threadgroups", name, (unsigned long)g.width, (unsigned long)g.height, (unsigned long)g.depth);
  NSUInteger threads = fits(t) && t.width <= LF_MOST_THREADS && t.height <= LF_MOST_THREADS ? t.width * t.height * t.depth : NSUIntegerMax;
  NSUInteger most = [pipeline maxTotalThreadsPerThreadgroup];
  if (!threads || threads > most)
    lf_die("%s: %lu × %lu × %lu threads in a threadgroup, the pipeline's most are %lu", name, (unsigned long)t.width, (unsigned long)t.height, (unsigned long)t.depth,
           (unsigned long)most);
}

- (void)checkBound:(int)i {
  const char *name = pipeline->name;
  const lf_msl_info *about = &pipeline->about;
  if (!bound[i].bytes) lf_die("%s: nothing is bound to buffer %d", name, i);
  if (about->align[i] && bound[i].offset % about->align[i])
    lf_die("%s: buffer %d is bound at offset %lu, its type is aligned to %u bytes", name, i, (unsigned long)bound[i].offset, about->align[i]);
  // A pointer must have at least one element, which determines its alignment.
  uint32_t least = about->bytes[i] ? about->bytes[i] : about->align[i];
  NSUInteger there = bound[i].length - bound[i].offset;
  if (there < least) lf_die("%s: buffer %d has %lu bytes at offset %lu, its type %u", name, i, (unsigned long)there, (unsigned long)bound[i].offset, least);
}

- (void)checkThreadgroupMemory {
  NSUInteger all = pipeline->about.shared;
  for (int i = 0; i < LF_THREADGROUP_SLOTS; i++) {
    if (!(pipeline->about.threadgroups >> i & 1)) continue;
    if (!threadgroup[i]) lf_die("%s: threadgroup memory %d has no length", pipeline->name, i);
    all += threadgroup[i];
  }
  if (all > LF_MOST_THREADGROUP_MEMORY) lf_die("%s: %lu bytes of threadgroup memory, the device has %d", pipeline->name, (unsigned long)all, LF_MOST_THREADGROUP_MEMORY);
}

- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)threads {
  [self check:"dispatchThreadgroups"];
  if (!pipeline) lf_die("dispatchThreadgroups: no pipeline is set");
  [self checkThreads:threads groups:groups];
  [self checkThreadgroupMemory];
  lf_work *w = [commands add:LF_DISPATCH];
  lf_msl_args *a = w->args = calloc(1, sizeof *a);
  w->stage = stage;
  w->pipeline = pipeline;
  w->numbers[0] = pipeline->number;
  [commands keep:pipeline];
  for (int i = 0; i < LF_MOST_BUFFERS; i++) {
    if (!(pipeline->about.buffers >> i & 1)) continue;
    [self checkBound:i];
    a->buffer[i] = (char *)bound[i].bytes + bound[i].offset;
    a->length[i] = bound[i].length - bound[i].offset;
    if (bound[i].buffer) [commands use:bound[i].buffer as:&w->serials[i]];
  }
  for (int i = 0; i < LF_THREADGROUP_SLOTS; i++) a->threadgroup[i] = pipeline->about.threadgroups >> i & 1 ? threadgroup[i] : 0;
  a->grid[0] = (uint32_t)groups.width, a->grid[1] = (uint32_t)groups.height, a->grid[2] = (uint32_t)groups.depth;
  a->threads[0] = (uint32_t)threads.width, a->threads[1] = (uint32_t)threads.height, a->threads[2] = (uint32_t)threads.depth;
}
@end
