// Command buffers: what encoders have written down, and its run.
#import "fake.h"

#include <stdlib.h>
#include <string.h>

NSString *const MTLCommandBufferErrorDomain = @"MTLCommandBufferErrorDomain";

@implementation LFCommandBuffer
- (id)initWithQueue:(LFQueue *)q retains:(BOOL)r {
  if ((self = [super initWithKind:LF_COMMAND_BUFFER device:q->device])) {
    queue = [q retain];
    retains = r;
    kept = [[NSMutableArray alloc] init];
    copies = [[NSMutableArray alloc] init];
    used = [[NSMutableIndexSet alloc] init];
    pthread_mutex_init(&mu, NULL);
    pthread_cond_init(&changed, NULL);
  }
  return self;
}
- (void)dealloc {
  if (status < MTLCommandBufferStatusCommitted) [queue leave:NO];
  [self forget];
  [error release];
  pthread_cond_destroy(&changed);
  pthread_mutex_destroy(&mu);
  LFQueue *q = queue;
  [super dealloc];
  [q release];
}

// forget lets go of all that the command buffer uses.
- (void)forget {
  for (size_t i = 0; i < count; i++) free(work[i].args);
  free(work);
  work = NULL;
  count = capacity = 0;
  [kept release];
  [copies release];
  [used release];
  kept = copies = nil;
  used = nil;
  for (int i = 0; i < schedules; i++) Block_release(scheduled[i]);
  for (int i = 0; i < completions; i++) Block_release(completed[i]);
  free(declared);
  declared = NULL;
  free(scheduled);
  free(completed);
  scheduled = completed = NULL;
  schedules = completions = 0;
}

// Recording of commands by encoders and the program.

- (void)check:(const char *)method {
  if (open) lf_die("%s: an encoder of command buffer %llu%s is open", method, (unsigned long long)number, lf_label(self));
  if ([self isCommitted]) lf_die("%s: command buffer %llu%s is committed", method, (unsigned long long)number, lf_label(self));
}
- (lf_work *)add:(lf_work_kind)k {
  if (count == capacity) {
    capacity = capacity ? 2 * capacity : 16;
    work = realloc(work, capacity * sizeof *work);
  }
  lf_work *w = &work[count++];
  memset(w, 0, sizeof *w);
  w->kind = k;
  return w;
}
- (void)keep:(id)object {
  if (retains && [kept lastObject] != object) [kept addObject:object];
}
- (void)use:(LFBuffer *)buffer as:(uint64_t *)serial {
  *serial = buffer->serial;
  [used addIndex:(NSUInteger)buffer->serial];
  [self keep:buffer];
}
- (const void *)copy:(const void *)bytes length:(NSUInteger)length {
  NSData *d = [[NSData alloc] initWithBytes:bytes length:length];
  [copies addObject:d];
  [d release];
  return [d bytes];
}

- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type {
  [self check:"computeCommandEncoder"];
  open = [[[LFComputeEncoder alloc] initWithCommands:self type:type] autorelease];
  return open;
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
  return [self computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
}
- (id<MTLBlitCommandEncoder>)blitCommandEncoder {
  [self check:"blitCommandEncoder"];
  open = [[[LFBlitEncoder alloc] initWithCommands:self] autorelease];
  return open;
}
- (void)encoderEnded {
  open = nil;
}
- (void)event:(id<MTLEvent>)event value:(uint64_t)value kind:(lf_work_kind)k method:(const char *)method {
  [self check:method];
  lf_check_kind(event, [LFEvent class], device, method);
  lf_work *w = [self add:k];
  w->event = (LFEvent *)event;
  w->value = value;
  w->numbers[0] = w->event->number;
  [self keep:event];
}
- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value {
  [self event:event value:value kind:LF_SIGNAL method:"encodeSignalEvent"];
}
- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value {
  [self event:event value:value kind:LF_WAIT method:"encodeWaitForEvent"];
}

static void push(MTLCommandBufferHandler **list, int *n, MTLCommandBufferHandler block) {
  *list = realloc(*list, (size_t)(*n + 1) * sizeof **list);
  (*list)[(*n)++] = Block_copy(block);
}
- (void)addScheduledHandler:(MTLCommandBufferHandler)block {
  if ([self isCommitted]) lf_die("addScheduledHandler: the command buffer is committed");
  push(&scheduled, &schedules, block);
}
- (void)addCompletedHandler:(MTLCommandBufferHandler)block {
  if ([self isCommitted]) lf_die("addCompletedHandler: the command buffer is committed");
  push(&completed, &completions, block);
}

- (void)enqueue {
  if (status != MTLCommandBufferStatusNotEnqueued) lf_die("enqueue: the command buffer is enqueued already");
  [self become:MTLCommandBufferStatusEnqueued];
  [queue append:self];
}
- (void)commit {
  if ([self isCommitted]) lf_die("commit: command buffer %llu%s is committed already", (unsigned long long)number, lf_label(self));
  [self check:"commit"];
  BOOL appended = status == MTLCommandBufferStatusEnqueued;
  [self become:MTLCommandBufferStatusCommitted];
  LFQueue *q = [queue retain];  // the command buffer may be gone as soon as it can run
  if (!appended) [q append:self];
  [q committed];
  [q release];
}

// The public methods.

- (void)become:(MTLCommandBufferStatus)next {
  pthread_mutex_lock(&mu);
  status = next;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mu);
}
- (MTLCommandBufferStatus)status {
  pthread_mutex_lock(&mu);
  MTLCommandBufferStatus s = status;
  pthread_mutex_unlock(&mu);
  return s;
}
- (BOOL)isCommitted {
  return [self status] >= MTLCommandBufferStatusCommitted;
}
- (NSError *)error {
  pthread_mutex_lock(&mu);
  NSError *e = status == MTLCommandBufferStatusError ? error : nil;
  pthread_mutex_unlock(&mu);
  return e;
}
- (void)waitUntil:(MTLCommandBufferStatus)wanted method:(const char *)method {
  if (![self isCommitted]) lf_die("%s: command buffer %llu%s is not committed", method, (unsigned long long)number, lf_label(self));
  BOOL inside = [queue isCurrentThread];
  pthread_mutex_lock(&mu);
  if (inside && status < wanted) lf_die("%s: in a handler of the queue that is to run the command buffer", method);
  while (status < wanted || (!inside && wanted == MTLCommandBufferStatusCompleted && !ended)) pthread_cond_wait(&changed, &mu);
  pthread_mutex_unlock(&mu);
}
- (void)waitUntilScheduled {
  [self waitUntil:MTLCommandBufferStatusScheduled method:"waitUntilScheduled"];
}
- (void)waitUntilCompleted {
  [self waitUntil:MTLCommandBufferStatusCompleted method:"waitUntilCompleted"];
}
- (double)kernelStartTime {
  return kernel_start;
}
- (double)kernelEndTime {
  return kernel_end;
}
- (double)GPUStartTime {
  return gpu_start;
}
- (double)GPUEndTime {
  return gpu_end;
}
- (id<MTLCommandQueue>)commandQueue {
  return queue;
}
- (BOOL)retainedReferences {
  return retains;
}

// The run, on the thread of the queue.

- (void)run {
  kernel_start = lf_now();
  [self become:MTLCommandBufferStatusScheduled];
  for (int i = 0; i < schedules; i++) scheduled[i](self);
  kernel_end = gpu_start = lf_now();
  error = [[self execute] retain];
  [self revoke];
  gpu_end = lf_now();
  lf_ran(done);
  [self checkMemory];
  lf_finishing(true);
  [queue leave:YES];
  [self become:error ? MTLCommandBufferStatusError : MTLCommandBufferStatusCompleted];
  for (int i = 0; i < completions; i++) completed[i](self);
  [self forget];
  pthread_mutex_lock(&mu);
  ended = YES;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mu);
}

- (NSError *)execute {
  const char *text = NULL;
  int code = lf_injected_command(device->settings.failures, &text);
  // One that fails has done nothing for want of memory, and half of its work otherwise.
  size_t last = !code ? count : code == MTLCommandBufferErrorOutOfMemory || code == MTLCommandBufferErrorDeviceRemoved ? 0 : count / 2;
  for (size_t i = 0; i < last;) {
    size_t n = 1;
    while (work[i].stage && i + n < last && work[i + n].stage == work[i].stage) n++;
    for (size_t j = 0; j < n; j++) {
      NSError *e = [self perform:&work[i + lf_turn(j, n)]];
      if (e) return e;
      if (device->settings.watchdog && done > device->settings.watchdog)
        return lf_error(MTLCommandBufferErrorDomain, MTLCommandBufferErrorTimeout, "command buffer %llu%s: %s, work %llu of at most %llu",
                        (unsigned long long)number, lf_label(self), lf_timeout_text, (unsigned long long)done, (unsigned long long)device->settings.watchdog);
    }
    i += n;
  }
  return code ? lf_error(MTLCommandBufferErrorDomain, code, "command buffer %llu%s: %s", (unsigned long long)number, lf_label(self), text) : nil;
}

// declare grants accesses as useResource says; a later call for the same memory replaces an earlier one.
- (void)declare:(const lf_work *)w {
  size_t i = 0;
  while (i < declarations && declared[i].serial != w->serials[0]) i++;
  lf_memory_grant(w->serials[0], w->value & MTLResourceUsageWrite);
  if (i < declarations) {
    lf_memory_revoke(declared[i].serial, declared[i].usage & MTLResourceUsageWrite);
  } else {
    if (declarations == declared_capacity) {
      declared_capacity = declared_capacity ? 2 * declared_capacity : 64;
      declared = realloc(declared, declared_capacity * sizeof *declared);
    }
    declarations++;
  }
  declared[i].serial = w->serials[0];
  declared[i].usage = w->value;
}
- (void)revoke {
  for (size_t i = 0; i < declarations; i++) lf_memory_revoke(declared[i].serial, declared[i].usage & MTLResourceUsageWrite);
  declarations = 0;
}

- (NSError *)perform:(lf_work *)w {
  [self checkLives:w];
  switch (w->kind) {
    case LF_DISPATCH: {
      char *text = NULL;
      int outcome = lf_msl_dispatch(w->pipeline->library->shaders, w->pipeline->kernel, w->args, &done, &text);
      if (!outcome) return nil;
      NSError *e = lf_error(MTLCommandBufferErrorDomain, outcome == LF_MSL_ILLEGAL_ADDRESS ? MTLCommandBufferErrorPageFault : MTLCommandBufferErrorInternal, "%s",
                            text ? text : w->pipeline->name);
      free(text);
      return e;
    }
    case LF_USE:
      [self declare:w];
      return nil;
    case LF_USED:
      [self revoke];
      return nil;
    case LF_COPY:
      memcpy(w->to, w->from, w->bytes);
      return nil;
    case LF_FILL:
      memset(w->to, w->fill, w->bytes);
      return nil;
    case LF_SIGNAL:
      [w->event setSignaledValue:w->value];
      return nil;
    case LF_WAIT:
      if ([w->event waitFor:w->value milliseconds:device->settings.patience]) return nil;
      return lf_error(MTLCommandBufferErrorDomain, MTLCommandBufferErrorTimeout, "command buffer %llu%s waited %llu ms for an event to come to %llu, it is at %llu",
                      (unsigned long long)number, lf_label(self), (unsigned long long)device->settings.patience, (unsigned long long)w->value,
                      (unsigned long long)[w->event signaledValue]);
  }
  return nil;
}

// checkLives finds what a command buffer that retains nothing has lost.
- (void)checkLives:(const lf_work *)w {
  if (retains) return;
  for (int i = 0; i < LF_MOST_BUFFERS; i++) {
    if (w->serials[i] && !lf_memory_is_live(w->serials[i]))
      lf_die("buffer %llu was released before command buffer %llu%s, which does not retain it, has run", (unsigned long long)w->serials[i],
             (unsigned long long)number, lf_label(self));
  }
  if (w->numbers[0] && !lf_lives(w->numbers[0]))
    lf_die("a pipeline or event was released before command buffer %llu%s, which does not retain it, has run", (unsigned long long)number, lf_label(self));
}

- (void)checkMemory {
  for (NSUInteger i = [used firstIndex]; i != NSNotFound; i = [used indexGreaterThanIndex:i]) lf_memory_check(i);
}
@end
