// Events that command buffers and the program signal and wait for.
#import "fake.h"

#include <errno.h>
#include <time.h>

@implementation LFEvent
- (id)initWithKind:(int)k device:(LFDevice *)d {
  if ((self = [super initWithKind:k device:d])) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &attributes);
    pthread_condattr_destroy(&attributes);
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
  struct timespec end;
  clock_gettime(CLOCK_MONOTONIC, &end);
  end.tv_sec += (time_t)(milliseconds / 1000);
  end.tv_nsec += (long)(milliseconds % 1000) * 1000000;
  if (end.tv_nsec >= 1000000000) end.tv_sec++, end.tv_nsec -= 1000000000;
  pthread_mutex_lock(&mu);
  while (value < wanted && pthread_cond_timedwait(&changed, &mu, &end) != ETIMEDOUT) {
  }
  BOOL came = value >= wanted;
  pthread_mutex_unlock(&mu);
  return came;
}
- (BOOL)waitUntilSignaledValue:(uint64_t)wanted timeoutMS:(uint64_t)milliseconds {
  // Longer than a century is for ever; the clock's seconds must not overflow.
  const uint64_t century = 100ull * 366 * 24 * 3600 * 1000;
  return [self waitFor:wanted milliseconds:milliseconds < century ? milliseconds : century];
}
@end
