// Events that command buffers and the program signal and wait for.
#import "fake.h"

#include <errno.h>

@implementation LFEvent
- (id)initWithKind:(int)k device:(LFDevice *)d {
  if ((self = [super initWithKind:k device:d])) {
    lf_cond_init(&changed);
    pthread_mutex_init(&mu, NULL);
  }
  return self;
}
- (void)dealloc {
  pthread_cond_destroy(&changed);
  pthread_mutex_destroy(&mu);
  [super dealloc];
}
- (uint64_t)signaledValue {
  pthread_mutex_lock(&mu);
  uint64_t v = value;
  pthread_mutex_unlock(&mu);
  return v;
}
- (void)setSignaledValue:(uint64_t)v {
  pthread_mutex_lock(&mu);
  uint64_t before = value;
  if (v > before) value = v;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mu);
  if (v < before) lf_die("an event's value goes back from %llu to %llu", (unsigned long long)before, (unsigned long long)v);
}
- (BOOL)waitFor:(uint64_t)wanted milliseconds:(uint64_t)milliseconds {
  struct timespec end = lf_after(milliseconds);
  pthread_mutex_lock(&mu);
  while (value < wanted && pthread_cond_timedwait(&changed, &mu, &end) != ETIMEDOUT) {
  }
  BOOL came = value >= wanted;
  pthread_mutex_unlock(&mu);
  return came;
}
- (BOOL)waitUntilSignaledValue:(uint64_t)wanted timeoutMS:(uint64_t)milliseconds {
  return [self waitFor:wanted milliseconds:milliseconds];
}
@end
