// Queues: each has a thread that runs its command buffers in the order in which they
// were enqueued. So two queues meet only by events, or by the program.
#import "fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#import <Foundation/NSThread.h>

extern BOOL GSRegisterCurrentThread(void);
extern void GSUnregisterCurrentThread(void);

// The thread's share of a queue, which outlives it until the thread has seen that it is gone.
typedef struct lf_line {
  pthread_mutex_t mu;
  pthread_cond_t changed;
  pthread_t thread;
  bool started, stop;
  LFCommandBuffer **waiting;
  size_t count, capacity;
} lf_line;

static lf_line *line_new(void) {
  lf_line *l = calloc(1, sizeof *l);
  pthread_mutex_init(&l->mu, NULL);
  pthread_cond_init(&l->changed, NULL);
  return l;
}

static void line_free(lf_line *l) {
  pthread_cond_destroy(&l->changed);
  pthread_mutex_destroy(&l->mu);
  free(l->waiting);
  free(l);
}

// line_next returns the next command buffer once it was committed, NULL at the end.
static LFCommandBuffer *line_next(lf_line *l) {
  LFCommandBuffer *next = nil;
  pthread_mutex_lock(&l->mu);
  while (!(l->count && [l->waiting[0] isCommitted]) && !l->stop) pthread_cond_wait(&l->changed, &l->mu);
  if (l->count) {
    next = l->waiting[0];
    memmove(l->waiting, l->waiting + 1, --l->count * sizeof *l->waiting);
  }
  pthread_mutex_unlock(&l->mu);
  return next;
}

static void *line_run(void *argument) {
  lf_line *l = argument;
  GSRegisterCurrentThread();
  for (LFCommandBuffer *next; (next = line_next(l));) {
    @autoreleasepool {
      [next run];
      [next release];
    }
    lf_finishing(false);
  }
  GSUnregisterCurrentThread();
  line_free(l);
  return NULL;
}

@implementation LFQueue
- (id)initWithDevice:(LFDevice *)d most:(NSUInteger)n {
  if ((self = [super initWithKind:LF_QUEUE device:d])) {
    pthread_mutex_init(&mu, NULL);
    lf_cond_init(&room);
    most = n;
    sets = [[NSMutableArray alloc] init];
    line = line_new();
  }
  return self;
}
// Nothing waits in line: what does keeps the queue.
- (void)dealloc {
  pthread_mutex_lock(&line->mu);
  line->stop = true;
  bool started = line->started;
  pthread_cond_broadcast(&line->changed);
  pthread_mutex_unlock(&line->mu);
  if (!started) line_free(line);
  [sets release];
  pthread_cond_destroy(&room);
  pthread_mutex_destroy(&mu);
  [super dealloc];
}

- (id<MTLCommandBuffer>)make:(BOOL)retains {
  pthread_mutex_lock(&mu);
  struct timespec end = lf_after(device->settings.patience);
  while (made >= most) {
    if (pthread_cond_timedwait(&room, &mu, &end) != ETIMEDOUT || made < most) continue;
    end = lf_after(device->settings.patience);
    if (!running)  // and no other thread was about to commit one
      lf_die("commandBuffer: all %lu of the queue are made and none is committed: it waits for ever", (unsigned long)most);
  }
  made++;
  lf_on_the_way(made);
  pthread_mutex_unlock(&mu);
  return [[[LFCommandBuffer alloc] initWithQueue:self retains:retains] autorelease];
}
- (id<MTLCommandBuffer>)commandBuffer {
  return [self make:YES];
}
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences {
  return [self make:NO];
}

- (void)addResidencySet:(id<MTLResidencySet>)set {
  lf_check_kind(set, [LFResidencySet class], device, "addResidencySet");
  [sets addObject:set];
}
- (void)removeResidencySet:(id<MTLResidencySet>)set {
  if (![sets containsObject:set]) lf_die("removeResidencySet: the queue has no such residency set");
  [sets removeObject:set];
}

- (void)append:(LFCommandBuffer *)commands {
  pthread_mutex_lock(&line->mu);
  if (line->count == line->capacity) {
    line->capacity = line->capacity ? 2 * line->capacity : 8;
    line->waiting = realloc(line->waiting, line->capacity * sizeof *line->waiting);
  }
  line->waiting[line->count++] = [commands retain];
  if (!line->started) {
    line->started = true;
    if (pthread_create(&line->thread, NULL, line_run, line)) lf_die("no thread for a queue");
    pthread_detach(line->thread);
  }
  pthread_mutex_unlock(&line->mu);
}
- (void)committed {
  pthread_mutex_lock(&mu);
  running++;
  pthread_mutex_unlock(&mu);
  pthread_mutex_lock(&line->mu);
  pthread_cond_broadcast(&line->changed);
  pthread_mutex_unlock(&line->mu);
}
- (void)leave:(BOOL)ran {
  pthread_mutex_lock(&mu);
  made--;
  if (ran) running--;
  pthread_cond_broadcast(&room);
  pthread_mutex_unlock(&mu);
}
- (BOOL)isCurrentThread {
  pthread_mutex_lock(&line->mu);
  BOOL mine = line->started && pthread_equal(line->thread, pthread_self());
  pthread_mutex_unlock(&line->mu);
  return mine;
}
@end
