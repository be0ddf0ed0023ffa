//go:build cgo && (darwin || (metal && metalfake))

// Implements lfmetal.h with Metal. This is the backend's only Objective-C. It retains and
// releases objects manually, retains autoreleased ones, and has a pool in every entry point.
// Strings are created from C strings, since @"…" differs between the supported runtimes.

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lfmetal.h"

struct lfm_device {
  id<MTLDevice> device;
  id<MTLCommandQueue> queue;
  id<MTLBuffer> none; // bound to null pointers
  id resident;        // an MTLResidencySet, nil if there is none
  uint64_t headroom; // bytes of the working set that are not in resident
  bool pending;       // resident has changed since its last request
  bool addresses;     // buffers have addresses for tables
  pthread_mutex_t mutex;
  id<MTLBuffer>* slots; // slot i + 1
  uint32_t count, room;
  uint32_t* idle; // slots without a buffer; has the capacity of slots
  uint32_t idles;
};

struct lfm_library {
  id<MTLLibrary> library;
};

struct lfm_kernel {
  id<MTLComputePipelineState> pipeline;
  uint8_t kinds[LFM_ARGS];
  int count, pointers;
};

struct lfm_command {
  id<MTLCommandBuffer> buffer;
};

static NSString* string(const char* text) { return [NSString stringWithUTF8String:text]; }

static void say(char** error, const char* text) {
  if (error && !*error) *error = strdup(text);
}

static void say_error(char** error, NSError* e, const char* otherwise) {
  const char* text = e ? [[e localizedDescription] UTF8String] : NULL;
  say(error, text && *text ? text : otherwise);
}

// Residency. A set of the queue's buffers is wired once, instead of by each command. The
// caller holds the mutex, except in lfm_open and lfm_close.

static void open_residency(lfm_device* d) {
  if (@available(macOS 15.0, *)) {
    MTLResidencySetDescriptor* descriptor = [[[MTLResidencySetDescriptor alloc] init] autorelease];
    id<MTLResidencySet> set = [d->device newResidencySetWithDescriptor:descriptor error:NULL];
    if (!set) return; // some virtual machines have none
    [d->queue addResidencySet:set];
    d->resident = set;
    d->headroom = [d->device recommendedMaxWorkingSetSize];
  }
}

static void close_residency(lfm_device* d) {
  if (@available(macOS 15.0, *)) {
    id<MTLResidencySet> set = d->resident;
    if (!set) return;
    [d->queue removeResidencySet:set];
    [set endResidency];
    [set release];
  }
}

static void add_resident(lfm_device* d, id<MTLBuffer> b) {
  if (@available(macOS 15.0, *)) {
    id<MTLResidencySet> set = d->resident;
    if (!set || [b length] > d->headroom) return;
    [set addAllocation:b];
    d->headroom -= [b length];
    d->pending = true;
  }
}

static void remove_resident(lfm_device* d, id<MTLBuffer> b) {
  if (@available(macOS 15.0, *)) {
    id<MTLResidencySet> set = d->resident;
    if (!set || ![set containsAllocation:b]) return;
    [set removeAllocation:b];
    [set commit]; // the set has kept the buffer until now
    d->headroom += [b length];
  }
}

static void request_residency(lfm_device* d) {
  if (@available(macOS 15.0, *)) {
    if (!d->pending) return;
    id<MTLResidencySet> set = d->resident;
    [set commit];
    [set requestResidency];
    d->pending = false;
  }
}

// Devices.

lfm_device* lfm_open(char** error) {
  @autoreleasepool {
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    if (!device) {
      say(error, "this machine has no device of Metal");
      return NULL;
    }
    lfm_device* d = calloc(1, sizeof *d);
    d->device = device;
    d->queue = [device newCommandQueue];
    d->none = [device newBufferWithLength:256 options:MTLResourceStorageModeShared];
    pthread_mutex_init(&d->mutex, NULL);
    if (!d->queue || !d->none) {
      say(error, d->queue ? "the device gives no memory" : "the device gives no queue");
      lfm_close(d);
      return NULL;
    }
    d->addresses = [device supportsFamily:MTLGPUFamilyMetal3];
    open_residency(d);
    return d;
  }
}

void lfm_close(lfm_device* d) {
  @autoreleasepool {
    close_residency(d);
    for (uint32_t i = 0; i < d->count; i++) [d->slots[i] release];
    [d->none release];
    [d->queue release];
    [d->device release];
    pthread_mutex_destroy(&d->mutex);
    free(d->slots);
    free(d->idle);
    free(d);
  }
}

static uint32_t language(void) {
  if (@available(macOS 14.0, *)) return 310;
  return 300;
}

lfm_info lfm_describe(lfm_device* d) {
  @autoreleasepool {
    lfm_info info = {0};
    const char* name = [[d->device name] UTF8String];
    snprintf(info.name, sizeof info.name, "%s", name ? name : "");
    info.working_set = [d->device recommendedMaxWorkingSetSize];
    info.max_buffer = [d->device maxBufferLength];
    info.threads = (uint32_t)[d->device maxThreadsPerThreadgroup].width;
    info.memory = (uint32_t)[d->device maxThreadgroupMemoryLength];
    info.unified = [d->device hasUnifiedMemory] ? 1 : 0;
    info.language = language();
    for (uint32_t n = 1; n <= 32; n++) // includes families newer than this code
      if ([d->device supportsFamily:(MTLGPUFamily)(1000 + n)]) info.apple = n;
    for (uint32_t n = 1; n <= 8; n++)
      if ([d->device supportsFamily:(MTLGPUFamily)(5000 + n)]) info.metal = n + 2; // 5001 is Metal 3
    return info;
  }
}

// Shaders.

lfm_library* lfm_compile(lfm_device* d, const char* source, size_t bytes, uint32_t version, int simd, int bfloat, char** error) {
  @autoreleasepool {
    NSString* text = [[[NSString alloc] initWithBytes:source length:bytes encoding:NSUTF8StringEncoding] autorelease];
    MTLCompileOptions* options = [[[MTLCompileOptions alloc] init] autorelease];
    if (!text || !options) {
      say(error, "the text is not UTF-8");
      return NULL;
    }
    id names[] = {string("LF_SIMD"), string("LF_BFLOAT")}, values[] = {string(simd ? "1" : "0"), string(bfloat ? "1" : "0")};
    options.preprocessorMacros = [NSDictionary dictionaryWithObjects:values forKeys:names count:2];
    options.languageVersion = MTLLanguageVersion3_0;
    if (@available(macOS 14.0, *))
      if (version >= 310) options.languageVersion = MTLLanguageVersion3_1;
    if (@available(macOS 15.0, *)) {
      options.mathMode = MTLMathModeSafe;
    } else {
      options.fastMathEnabled = NO;
    }
    NSError* e = nil;
    id<MTLLibrary> library = [d->device newLibraryWithSource:text options:options error:&e];
    if (!library) {
      say_error(error, e, "the compiler of shaders gives no reason");
      return NULL;
    }
    lfm_library* l = calloc(1, sizeof *l);
    l->library = library;
    return l;
  }
}

void lfm_library_free(lfm_library* l) {
  @autoreleasepool {
    [l->library release];
    free(l);
  }
}

lfm_kernel* lfm_pipeline(lfm_device* d, lfm_library* l, const char* name, lfm_limits* limits, char** error) {
  @autoreleasepool {
    id<MTLFunction> function = [[l->library newFunctionWithName:string(name)] autorelease];
    if (!function) return NULL; // without an error: the kernel does not exist
    NSError* e = nil;
    id<MTLComputePipelineState> pipeline = [d->device newComputePipelineStateWithFunction:function error:&e];
    if (!pipeline) {
      say_error(error, e, "the device gives no pipeline, and no reason");
      return NULL;
    }
    lfm_kernel* k = calloc(1, sizeof *k);
    k->pipeline = pipeline;
    limits->threads = (uint32_t)[pipeline maxTotalThreadsPerThreadgroup];
    limits->width = (uint32_t)[pipeline threadExecutionWidth];
    limits->memory = (uint32_t)[pipeline staticThreadgroupMemoryLength];
    return k;
  }
}

void lfm_kernel_free(lfm_kernel* k) {
  @autoreleasepool {
    [k->pipeline release];
    free(k);
  }
}

void lfm_layout(lfm_kernel* k, const uint8_t* kinds, int count) {
  memcpy(k->kinds, kinds, (size_t)count);
  k->count = count;
  k->pointers = 0;
  for (int i = 0; i < count; i++) k->pointers += kinds[i] == LFM_POINTER;
}

// Buffers.

// Takes ownership of a buffer and returns its slot.
static uint32_t keep(lfm_device* d, id<MTLBuffer> b, uint64_t* address) {
  *address = d->addresses ? [b gpuAddress] : 0;
  pthread_mutex_lock(&d->mutex);
  if (d->idles == 0 && d->count == d->room) {
    d->room = d->room ? 2 * d->room : 64;
    d->slots = realloc(d->slots, d->room * sizeof *d->slots);
    d->idle = realloc(d->idle, d->room * sizeof *d->idle);
  }
  uint32_t at = d->idles ? d->idle[--d->idles] : d->count++;
  d->slots[at] = b;
  add_resident(d, b);
  pthread_mutex_unlock(&d->mutex);
  return at + 1;
}

uint32_t lfm_alloc(lfm_device* d, uint64_t bytes, void** contents, uint64_t* address) {
  @autoreleasepool {
    id<MTLBuffer> b = [d->device newBufferWithLength:bytes options:MTLResourceStorageModeShared];
    if (!b) return 0;
    if ([b length] < bytes || ![b contents]) {
      [b release];
      return 0;
    }
    *contents = [b contents];
    return keep(d, b, address);
  }
}

uint32_t lfm_wrap(lfm_device* d, void* pages, uint64_t bytes, uint64_t* address) {
  @autoreleasepool {
    id<MTLBuffer> b = [d->device newBufferWithBytesNoCopy:pages length:bytes options:MTLResourceStorageModeShared deallocator:nil];
    if (!b) return 0;
    if ([b length] < bytes || [b contents] != pages) { // happens on some virtual machines
      [b release];
      return 0;
    }
    return keep(d, b, address);
  }
}

void lfm_free(lfm_device* d, uint32_t slot) {
  @autoreleasepool {
    pthread_mutex_lock(&d->mutex);
    id<MTLBuffer> b = d->slots[slot - 1];
    d->slots[slot - 1] = nil;
    d->idle[d->idles++] = slot - 1;
    remove_resident(d, b);
    pthread_mutex_unlock(&d->mutex);
    [b release];
  }
}

// Returns the buffer and the offset of a pointer, or nil if the pointer has no buffer.
// The slots must not change during the call.
static id<MTLBuffer> find(const lfm_device* d, uint64_t pointer, uint64_t* offset) {
  uint64_t slot = pointer >> LFM_SHIFT;
  *offset = pointer & (((uint64_t)1 << LFM_SHIFT) - 1);
  return slot && slot <= d->count ? d->slots[slot - 1] : nil;
}

// Commands.

static lfm_command* commit(id<MTLCommandBuffer> buffer) {
  lfm_command* c = calloc(1, sizeof *c);
  c->buffer = [buffer retain];
  [buffer commit];
  return c;
}

// The bindings of an encoder, to skip redundant ones.
typedef struct {
  id<MTLComputePipelineState> pipeline;
  id<MTLBuffer> buffers[LFM_BUFFERS];
  uint64_t offsets[LFM_BUFFERS];
  uint8_t* declared; // the usage of each slot that useResource has declared, or NULL
} bound;

// Declares the memory that a launch reaches by addresses in a table. Metal does not see
// it otherwise: it would neither make it resident nor order this encoder after others
// that write it. A declaration holds for the rest of the encoder, and a later one replaces
// it. Returns an error message or NULL.
static const char* declare(const lfm_device* d, id<MTLComputeCommandEncoder> encoder, const lfm_launch* l, const lfm_access* accesses, bound* now) {
  for (uint32_t i = l->accesses[0]; i < l->accesses[1]; i++) {
    if (!accesses[i].at) continue;
    uint64_t offset;
    id<MTLBuffer> b = find(d, accesses[i].at, &offset);
    if (!b || offset > [b length]) return "an address in its table is in no buffer";
    if (!now->declared) now->declared = calloc(d->count, 1);
    uint8_t* usage = &now->declared[(accesses[i].at >> LFM_SHIFT) - 1];
    uint8_t needed = *usage | MTLResourceUsageRead | (accesses[i].written ? MTLResourceUsageWrite : 0);
    if (*usage == needed) continue;
    [encoder useResource:b usage:needed];
    *usage = needed;
  }
  return NULL;
}

// Encodes a launch, or a part of it. Returns an error message or NULL.
static const char* encode(const lfm_device* d, id<MTLComputeCommandEncoder> encoder, const lfm_launch* l, const lfm_access* accesses, const lfm_part* part, bound* now) {
  const lfm_kernel* k = (const lfm_kernel*)l->kernel;
  if (!k || k->count == 0) return "the kernel has no layout";
  if ((int)l->count != k->count) return "it has another number of arguments than the kernel";
  const lfm_part whole = {{0, 0, 0}, {l->grid[0], l->grid[1], l->grid[2]}};
  if (!part) part = &whole;
  uint32_t numbers[8 + 2 * LFM_ARGS]; // the fields of LF_ARGS, then the numbers
  uint32_t given = 0, wide = 0, bytes = 32;
  int at = 0;
  for (int i = 0; i < k->count; i++) {
    uint64_t a = l->args[i];
    switch (k->kinds[i]) {
    case LFM_POINTER: {
      uint64_t offset = 0;
      id<MTLBuffer> b = d->none;
      if (a) {
        b = find(d, a, &offset);
        if (!b) return "a pointer is to no buffer";
        given |= (uint32_t)1 << at;
        if (offset > [b length]) return "a pointer is to what lies behind its buffer";
        if (offset == [b length]) b = d->none, offset = 0; // a pointer to the end refers to no bytes
        if (a % 16 == 0) wide |= (uint32_t)1 << at;
      }
      if (now->buffers[at] != b || now->offsets[at] != offset) {
        [encoder setBuffer:b offset:offset atIndex:(NSUInteger)at];
        now->buffers[at] = b;
        now->offsets[at] = offset;
      }
      at++;
      break;
    }
    case LFM_EIGHT:
      bytes = (bytes + 7) / 8 * 8;
      memcpy((char*)numbers + bytes, &a, 8);
      bytes += 8;
      break;
    default:
      memcpy((char*)numbers + bytes, &a, 4);
      bytes += 4;
    }
  }
  numbers[0] = given;
  numbers[1] = wide;
  memcpy(numbers + 2, part->first, sizeof part->first);
  memcpy(numbers + 5, l->grid, sizeof l->grid);
  bytes = (bytes + 7) / 8 * 8; // like a struct that contains a long
  if (now->pipeline != k->pipeline) {
    [encoder setComputePipelineState:k->pipeline];
    now->pipeline = k->pipeline;
  }
  [encoder setBytes:numbers length:bytes atIndex:(NSUInteger)at];
  now->buffers[at] = nil;
  if ((NSUInteger)l->block[0] * l->block[1] * l->block[2] > [k->pipeline maxTotalThreadsPerThreadgroup])
    return "its threadgroups have more threads than the device has for the kernel";
  const char* wrong = declare(d, encoder, l, accesses, now);
  if (wrong) return wrong;
  [encoder dispatchThreadgroups:MTLSizeMake(part->groups[0], part->groups[1], part->groups[2])
          threadsPerThreadgroup:MTLSizeMake(l->block[0], l->block[1], l->block[2])];
  return NULL;
}

lfm_command* lfm_run(lfm_device* d, const lfm_launch* launches, int count, const lfm_access* accesses, const lfm_part* part, int* failed, char** error) {
  @autoreleasepool {
    *failed = 0;
    id<MTLCommandBuffer> buffer = [d->queue commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
    if (!encoder) {
      say(error, "the device gives no encoder");
      return NULL;
    }
    bound now = {0};
    const char* wrong = NULL;
    pthread_mutex_lock(&d->mutex);
    for (int i = 0; i < count && !wrong; i++) {
      if (launches[i].grid[0] == 0) continue; // skipped
      wrong = encode(d, encoder, &launches[i], accesses, part, &now);
      *failed = i;
    }
    request_residency(d);
    pthread_mutex_unlock(&d->mutex);
    [encoder endEncoding];
    free(now.declared);
    if (wrong) {
      say(error, wrong);
      return NULL;
    }
    return commit(buffer);
  }
}

lfm_command* lfm_copy(lfm_device* d, uint64_t to, uint64_t from, uint64_t bytes, char** error) {
  @autoreleasepool {
    uint64_t at = 0, off = 0;
    pthread_mutex_lock(&d->mutex);
    id<MTLBuffer> dst = find(d, to, &at), src = find(d, from, &off);
    request_residency(d);
    pthread_mutex_unlock(&d->mutex);
    id<MTLCommandBuffer> buffer = [d->queue commandBuffer];
    id<MTLBlitCommandEncoder> encoder = dst && src ? [buffer blitCommandEncoder] : nil;
    if (!encoder) {
      say(error, dst && src ? "the device gives no encoder" : "a copy is between no buffers");
      return NULL;
    }
    [encoder copyFromBuffer:src sourceOffset:off toBuffer:dst destinationOffset:at size:bytes];
    [encoder endEncoding];
    return commit(buffer);
  }
}

int lfm_wait(lfm_command* c, double* seconds, char** error) {
  @autoreleasepool {
    [c->buffer waitUntilCompleted];
    int code = 0;
    NSError* e = [c->buffer error];
    if ([c->buffer status] != MTLCommandBufferStatusCompleted || e) {
      code = e && [e code] ? (int)[e code] : -1;
      say_error(error, e, "the command ended without a result, and without a reason");
    }
    *seconds = [c->buffer GPUEndTime] - [c->buffer GPUStartTime];
    [c->buffer release];
    free(c);
    return code;
  }
}
