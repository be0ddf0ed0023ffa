// Common parts of all classes.
#import "fake.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

@implementation LFObject
- (id)initWithKind:(int)k device:(LFDevice *)d {
  if ((self = [super init])) {
    kind = k;
    number = lf_born(k);
    device = [d retain];
  }
  return self;
}
- (void)dealloc {
  lf_gone(kind, number);
  [label release];
  [device release];
  [super dealloc];
}
- (id<MTLDevice>)device {
  return device;
}
- (NSString *)label {
  return label;
}
- (void)setLabel:(NSString *)text {
  if (text == label) return;
  [label release];
  label = [text copy];
}
@end

void lf_check_kind(id object, Class wanted, LFDevice *device, const char *method) {
  if (!object) lf_die("%s: nil where an object is expected", method);
  if (![object isKindOfClass:wanted]) lf_die("%s: an object of class %s, expected %s", method, class_getName([object class]), class_getName(wanted));
  if (((LFObject *)object)->device != device) lf_die("%s: an object of another device", method);
}

NSError *lf_error(NSString *domain, NSInteger code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = NULL;
  if (vasprintf(&text, format, args) < 0) text = NULL;
  va_end(args);
  NSString *description = text ? [NSString stringWithUTF8String:text] : nil;
  if (!description) description = @"(not text)";
  free(text);
  return [NSError errorWithDomain:domain code:code userInfo:[NSDictionary dictionaryWithObject:description forKey:NSLocalizedDescriptionKey]];
}

const char *lf_label(LFObject *object) {
  return object->label ? [[NSString stringWithFormat:@" \"%@\"", object->label] UTF8String] : "";
}

void lf_cond_init(pthread_cond_t *c) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(c, &attributes);
  pthread_condattr_destroy(&attributes);
}

struct timespec lf_after(uint64_t milliseconds) {
  // Longer than a century is for ever; the clock's seconds must not overflow.
  const uint64_t century = 100ull * 366 * 24 * 3600 * 1000;
  if (milliseconds > century) milliseconds = century;
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  t.tv_sec += (time_t)(milliseconds / 1000);
  t.tv_nsec += (long)(milliseconds % 1000) * 1000000;
  if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
  return t;
}

double lf_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
